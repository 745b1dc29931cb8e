"""Deletes and truncations as values, and what many deletes reach together.

A delete decides from a record alone whether it reaches that record. A merge of many deletes takes one lookup a record,
however many there are:

    below        the highest end of a delete without a condition but `before`: every record below it is reached
    tag          the highest end of a delete by that tag; ends are exclusive
    prefix*      the same for a prefix; a record's tag is looked up at each length that a prefix has
    seqs         the union of the seqs of all deletes with such a set: one for each tag and prefix, one without a tag

REACH-1  A delete reaches only records that existed when it was made, so its reach has an upper end. Of two deletes by
    one tag, the one with the higher end covers the other, unless it has a set of seqs.

A delete is **selective** if it reaches only some of the records below its end: it has a tag, or seqs.

A list of deletes takes another one in the same time, however many are listed. It merges them when a reader asks, each
delete once. No I/O.

**Floors** are the start of a topic: which seqs are live, and which range retention evicted.

    seq      1 ... evict_from ... evict_floor ... earliest_seq ... head
             |      |--- a Gap ---|                |--- live, or deleted among live ones
             |- deleted, or in the cold tier -|

FLOOR-1  1 <= evict_from <= evict_floor <= earliest_seq. Nothing below `earliest_seq` is live.
FLOOR-2  An eviction of live records raises `earliest_seq` and `evict_floor`. The first one also sets `evict_from`. A
    delete raises `earliest_seq` only. So a reader reports evicted records, and passes over deleted ones in silence.
FLOOR-3  All seqs from `evict_from` up to `evict_floor` count as lost, even seqs that a delete had reached before. One
    range cannot tell them apart, so it reports too many rather than too few.
FLOOR-4  While the cold tier has live records, `earliest_seq` may be lower than the first live one. The log does not
    look up deletes by tag in the cold tier.
FLOOR-5  The expiry floor of a ttl is not part of these floors. A reader adds it with `expired` until retention evicts
    the records (seglog.reading.times).

Source: topics engine architecture, sections 1.2 and 3.4; `evict_from` is ours. No I/O.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from seglog.base.dataclasses import dataclass
from seglog.errors import InvalidArgument, InvalidSetting, SeqOutOfRange
from seglog.interrupts import OwnLock
from seglog.values.canonical import record, text_or_none, whole, whole_or_none, wholes
from seglog.values.record import Gap, Record, tag_fits
from seglog.values.seq_set import SEQ_RANGES_MAX, SeqSet, seq_set

if TYPE_CHECKING:
    from seglog.values.protocols import DeleteArguments

_number = attrgetter("op")


@dataclass(frozen=True, slots=True)
class DeleteOp:
    """Delete number `op` of a topic, made at `ts_ms`, when the head of the topic was `at_seq`.

    The delete reaches the records up to `at_seq` that meet each condition:

        before   the seq is below `before`; None: any seq
        tag      the record has this tag; a trailing `*` makes it a prefix; None: any tag, or none
        seqs     the seq is one of these; None: any seq

    A delete with `evict_from`, without a tag and without seqs, is an eviction. Readers then report the records from
    that seq on as lost.
    """

    op: int
    at_seq: int
    ts_ms: int
    before: int | None = None
    tag: str | None = None
    evict_from: int | None = None
    seqs: SeqSet | None = None

    @property
    def is_prefix(self) -> bool:
        """Return whether every record below the end of the reach is deleted."""
        return self.tag is None and self.seqs is None

    @property
    def below(self) -> int:
        """Return the exclusive end of the reach."""
        end = self.at_seq + 1 if self.before is None else min(self.before, self.at_seq + 1)
        return end if self.seqs is None else min(end, self.seqs.end)

    def matches(self, record: Record) -> bool:
        return self.reaches(record.seq, record.tag)

    def reaches(self, seq: int, tag: str | None) -> bool:
        is_before = seq <= self.at_seq and (self.before is None or seq < self.before)
        return is_before and (self.seqs is None or seq in self.seqs) and self.tag_fits(tag)

    def may_reach(self, seq: int) -> bool:
        """Return whether the delete may reach a record with that seq, or a higher one."""
        return seq < self.below

    def tag_fits(self, tag: str | None) -> bool:
        """Return whether a record with that tag is deleted, if its seq is in range."""
        return self.tag is None or tag_fits(tag, self.tag)

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {
            "at_seq": self.at_seq,
            "before": self.before,
            "op": self.op,
            "tag": self.tag,
            "ts_ms": self.ts_ms,
        }
        if self.evict_from is not None:
            value["evict_from"] = self.evict_from
        if self.seqs is not None:
            value["seqs"] = self.seqs.to_json()
        return value

    @classmethod
    def from_json(cls, value: object) -> DeleteOp:
        """Return the delete that `to_json` wrote. Raise `KeyError` or `ValueError` for any other value."""
        fields = record(value)
        op, at_seq, ts_ms = wholes((fields["op"], fields["at_seq"], fields["ts_ms"]))
        evict_from = whole(fields["evict_from"], 1) if "evict_from" in fields else None
        seqs = SeqSet.from_json(wholes(fields["seqs"])) if "seqs" in fields else None
        return cls(op, at_seq, ts_ms, whole_or_none(fields["before"]), text_or_none(fields["tag"]), evict_from, seqs)


@dataclass(frozen=True, slots=True)
class DeleteWhere:
    """The conditions of a delete: it takes the records that meet each one that is not None.

    `start` and `end` are both inclusive, and `before` is exclusive. `seqs` names single records. `epoch` is the epoch
    in which the caller looked them up: a truncation since may have given their seqs to others.
    """

    before: int | None = None
    tag: str | None = None
    start: int | None = None
    end: int | None = None
    seqs: SeqSet | None = None
    epoch: int | None = None

    def check(self) -> None:
        """Raise `InvalidSetting` without a condition, and `InvalidArgument` for what no delete takes."""
        if self == DeleteWhere(epoch=self.epoch):
            raise InvalidSetting("delete", "needs before, tag, start, end or seqs")
        self.check_seqs()

    @property
    def is_none(self) -> bool:
        """Return whether no record can meet the conditions."""
        return self.before in (0, 1) or self.end == 0 or (self.seqs is not None and not self.seqs)

    def check_seqs(self) -> None:
        if self.start is not None and self.end is not None and self.end < self.start:
            raise InvalidArgument("end", self.end, f"a seq from start ({self.start}) on")
        if self.seqs is not None and self.seqs.range_count > SEQ_RANGES_MAX:
            wanted = f"at most {SEQ_RANGES_MAX} ranges of seqs: delete them in parts"
            raise InvalidArgument("seqs", f"{self.seqs.range_count} ranges", wanted)

    def op(self, number: int, at_seq: int, ts_ms: int) -> DeleteOp:
        """Return the delete. It has no seqs if it takes all records below its end, whatever they are."""
        ends = [seq for seq in (self.before, None if self.end is None else self.end + 1) if seq is not None]
        before, start = min(ends, default=None), self.start or 1
        if self.seqs is None and start <= 1:
            return DeleteOp(number, at_seq, ts_ms, before, self.tag)
        last = at_seq if before is None else min(at_seq, before - 1)
        seqs = SeqSet.of([(start, last)]) if self.seqs is None else self.seqs.within(start, last)
        return DeleteOp(number, at_seq, ts_ms, None, self.tag, seqs=seqs)


def given_where(conditions: DeleteArguments) -> DeleteWhere:
    """Return the conditions beside times and a pattern.

    Raise `InvalidSetting` without any condition, and `InvalidArgument` for one that no delete takes.
    """
    if all(value is None for name, value in conditions.items() if name != "epoch"):
        raise InvalidSetting("delete", "needs before, tag, start, end, seqs, since_ms, until_ms or grep")
    where = DeleteWhere(
        conditions.get("before"),
        conditions.get("tag"),
        conditions.get("start"),
        conditions.get("end"),
        seq_set(conditions.get("seqs")),
        conditions.get("epoch"),
    )
    where.check_seqs()
    if (pattern := conditions.get("grep")) is not None:
        pattern_of(pattern)
    return where


def where_of(
    conditions: DeleteArguments,
    epoch: int | None,
    seq_at: Callable[[int], int],
    read: Callable[[int | None, int | None], Iterable[Record | Gap]],
) -> DeleteWhere:
    """Return the conditions, with seqs of that epoch in the place of times and of a pattern.

    Times become seqs because they never descend. Raise the errors of `given_where`.
    """
    where = given_where(conditions)
    times = (conditions.get("since_ms"), conditions.get("until_ms"))
    pattern = conditions.get("grep")
    if times == (None, None) and pattern is None:
        return where
    where = replace(where, epoch=epoch if where.epoch is None else where.epoch)
    if times[0] is not None:
        where = replace(where, start=max(where.start or 1, seq_at(times[0])))
    if times[1] is not None:
        last = seq_at(times[1] + 1) - 1
        where = replace(where, end=last if where.end is None else min(where.end, last))
    is_none = where.end is not None and where.end < (where.start or 1)
    if is_none or pattern is not None:
        has_pattern, seqs = pattern_of(pattern or ""), SeqSet.of(())
        with suppress(SeqOutOfRange):  # the first seq is above the head
            seqs = SeqSet.of_seqs(
                item.seq
                for item in (() if is_none else read(where.start or None, where.end))
                if isinstance(item, Record) and has_pattern(item.value)
            )
        if where.seqs is not None:
            seqs = SeqSet.of(part for each in seqs.ranges() for part in where.seqs.within(*each).ranges())
        where = replace(where, seqs=seqs, start=None, end=None)
    return where


def pattern_of(text: str) -> Callable[[bytes], object]:
    """Return the search of a `grep`. Raise `InvalidArgument` for a text that is no regular expression."""
    try:
        return re.compile(text.encode("utf-8", "surrogateescape")).search
    except re.error as error:
        raise InvalidArgument("grep", text, f"a regular expression: {error}") from None


@dataclass(frozen=True, slots=True)
class UndeleteOp:
    """Change number `op` of the deletes of a topic, made at `ts_ms`: the records `seqs` are there again.

    A listed delete still reaches them. With `evict_floor`, records from there on are no longer evicted. With `of`, the
    change takes back the delete of that number, which is listed no longer.
    """

    op: int
    ts_ms: int
    seqs: SeqSet
    evict_floor: int | None = None
    of: int | None = None

    def floors(self, floors: Floors, listed: Iterable[DeleteOp]) -> Floors:
        """Return the floors after the change."""
        prefixes = [op for op in listed if op.is_prefix]
        evict_floor = floors.evict_floor
        if self.evict_floor is not None:
            evicted = max((op.below for op in prefixes if op.evict_from is not None), default=1)
            evict_floor = max(min(evict_floor, self.evict_floor), evicted)
        below = max((op.below for op in prefixes), default=1)
        earliest_seq = max(min(floors.earliest_seq, self.seqs.first), evict_floor, below)
        return Floors(earliest_seq, min(floors.evict_from, evict_floor), evict_floor)


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


class MergedDeletes:
    """A merge of deletes. One thread at a time adds deletes. Other threads may ask meanwhile.

    They see each delete as a whole, or not yet.
    """

    __slots__ = ("_exact", "_lengths", "_prefixes", "_set_lengths", "_sets", "_widest", "below", "top")

    def __init__(self, ops: Iterable[DeleteOp] = ()) -> None:
        self.below = 0
        self.top = 0
        self._exact: dict[str, int] = {}
        self._prefixes: dict[str, int] = {}
        self._lengths: tuple[int, ...] = ()
        self._widest: dict[str, DeleteOp] = {}
        self._sets: dict[str | None, DeleteOp] = {}
        self._set_lengths: tuple[int, ...] = ()
        self.add(*ops)

    def add(self, *ops: DeleteOp) -> None:
        """Add deletes. Adding one a second time changes nothing."""
        by_seqs: dict[str | None, list[DeleteOp]] = defaultdict(list)
        for op in ops:
            if op.seqs is not None:
                by_seqs[op.tag].append(op)
            elif op.tag is None:
                self.below = max(self.below, op.below)
            else:
                self._add_tag(op, op.tag, op.below)
        for tag, listed in by_seqs.items():
            self._add_seqs(tag, listed)
        # Set `top` last, because a reader compares with it first.
        self.top = max(self.top, *(op.below for op in ops), 0)

    @property
    def has_tags(self) -> bool:
        return bool(self._widest or self._sets.keys() - {None})

    @property
    def is_selective(self) -> bool:
        """Return whether a delete reaches only some of the records below its end."""
        return bool(self._widest or self._sets)

    @property
    def selective(self) -> tuple[DeleteOp, ...]:
        """Return deletes that reach together what those with a tag or with seqs reach. Their numbers ascend.

        There are two for each tag at most: the one that covers the others, and one with the seqs of all.
        """
        return tuple(sorted((*self._widest.values(), *self._sets.values()), key=_number))

    def end(self, tag: str | None) -> int:
        """Return the first seq that no delete without seqs reaches, for records with this tag."""
        end = self.below
        if tag is None:
            return end
        exact = self._exact.get(tag, 0)
        if exact > end:
            end = exact
        for length in self._lengths:
            by_prefix = self._prefixes.get(tag[:length], 0)
            if by_prefix > end:
                end = by_prefix
        return end

    def reaches(self, seq: int, tag: str | None) -> bool:
        return seq < self.top and (seq < self.end(tag) or (bool(self._sets) and self._has(seq, tag)))

    def may_reach(self, seq: int) -> bool:
        """Return whether a delete may reach a record with that seq, or a higher one."""
        return seq < self.top

    def may_reach_tag(self, tag: str, seq: int) -> bool:
        """Return whether a delete may reach a record with that tag, and with that seq or a higher one."""
        return self.end(tag) > seq or any(seqs.end > seq for seqs in self._sets_of(tag))

    def seqs_within(self, first: int, last: int) -> Iterator[int]:
        """Yield the seqs from `first` to `last` that are reached whatever tag a record has, by a delete with seqs."""
        for seqs in self._sets_of(None):
            for begin, stop in seqs.within(first, last).ranges():
                yield from range(begin, stop + 1)

    def kept(self, seqs: Sequence[int], tags: Sequence[str | None] | None) -> list[bool] | None:
        """Return for each of these records whether it is not reached; None if no record is reached.

        `seqs` ascend. Without `tags`, no record has a tag.
        """
        if self._sets and seqs[0] < self.top:
            return self._kept_beside_sets(seqs, tags)
        if tags is None:
            return None if seqs[0] >= self.below else [seq >= self.below for seq in seqs]
        ends = {tag: self.end(tag) for tag in set(tags)}
        if seqs[0] >= max(ends.values()):
            return None
        return [seq >= ends[tag] for seq, tag in zip(seqs, tags, strict=True)]

    def _kept_beside_sets(self, seqs: Sequence[int], tags: Sequence[str | None] | None) -> list[bool] | None:
        """Return what `kept` does, if there are deletes with seqs."""
        labels = [None] * len(seqs) if tags is None else tags
        kinds = set(labels)
        ends, sets = {tag: self.end(tag) for tag in kinds}, {tag: self._sets_of(tag) for tag in kinds}
        gone = {tag: _any_of([seqs_of.holds(seqs) for seqs_of in listed]) for tag, listed in sets.items()}
        if seqs[0] >= max(ends.values()) and not any(gone.values()):
            return None
        return [
            seq >= ends[tag] and not ((flags := gone[tag]) and flags[at])
            for at, (seq, tag) in enumerate(zip(seqs, labels, strict=True))
        ]

    def _has(self, seq: int, tag: str | None) -> bool:
        return any(seq in seqs for seqs in self._sets_of(tag))

    def _sets_of(self, tag: str | None) -> list[SeqSet]:
        """Return the sets that may have the seq of a record with this tag."""
        names = [None] if tag is None else [None, tag, *(f"{tag[:length]}*" for length in self._set_lengths)]
        return [op.seqs for name in names if (op := self._sets.get(name)) is not None and op.seqs is not None]

    def _add_seqs(self, tag: str | None, ops: list[DeleteOp]) -> None:
        """Join deletes with seqs, by one tag, to the one that has the seqs of all earlier ones."""
        joined = [*ops, *filter(None, [self._sets.get(tag)])]
        seqs = SeqSet.union(op.seqs.within(1, op.below - 1) for op in joined if op.seqs is not None)
        newest = max(joined, key=_number)
        self._sets[tag] = replace(newest, at_seq=max(op.at_seq for op in joined), before=None, seqs=seqs)
        if tag is not None and tag.endswith("*"):
            self._set_lengths = tuple(sorted({*self._set_lengths, len(tag) - 1}))

    def _add_tag(self, op: DeleteOp, tag: str, end: int) -> None:
        widest = self._widest.get(tag)
        if widest is not None and widest.below > end:
            return
        self._widest[tag] = op
        if not tag.endswith("*"):
            self._exact[tag] = end
            return
        self._prefixes[tag[:-1]] = end
        if len(tag) - 1 not in self._lengths:
            self._lengths = tuple(sorted((*self._lengths, len(tag) - 1)))


def _any_of(columns: list[list[bool] | None]) -> list[bool] | None:
    """Return whether one of the columns is True, row by row; None if there are none."""
    filled = [column for column in columns if column is not None]
    if len(filled) < 2:
        return filled[0] if filled else None
    return [*map(any, zip(*filled, strict=True))]


#: The merge of no deletes.
NO_DELETES = MergedDeletes()


class DeleteList:
    """A list of deletes with ascending numbers. One thread at a time adds. Any thread may ask.

    The list never drops a delete: for fewer deletes, make another list. `selective` counts the deletes that are no
    prefix, approximately.
    """

    __slots__ = ("_lock", "_merged", "_ops", "_reach", "selective")

    def __init__(self, ops: Iterable[DeleteOp] = ()) -> None:
        self._ops = list(ops)
        self._merged = 0
        self._reach = NO_DELETES
        self._lock = OwnLock()
        self.selective = sum(not op.is_prefix for op in self._ops)

    def __len__(self) -> int:
        return len(self._ops)

    def __iter__(self) -> Iterator[DeleteOp]:
        """Iterate over the deletes that are listed now."""
        return iter(self.first(len(self._ops)))

    def add(self, op: DeleteOp) -> None:
        """Add a delete. Adding it again after an interrupt changes nothing."""
        if not self._ops or self._ops[-1].op < op.op:
            self.selective += not op.is_prefix
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
            count = len(self._ops)
            self._reach.add(*self._ops[self._merged : count])
            self._merged = count


@dataclass(frozen=True, slots=True)
class Floors:
    """The floors of a topic, replaced as one value. So a reader without a lock sees floors that belong together."""

    earliest_seq: int = 1
    evict_from: int = 1
    evict_floor: int = 1

    @property
    def is_fit(self) -> bool:
        """Return whether the floors are in order (FLOOR-1)."""
        return 1 <= self.evict_from <= self.evict_floor <= self.earliest_seq

    def gap(self, first: int, last: int) -> Gap | None:
        """Return the lost part of the seqs `first` to `last`; None if none of them was lost."""
        begin, end = max(first, self.evict_from), min(last, self.evict_floor - 1)
        return Gap(begin, end) if begin <= end else None

    def raised(self, earliest_seq: int) -> Floors:
        """Return the floors after all records below `earliest_seq` were deleted, or are known to be dead."""
        return self if earliest_seq <= self.earliest_seq else replace(self, earliest_seq=earliest_seq)

    def evicted(self, earliest_seq: int, lost: Gap | None) -> Floors:
        """Return the floors after all records below `earliest_seq` were evicted. Those in `lost` were live."""
        raised = self.raised(earliest_seq)
        if lost is None:
            return raised
        begin = self.evict_from if self.evict_from < self.evict_floor else lost.gap_from
        return replace(raised, evict_from=begin, evict_floor=max(self.evict_floor, lost.gap_to + 1))

    def expired(self, seq: int) -> Floors:
        """Return the floors if all records below `seq` are past the topic's ttl. They count as evicted."""
        return self if seq <= self.earliest_seq else self.evicted(seq, Gap(self.earliest_seq, seq - 1))

    def cut(self, seq: int) -> Floors:
        """Return the floors after a truncation at `seq`: no record is left from there on.

        `seq` is not below `evict_floor`.
        """
        return self if self.earliest_seq <= seq else replace(self, earliest_seq=seq)
