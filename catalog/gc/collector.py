"""Garbage collection: what no name reaches any more is planned, and by a later run taken away.

    step of a run                                                    what a crash after it leaves
    1 mark: what is kept, of every volume
    for each plan that is older than the grace:
    2 checkpoints: the first state that is kept, and those below     more checkpoints
    3 the boundary of each volume in the plan is raised to where     states below it are refused, and still there
      what is kept began when that was made, if it begins there now
      one that nobody holds is closed, with a look at the names      closing, or closed (catalog.refs.volume_deletion)
      and what nothing holds below it loses its mark
    4 the names are looked at once more, and what they hold is kept
    5 orphans in a volume that is written: a commit of kind config   the same
    6 what is in the plan and still not kept goes                    the plan, which the next run finishes
    7 the plan goes
    8 a new plan of what is garbage now, and in no plan yet          pages, or the plan

G1  Only what two marks, a grace apart, found to be garbage goes, and the boundary rises no higher than both allow. So a
    LIST may miss what is new, and an upload has that long to be published. A plan of a time still to come is no plan.
G2  The boundary is raised before the names are looked at for the last time. Whoever makes a fork, a pin or a tag writes
    it first, reads the boundary then, and takes its own back if its LSN lies below and has no mark: so one of the two
    sees the other. A volume that goes as a whole is closed first (its boundary is `DEAD`), and stays so
    for ever: no commit, and no name for it, is good any more. A name of it that nobody took back is taken back here.
G3  Segments that no commit names go if they are older than the grace and no attempt on record has them; and in a volume
    that is written only after a commit that takes the LSN which a stalled writer would use, and says that no segment of
    their age may be added any more (`collected_before_ms`). Who builds on that commit gives his segments younger ids,
    whatever his clock says; who had sent them before loses the LSN, and sends them anew.
G4  What does not decode, or is missing, stops GC of what it may hold (M3 of `catalog.gc.mark`), and of nothing else.
G5  A key that is none of ours is left alone, stops nothing, and is told: of those among refs, tags, pins, plans and the
    objects of volumes, which are listed anyway. The oplog is not listed here.
G6  No run trusts its own clock alone. It asks the store for the time when it begins, before it carries out a plan, and
    before it writes one. If the clocks differ by more than a minute, either way, it raises `ClocksDisagree` and changes
    nothing more: a clock that stays ahead would else pass the whole window, and one that is behind would make a plan
    look old. A store that tells no time is taken at the machine's word, and the report says so.

Refs and tags are never deleted; the boundary of a volume that is gone stays. Deletes are idempotent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection

from catalog.errors import KeyChanged
from catalog.format.gid import Sid
from catalog.format.keys import Key
from catalog.gc.execution import Execution, Note
from catalog.gc.mark import Kept, Marker
from catalog.gc.plan import Plan, PlanWriter, plans, remove_plan
from catalog.gc.report import GcPolicy, GcReport, KeptVolume, Waiting
from catalog.gc.sweep import Sweep
from catalog.local import LocalCatalog
from catalog.objects.base import ObjectStore
from catalog.objects.store_time import check_clock
from catalog.refs.branch import Branches
from catalog.volume import Volumes

__all__ = ["Collector"]


def _unheard(_operation: str, _subject: Key, _message: str) -> None:
    """Nobody keeps notes."""


class Collector:
    """GC of one prefix. Runs may overlap, here and elsewhere. `attempts` gives the segments that are being uploaded.

    `note` is told (operation, key, message) before a boundary is raised and before a plan is carried out. `clock`
    gives ms since the epoch.
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
        note: Note = _unheard,
    ) -> None:
        self._store = store
        self._policy = policy
        self._clock = clock
        self._writer_id = writer_id
        self._cache = cache
        self._attempts = attempts
        self._note = note

    def run(self, *, dry_run: bool = False) -> GcReport:
        """`dry_run`: what would be planned now, with nothing changed or written.

        Raises `ClocksDisagree` (G6), and what the store raises; the next run goes on. Damage is told in the report.
        """
        report = GcReport()
        now_ms, grace_ms = self._clock(), self._policy.grace_s * 1000
        report.is_clock_checked = self._check_clock("gc did not begin") is not None
        marker = self._marker(now_ms)
        marker.mark()
        for key in marker.roots.unknown_keys:
            report.tell_unknown(key)
        waiting = plans(self._store, report.tell_unknown)
        if not dry_run:
            self._take_back(marker, now_ms)
            waiting = self._carry_out(waiting, marker, report, now_ms)
        writer = PlanWriter(None if dry_run else self._store, now_ms)
        sweep = Sweep(self._store, marker, writer, report, self._attempts(), now_ms=now_ms, grace_ms=grace_ms)
        sweep.run(waiting)
        if writer.objects and not dry_run:
            self._check_clock("gc planned nothing")
        written = writer.close(max(now_ms, self._clock()))
        if written is not None and not dry_run:
            waiting.append(written)
        report.waiting = [Waiting(p.number, p.objects, p.written_at_ms + grace_ms) for p in waiting if p.is_whole]
        report.refused = marker.refused
        report.blocked = {vid: str(trouble) for vid, trouble in marker.blocked.items()}
        report.kept = [_told(kept) for _, kept in sorted(marker.kept.items()) if kept.is_held]
        return report

    def _check_clock(self, what: str) -> int | None:
        return check_clock(self._store, self._clock, what)

    def _marker(self, now_ms: int) -> Marker:
        policy = self._policy
        return Marker(
            self._store,
            self._cache,
            now_ms=now_ms,
            window_ms=policy.window_s * 1000,
            grace_ms=policy.grace_s * 1000,
            retain_ms=None if policy.retain_s is None else policy.retain_s * 1000,
            skew_ms=policy.skew_s * 1000,
        )

    def _take_back(self, marker: Marker, now_ms: int) -> None:
        """Names of volumes that are dead: who put them never came to look (E2 of `catalog.refs.volume_deletion`)."""
        branches = Branches(Volumes(self._store), self._writer_id)
        for vid, names in marker.roots.named.items():
            if marker.look(vid).is_dead:
                for topic, branch in names:
                    with contextlib.suppress(KeyChanged):  # somebody sees to it
                        branches.take_back(topic, branch, vid, now_ms=now_ms)
                        marker.refused.append(f"branch {topic}@{branch}, of volume {vid}")

    def _carry_out(self, found: list[Plan], marker: Marker, report: GcReport, now_ms: int) -> list[Plan]:
        """Those whose time has come, oldest first. Returns the others. One of a time still to come is no plan (G1)."""
        waiting: list[Plan] = []
        grace_ms, latest_ms = self._policy.grace_s * 1000, now_ms + self._policy.skew_s * 1000
        execution = Execution(self._store, marker, report, self._attempts, self._note, self._writer_id, now_ms)
        for plan in reversed(found):
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


def _told(kept: Kept) -> KeptVolume:
    return KeptVolume(
        kept.vid,
        kept.control.topic if kept.control else "",
        kept.control.branch if kept.control else "",
        tuple(kept.holders),
        kept.first_lsn,
        None if kept.tip is None or kept.first_lsn is None else kept.tip.lsn,
        tuple((lsn, tuple(kept.points[lsn])) for lsn in kept.held_alone()),
    )
