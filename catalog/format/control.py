"""What makes a volume and gives it a name: values only. `catalog.format.encoding` turns them into objects and back.

N1  A Control is written once, before anything else of its volume, and never changes.
N2  A Ref is the only place where a name becomes a vid. A deleted branch keeps its Ref, which says so.
N3  A Fork lies in the parent volume and is written before the fork's Ref, so that whoever looks at a volume
    sees every fork that may still need its commits.

N4  A Boundary only ever rises. No commit below it may come to be, and no state below it is kept, but for what forks,
    tags and pins hold. Before a volume goes as a whole, it says that this is about to happen
    (catalog.refs.volume_deletion).
N5  A Pin is for whoever reads what may otherwise go: until it expires, what it names stays.
N6  A deleted Tag stays, and says so, as a Ref does: neither comes back by a request that lands late.
N7  Nothing is added to a CheckpointSet below its floor but by the run of GC that made it what it is.

Source: Graft RFC 0001 (Control, Fork, CheckpointSet); the others are ours.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from catalog.format.commit import ForkPoint
from catalog.format.gid import Vid

__all__ = [
    "DEAD",
    "MAIN",
    "Boundary",
    "CheckpointSet",
    "Control",
    "Fork",
    "Mark",
    "NameChange",
    "OplogEntry",
    "Pin",
    "Ref",
    "Tag",
]

MAIN = "main"
"""The branch that a topic's own history is on."""


DEAD = 2**64 - 1
"""The boundary of a volume that takes no commit any more. It stays when all else of the volume is gone."""


@dataclass(frozen=True, slots=True)
class Control:
    """`parent` is the fork point, if the volume is a fork. `created_at_ms` is in ms since the epoch."""

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
    """`deleted_at_ms` is set once the branch is deleted: its volume is kept for a while, and may come back.

    `nonce` is new with every change, so that a request which lands late never finds the state that it was for.
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
    """A lease on what `point` shows. `nonce` is as in `Ref`."""

    point: ForkPoint
    expires_at_ms: int
    holder: str
    nonce: bytes = b""


class Mark(NamedTuple):
    """A checkpoint, and what it takes to find it: the latest `at_ts_ms`, and the highest seq, of all up to it.

    A tuple, for there may be tens of thousands in a list that every reader decodes.
    """

    lsn: int
    max_ts_ms: int
    max_seq: int


@dataclass(frozen=True, slots=True)
class CheckpointSet:
    """Those of a volume that readers may start from, ascending; `older` is how many there are besides `marks`.

    `floor` is the boundary for which GC pruned it last, `nonce` is new each time that it did.
    """

    vid: Vid
    marks: tuple[Mark, ...] = ()
    older: int = 0
    floor: int = 0
    nonce: bytes = bytes(16)

    def at_or_below(self, lsn: int) -> Mark | None:
        """The newest of `marks` that a reader of `lsn` can start from."""
        found = bisect_right(self.marks, lsn, key=lambda mark: mark.lsn)
        return self.marks[found - 1] if found else None


@dataclass(frozen=True, slots=True)
class Boundary:
    """The lowest LSN that may come to be, and whose state is kept. 0 and 1 are the same: nothing was collected.

    `is_closing`: GC is about to make it `DEAD` (catalog.refs.volume_deletion). `nonce` is as in `Ref`.
    """

    vid: Vid
    lsn: int
    is_closing: bool = False
    nonce: bytes = b""


@dataclass(frozen=True, slots=True)
class NameChange:
    """A change of the object under the key `subject`.

    `former` is the object that was there, `value` the one that comes in its place; None: there is none.
    """

    subject: str
    former: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class OplogEntry:
    """A change of the object under the key `subject`, put down before it is made. Fields are as in `NameChange`.

    `others` are the other changes of the same operation: all of them are made, and undone, together.
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
        """In the order in which they are made."""
        return (NameChange(self.subject, self.former, self.value), *self.others)
