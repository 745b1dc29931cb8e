"""A truncation as a value, for an archive, which keeps the topic's history and has to record the truncation."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TruncateOp", "listed_with"]


@dataclass(frozen=True, slots=True)
class TruncateOp:
    """A truncation at `ts_ms` that removed all records from seq `seq` on.

    It came after every delete with a number below `next_op`.
    """

    seq: int
    ts_ms: int
    next_op: int


def listed_with(ops: tuple[TruncateOp, ...], op: TruncateOp) -> tuple[TruncateOp, ...]:
    """Return the listed truncations and `op`. Leave `op` out if a listed one is as deep or deeper.

    The archive has no record that was appended after a listed truncation. So a later truncation that is not deeper
    removes nothing that the archive has. The seqs in the list descend. Listing a truncation twice lists it once.
    """
    return ops if ops and ops[-1].seq <= op.seq else (*ops, op)
