"""The model's journal of one data directory's changes to one topic of its log. It uses no code of the product."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    """A delete of records up to `at_seq`, below `before`, in `seqs` and with `tag`; or a truncation from `cut` on.

    `made_at` is the value of `at_seq` before truncations lowered it. The `at_seq` of the delete's commit lies between
    the two. `first_seq` is the first seq of the journal. From `cut` on, a truncation takes every record below
    `first_seq`. From `first_seq` on, it takes only the records whose values are in `gone`.
    """

    number: int
    made_at: int
    at_seq: int
    before: int | None = None
    tag: str | None = None
    seqs: frozenset[int] | None = None
    cut: int | None = None
    gone: frozenset[bytes] = frozenset()
    first_seq: int = 0

    def takes_seq(self, seq: int) -> bool:
        """Return True if the seq alone decides that its record goes."""
        if self.cut is not None:
            return seq >= self.cut
        return self.tag is None and self.before is not None and seq < self.before and seq <= self.at_seq

    def takes(self, entry: Entry) -> bool:
        if self.cut is not None:
            return entry.seq >= self.cut and (entry.seq < self.first_seq or entry.value in self.gone)
        fits = (self.before is None or entry.seq < self.before) and (self.tag is None or entry.tag == self.tag)
        return fits and entry.seq <= self.at_seq and (self.seqs is None or entry.seq in self.seqs)

    def left(self, state: Mapping[int, Entry]) -> State:
        return {seq: entry for seq, entry in state.items() if not self.takes(entry)}

    def is_due(self, state: Mapping[int, Entry], head_seq: int) -> bool:
        """Return True if the writer must commit this change before it commits more records.

        `state` and `head_seq` are those of the volume.
        """
        return (self.cut is not None or self.at_seq <= head_seq) and any(self.takes(each) for each in state.values())


@dataclass(slots=True)
class Journal:
    """The changes of one directory to one topic.

    `entries` holds all records that were appended here and not truncated, including deleted ones. `shown` leaves out
    the deleted ones. `ops` holds its deletes and truncations, oldest first. `untold` holds the ops that no commit
    carries yet. `head` is the newest seq.
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

    def deleted(
        self, now_ms: int, *, before: int | None = None, tag: str | None = None, seqs: frozenset[int] | None = None
    ) -> Journal:
        op = Op(len(self.ops), self.head, self.head, before, tag, seqs)
        return self._after(now_ms, op)

    def truncated(self, now_ms: int, cut: int) -> Journal:
        """Truncate from `cut` on. The `at_seq` of each earlier delete falls below the cut."""
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

    def undeleted(self, now_ms: int, back: Mapping[int, Entry], is_listed: Callable[[Op], bool]) -> Journal:
        """Show records again that an undo of this directory brings back, except those that a listed delete takes.

        The volume's state has all that earlier ops took or left, so only the untold ones count from now on. An untold
        delete that is not listed took nothing when its turn came.
        """
        ops = tuple(op for op in self.untold if op.cut is not None or is_listed(op))
        shown = {seq: entry for seq, entry in back.items() if seq in self.entries and self._has(entry)}
        for op in ops:
            shown = shown if op.cut is not None else op.left(shown)
        return replace(self, last_ts_ms=max(now_ms, self.last_ts_ms), shown=self.shown | shown, ops=ops, untold=ops)

    def _has(self, entry: Entry) -> bool:
        """Return True if the record of that seq is still the same. A tombstone has no value."""
        return self.entries[entry.seq].value in {b"", entry.value}

    def _after(self, now_ms: int, op: Op) -> Journal:
        return replace(
            self,
            last_ts_ms=max(now_ms, self.last_ts_ms),
            shown=op.left(self.shown),
            ops=(*self.ops, op),
            untold=(*self.untold, op),
        )

    def told(self, op: Op) -> None:
        """Record that a commit carries `op`."""
        self.untold = tuple(each for each in self.untold if each.number != op.number)

    def between(self, first: int, last: int) -> State | None:
        """Return the records of those seqs, including deleted ones. Return None if one was not appended here."""
        seqs = range(first, last + 1)
        return {seq: self.entries[seq] for seq in seqs} if all(seq in self.entries for seq in seqs) else None

    def all_shown(self, below: Mapping[int, Entry]) -> State:
        """Return the records that the topic shows over both tiers.

        `below` is the state of the volume. It supplies the seqs below the first record that was appended here.
        """
        found = {seq: entry for seq, entry in below.items() if seq < self.first_seq}
        for op in self.ops:
            found = op.left(found)
        return found | self.shown


def _ended(op: Op, cut: int) -> Op:
    return op if op.cut is not None else replace(op, at_seq=min(op.at_seq, cut - 1))
