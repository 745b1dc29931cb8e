"""A delete as a value: which records it reaches is decided here, from the record alone.

Of relocated segments there may be as many as tags were ever deleted: what is asked of many together takes time by their
number once, and not for each of them or each record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from seglog.record import Record

__all__ = ["DeleteOp", "matcher", "without_covered"]


@dataclass(frozen=True, slots=True)
class DeleteOp:
    """Delete number `op` of a topic, made when its head was `at_seq`, at `ts_ms`.

    It reaches the records up to `at_seq` that are below `before` (all of them, if None) and have the tag (any or none,
    if None). `tag` is exact, or a prefix with a trailing `*`. With `evict_from`, and no tag, it is an eviction: readers
    are told that records are lost, from that seq on.
    """

    op: int
    at_seq: int
    ts_ms: int
    before: int | None = None
    tag: str | None = None
    evict_from: int | None = None

    @property
    def below(self) -> int:
        """Of one without a tag: every record below that is gone."""
        end = self.at_seq + 1
        return end if self.before is None else min(self.before, end)

    def matches(self, record: Record) -> bool:
        return self.reaches(record.seq, record.tag)

    def reaches(self, seq: int, tag: str | None) -> bool:
        return self.may_reach(seq) and self.tag_fits(tag)

    def may_reach(self, seq: int) -> bool:
        """Whether a record with that seq is deleted, if its tag fits."""
        return seq <= self.at_seq and (self.before is None or seq < self.before)

    def tag_fits(self, tag: str | None) -> bool:
        """Whether a record with that tag is deleted, if its seq is in range."""
        if self.tag is None:
            return True
        if tag is None:
            return False
        return tag.startswith(self.tag[:-1]) if self.tag.endswith("*") else tag == self.tag

    def to_json(self) -> dict[str, Any]:
        value = {"at_seq": self.at_seq, "before": self.before, "op": self.op, "tag": self.tag, "ts_ms": self.ts_ms}
        return value if self.evict_from is None else {**value, "evict_from": self.evict_from}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> DeleteOp:
        """Raises `KeyError` or `TypeError` for what `to_json` does not write."""
        evict_from = value.get("evict_from")
        return cls(value["op"], value["at_seq"], value["ts_ms"], value["before"], value["tag"], evict_from)


def without_covered(ops: Sequence[DeleteOp]) -> tuple[DeleteOp, ...]:
    """Those that reach something no later one of the same tag does. No later one has a lower `at_seq`."""
    widest: dict[str | None, float] = {}
    kept: list[DeleteOp] = []
    for op in reversed(ops):
        before = inf if op.before is None else op.before
        if before > widest.get(op.tag, 0):
            widest[op.tag] = before
            kept.append(op)
    return tuple(reversed(kept))


def matcher(ops: Sequence[DeleteOp]) -> Callable[[Record], bool]:
    """Whether one of them reaches a record. Of those with an exact tag, only the record's own are asked."""
    by_tag: dict[str | None, list[DeleteOp]] = {}
    others: list[DeleteOp] = []
    for op in ops:
        is_exact = op.tag is not None and not op.tag.endswith("*")
        (by_tag.setdefault(op.tag, []) if is_exact else others).append(op)

    def reaches(record: Record) -> bool:
        return any(op.matches(record) for op in (*by_tag.get(record.tag, ()), *others))

    return reaches
