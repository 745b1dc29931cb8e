"""A read-only log: it shows a data directory as the disk has it at one moment. The process writes nothing there.

Recovery runs over a port that changes nothing (seglog.files.file_system), without a lock, also beside a running writer.
It finds what it would find if the writer had died at this moment. The view has all records up to the newest acked one.
It may have later records that the writer has not acked yet.

    during a look, the writer         effect
    appends                           the view ends with the last whole frame
    rotates, makes a checkpoint       files that the look needs may go; a newer manifest is durable then: look again
    truncates, deletes a topic        the same
    deletes a topic, and makes one    the topic may be found twice, in two shards: look again
    of its name

    after the look, the writer        effect on a read of the view
    removes or cuts a segment         `ViewOutdated`, if a fresh look does not find the segment unchanged
    removes WAL files                 none: the view holds them open
    deletes a record                  the record is shown or passed over: view and writer share the flags
    undeletes a record                the same; one in front of the view's first record stays away until a fresh look

VIEW-1  Damage is reported only if two looks in a row find the same damage. A single look may be wrong in these cases:
    1. It sees a frame half written, and then the sync mark behind it. The frame was whole when the writer wrote the
       mark, so the next look finds it whole.
    2. A file that the manifest needs is missing. The second look has a newer manifest, so it misses the same file only
       if the file is really missing.
    3. A topic is found twice. A writer gives an id once. So two looks find the same two ids only if the topic is really
       there twice.
    4. The first live record of a topic is not found. This is logged only if two looks in a row say so.
VIEW-2  A look makes, cuts, unlinks and locks nothing. It asks the system for reads only.
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
from seglog.files.file_system import Files, ReadOnlyFiles
from seglog.maintenance.removal import log_unknown_front
from seglog.segments.segment import SegmentFiles, SegmentInfo
from seglog.startup.opening import engine_of
from seglog.startup.recovery import recover
from seglog.tiers.warm_stores import WarmStores
from seglog.values.config import LogSettings
from seglog.values.layout import Layout, number_in

T = TypeVar("T")

# If so many looks fail, the writer has made a checkpoint during each.
_LOOKS_MAX = 100


def look(files: Files, layout: Layout, clock: Clock, settings: LogSettings, warm_stores: WarmStores | None) -> Engine:
    """Return an engine that shows the directory as it is now.

    Raise `FileCorrupt`, `FormatUnsupported`, `ViewOutdated`, `WarmStoreRequired`, `OSError`.
    """
    before = ""
    for _ in range(_LOOKS_MAX):
        unknown: dict[str, Exception] = {}
        try:
            engine = _look_once(ReadOnlyFiles(files), layout, clock, settings, warm_stores, unknown)
        except (FileCorrupt, OSError) as error:
            if str(error) == before:
                raise
            before = str(error)
            continue
        reasons = str({topic: str(why) for topic, why in unknown.items()})
        if not unknown or reasons == before:
            for topic, why in unknown.items():
                log_unknown_front(topic, why)
            return engine
        before = reasons
    raise ViewOutdated(layout.root)


def _look_once(
    files: ReadOnlyFiles,
    layout: Layout,
    clock: Clock,
    settings: LogSettings,
    warm_stores: WarmStores | None,
    unknown: dict[str, Exception],
) -> Engine:
    """Look once. If the first live record of a topic is not found, add the topic to `unknown`, with the reason."""
    recovered = recover(files, layout)
    return engine_of(
        files, layout, clock, settings, recovered, warm_stores, is_read_only=True, on_unknown=unknown.__setitem__
    )


def guarded(engine: Engine, state: TopicState, items: Iterator[T]) -> Iterator[T]:
    """Return `items`, read from this topic, with their errors as `explained` raises them."""
    return _guarded(engine, state, items) if engine.is_read_only else items


@contextmanager
def explained(engine: Engine, state: TopicState) -> Iterator[None]:
    """Raise `ViewOutdated` for an error of a read, if the writer has moved on.

    Otherwise the error passes unchanged.
    """
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
    """Return whether the file is no longer as `state` says.

    If the file is damaged, a fresh look finds it damaged too. Then the result is False.
    """
    path = error.path if isinstance(error, FileCorrupt) else Path(str(error.filename))
    files = engine.files.inner if isinstance(engine.files, ReadOnlyFiles) else engine.files
    try:
        fresh = look(files, engine.layout, engine.clock, engine.settings, engine.warm_stores).topics.get(state.name)
    except FileCorrupt:
        return False
    if fresh is None or (fresh.topic_id, fresh.epoch) != (state.topic_id, state.epoch):
        return True
    first_seq = number_in("data", path.name) or number_in("idx", path.name)
    if first_seq is None:
        return True  # a WAL file, which the fresh look has found sound
    [before, now] = [
        next((info for info in topic.segments if info.first_seq == first_seq), None) for topic in (state, fresh)
    ]
    return before is None or not _goes_on(before, now and _on_disk(engine, state, now))


def _goes_on(info: SegmentInfo, fresh: SegmentInfo | None) -> bool:
    if fresh is None or info.sealed:
        return fresh == info
    return fresh.records >= info.records and fresh.data_bytes >= info.data_bytes


def _on_disk(engine: Engine, state: TopicState, info: SegmentInfo) -> SegmentInfo | None:
    """Return the segment with its bytes of now, or None if its file has gone.

    A rewrite changes the bytes before a manifest says so (REWRITE-5).
    """
    if not info.is_hot:
        return info
    try:
        segment = SegmentFiles(engine.files, engine.layout, state.topic_id, info.first_seq, os.O_RDONLY)
        return info._replace(data_bytes=segment.info(info.records, sealed=info.sealed).data_bytes)
    except FileCorrupt:
        return info
    except FileNotFoundError:
        return None
