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

**Creation** of a data directory leaves traces that tell whether a log was there before.

    1 folders    meta/, wal/ and topics/, durable
    2 file       the first WAL file, empty, durable
    3 manifest   the first one, without topics, durable
    4 CURRENT    from here on it is a data directory

CREATE-1  Nothing is appended before step 4. After a crash before step 4, the next opening repeats the steps.
CREATE-2  The result of a later step never exists without those of the earlier steps. If a folder, the WAL file or
    CURRENT is missing behind such a trace, somebody removed it. Then the directory is not new, and `FileCorrupt` names
    the missing part.

**Erasure** of a whole log from the disk.

    1 topics    The caller deletes each topic, as for a single topic. The warm stores drop the topic's segments.
    2 rename    meta/ becomes meta.removed/, durably. From here on there is no log. If a process opens the directory, it
                first finishes step 3.
    3 unlink    The write-ahead log and the topics folder are removed, and meta.removed/ last.

A crash before step 2 leaves a log with fewer topics. seglog.toml, LOCK and files that are not the log's stay.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from xxhash import xxh3_64_intdigest

from seglog.base import forms
from seglog.base.lazy import logger
from seglog.engine.engine import Engine
from seglog.engine.state import TopicState, check_all_hot
from seglog.errors import DiskFull, FileCorrupt, NotADataDirectory, SeglogError
from seglog.files.clock import Clock
from seglog.files.file_system import Files, OpenFile
from seglog.maintenance.removal import find_fronts, log_unknown_front
from seglog.segments.segment import SegmentCache, SegmentInfo
from seglog.startup.recovery import Recovered, recover
from seglog.tiers.segment_store import LocalSegmentStore, Part, SegmentId, SegmentStores
from seglog.tiers.warm_stores import WarmStores
from seglog.values.config import LogSettings
from seglog.values.deletes import DeleteOp, MergedDeletes
from seglog.values.layout import Layout, WalFolder, number_in
from seglog.wal.manifest import LogManifest, WalPosition, load, new_mark_secret, numbers, store
from seglog.wal.wal import create_first, create_first_file, first_ordinal, open_wals, point_to


def configured_warm_stores(
    files: Files, layout: Layout, settings: LogSettings, stores: SegmentStores | None
) -> WarmStores | None:
    """Return the given `stores`, or directories in the setting `cold_dir`. None: neither is set.

    `cold_dir` may be relative to the data directory.
    """
    if stores is not None:
        warm_stores = WarmStores(stores, Path("warm store"), data=layout)
    elif settings.cold_dir:
        warm = Layout(layout.root / settings.cold_dir)
        warm_stores = WarmStores(lambda topic_id: LocalSegmentStore(files, warm, topic_id), warm.root, data=layout)
        warm_stores.store(0)
    else:
        return None
    warm_stores.check_apart(files)
    return warm_stores


def is_data_directory(files: Files, layout: Layout) -> bool:
    """Tell whether the directory has CURRENT, the last file that creation makes.

    With several shards, each shard's folder has one. A directory whose log is being erased is no data directory.
    """
    if _is_being_erased(files, layout):
        return False
    try:
        names = files.list_dir(layout.wal)
        shards = [name for name in names if layout.is_wal_shard(name)]
        return "CURRENT" in names or any("CURRENT" in files.list_dir(layout.wal / name) for name in shards)
    except (FileNotFoundError, NotADirectoryError):
        return False


def make_new(files: Files, layout: Layout) -> None:
    """Create a data directory (steps 1 to 4).

    Raises `FileCorrupt` if a log was there, and `NotADataDirectory` if a file is where a folder belongs.
    """
    # The process that made these directories may have been killed before it synced them.
    for path in layout.root.parents:
        with suppress(PermissionError):
            files.sync_dir(path)
    if _is_being_erased(files, layout):
        _finish_erasure(files, layout)
    check_never_used(files, layout)
    for path in _folders(layout):
        try:
            files.make_dir(path)
        except FileExistsError as error:
            raise NotADataDirectory(layout.root) from error
    files.sync_dir(layout.root)
    (folder,) = layout.wal_folders(1)
    first = create_first_file(files, folder)
    store(files, layout, 1, LogManifest(1, (), (first,), mark_secret=new_mark_secret(), form=forms.NEWEST))
    point_to(files, folder, first.file)


