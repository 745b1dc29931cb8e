"""The rules for what GC keeps of a volume. Pure: names, points and commits in, decisions out.

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
from collections.abc import Iterable
from dataclasses import dataclass

from catalog.format.commit import Commit
from catalog.format.control import CheckpointSet

__all__ = ["WINDOW", "HeldBy", "Holder", "first_kept", "scan_from", "window_ms_of"]

WINDOW = "pitr_window_s"
"""The attribute in a topic's configuration that overrides the setting of the same name."""


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
        seconds = int(attributes[WINDOW]) if WINDOW in attributes else None
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
    found = None
    for commit in commits:
        if commit.at_ts_ms > since_ms:
            break
        found = commit.lsn
    return found
