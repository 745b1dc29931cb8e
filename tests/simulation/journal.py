"""What one data directory did to one topic of its log, as the model knows it. Nothing here comes from the product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

__all__ = ["Entry", "Journal", "Op", "State"]


class Entry(NamedTuple):
    """A record. No two have the same value."""

    seq: int
    ts_ms: int
    value: bytes
    tag: str | None


State = dict[int, Entry]
"""The records that are shown, by seq."""


@dataclass(frozen=True, slots=True)
class Op:
    """A delete (of records up to `at_seq`, below `before` and with `tag`), or a truncation from `cut` on.

    `made_at` is what `at_seq` was before truncations lowered it. A delete that is being told has the one or the other.
    `gone` are the values that a truncation takes, beside all that lies below `first_seq`, where the journal began.
    """

    number: int
    made_at: int
    at_seq: int
    before: int | None = None
    tag: str | None = None
    cut: int | None = None
    gone: frozenset[bytes] = frozenset()
    first_seq: int = 0

    def takes(self, entry: Entry) -> bool:
        if self.cut is not None:
            return entry.seq >= self.cut and (entry.seq < self.first_seq or entry.value in self.gone)
        fits = (self.before is None or entry.seq < self.before) and (self.tag is None or entry.tag == self.tag)
        return fits and entry.seq <= self.at_seq

    def left(self, state: Mapping[int, Entry]) -> State:
        return {seq: entry for seq, entry in state.items() if not self.takes(entry)}

    def is_due(self, state: Mapping[int, Entry], head_seq: int) -> bool:
        """Whether a volume with that state has to be told before it gets more records."""
        return (self.cut is not None or self.at_seq <= head_seq) and any(self.takes(each) for each in state.values())


@dataclass(slots=True)
class Journal:
    """`entries` are all records that were appended here and not truncated, deleted ones too.

    `ops` are its deletes and truncations, oldest first, and `untold` those that no commit tells of. `head` is the
    newest seq.
    """

    first_seq: int
    head: int
    last_ts_ms: int
    entries: State = field(default_factory=State)
    shown: State = field(default_factory=State)
    ops: tuple[Op, ...] = ()
    untold: tuple[Op, ...] = ()

    def appended(self, now_ms: int, values: list[bytes], tag: str | None) -> Journal:
        ts_ms = max(now_ms, self.last_ts_ms)
        seqs = range(self.head + 1, self.head + len(values) + 1)
        added = {seq: Entry(seq, ts_ms, value, tag) for seq, value in zip(seqs, values, strict=True)}
        return replace(
            self,
            head=self.head + len(values),
            last_ts_ms=ts_ms,
            entries=self.entries | added,
            shown=self.shown | added,
        )

    def deleted(self, now_ms: int, *, before: int | None = None, tag: str | None = None) -> Journal:
        op = Op(len(self.ops), self.head, self.head, before, tag)
        return self._after(now_ms, op)

    def truncated(self, now_ms: int, cut: int) -> Journal:
        """Deletes that were made above the cut end below it."""
        if cut > self.head:
            return self
        gone = frozenset(entry.value for seq, entry in self.entries.items() if seq >= cut)
        ended = replace(
            self,
            ops=tuple(_ended(op, cut) for op in self.ops),
            untold=tuple(_ended(op, cut) for op in self.untold),
            first_seq=min(self.first_seq, cut),
            head=cut - 1,
            entries={seq: entry for seq, entry in self.entries.items() if seq < cut},
        )
        return ended._after(
            now_ms, Op(len(self.ops), self.head, self.head, cut=cut, gone=gone, first_seq=self.first_seq)
        )

    def _after(self, now_ms: int, op: Op) -> Journal:
        return replace(
            self,
            last_ts_ms=max(now_ms, self.last_ts_ms),
            shown=op.left(self.shown),
            ops=(*self.ops, op),
            untold=(*self.untold, op),
        )

    def told(self, op: Op) -> None:
        """A commit tells of it."""
        self.untold = tuple(each for each in self.untold if each.number != op.number)

    def between(self, first: int, last: int) -> State | None:
        """The records of those seqs, deleted ones too. None if one of them was not appended here."""
        seqs = range(first, last + 1)
        return {seq: self.entries[seq] for seq in seqs} if all(seq in self.entries for seq in seqs) else None

    def all_shown(self, below: Mapping[int, Entry]) -> State:
        """With what the volume shows `below` the first record that was appended here."""
        found = {seq: entry for seq, entry in below.items() if seq < self.first_seq}
        for op in self.ops:
            found = op.left(found)
        return found | self.shown


def _ended(op: Op, cut: int) -> Op:
    return op if op.cut is not None else replace(op, at_seq=min(op.at_seq, cut - 1))