def check_never_used(files: Files, layout: Layout) -> None:
    """Raise `FileCorrupt` for a part that was removed (CREATE-2). The directory is no data directory now."""
    missing = missing_part(files, layout)
    if missing is not None:
        kind = "folder" if missing in _folders(layout) else "file"
        raise FileCorrupt(missing, 0, f"the {kind} is missing")


def missing_part(files: Files, layout: Layout) -> Path | None:
    """Return the part that was removed from a directory without CURRENT (CREATE-2).

    None: there was no log, or it is being erased.
    """
    (folder,) = layout.wal_folders(1)
    if _is_being_erased(files, layout) or not _was_used(files, layout, folder):
        return None
    missing = missing_folder(files, layout) or folder.current
    return None if is_data_directory(files, layout) else missing  # another process may have made it by now


def missing_folder(files: Files, layout: Layout) -> Path | None:
    """Return the first of the three folders that is missing. None: all are there."""
    return next((path for path in _folders(layout) if not files.is_dir(path)), None)


def _folders(layout: Layout) -> tuple[Path, ...]:
    return layout.meta, layout.wal, layout.topics


def _was_used(files: Files, layout: Layout, folder: WalFolder) -> bool:
    """Tell whether a trace shows that a log was there."""
    manifests = numbers(files, layout) if files.is_dir(layout.meta) else []
    topics = files.list_dir(layout.topics) if files.is_dir(layout.topics) else []
    names = files.list_dir(layout.wal) if files.is_dir(layout.wal) else []
    if any(number > 1 for number in manifests) or any(number_in("topic", name) is not None for name in topics):
        return True
    wal_files = [number for name in names if (number := number_in("wal", name)) is not None]
    if manifests and (not wal_files or missing_folder(files, layout) is not None):
        return True
    return any(OpenFile(files, folder.wal_file(number)).size() for number in wal_files)


def erase(files: Files, layout: Layout) -> None:
    """Erase a log that has no topics, is closed, and is still locked (steps 2 and 3).

    After an `OSError`, open the directory again.
    """
    files.rename(layout.meta, layout.removed_meta)
    files.sync_dir(layout.root)
    _finish_erasure(files, layout)


def _is_being_erased(files: Files, layout: Layout) -> bool:
    """Tell whether an erasure did step 2 and has not finished step 3."""
    return files.is_dir(layout.removed_meta)


def _finish_erasure(files: Files, layout: Layout) -> None:
    """Remove the remaining files of the log (step 3)."""
    for folder in (layout.wal, layout.topics):
        if files.is_dir(folder):
            _empty(files, folder)
            files.remove_dir(folder)
    files.sync_dir(layout.root)
    _empty(files, layout.removed_meta)
    files.remove_dir(layout.removed_meta)
    files.sync_dir(layout.root)


def _empty(files: Files, folder: Path) -> None:
    for name in files.list_dir(folder):
        path = folder / name
        if files.is_dir(path):
            _empty(files, path)
            files.remove_dir(path)
        else:
            files.unlink(path)


_logger = logger("seglog.startup.opening")
_PIECE_BYTES = 1024 * 1024
_COMPARED_BYTES = 4096


