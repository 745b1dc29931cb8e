"""A log as it is on the disk at one moment, for whoever must not, or need not, write there.

Recovery runs over a port that changes nothing (seglog.files.read_only), without a lock, also beside a running writer:
what it finds is what a recovery would find had the writer died at this moment. Records up to the newest acked one are
there, and perhaps some behind it that nobody was told of yet.

    while it looks, the writer        and so
    appends                           it ends with the last frame that is whole
    rotates, makes a checkpoint       what the snapshot needs may go; a newer snapshot is durable by then: look again
    truncates, deletes a topic        the same
    deletes a topic, and makes one    it may be there twice, in two shards: look again
    of its name

    later, when records are read      and so
    a segment went, or was cut        `ViewOutdated`, if a fresh look does not find it as it was
    WAL files went                    they are held open
    a delete reached a record         it is passed over, or not: flags are shared with the writer

Z1  Damage is told when two looks in a row find the same. One look may see a frame half written, then the sync mark
    behind it; the next one finds that frame whole, for it was when its mark was written. And a file that a snapshot
    needs is missing twice only if it is missing: the second look has a newer snapshot. And a topic is there twice with
    the same two ids only if it is: a writer gives an id once.
    The same holds for a topic whose first live record is not found: only then it is logged.
Z2  Nothing is made, cut, unlinked or locked; nothing but reading is asked of the system.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.errors import FileCorrupt, ViewOutdated
from seglog.files.clock import Clock
from seglog.files.port import Files
from seglog.files.read_only import ReadOnlyFiles
from seglog.maintenance.housekeeping import tell_unknown
from seglog.segments.segment import SegmentFiles, SegmentInfo
from seglog.startup.opening import engine_of
from seglog.startup.recovery import recover
from seglog.tiers.cold_stores import ColdStores
from seglog.values.config import LogSettings
from seglog.values.layout import Layout, number_in

__all__ = ["explained", "guarded", "look"]

T = TypeVar("T")

# A writer would have to make a checkpoint within each.
_LOOKS_MAX = 100


def look(files: Files, layout: Layout, clock: Clock, settings: LogSettings, cold_stores: ColdStores | None) -> Engine:
    """Raises `FileCorrupt`, `FormatUnsupported`, `ViewOutdated`, `ColdStoreRequired`, `OSError`."""
    before = ""
    for _ in range(_LOOKS_MAX):
        unknown: dict[str, Exception] = {}
        try:
            engine = _look_once(ReadOnlyFiles(files), layout, clock, settings, cold_stores, unknown)
        except (FileCorrupt, OSError) as error:
            if str(error) == before:
                raise
            before = str(error)
            continue
        said = str({topic: str(why) for topic, why in unknown.items()})
        if not unknown or said == before:
            for topic, why in unknown.items():
                tell_unknown(topic, why)
            return engine
        before = said
    raise ViewOutdated(layout.root)


def _look_once(
    files: ReadOnlyFiles,
    layout: Layout,
    clock: Clock,
    settings: LogSettings,
    cold_stores: ColdStores | None,
    unknown: dict[str, Exception],
) -> Engine:
    """`unknown` gets the topics whose first live record was not found, and why."""
    found = recover(files, layout)
    return engine_of(files, layout, clock, settings, found, cold_stores, is_read_only=True, tell=unknown.__setitem__)


def guarded(engine: Engine, state: TopicState, items: Iterator[T]) -> Iterator[T]:
    """`items`, as they are read from this topic; what goes wrong is said as what it is."""
    return _guarded(engine, state, items) if engine.is_read_only else items


@contextmanager
def explained(engine: Engine, state: TopicState) -> Iterator[None]:
    """What goes wrong with a read of this topic, said as what it is: `ViewOutdated`, or the damage."""
    try:
        yield
    except (FileCorrupt, FileNotFoundError) as error:
        if engine.is_read_only and _has_moved_on(engine, state, error):
            raise ViewOutdated(engine.layout.root) from error
        raise


def _guarded(engine: Engine, state: TopicState, items: Iterator[T]) -> Iterator[T]:
    with explained(engine, state):
        yield from items


def _has_moved_on(engine: Engine, state: TopicState, error: FileCorrupt | FileNotFoundError) -> bool:
    """Whether the file is not any more what `state` says of it. What is damaged is so for a fresh look too."""
    path = error.path if isinstance(error, FileCorrupt) else Path(str(error.filename))
    files = engine.files.inner if isinstance(engine.files, ReadOnlyFiles) else engine.files
    try:
        fresh = look(files, engine.layout, engine.clock, engine.settings, engine.cold_stores).topics.get(state.name)
    except FileCorrupt:
        return False
    if fresh is None or (fresh.topic_id, fresh.epoch) != (state.topic_id, state.epoch):
        return True
    first_seq = number_in("data", path.name) or number_in("idx", path.name)
    if first_seq is None:
        return True  # of the WAL, which the fresh look has found sound
    [before, now] = [
        next((info for info in each.segments if info.first_seq == first_seq), None) for each in (state, fresh)
    ]
    return before is None or not _goes_on(before, now and _on_disk(engine, state, now))


def _goes_on(info: SegmentInfo, fresh: SegmentInfo | None) -> bool:
    if fresh is None or info.sealed:
        return fresh == info
    return fresh.records >= info.records and fresh.data_bytes >= info.data_bytes


def _on_disk(engine: Engine, state: TopicState, info: SegmentInfo) -> SegmentInfo | None:
    """With the bytes of now: a rewrite changes them before a snapshot says so (N5 of seglog.segments.rewrite)."""
    if not info.is_hot:
        return info
    try:
        segment = SegmentFiles(engine.files, engine.layout, state.topic_id, info.first_seq, os.O_RDONLY)
        return info._replace(data_bytes=segment.info(info.records, sealed=info.sealed).data_bytes)
    except FileCorrupt:
        return info
    except FileNotFoundError:
        return None
