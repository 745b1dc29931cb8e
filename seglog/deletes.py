"""A delete as a value: which records it reaches is decided here, from the record alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seglog.record import Record

__all__ = ["DeleteOp"]


@dataclass(frozen=True, slots=True)
class DeleteOp:
    """Delete number `op` of a topic, made when its head was `at_seq`, at `ts_ms`.

    It reaches the records up to `at_seq` that are below `before` (all of them, if None) and have the tag (any or none,
    if None). `tag` is exact, or a prefix with a trailing `*`.
    """

    op: int
    at_seq: int
    ts_ms: int
    before: int | None = None
    tag: str | None = None

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

    def covers(self, other: DeleteOp) -> bool:
        """Whether it reaches all that `other` does."""
        is_as_wide = self.before is None or (other.before is not None and other.before <= self.before)
        return self.tag == other.tag and self.at_seq >= other.at_seq and is_as_wide

    def to_json(self) -> dict[str, Any]:
        return {"at_seq": self.at_seq, "before": self.before, "op": self.op, "tag": self.tag, "ts_ms": self.ts_ms}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> DeleteOp:
        """Raises `KeyError` or `TypeError` for what `to_json` does not write."""
        return cls(value["op"], value["at_seq"], value["ts_ms"], value["before"], value["tag"])
