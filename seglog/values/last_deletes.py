"""The last deletes of a topic, so that the log can take one of them back. No I/O.

A flag says that a record is deleted, and no more. So the log remembers what each of the last deletes reached:

    ops            the last deletes that are not undone, oldest first: 16 at most, with `RANGES_MAX` ranges together
    former         what all earlier ones and evictions reached, one for each tag: these records stay deleted
    unknown_below  below it, a record may have been taken by a delete that is in neither list

LAST-1  Each delete has its seqs here, also one of all records below a seq. They begin with the first record that was
    on this disk when the delete came, so that an undo misses no record that was gone before.
LAST-2  A topic with `keep_history` has none: its archive undoes the commit of a delete.
LAST-3  A manifest of an earlier release, or of a topic that kept its history, has none. Then the records that the
    topic had may have been taken by any delete.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from seglog.base.dataclasses import dataclass
from seglog.values.canonical import record, whole
from seglog.values.deletes import DeleteOp, MergedDeletes
from seglog.values.seq_set import SeqSet

OPS_MAX = 16
RANGES_MAX = 100_000
_FORMER_RANGES_MAX = 1000
_FORMER_TAGS_MAX = 100


@dataclass(frozen=True, slots=True)
class Undeleted:
    """The result of an undo of the delete with the number `delete`, in a log.

    `back` are the records that are there again. The bytes of `gone` are not there any more, or the log cannot tell
    whether an earlier delete took them. `stay` are deleted until other deletes are undone, too.
    """

    delete: int
    back: SeqSet
    gone: SeqSet
    stay: SeqSet


@dataclass(frozen=True, slots=True)
class LastDeletes:
    """The last deletes of a topic, replaced as one value."""

    ops: tuple[DeleteOp, ...] = ()
    former: tuple[DeleteOp, ...] = ()
    unknown_below: int = 1

    def added(self, new: Sequence[tuple[DeleteOp, int]]) -> LastDeletes:
        """Return the value after deletes, each with the first seq that was on this disk then (LAST-1)."""
        within = ((op, SeqSet.of([(first, op.at_seq)]) if op.seqs is None else op.seqs, first) for op, first in new)
        narrowed = ((op, seqs.within(first, op.below - 1)) for op, seqs, first in within)
        reached = (*self.ops, *(replace(op, seqs=seqs) for op, seqs in narrowed if seqs))
        ops = tuple(op for op in reached if op.evict_from is None)
        evictions = tuple(replace(op, evict_from=None) for op in reached if op.evict_from is not None)
        count = max(len(ops) - OPS_MAX, 0)  # so many of them join the former ones
        while sum(map(_ranges, ops[count:])) > RANGES_MAX:
            count += 1
        if not count and not evictions:
            return replace(self, ops=ops)
        former = MergedDeletes((*self.former, *evictions, *ops[:count])).selective
        if len(former) > _FORMER_TAGS_MAX or sum(map(_ranges, former)) > _FORMER_RANGES_MAX:
            return LastDeletes(ops[count:], (), max(self.unknown_below, *(op.below for op in former)))
        return LastDeletes(ops[count:], former, self.unknown_below)

    def forgotten(self, below: int) -> LastDeletes:
        """Return a value that knows no delete of the records below a seq."""
        return LastDeletes(unknown_below=max(self.unknown_below, below))

    def without(self, number: int) -> LastDeletes:
        """Return the value after the undo of a delete."""
        return replace(self, ops=tuple(op for op in self.ops if op.op != number))

    def cut(self, seq: int) -> LastDeletes:
        """Return the value after a truncation at `seq`. Other records may take the seqs from there on."""
        return LastDeletes(_cut(self.ops, seq), _cut(self.former, seq), min(self.unknown_below, seq))

    def find(self, number: int) -> DeleteOp | None:
        return next((op for op in self.ops if op.op == number), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "former": [op.to_json() for op in self.former],
            "ops": [op.to_json() for op in self.ops],
            "unknown_below": self.unknown_below,
        }

    @classmethod
    def from_json(cls, value: object) -> LastDeletes:
        """Return the value that `to_json` wrote. Raise `KeyError` or `ValueError` for any other one."""
        fields = record(value)
        ops, former = (tuple(map(DeleteOp.from_json, fields[name])) for name in ("ops", "former"))
        if any(op.seqs is None for op in (*ops, *former)):
            raise ValueError("a delete without seqs")
        return cls(ops, former, whole(fields["unknown_below"], 1))


def _cut(ops: Iterable[DeleteOp], seq: int) -> tuple[DeleteOp, ...]:
    kept = ((op, op.seqs.within(1, seq - 1)) for op in ops if op.seqs is not None)
    return tuple(replace(op, at_seq=min(op.at_seq, seq - 1), seqs=seqs) for op, seqs in kept if seqs)


def _ranges(op: DeleteOp) -> int:
    return 0 if op.seqs is None else op.seqs.range_count
