"""Deletes one after the other, and what they reach together.

A delete is added in the same time whatever their number. They are merged when a reader asks, each of them once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import attrgetter

from seglog.process.own_lock import OwnLock
from seglog.values.deletes import DeleteOp
from seglog.values.reach import NOTHING, Reach

__all__ = ["Listed"]

_number = attrgetter("op")


class Listed:
    """Their numbers ascend. One thread at a time adds; any thread may ask.

    It never loses a delete: for fewer, make another list. `tagged` counts the deletes with a tag, about.
    """

    __slots__ = ("_lock", "_merged", "_ops", "_reach", "tagged")

    def __init__(self, ops: Iterable[DeleteOp] = ()) -> None:
        self._ops = list(ops)
        self._merged = 0
        self._reach = NOTHING
        self._lock = OwnLock()
        self.tagged = sum(op.tag is not None for op in self._ops)

    def __len__(self) -> int:
        return len(self._ops)

    def __iter__(self) -> Iterator[DeleteOp]:
        """Go through the deletes that are there now."""
        return iter(self.first(len(self._ops)))

    def add(self, op: DeleteOp) -> None:
        """Again after an interrupt, it is the same."""
        if not self._ops or self._ops[-1].op < op.op:
            self.tagged += op.tag is not None
            self._ops.append(op)

    def first(self, count: int) -> tuple[DeleteOp, ...]:
        """Return so many of the oldest."""
        return tuple(self._ops[:count])

    def since(self, number: int) -> tuple[DeleteOp, ...]:
        """Return the deletes with that number, or a higher one."""
        return tuple(self._ops[bisect_left(self._ops, number, key=_number) :])

    def ended_below(self, seq: int) -> Listed:
        """Make a list of the same deletes that reach nothing from `seq` on: other records may take these seqs."""
        return Listed(op if op.at_seq < seq else replace(op, at_seq=seq - 1) for op in self._ops)

    @property
    def reach(self) -> Reach:
        """Merge the deletes that are there now. The value grows when it is asked for here again."""
        if self._merged != len(self._ops):
            self._merge()
        return self._reach

    def _merge(self) -> None:
        with self._lock.once:
            if self._reach is NOTHING:
                self._reach = Reach()
            while self._merged < len(self._ops):
                self._reach.add(self._ops[self._merged])
                self._merged += 1
