"""The plan of garbage collection, with the mark phase on executors. `seglog gc` carries the plan out.

    step                                                                  where
    1 read the names, list the volumes                                    driver
    2 mark each volume: its commits, and what it stands on                executors
    3 mark the single states of tags, leases and forks                    driver
    4 list the objects of each volume, and plan those that nothing keeps  driver
    5 write the plan                                                      driver

GCPLAN-1  `seglog gc` would write the same plan at that moment. The same code makes it (`catalog.gc`).
GCPLAN-2  The job deletes nothing. `seglog gc` finds the plan a grace later, marks again, and deletes what is garbage
    still. So a plan from marks that are some hours old costs no data.
GCPLAN-3  A run with a state takes marks of an earlier run only for volumes with the same names as then. If that run
    began a grace ago or earlier, the state is of no use: `InvalidOption`.

The driver keeps 16 bytes for each kept segment.
"""

from __future__ import annotations

import base64
import hashlib
import pickle
import socket
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from catalog.errors import CatalogError
from catalog.gc.collector import Collector
from catalog.gc.mark import Marker, Marks, Unmarked
from catalog.gc.policy import GcPolicy, GcReport
from offload.errors import InvalidOption
from offload.settings import CatalogSettings
from offload.spark.jobs.progress import Directory, JobState, in_rounds, job_state
from offload.spark.jobs.topics import AtLeastOne
from offload.spark.stores import open_remote, store_of
from offload.worker.channel import CarriedError
from seglog.base.arguments import checked
from seglog.base.dataclasses import dataclass
from seglog.files.clock import SystemClock

_BEGAN = "began_ms"
_VOLUMES_OF_A_TASK = 16
_SETTINGS = CatalogSettings()


@dataclass(frozen=True, slots=True)
class PlannedKind:
    """The planned objects of one kind. A segment counts once."""

    kind: str
    objects: int


@dataclass(frozen=True, slots=True)
class GcPlanResult:
    """The new plan: nothing for an object that an older plan has. `bytes` counts those of segments.

    GC leaves `blocked` volumes alone because of damage. `resumed` counts the volumes that an earlier run marked.
    `waiting_plans` includes the new one.
    """

    rows: tuple[PlannedKind, ...]
    bytes: int
    young_segments: int
    volumes: int
    resumed: int
    blocked: int
    waiting_plans: int


@checked
def plan_gc(
    spark: Any,
    remote: str,
    *,
    window_s: int = _SETTINGS.pitr_window_s,
    grace_s: int = _SETTINGS.gc_grace_s,
    retain_s: int | None = None,
    state: Directory | None = None,
    volumes_of_a_task: AtLeastOne = _VOLUMES_OF_A_TASK,
    kms_key_id: str = "",
    dry_run: bool = False,
) -> GcPlanResult:
    """Write a plan of the garbage in the remote. `seglog gc` carries it out, a grace later.

    `window_s` and `grace_s` must be the settings `pitr_window_s` and `gc_grace_s` of the directory that runs GC.
    `retain_s` replaces every topic's own window. A dry run marks, too, and writes no plan.
    The plan carries `kms_key_id`, if there is one.

    Raises `InvalidOption`, `ClocksDisagree`, and what the store raises. The result counts damage.
    """
    clock, policy = SystemClock(), GcPolicy(window_s, grace_s, retain_s)
    facts = {"job": "gc", "remote": remote, "window_s": window_s, "grace_s": grace_s, "retain_s": retain_s}
    with closing(open_remote(remote, kms_key_id)) as store, job_state(state, "gc", facts) as known:
        mark = _DistributedMark(spark, remote, policy, known, volumes_of_a_task)
        collector = Collector(store, policy, clock=clock.now_ms, writer_id=socket.gethostname())
        return _result(collector.run(dry_run=dry_run, plans_only=True, mark=mark.run), mark)


class _DistributedMark:
    """The mark phase of one run, on executors. `volumes` counts all volumes, `resumed` those from the state."""

    def __init__(self, spark: Any, remote: str, policy: GcPolicy, state: JobState, volumes_of_a_task: int) -> None:
        self._spark = spark
        self._remote = remote
        self._policy = policy
        self._state = state
        self._volumes_of_a_task = volumes_of_a_task
        self.volumes = self.resumed = 0

    def run(self, marker: Marker) -> None:
        """Mark all volumes of `marker`."""
        self._check_age(marker.now_ms)
        volumes = {_key(volume): volume for volume in marker.begin()}
        done = {key: self._state.done[key] for key in volumes if key in self._state.done}
        self.volumes, self.resumed = len(volumes), len(done)
        for text in done.values():
            marker.add(_unpacked(text))
        wanted = [volume for key, volume in volumes.items() if key not in done]
        work = partial(_marked, self._remote, self._policy, marker.now_ms)
        for pairs in in_rounds(self._spark, wanted, work, lambda _: 1, self._volumes_of_a_task):
            self._state.add({_key(volume): text for volume, text in pairs})
            for _, text in pairs:
                marker.add(_unpacked(text))
        marker.finish()

    def _check_age(self, now_ms: int) -> None:
        """Raise `InvalidOption` if the state began a grace ago or earlier (GCPLAN-3)."""
        began_ms = self._state.done.get(_BEGAN)
        if began_ms is None:
            self._state.add({_BEGAN: now_ms})
        elif now_ms - began_ms >= self._policy.grace_s * 1000:
            hint = "name another directory, or delete the file to begin anew"
            raise InvalidOption("state", f"it began more than {self._policy.grace_s} s ago", hint=hint)


def _key(volume: Unmarked) -> str:
    names = repr((volume.refs, volume.deleted)).encode()
    return f"{volume.vid} {hashlib.sha256(names).hexdigest()[:16]}"


def _result(report: GcReport, mark: _DistributedMark) -> GcPlanResult:
    rows = tuple(PlannedKind(kind, count) for kind, count in sorted(report.planned.items()) if count)
    young, waiting = report.young_segments, len(report.waiting)
    return GcPlanResult(
        rows, report.planned_bytes, young, mark.volumes, mark.resumed, len(report.blocked), waiting_plans=waiting
    )


# ---------------------------------------------------------------- on executors


def _marked(url: str, policy: GcPolicy, now_ms: int, volume: Unmarked) -> str:
    """Return the marks of one volume, packed."""
    marks = Marker(store_of(url), None, policy, now_ms=now_ms).marks_of(volume)
    carried = {vid: CarriedError.of(trouble) for vid, trouble in marks.blocked.items()}
    return base64.b64encode(pickle.dumps((replace(marks, blocked={}), carried))).decode("ascii")


def _unpacked(text: str) -> Marks:
    marks, carried = pickle.loads(base64.b64decode(text))  # noqa: S301 - from our executors, or our own state
    blocked = {vid: _trouble(each.error()) for vid, each in carried.items()}
    found: Marks = replace(marks, blocked=blocked)
    return found


def _trouble(error: BaseException) -> CatalogError:
    return error if isinstance(error, CatalogError) else CatalogError(str(error))