def engine_of(
    files: Files,
    layout: Layout,
    clock: Clock,
    settings: LogSettings,
    recovered: Recovered,
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
        check_all_hot(recovered.topics.values())
    folders, mark_secret = layout.wal_folders(len(recovered.wal_ends)), recovered.mark_secret or new_mark_secret()
    engine = Engine(
        layout=layout,
        files=files,
        clock=clock,
        settings=settings,
        topics=recovered.topics,
        next_topic_id=recovered.next_topic_id,
        manifest_number=recovered.manifest_number,
        # The manifest of an older release has no secret. The first checkpoint then writes another one in any case.
        checkpointed=recovered.checkpointed if recovered.mark_secret else (),
        wals=open_wals(files, folders, settings.wal_file_bytes, recovered.wal_ends, recovered.older_files, mark_secret),
        mark_secret=mark_secret,
        segments=SegmentCache(files, layout, is_shared=is_read_only),
        deleted=recovered.deleted,
        epoch_floor=recovered.epoch_floor,
        is_read_only=is_read_only,
        warm_stores=warm_stores,
        pending_warm_deletes=recovered.pending_warm_deletes,
        elsewhere=recovered.elsewhere,
        kept_elsewhere=recovered.kept_elsewhere,
        form=recovered.form,
        kept_form=recovered.form,
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
    """Tell the segment cache, after recovery, which flags may differ from those that the manifest counts."""
    for state in engine.topics.values():
        back = state.undeleted
        if state.pending or back is not None:
            # An undelete takes the delete off the list that may have set flags of its records before a crash.
            undone = () if back is None else (DeleteOp(0, back.end - 1, 0, seqs=back),)
            engine.segments.expect_flags(state.topic_id, MergedDeletes((*state.pending, *undone)))
        if state.undeleted is not None:
            engine.segments.show(state.topic_id, state.undeleted)


def open_full(first: Engine, recover_all: Callable[[], Recovered]) -> tuple[Engine, Recovered]:
    """Return an engine in the place of `first`, whose checkpoint had no room, and the result of its recovery."""
    from seglog.maintenance.checkpoint import checkpoint_locked

    first.wals.release_space()
    first.close()
    with suppress(DiskFull):
        while _absorb_oldest(first):
            pass
    recovered = recover_all()
    engine = _engine(first, recovered)
    engine.room.begin(was_given_up=first.room.has_given_up)
    try:
        with engine.checkpoint_lock:
            checkpoint_locked(engine)
    except DiskFull as error:
        _logger.warning("the log opens without a checkpoint: %s", error)
        _write_again(engine, recovered)
    return engine, recovered


def _absorb_oldest(first: Engine) -> bool:
    """Make a checkpoint at the end of the oldest WAL file (step 2). Return whether there was one to free."""
    from seglog.maintenance.checkpoint import checkpoint_locked

    recovered = recover(first.files, first.layout, files_max=1)
    if len(recovered.wal_ends) > 1 or not recovered.older_files[0]:
        return False
    part = _engine(first, recovered)
    try:
        with part.checkpoint_lock:
            checkpoint_locked(part)
    finally:
        part.close()
    return True


def _engine(first: Engine, recovered: Recovered) -> Engine:
    return engine_of(first.files, first.layout, first.clock, first.settings, recovered, first.warm_stores)


def _write_again(engine: Engine, recovered: Recovered) -> None:
    """Write the frames that no checkpoint has absorbed to their own places, and sync them (FULL-1)."""
    begins, ends = recovered.checkpointed, recovered.wal_ends
    folders = engine.layout.wal_folders(len(ends))
    for folder, begin, end, older in zip(folders, begins, ends, recovered.older_files, strict=True):
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
    positions = dict(zip(layout.wal_folders(len(manifest.wal)), manifest.wal, strict=True))
    folders = layout.wal_folders(shards)
    fresh = [folder for folder in folders if folder not in positions]
    for folder in fresh:
        files.make_dir(folder.path)
    files.sync_dir(layout.wal)
    places = [
        positions.get(folder) or _create(files, folder, first_ordinal(shard, shards))
        for shard, folder in enumerate(folders)
    ]
    store(files, layout, number + 1, replace(manifest, wal=tuple(places)))
    remove_other_shards(files, layout, shards)


def remove_other_shards(files: Files, layout: Layout, shards: int) -> None:
    """Remove the folders of other numbers of shards (step 3). Usually there are none.

    `shards` is the number in the newest manifest.
    """
    paths = {folder.path for folder in layout.wal_folders(shards)}
    for name in files.list_dir(layout.wal):
        path = layout.wal / name
        if layout.is_wal_shard(name) and path not in paths:
            for inner in files.list_dir(path):
                files.unlink(path / inner)
            files.remove_dir(path)
        elif layout.wal not in paths and _is_wal_name(name):
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
