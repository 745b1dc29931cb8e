"""The policy and the report of a run of GC: values only."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from catalog.format.ids import Vid
from catalog.retention import Holder
from seglog.base.progress import Watch, unwatched

__all__ = ["GcPolicy", "GcReport", "KeptVolume", "PendingPlan", "Watch", "unwatched"]

_UNKNOWN_KEYS = 100


@dataclass(frozen=True, slots=True)
class GcPolicy:
    """The periods that GC keeps to.

    `window_s` is the setting. A topic's own window replaces it, and `retain_s`, if given, replaces both. `skew_s` is
    how far the clock of a pin's holder may be behind.
    """

    window_s: int
    grace_s: int
    retain_s: int | None = None
    skew_s: int = 60


@dataclass(frozen=True, slots=True)
class KeptVolume:
    """The kept states of one volume.

    `first_lsn` is the first LSN of the kept range, or None. `points` are single states.
    """

    vid: Vid
    topic: str
    branch: str
    holders: tuple[Holder, ...]
    first_lsn: int | None
    newest_lsn: int | None
    points: tuple[tuple[int, tuple[Holder, ...]], ...]


@dataclass(frozen=True, slots=True)
class PendingPlan:
    """A plan that waits, and the time from which GC may carry it out."""

    number: int
    objects: int
    due_ms: int


@dataclass(slots=True)
class GcReport:
    """The counts of one run, by kind: kept, deleted and planned.

    A segment counts once. Bytes are those of segments, where the size is known. `refused` are holders that came too
    late. `unknown_keys` has at most 100 keys. `is_clock_checked` is False if the store tells no time. `new_plan` is the
    number of the plan that the run wrote, or None.
    """

    kept: list[KeptVolume] = field(default_factory=list[KeptVolume])
    deleted: Counter[str] = field(default_factory=Counter[str])
    deleted_bytes: int = 0
    planned: Counter[str] = field(default_factory=Counter[str])
    planned_bytes: int = 0
    waiting: list[PendingPlan] = field(default_factory=list[PendingPlan])
    blocked: dict[Vid, str] = field(default_factory=dict[Vid, str])
    new_plan: int | None = None
    young_segments: int = 0
    unknown_keys: list[str] = field(default_factory=list[str])
    is_clock_checked: bool = True
    refused: list[str] = field(default_factory=list[str])
    damaged_plans: list[str] = field(default_factory=list[str])

    def add_unknown_key(self, key: str) -> None:
        """Add an unknown key (GC-5), up to the first 100."""
        if len(self.unknown_keys) < _UNKNOWN_KEYS:
            self.unknown_keys.append(key)
