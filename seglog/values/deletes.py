"""A delete as a value. It decides from a record alone whether it reaches that record.

seglog.values.merged_deletes tells what many deletes reach together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seglog.values.canonical import record, text_or_none, whole, whole_or_none, wholes
from seglog.values.record import Record

__all__ = ["DeleteOp"]


@dataclass(frozen=True, slots=True)
class DeleteOp:
    """Delete number `op` of a topic, made at `ts_ms`, when the head of the topic was `at_seq`.

    The delete reaches the records up to `at_seq` that meet both conditions:

        before   the seq is below `before`; None: any seq
        tag      the record has this tag; a trailing `*` makes it a prefix; None: any tag, or none

    A delete with `evict_from` and without a tag is an eviction. Readers then report the records from that seq on as
    lost.
    """

    op: int
    at_seq: int
    ts_ms: int
    before: int | None = None
    tag: str | None = None
    evict_from: int | None = None

    @property
    def below(self) -> int:
        """Return the exclusive end of the reach. If the delete has no tag, every record below it is deleted."""
        end = self.at_seq + 1
        return end if self.before is None else min(self.before, end)

    def matches(self, record: Record) -> bool:
        return self.reaches(record.seq, record.tag)

    def reaches(self, seq: int, tag: str | None) -> bool:
        return self.may_reach(seq) and self.tag_fits(tag)

    def may_reach(self, seq: int) -> bool:
        """Return whether a record with that seq is deleted, if its tag fits."""
        return seq <= self.at_seq and (self.before is None or seq < self.before)

    def tag_fits(self, tag: str | None) -> bool:
        """Return whether a record with that tag is deleted, if its seq is in range."""
        if self.tag is None:
            return True
        if tag is None:
            return False
        return tag.startswith(self.tag[:-1]) if self.tag.endswith("*") else tag == self.tag

    def to_json(self) -> dict[str, Any]:
        value = {"at_seq": self.at_seq, "before": self.before, "op": self.op, "tag": self.tag, "ts_ms": self.ts_ms}
        return value if self.evict_from is None else {**value, "evict_from": self.evict_from}

    @classmethod
    def from_json(cls, value: object) -> DeleteOp:
        """Return the delete that `to_json` wrote. Raise `KeyError` or `ValueError` for any other value."""
        fields = record(value)
        op, at_seq, ts_ms = wholes((fields["op"], fields["at_seq"], fields["ts_ms"]))
        evict_from = whole(fields["evict_from"], 1) if "evict_from" in fields else None
        return cls(op, at_seq, ts_ms, whole_or_none(fields["before"]), text_or_none(fields["tag"]), evict_from)
