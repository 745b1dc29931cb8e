"""The step from the result of recovery to a readable engine. An opening for writing and a view both take it."""

from __future__ import annotations

from collections.abc import Callable

from seglog.engine.engine import Engine
from seglog.engine.state import check_all_hot
from seglog.files.clock import Clock
from seglog.files.port import Files
from seglog.maintenance.front import find_fronts, log_unknown_front
from seglog.segments.cache import SegmentCache
from seglog.startup.recovery import Recovered
from seglog.tiers.warm_stores import WarmStores
from seglog.values.config import LogSettings
from seglog.values.layout import Layout
from seglog.values.merged_deletes import MergedDeletes
from seglog.wal.manifest import new_mark_secret
from seglog.wal.shards import open_wals

__all__ = ["engine_of"]


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
