"""A truncation as a value, for whoever keeps a topic's history elsewhere and has to hear of it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TruncateOp", "listed_with"]


@dataclass(frozen=True, slots=True)
class TruncateOp:
    """From seq `seq` on all was removed, at `ts_ms`, after every delete with a number below `next_op`."""

    seq: int
    ts_ms: int
    next_op: int


def listed_with(ops: tuple[TruncateOp, ...], op: TruncateOp) -> tuple[TruncateOp, ...]:
    """The listed ones, and `op`; without it, if one that is listed went as deep.

    For what was appended after a truncation of which nobody has heard is not known elsewhere either. So they descend,
    and to list one twice is to list it once.
    """
    return ops if ops and ops[-1].seq <= op.seq else (*ops, op)
