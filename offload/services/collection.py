"""`archive.collection`: GC step by step, and the figures behind it."""

from __future__ import annotations

from collections.abc import Callable

from catalog.format import keys
from catalog.gc.collector import Collector
from catalog.gc.report import GcPolicy, unwatched
from catalog.gc.survey import Survey
from catalog.refs.oplog import Oplog
from offload.context import ArchiveContext
from seglog.arguments import checked
from seglog.process.ownership import Owned

__all__ = ["CollectionService", "collector_of"]


class CollectionService(Owned):
    """The calls for the operator of GC. `archive.upkeep.collect` is a whole run."""

    def __init__(self, context: ArchiveContext) -> None:
        self._context = context

    @checked
    def survey(self, *, watch: Callable[[str, int, int | None, str], None] = unwatched) -> Survey:
        """Count the objects and bytes under the remote's prefix by volume, and the garbage among them.

        Changes nothing. `watch` gets the progress, as in `archive.upkeep.collect`. Raises what the store raises.
        """
        return collector_of(self._context, watch=watch).survey()


def collector_of(
    context: ArchiveContext,
    *,
    retain_s: int | None = None,
    grace_s: int | None = None,
    watch: Callable[[str, int, int | None, str], None] = unwatched,
) -> Collector:
    """Return GC with the settings of the directory. `retain_s` and `grace_s` replace settings, if given."""
    settings, clock, local = context.settings, context.clock, context.local
    oplog = Oplog(context.store, context.writer_id)

    def note(operation: str, subject: keys.Key, message: str) -> None:
        oplog.note(operation, subject, None, None, now_ms=clock.now_ms(), message=message)

    return Collector(
        context.store,
        GcPolicy(settings.pitr_window_s, settings.gc_grace_s if grace_s is None else grace_s, retain_s),
        clock=clock.now_ms,
        writer_id=context.writer_id,
        cache=local,
        attempts=lambda: {attempt.sid for attempt in local.attempts()},
        note=note,
        watch=watch,
    )
