"""The steps of an opening, from the result of recovery to the first append.

`engine_of` makes a readable engine of the result. An opening for writing and a view both take that step.

**A full disk.** The disk has no room for the first checkpoint, although the ballast is given up.

    1 give back    The active WAL file gives back the space that it reserved, and next.log goes. No append runs yet.
    2 by file      Recover the state at the end of the oldest WAL file, and make a checkpoint of that, which frees the
                   file. Repeat this while there are several. So they need the room of one at a time.
    3 whole        Recover the rest, and make the usual checkpoint.
    4 in place     If that has no room either, write the bytes of the WAL again, to their own places, and sync them. The
                   log opens without a checkpoint, and reads these records from the WAL.

FULL-1  After a failed fsync, the page cache may show bytes that the disk lacks, and recovery has counted them. The
    usual checkpoint writes the records once more. Step 4 does the same without space: it writes the same bytes to the
    same places, so that a crash within it changes nothing.
FULL-2  Step 2 is for one shard. With several, the state at the end of one file of each is none that the log once had
    (SHARD-1). Two topics may have one name, and a topic that is not created yet may have a lower id than one that is.
    The manifest has no place for either.

**Another number of shards.** An opening changes the number before the first append, after a checkpoint has absorbed the
whole log.

    1 make     Make the new folders, each with an empty file and a CURRENT, durable. A folder of both numbers stays.
    2 switch   Write a manifest that has one place for each shard of the new number.
    3 remove   Remove the folders that are not of the new number.

Before step 2 the old folders hold the whole log. From step 2 on the new folders hold it, and nothing needs the others.
The newest manifest says which number counts. So after a crash at any step, the next opening removes the other folders
and begins again.

**A warm directory without an owner.** A test tells which segments there are this log's.

    relocated here    the .idx has the checksum that the manifest has
    hot here          the copy is one on its way, or from before `make_hot`: both .data begin with the same bytes

The log takes a directory with segments only if one of them is its own (WDIR-3).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from xxhash import xxh3_64_intdigest

from seglog.engine.engine import Engine
from seglog.engine.state import TopicState, check_all_hot
from seglog.errors import DiskFull, SeglogError
from seglog.files.clock import Clock
from seglog.files.open_file import OpenFile
from seglog.files.port import Files
from seglog.maintenance.checkpoint import checkpoint_locked
from seglog.maintenance.front import find_fronts, log_unknown_front
from seglog.segments.cache import SegmentCache
from seglog.segments.segment import SegmentInfo
from seglog.startup.recovery import Recovered, recover
from seglog.tiers.segment_store import Part, SegmentId
from seglog.tiers.warm_stores import WarmStores
from seglog.values.config import LogSettings
from seglog.values.deletes import MergedDeletes
from seglog.values.layout import Layout, WalFolder, number_in
from seglog.wal.manifest import WalPosition, load, new_mark_secret, store
from seglog.wal.shards import first_ordinal, open_wals
from seglog.wal.wal import create_first

__all__ = ["adopt_warm", "engine_of", "open_full", "remove_other_shards", "reshard"]

_logger = logging.getLogger("seglog.startup.opening")
_PIECE_BYTES = 1024 * 1024
_COMPARED_BYTES = 4096


def engine_of(
    files: Files,
    layout: Layout,
    clock: Clock,
    settings: LogSettings,
    found: Recovered,
    warm_stores: WarmStores | None,
    *,
    is_read_only: bool = False,
    on_unknown: Callable[[str, Exception], None] = log_unknown_front,
) -> Engine:
    """Make the engine from the result of recovery.

    Before any checkpoint, find each topic's first live record, and tell the cache which flags to expect.
    `on_unknown` gets the name of each topic whose first live record stays unknown, and the error.
    Raises `WarmStoreRequired`, `FileCorrupt`.
    """
    if warm_stores is None:
        check_all_hot(found.topics.values())
    folders, mark_secret = layout.wal_folders(len(found.wal_ends)), found.mark_secret or new_mark_secret()
    engine = Engine(
        layout=layout,
        files=files,
        clock=clock,
        settings=settings,
        topics=found.topics,
        next_topic_id=found.next_topic_id,
        manifest_number=found.manifest_number,
        # The manifest of an older release has no secret. The first checkpoint then writes another one in any case.
        checkpointed=found.checkpointed if found.mark_secret else (),
        wals=open_wals(files, folders, settings.wal_file_bytes, found.wal_ends, found.older_files, mark_secret),
        mark_secret=mark_secret,
        segments=SegmentCache(files, layout, is_shared=is_read_only),
        deleted=found.deleted,
        epoch_floor=found.epoch_floor,
        is_read_only=is_read_only,
        warm_stores=warm_stores,
        pending_warm_deletes=found.pending_warm_deletes,
        elsewhere=found.elsewhere,
        kept_elsewhere=found.kept_elsewhere,
    )
    for state in engine.topics.values():
        state.changed = engine.changed
        state.touch()
        if state.producers is not None:
            state.producers.keep_ms = settings.producer_keep_s * 1000
            state.producers.forget_until(clock.now_ms())
        if state.keys is not None:
            state.keys.keep_ms = settings.idempotency_keep_s * 1000
            state.keys.forget_until(clock.now_ms())
    _expect_flags(engine)
    find_fronts(engine, on_unknown)
    return engine


def _expect_flags(engine: Engine) -> None:
    """Tell the segment cache, after recovery, which deletes may have set more flags than the manifest counts."""
    for state in engine.topics.values():
        if state.pending:
            engine.segments.expect_flags(state.topic_id, MergedDeletes(state.pending))


def open_full(first: Engine, recover_all: Callable[[], Recovered]) -> tuple[Engine, Recovered]:
    """Return an engine in the place of `first`, whose checkpoint had no room, and the result of its recovery."""
    first.wals.release_space()
    first.close()
    with suppress(DiskFull):
        while _absorb_oldest(first):
            pass
    found = recover_all()
    engine = _engine(first, found)
    engine.room.begin(was_given_up=first.room.has_given_up)
    try:
        with engine.checkpoint_lock:
            checkpoint_locked(engine)
    except DiskFull as error:
        _logger.warning("the log opens without a checkpoint: %s", error)
        _write_again(engine, found)
    return engine, found


def _absorb_oldest(first: Engine) -> bool:
    """Make a checkpoint at the end of the oldest WAL file (step 2). Return whether there was one to free."""
    found = recover(first.files, first.layout, files_max=1)
    if len(found.wal_ends) > 1 or not found.older_files[0]:
        return False
    part = _engine(first, found)
    try:
        with part.checkpoint_lock:
            checkpoint_locked(part)
    finally:
        part.close()
    return True


def _engine(first: Engine, found: Recovered) -> Engine:
    return engine_of(first.files, first.layout, first.clock, first.settings, found, first.warm_stores)


def _write_again(engine: Engine, found: Recovered) -> None:
    """Write the frames that no checkpoint has absorbed to their own places, and sync them (FULL-1)."""
    folders = engine.layout.wal_folders(len(found.wal_ends))
    for folder, begin, end, older in zip(folders, found.checkpointed, found.wal_ends, found.older_files, strict=True):
        for number in (*older, end.file):
            file = OpenFile(engine.files, folder.wal_file(number))
            stop = end.offset if number == end.file else file.size()
            for offset in range(begin.offset if number == begin.file else 0, stop, _PIECE_BYTES):
                file.write(file.read_exactly(min(_PIECE_BYTES, stop - offset), offset), offset)
            file.datasync()


def reshard(files: Files, layout: Layout, shards: int) -> None:
    """Change the number of shards to `shards`. All records are in segments, and no thread appends.

    After an `OSError`, call it again.
    """
    number, manifest = load(files, layout)
    there = dict(zip(layout.wal_folders(len(manifest.wal)), manifest.wal, strict=True))
    folders = layout.wal_folders(shards)
    fresh = [folder for folder in folders if folder not in there]
    for folder in fresh:
        files.make_dir(folder.path)
    files.sync_dir(layout.wal)
    places = [
        there.get(folder) or _create(files, folder, first_ordinal(shard, shards))
        for shard, folder in enumerate(folders)
    ]
    store(files, layout, number + 1, replace(manifest, wal=tuple(places)))
    remove_other_shards(files, layout, shards)


def remove_other_shards(files: Files, layout: Layout, shards: int) -> None:
    """Remove the folders of other numbers of shards (step 3). Usually there are none.

    `shards` is the number in the newest manifest.
    """
    kept = {folder.path for folder in layout.wal_folders(shards)}
    for name in files.list_dir(layout.wal):
        path = layout.wal / name
        if layout.is_wal_shard(name) and path not in kept:
            for inner in files.list_dir(path):
                files.unlink(path / inner)
            files.remove_dir(path)
        elif layout.wal not in kept and _is_wal_name(name):
            files.unlink(path)


def _is_wal_name(name: str) -> bool:
    """Tell whether a file of that name belongs to the WAL in its folder."""
    return name in ("CURRENT", "CURRENT.tmp", "next.log") or number_in("wal", name) is not None


def _create(files: Files, folder: WalFolder, first: int) -> WalPosition:
    """Create the first file of a shard. First remove the files of an earlier attempt, or of an earlier WAL."""
    for name in files.list_dir(folder.path):
        if _is_wal_name(name):
            files.unlink(folder.path / name)
    return create_first(files, folder, first)


def adopt_warm(files: Files, layout: Layout, states: Iterable[TopicState], stores: WarmStores) -> None:
    """Claim the warm directories for the log with these topics.

    Raises `WarmDirectoryNotApart`, `WarmDirectoryTaken`.
    """
    topics = {state.topic_id: state for state in states}

    def is_ours(topic_id: int, segment: SegmentId) -> bool:
        state = topics.get(topic_id)
        sealed = () if state is None else state.sealed
        info = next((info for info in sealed if info.first_seq == segment), None)
        return info is not None and _is_copy(files, layout, stores, topic_id, info)

    stores.is_ours = is_ours
    stores.claim()


def _is_copy(files: Files, layout: Layout, stores: WarmStores, topic_id: int, info: SegmentInfo) -> bool:
    """Tell whether the segment in the store is this log's. If the store or a file fails, it is not."""
    store, segment = stores.store(topic_id), SegmentId(info.first_seq)
    try:
        if info.warm_check is not None:
            idx = store.read_range(segment, Part.IDX, 0, store.length(segment, Part.IDX))
            return xxh3_64_intdigest(idx) == info.warm_check
        length = min(info.data_bytes, _COMPARED_BYTES)
        hot = OpenFile(files, layout.data(topic_id, segment), os.O_RDONLY).read(length, 0)
        return hot == store.read_range(segment, Part.DATA, 0, length)
    except SeglogError:
        return False
