"""`archive.collection`: GC step by step, and the figures behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from catalog.format import keys
from catalog.gc.collector import Collector
from catalog.gc.explanation import Explanation
from catalog.gc.plan import Garbage, pages_of
from catalog.gc.policy import GcPolicy, GcReport, unwatched
from catalog.gc.survey import Survey
from catalog.refs.oplog import Oplog
from offload.context import ArchiveContext
from offload.services.archive_parts import OfArchive
from seglog.base.arguments import checked
from seglog.base.ownership import Owned


class CollectionService(OfArchive, Owned):
    """The calls for the operator of GC. `archive.upkeep.collect` is a whole run."""

    @checked
    def survey(self, *, watch: Callable[[str, int, int | None, str], None] = unwatched) -> Survey:
        """Count the objects and bytes under the remote's prefix by volume, and the garbage among them.

        Changes nothing. `watch` gets the progress, as in `archive.upkeep.collect`. Raises what the store raises.
        """
        return collector_of(self._context, watch=watch).survey()

    @checked
    def plan(
        self,
        *,
        dry_run: bool = False,
        retain_s: int | None = None,
        on_page: Callable[[list[Garbage]], None] = lambda _: None,
        watch: Callable[[str, int, int | None, str], None] = unwatched,
    ) -> GcReport:
        """Write a plan of the garbage of now, and carry out none. A dry run writes none.

        `on_page` gets each page of the plan. Raises as `archive.upkeep.collect` does.
        """
        if not dry_run:
            self._context.log.check_writable()
        collector = collector_of(self._context, retain_s=retain_s, watch=watch)
        return collector.run(dry_run=dry_run, plans_only=True, on_page=on_page)

    @checked
    def pages(self, number: int) -> Iterator[list[Garbage]]:
        """Yield the pages of a plan. Raises `Missing`, and `InvalidObject` if a page does not decode."""
        plan = collector_of(self._context).plan(number)
        return pages_of(self._context.store, plan)

    @checked
    def apply(
        self,
        number: int,
        *,
        dry_run: bool = False,
        retain_s: int | None = None,
        grace_s: int | None = None,
        watch: Callable[[str, int, int | None, str], None] = unwatched,
    ) -> GcReport:
        """Carry out one plan, if nothing needs any of its objects now. A dry run checks the same, and deletes nothing.

        Raises `Missing`, `Conflict`, and as `archive.upkeep.collect` does.
        """
        if not dry_run:
            self._context.log.check_writable()
        collector = collector_of(self._context, retain_s=retain_s, grace_s=grace_s, watch=watch)
        return collector.apply(number, dry_run=dry_run)

    @checked
    def explain(
        self, key: str, *, retain_s: int | None = None, watch: Callable[[str, int, int | None, str], None] = unwatched
    ) -> Explanation:
        """Explain why GC keeps an object, or that it would go.

            archive.collection.explain("s3://bucket/acme/v1/…")

        Args:
            key: The key of the object, which may begin with the URL of the remote.
            retain_s: A window in seconds, in place of every topic's own.
            watch: Gets the progress, as in `archive.upkeep.collect`.

        Raises:
            InvalidKey: The text is no key of the remote.
            NoSuchObject: There is no such object.
            SeglogError: What the store raises. Ask again.
        """
        relative = key.removeprefix(f"{self._context.store.url}/")
        return collector_of(self._context, retain_s=retain_s, watch=watch).explain(keys.check_key(relative))


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
