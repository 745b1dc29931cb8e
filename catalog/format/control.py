"""The values that make a volume, give it a name and limit what GC may delete.

`catalog.format.small_objects` turns them into objects and back.

CTRL-1  A Control is written once, before anything else of its volume, and never changes.
CTRL-2  A Ref is the only place where a name becomes a vid. A deleted branch keeps its Ref, which records the deletion.
CTRL-3  A Fork lies in the parent volume and is written before the fork's Ref. So a reader of a volume sees every fork
    that may still need its commits.
CTRL-4  A Boundary only rises. A commit below it does not count. GC keeps no state below it, except the states that
    forks, tags and pins hold. Before GC deletes a whole volume, it marks the Boundary as closing
    (catalog.refs.kept_points).
CTRL-5  A Pin is for a reader of a state that GC may otherwise delete. Until the Pin expires, GC keeps that state.
CTRL-6  A deleted Tag stays and records the deletion, as a Ref does. So a request that lands late brings neither back.
CTRL-7  Below the floor of a CheckpointSet, only the run of GC that pruned the set last adds marks.

Source: Graft RFC 0001 (Control, Fork, CheckpointSet); the others are ours.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from catalog.format.commit import ForkPoint
from catalog.format.ids import Vid
from seglog.base.dataclasses import dataclass

MAIN = "main"
"""The branch of a topic's own history."""


DEAD = 2**64 - 1
"""The boundary of a volume that takes no commit any more. It stays after GC has deleted the rest of the volume."""


def full_name(topic: str, branch: str) -> str:
    """Return `topic@branch`, or the topic alone for its main branch."""
    return topic if branch == MAIN else f"{topic}@{branch}"


@dataclass(frozen=True, slots=True)
class Control:
    """The identity of a volume. `parent` is the fork point, if the volume is a fork.

    `created_at_ms` is in ms since the epoch.
    """

    vid: Vid
    parent: ForkPoint | None
    created_at_ms: int
    topic: str
    branch: str


@dataclass(frozen=True, slots=True)
class Fork:
    fork_vid: Vid
    parent: ForkPoint


@dataclass(frozen=True, slots=True)
class Ref:
    """The volume of a branch. `deleted_at_ms` is set once the branch is deleted.

    GC keeps the volume of a deleted branch for a while, and the branch can be restored in that time. `nonce` is new
    with every change. So a request that lands late never finds the state that it was for.
    """

    vid: Vid
    created_at_ms: int
    deleted_at_ms: int | None = None
    nonce: bytes = b""


@dataclass(frozen=True, slots=True)
class Tag:
    """A named point in the history of a topic's `branch`. `deleted_at_ms` and `nonce` are as in `Ref`."""

    point: ForkPoint
    branch: str
    created_at_ms: int
    message: str = ""
    deleted_at_ms: int | None = None
    nonce: bytes = b""


@dataclass(frozen=True, slots=True)
class Pin:
    """A lease on the state that `point` shows. `nonce` is as in `Ref`."""

    point: ForkPoint
    expires_at_ms: int
    holder: str
    nonce: bytes = b""


class Mark(NamedTuple):
    """A checkpoint in a list: its LSN, and the latest `at_ts_ms` and the highest seq of all commits up to it.

    A mark is a tuple, because a list may have tens of thousands of them, and every reader decodes it.
    """

    lsn: int
    max_ts_ms: int
    max_seq: int


@dataclass(frozen=True, slots=True)
class CheckpointSet:
    """The checkpoints of a volume that readers may start from, ascending. `older` counts the marks that `marks` lacks.

    `floor` is the boundary for which GC pruned the set last. Each time GC prunes the set, it draws a new `nonce`.
    """

    vid: Vid
    marks: tuple[Mark, ...] = ()
    older: int = 0
    floor: int = 0
    nonce: bytes = bytes(16)

    def at_or_below(self, lsn: int) -> Mark | None:
        """Return the newest of `marks` that a reader of `lsn` can start from; None if there is none."""
        count = bisect_right(self.marks, lsn, key=lambda mark: mark.lsn)
        return self.marks[count - 1] if count else None


@dataclass(frozen=True, slots=True)
class Boundary:
    """The lowest LSN that GC retains. Commits below it are rejected. 0 and 1 both mean that nothing was collected.

    If `is_closing`, GC is about to make it `DEAD` (catalog.refs.kept_points). `nonce` is as in `Ref`.
    """

    vid: Vid
    lsn: int
    is_closing: bool = False
    nonce: bytes = b""


@dataclass(frozen=True, slots=True)
class NameChange:
    """A change of the object under the key `subject`.

    `former` is the object that was there, `value` the object that replaces it; None: there is none.
    """

    subject: str
    former: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class OplogEntry:
    """A change of the object under the key `subject`, recorded before it is made. Fields are as in `NameChange`.

    `others` are the other changes of the same operation. All of its changes are made, and undone, together.
    """

    at_ms: int
    writer_id: str
    operation: str
    subject: str
    former: bytes | None
    value: bytes | None
    nonce: bytes
    message: str = ""
    others: tuple[NameChange, ...] = ()

    @property
    def changes(self) -> tuple[NameChange, ...]:
        """Return all changes, in the order in which they are made."""
        return (NameChange(self.subject, self.former, self.value), *self.others)

    def value_of(self, subject: str) -> bytes | None:
        """Return the value that the operation gives the object under that key; None if it changes another one."""
        return next((change.value for change in self.changes if change.subject == subject), None)
