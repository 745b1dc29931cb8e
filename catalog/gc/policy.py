"""What GC keeps of a volume, and the policy and the report of a run. Pure: names, points and commits in, decisions out.

    holder                                 holds
    a branch, or one that was deleted      its volume: every state from the start of the window on, and the newest
      less than a window ago
    a volume younger than the grace        the same: its name may be about to be put
    a tag, a pin that has not expired      one state
    a fork whose first states are not      the state that it was forked from
      in a checkpoint of its own

KEEP-1  All commits up to the start of a volume's window happened before `now - window`. The start is the last such
    commit. A restore to any time in the window includes that commit. So no restore asks for an older state.
KEEP-2  The first state that is kept is a checkpoint before GC deletes anything older. So is each state held below it.
KEEP-3  The stored objects and the time alone decide what is kept. GC has no memory except its plan.

This module does no I/O.
"""

from __future__ import annotations

import enum
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import field

from catalog.format.commit import Commit
from catalog.format.control import CheckpointSet
from catalog.format.ids import Vid
from seglog.base.dataclasses import dataclass
from seglog.base.progress import Watch as Watch
from seglog.base.progress import unwatched as unwatched

_WINDOW = "pitr_window_s"
"""The attribute in a topic's configuration that overrides the setting of the same name."""
_UNKNOWN_KEYS = 100


class HeldBy(enum.Enum):
    """The kinds of holders, in the words of a report."""

    REF = "branch"
    DELETED_REF = "deleted branch"
    YOUNG = "new volume"
    TAG = "tag"
    PIN = "pin"
    FORK = "fork"


@dataclass(frozen=True, slots=True)
class Holder:
    """A reason to keep a state."""

    kind: HeldBy
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}"


def window_ms_of(config: str, default_ms: int) -> int:
    """Return the window of a topic with the configuration `config` (JSON; empty: none is known).

    If `config` does not parse, or names no valid window, return `default_ms`.
    """
    try:
        attributes = json.loads(config)["attributes"] if config else {}
        seconds = int(attributes[_WINDOW]) if _WINDOW in attributes else None
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return default_ms
    return default_ms if seconds is None or seconds < 0 else seconds * 1000


def scan_from(marks: CheckpointSet, lowest: int, newest: int, since_ms: int) -> int:
    """Return the LSN of the last checkpoint that is certainly before `since_ms`; 0 if there is none.

    A scan may begin there.
    """
    passed = (mark.lsn for mark in marks.marks if lowest <= mark.lsn <= newest and mark.max_ts_ms <= since_ms)
    return max(passed, default=0)


def first_kept(commits: Iterable[Commit], since_ms: int) -> int | None:
    """Return the LSN of the last commit up to which all happened by `since_ms`; None if none did.

    `commits` are oldest first.
    """
    lsn = None
    for commit in commits:
        if commit.at_ts_ms > since_ms:
            break
        lsn = commit.lsn
    return lsn


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
