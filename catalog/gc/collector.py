"""Garbage collection (GC): plan the objects that no name reaches, and delete them in a later run.

    step of a run                                                 what a crash after it leaves
    1 GC marks: it finds out what each volume keeps.              nothing

    For each plan that is older than the grace, oldest first:
    2 GC makes checkpoints of the first kept state of each        more checkpoints
      volume in the plan, and of each state held below it.
    3 GC raises the boundary of each volume in the plan. The      states below the boundary are refused, and their
      new boundary is the lower of two LSNs: where the kept       objects are still there
      range began when the plan was written, and where it
      begins now.
      If no range of a volume was kept then, and none is kept     the volume is closing or dead
      now, GC reads the names and closes the volume.              (catalog.refs.kept_points)
      GC removes the marks of states below the boundary that      these states have no mark
      nothing holds.
    4 Before each page of the plan, GC reads the names again,     the same
      and keeps what they hold.
    5 If a volume with orphans is still written, GC publishes     the same, and the commit
      a commit of kind config (GC-3).
    6 GC deletes each object of the plan that is still not kept.  the plan, which the next run finishes
    7 GC removes the plan.                                        pages without a plan (catalog.gc.plan)

    After the last of these plans:
    8 GC writes a new plan. It names the garbage of now that      pages without a plan, or the plan
      no waiting plan names.

GC-1  GC deletes an object only if two marks, at least one grace apart, found it unreachable. The boundary is the lower
    of the two LSNs that the marks allow. So a LIST may miss new objects, and a writer has one grace to publish an
    upload. If the time of a plan lies in the future, GC deletes the plan and does not carry it out.

GC-2  GC raises the boundary before it reads the names for the last time. A writer puts its Fork, Pin or Tag before it
    reads the boundary. So GC sees the writer's object, or the writer sees the new boundary.

        A writer names lsn 7 while GC raises the boundary from 1 to 12:
        writer W                                   GC
        1 puts its Fork, Tag or Pin of lsn 7       1 raises the boundary to 12
        2 reads the boundary                       2 removes the mark of lsn 7, if nothing holds lsn 7
          7 or lower: done                         3 reads forks, tags and pins again
          12, and lsn 7 has a mark: done             it finds W's object: it keeps lsn 7
          12, and lsn 7 has no mark: W takes         it finds none: it deletes commit 7
          its object back, and is refused

    If GC misses W's object in step 3, W put the object after GC's step 2. Then W reads 12, and is refused unless lsn 7
    has a mark. A mark means that GC keeps the state for another holder.

    Before GC deletes a whole volume, it closes the volume: the boundary becomes `DEAD`, and stays so for ever. A dead
    volume takes no commit and no name. If a name of a dead volume is left, GC takes it back here.

        A writer stalls with a commit below the boundary (VOL-6):
        1 Writer W prepares commit 15, and stalls before the PUT.
        2 Writer X publishes commits 15 to 30.
        3 GC raises the boundary to 20, and deletes commit 15.
        4 W wakes and puts its commit 15. The PUT succeeds, because the key is free again.
        5 W reads the boundary, sees 20, and treats its commit as refused.

GC-3  An orphan is a segment that no commit names. GC deletes an orphan only if the orphan is older than the grace and
    no attempt on record has it. If the volume is still written, GC first publishes a commit of kind config. The commit
    takes the LSN that a stalled writer would use. Its `collected_before_ms` forbids new segments of the orphan's age.

        A writer stalls between its upload and its commit:
        1 Writer W uploads segment S, prepares commit 15, which names S, and stalls.
        2 GC finds S older than the grace, and plans S as an orphan.
        3 A grace later GC marks again: still no commit names S.
        4 GC publishes commit 15 itself, with a `collected_before_ms` above the time in S's id.
        5 GC deletes S.
        6 W wakes and puts its commit 15. The PUT fails, because GC's commit has the key.
        7 W gives its commit up, and uploads the records again as a segment with a newer id.
        If W wakes before step 4 and its commit wins the key, GC reads that commit and keeps S.

    A writer that builds on GC's commit gives its segments younger ids, even if its clock is behind.

GC-4  If an object is missing or damaged, GC deletes nothing that the object may hold (MARK-3). GC still collects the
    rest.

GC-5  GC leaves an unknown key alone, goes past it, and reports it. GC looks for unknown keys where it lists anyway:
    among refs, tags, pins, plans and the objects of volumes. It does not list the oplog.

GC-6  No run trusts its own clock alone. GC asks the store for the time at three points: at the beginning, before it
    carries out a plan, and before it writes one. If the clocks differ by more than a minute, either way, GC raises
    `ClocksDisagree` and changes nothing more. With a clock that stays ahead, the whole window would pass early. With a
    clock that is behind, a new plan would look old. If the store tells no time, GC uses the machine's clock, and the
    report says so.

GC never deletes refs and tags. The boundary of a deleted volume stays. Deletes are idempotent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection

from catalog.errors import Conflict, KeyChanged, Missing, NoSuchObject
from catalog.format.ids import Sid
from catalog.format.keys import Key, plan_key
from catalog.gc.execution import Execution, Note
from catalog.gc.explanation import Explanation, explain
from catalog.gc.garbage_search import GarbageSearch
from catalog.gc.mark import Kept, Marker
from catalog.gc.plan import Garbage, Plan, PlanWriter, decode_plan, keys_needed, pages_of, plans, remove_plan
from catalog.gc.policy import GcPolicy, GcReport, KeptVolume, PendingPlan, Watch, unwatched
from catalog.gc.survey import Survey, survey
from catalog.local_catalog import LocalCatalog
from catalog.objects.object_store import ObjectStore
from catalog.objects.store_time import check_clock
from catalog.refs.branch import Branches
from catalog.volume import Volumes


def _ignore(_operation: str, _subject: Key, _message: str) -> None:
    """Ignore the note."""


class Collector:
    """GC of one prefix. Runs may overlap, on this machine and on others.

    `attempts` returns the segments that are being uploaded. GC calls `note` with (operation, key, message) before it
    raises a boundary and before it carries out a plan. `clock` returns ms since the epoch. `watch` gets the progress of
    each phase.
    """

    def __init__(
        self,
        store: ObjectStore,
        policy: GcPolicy,
        *,
        clock: Callable[[], int],
        writer_id: str,
        cache: LocalCatalog | None = None,
        attempts: Callable[[], Collection[Sid]] = tuple,
        note: Note = _ignore,
        watch: Watch = unwatched,
    ) -> None:
        self._store = store
        self._policy = policy
        self._clock = clock
        self._writer_id = writer_id
        self._cache = cache
        self._attempts = attempts
        self._note = note
        self._watch = watch

    def run(
        self,
        *,
        dry_run: bool = False,
        plans_only: bool = False,
        mark: Callable[[Marker], None] = Marker.mark,
        on_page: Callable[[list[Garbage]], None] = lambda _: None,
    ) -> GcReport:
        """Run GC once and return its report. With `dry_run`, report what a plan would name now, and change nothing.

        With `plans_only`, write a plan, and carry out none. `mark` marks all volumes, maybe with other processes
        (MARK-5). `on_page` gets each page of the new plan, also in a dry run.

        Raises `ClocksDisagree` (GC-6), and the errors of the store. After an error, the next run continues. The report
        names damage; damage raises nothing.
        """
        report = GcReport()
        now_ms, grace_ms = self._clock(), self._policy.grace_s * 1000
        report.is_clock_checked = self._check_clock("gc did not begin") is not None
        marker = self._marker(now_ms)
        mark(marker)
        for key in marker.roots.unknown_keys:
            report.add_unknown_key(key)
        waiting = plans(self._store, report.add_unknown_key)
        if not dry_run and not plans_only:
            self._take_back(marker, now_ms)
            waiting = self._carry_out(waiting, marker, report, now_ms)
        writer = PlanWriter(None if dry_run else self._store, now_ms, on_page)
        search = GarbageSearch(self._store, marker, writer, report, self._attempts(), now_ms=now_ms, grace_ms=grace_ms)
        search.run(waiting, self._watch)
        if writer.objects and not dry_run:
            self._check_clock("gc planned nothing")
        written = writer.close(max(now_ms, self._clock()))
        if written is not None and not dry_run:
            waiting.append(written)
            report.new_plan = written.number
        report.waiting = [PendingPlan(p.number, p.objects, p.written_at_ms + grace_ms) for p in waiting if p.is_whole]
        report.refused = marker.refused
        report.blocked = {vid: str(trouble) for vid, trouble in marker.blocked.items()}
        report.kept = [_kept_volume(volume) for _, volume in sorted(marker.kept.items()) if volume.is_held]
        return report

    def marked(self) -> Marker:
        """Mark all volumes as `run` does, and return the marks. Changes nothing. Raises the errors of the store."""
        marker = self._marker(self._clock())
        marker.mark()
        return marker

    def plan(self, number: int) -> Plan:
        """Return a plan. Raises `Missing`, `InvalidObject`, and the errors of the store."""
        try:
            return decode_plan(self._store.get(plan_key(number)), number)
        except NoSuchObject:
            raise Missing(f"there is no plan {number}", hint="`seglog gc plan --dry-run` lists the plans") from None

    def apply(self, number: int, *, dry_run: bool = False) -> GcReport:
        """Carry out one plan, if GC needs none of its objects now (OUT-1). With `dry_run`, check it and count only.

        The report has the deleted objects, or the planned ones. Raises `Missing`, `Conflict`,
        `ClocksDisagree`, and the errors of the store. After an error, a caller may repeat the call.
        """
        report = GcReport()
        report.is_clock_checked = self._check_clock(f"plan {number} was not carried out") is not None
        plan, now_ms = self.plan(number), self._clock()
        due_ms = plan.written_at_ms + self._policy.grace_s * 1000
        if due_ms > now_ms:
            text = f"plan {number} is younger than the grace, or its time lies in the future; nothing was deleted"
            raise Conflict(text, hint=f"apply it in {-((now_ms - due_ms) // 1000):,} s")
        marker, attempts = self.marked(), frozenset(self._attempts())
        self._check_not_outgrown(plan, marker, attempts, report)
        if dry_run:
            return report
        report.planned.clear()
        report.planned_bytes = 0
        Execution(self._store, marker, report, self._attempts, self._note, self._writer_id, now_ms, self._watch).run(
            plan
        )
        report.blocked = {vid: str(trouble) for vid, trouble in marker.blocked.items()}
        return report

    def _check_not_outgrown(self, plan: Plan, marker: Marker, attempts: Collection[Sid], report: GcReport) -> None:
        """Raise `Conflict` if GC keeps an object of the plan now. Count the objects in `report`."""
        count, first = 0, ""
        for page in pages_of(self._store, plan):
            for garbage in page:
                for key in keys_needed(garbage, marker, attempts):
                    count, first = count + 1, first or key
                report.planned += garbage.counts
                report.planned_bytes += sum(size for _, size in garbage.segments)
        if count:
            objects = "1 object" if count == 1 else f"{count:,} objects"
            text = (
                f"plan {plan.number} names {objects} that something may need now, such as {first}; nothing was deleted"
            )
            raise Conflict(text, hint=f"`seglog gc explain {first}` says why, and `seglog gc` deletes only the rest")

    def explain(self, key: Key) -> Explanation:
        """Explain why GC keeps an object, or that it would go (`catalog.gc.explanation`). Changes nothing.

        Raises `NoSuchObject`, and the errors of the store.
        """
        self._store.head(key)  # a missing object is refused before the marks
        return explain(self._store, self.marked(), self._attempts(), key, grace_ms=self._policy.grace_s * 1000)

    def survey(self) -> Survey:
        """Count objects, bytes and garbage (`catalog.gc.survey`). Changes nothing. Raises the errors of the store."""
        marker = self.marked()
        grace_ms = self._policy.grace_s * 1000
        return survey(self._store, marker, self._attempts(), now_ms=marker.now_ms, grace_ms=grace_ms)

    def _check_clock(self, consequence: str) -> int | None:
        return check_clock(self._store, self._clock, consequence)

    def _marker(self, now_ms: int) -> Marker:
        return Marker(self._store, self._cache, self._policy, now_ms=now_ms, watch=self._watch)

    def _take_back(self, marker: Marker, now_ms: int) -> None:
        """Take back the names of dead volumes, for writers that stopped (VDEL-2)."""
        branches = Branches(Volumes(self._store), self._writer_id)
        for vid, names in marker.roots.named.items():
            if marker.look(vid).is_dead:
                for topic, branch in names:
                    with contextlib.suppress(KeyChanged):  # another caller changes the name
                        branches.take_back(topic, branch, vid, now_ms=now_ms)
                        marker.refused.append(f"branch {topic}@{branch}, of volume {vid}")

    def _carry_out(self, planned: list[Plan], marker: Marker, report: GcReport, now_ms: int) -> list[Plan]:
        """Carry out the plans that are due, oldest first, and return the plans that still wait.

        Delete plans whose time lies in the future (GC-1), and old pages without a plan.
        """
        waiting: list[Plan] = []
        grace_ms, latest_ms = self._policy.grace_s * 1000, now_ms + self._policy.skew_s * 1000
        execution = Execution(
            self._store, marker, report, self._attempts, self._note, self._writer_id, now_ms, self._watch
        )
        for plan in reversed(planned):
            if plan.written_at_ms > latest_ms:
                remove_plan(self._store, plan.number)
            elif plan.written_at_ms + grace_ms > now_ms:
                waiting.append(plan)
            elif plan.is_whole:
                self._check_clock("gc deleted nothing more")
                execution.run(plan)
            else:
                remove_plan(self._store, plan.number)
        return waiting


def _kept_volume(volume: Kept) -> KeptVolume:
    return KeptVolume(
        volume.vid,
        volume.control.topic if volume.control else "",
        volume.control.branch if volume.control else "",
        tuple(volume.holders),
        volume.first_lsn,
        None if volume.tip is None or volume.first_lsn is None else volume.tip.lsn,
        tuple((lsn, tuple(volume.points[lsn])) for lsn in volume.held_alone()),
    )
