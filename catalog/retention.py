"""What is kept of a volume, and why. Pure: names, points and commits in, decisions out.

    who                                    holds
    a branch, or one that was deleted      its volume: every state from the start of the window on, and the newest
      less than a window ago
    a volume younger than the grace        the same: its name may be about to be put
    a tag, a pin that has not expired      one state
    a fork whose first states are not      the state that it was forked from
      in a checkpoint of its own

R1  The window of a volume starts at the last commit that, with all before it, happened before `now - window`: whatever
    time since then is asked for, that commit takes part. So what came before it, nobody asks for.
R2  The first state that is kept, and each one that is held below it, is a checkpoint before anything older goes.
R3  What is kept follows from what is there and from the time alone; GC has no memory but its plan.

This module does no I/O.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable
from dataclasses import dataclass

from catalog.format.commit import Commit
from catalog.format.control import CheckpointSet

__all__ = ["WINDOW", "HeldBy", "Holder", "first_kept", "scan_from", "window_ms_of"]

WINDOW = "pitr_window_s"
"""The attribute in a topic's configuration that takes the place of the setting of the same name."""


class HeldBy(enum.Enum):
    """The words of a report."""

    REF = "branch"
    DELETED_REF = "deleted branch"
    YOUNG = "new volume"
    TAG = "tag"
    PIN = "pin"
    FORK = "fork"


@dataclass(frozen=True, slots=True)
class Holder:
    """`until_ms` is when it lets go by itself; None: it does not."""

    kind: HeldBy
    name: str
    until_ms: int | None = None

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}"


def window_ms_of(config: str, default_ms: int) -> int:
    """Of a topic with the configuration `config` (JSON; empty: none is known). What does not parse says nothing."""
    try:
        attributes = json.loads(config)["attributes"] if config else {}
        seconds = int(attributes[WINDOW]) if WINDOW in attributes else None
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return default_ms
    return default_ms if seconds is None or seconds < 0 else seconds * 1000


def scan_from(marks: CheckpointSet, lowest: int, newest: int, since_ms: int) -> int:
    """The last checkpoint that is certainly before `since_ms`, from which looking may begin; 0 if there is none."""
    passed = (mark.lsn for mark in marks.marks if lowest <= mark.lsn <= newest and mark.max_ts_ms <= since_ms)
    return max(passed, default=0)


def first_kept(commits: Iterable[Commit], since_ms: int) -> int | None:
    """The LSN of the last of `commits` (oldest first) up to which all happened by `since_ms`; None if none did."""
    found = None
    for commit in commits:
        if commit.at_ts_ms > since_ms:
            break
        found = commit.lsn
    return found
