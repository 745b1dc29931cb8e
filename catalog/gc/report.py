"""What a run of GC is told, and what it tells: values only."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from catalog.format.gid import Vid
from catalog.retention import Holder

__all__ = ["GcPolicy", "GcReport", "KeptVolume", "Waiting"]

_UNKNOWN_KEYS = 100


@dataclass(frozen=True, slots=True)
class GcPolicy:
    """`window_s` is the setting; a topic's own goes before it, and `retain_s`, if given, before both.

    `skew_s` is how far the clock of a pin's holder may be behind.
    """

    window_s: int
    grace_s: int
    retain_s: int | None = None
    skew_s: int = 60


@dataclass(frozen=True, slots=True)
class KeptVolume:
    """`first_lsn` is that of the first state of its range, None without one; `points` are single states."""

    vid: Vid
    topic: str
    branch: str
    holders: tuple[Holder, ...]
    first_lsn: int | None
    newest_lsn: int | None
    points: tuple[tuple[int, tuple[Holder, ...]], ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A plan, and when its time comes."""

    number: int
    objects: int
    due_ms: int


@dataclass(slots=True)
class GcReport:
    """What a run kept, deleted and planned, by kind. A segment counts once; bytes are those of segments, if known.

    `refused` are holders that came too late. `unknown_keys` has some, not all of many. `is_clock_checked` is False if
    the store tells no time.
    """

    kept: list[KeptVolume] = field(default_factory=list[KeptVolume])
    deleted: Counter[str] = field(default_factory=Counter[str])
    deleted_bytes: int = 0
    planned: Counter[str] = field(default_factory=Counter[str])
    planned_bytes: int = 0
    waiting: list[Waiting] = field(default_factory=list[Waiting])
    blocked: dict[Vid, str] = field(default_factory=dict[Vid, str])
    young_segments: int = 0
    unknown_keys: list[str] = field(default_factory=list[str])
    is_clock_checked: bool = True
    refused: list[str] = field(default_factory=list[str])
    damaged_plans: list[str] = field(default_factory=list[str])

    def tell_unknown(self, key: str) -> None:
        """Of a key that is none of ours (G5 of `catalog.gc.collector`)."""
        if len(self.unknown_keys) < _UNKNOWN_KEYS:
            self.unknown_keys.append(key)
