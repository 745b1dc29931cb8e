"""A list of deletes, and what they reach together.

Adding a delete takes the same time, however many are listed. The list merges its deletes when a reader asks, each
delete once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import attrgetter

from seglog.process.own_lock import OwnLock
from seglog.values.deletes import DeleteOp
from seglog.values.merged_deletes import NO_DELETES, MergedDeletes

__all__ = ["DeleteList"]

_number = attrgetter("op")


class DeleteList:
    """A list of deletes with ascending numbers. One thread at a time adds. Any thread may ask.

    The list never drops a delete: for fewer deletes, make another list. `tagged` counts the deletes with a tag,
    approximately.
    """

    __slots__ = ("_lock", "_merged", "_ops", "_reach", "tagged")

    def __init__(self, ops: Iterable[DeleteOp] = ()) -> None:
        self._ops = list(ops)
        self._merged = 0
        self._reach = NO_DELETES
        self._lock = OwnLock()
        self.tagged = sum(op.tag is not None for op in self._ops)

    def __len__(self) -> int:
        return len(self._ops)

    def __iter__(self) -> Iterator[DeleteOp]:
        """Iterate over the deletes that are listed now."""
        return iter(self.first(len(self._ops)))

    def add(self, op: DeleteOp) -> None:
        """Add a delete. Adding it again after an interrupt changes nothing."""
        if not self._ops or self._ops[-1].op < op.op:
            self.tagged += op.tag is not None
            self._ops.append(op)

    def first(self, count: int) -> tuple[DeleteOp, ...]:
        """Return that many of the oldest deletes."""
        return tuple(self._ops[:count])

    def since(self, number: int) -> tuple[DeleteOp, ...]:
        """Return the deletes with that number, or a higher one."""
        return tuple(self._ops[bisect_left(self._ops, number, key=_number) :])

    def ended_below(self, seq: int) -> DeleteList:
        """Return a list of the same deletes that reach nothing from `seq` on. Other records may take these seqs."""
        return DeleteList(op if op.at_seq < seq else replace(op, at_seq=seq - 1) for op in self._ops)

    @property
    def reach(self) -> MergedDeletes:
        """Return what the deletes listed now reach together. A later call may add deletes to the same value."""
        if self._merged != len(self._ops):
            self._merge()
        return self._reach

    def _merge(self) -> None:
        with self._lock.exclusive:
            if self._reach is NO_DELETES:
                self._reach = MergedDeletes()
            while self._merged < len(self._ops):
                self._reach.add(self._ops[self._merged])
                self._merged += 1
