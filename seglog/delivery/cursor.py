"""A cursor: how far a reader of a topic has come. Its record is little-endian.

    offset  size  field        meaning
    0       1     version      1
    1       1     state        1 live, 0 deleted
    2       2     topic        bytes of the topic's name
    4       2     name         bytes of the cursor's name
    6       2     incarnation  bytes of the topic's incarnation
    8       8     epoch        the epoch of the topic in which the seqs below count
    16      8     floor        each seq up to this one is acked
    24      8     time         ms: the topic's last one when the seqs counted; a later truncation is not before it
    32      ...   texts        topic, name and incarnation in UTF-8
    ...     ...   above        the acked seqs above the floor: a portable Roaring bitmap of seq - floor - 1; empty: none

The tag of the record is `topic/name`, such as `orders/billing`: no name has a slash. So the tag names the cursor of a
record that this version cannot read, too.

ACKED-1  An acked seq stays acked until the cursor is reset, or its record is truncated. So acks may come in any order,
    and again.
ACKED-2  A truncation lowers the floor to the seq before the cut, and the bits from the cut on go. So no record that
    stands in the place of a truncated one is taken for acked.
ACKED-3  The floor is never inside a run of acked seqs, so the bitmap is empty for a reader that acks in order.
ACKED-4  A record has at most 1 MiB, which is enough for eight million seqs of any pattern. An ack never writes more.

No I/O: bytes in, bytes out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import field, replace
from typing import Final

from pyroaring import BitMap

from seglog.base.arguments import WHOLE_MAX
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Conflict
from seglog.delivery.keyed_topic import UnreadableState

TOPIC: Final = "_seglog.cursors"
"""The topic that has the records of all cursors of a log."""
ABOVE_MAX: Final = 2**32
"""An acked seq is at most so far above the floor."""
RECORD_MAX_BYTES: Final = 1024 * 1024
HEADER = struct.Struct("<BBHHHQQQ")
_VERSION = 1


def key_of(topic: str, name: str) -> str:
    """Return the tag of a cursor's records."""
    return f"{topic}/{name}"


class AckedSeqs(Set[int]):
    """The acked seqs above a floor, as a set that copies nothing."""

    __slots__ = ("_above", "_first")

    def __init__(self, floor: int, above: BitMap) -> None:
        self._first = floor + 1
        self._above = above

    def __contains__(self, seq: object) -> bool:
        return isinstance(seq, int) and 0 <= seq - self._first < ABOVE_MAX and seq - self._first in self._above

    def __iter__(self) -> Iterator[int]:
        return (self._first + place for place in self._above)

    def __len__(self) -> int:
        return len(self._above)

    def count_from(self, seq: int) -> int:
        """Return how many of them are `seq` or higher."""
        return self._above.range_cardinality(min(max(0, seq - self._first), ABOVE_MAX), ABOVE_MAX)

    def next_missing(self, seq: int) -> int:
        """Return the first seq from `seq` on that is not acked."""
        place = max(0, seq - self._first)
        return self._first + place + _run(self._above, place)


@dataclass(frozen=True, slots=True)
class Cursor:
    """The state of a cursor. `above` has `seq - floor - 1` of each acked seq above the floor, and never changes.

    `ts_ms` is the topic's last time when its record was made: each truncation after that has this time or a later one.
    """

    topic: str
    name: str
    incarnation: str
    epoch: int
    floor: int
    above: BitMap = field(default_factory=BitMap)
    is_deleted: bool = False
    ts_ms: int = field(default=0, compare=False)

    @property
    def key(self) -> str:
        return key_of(self.topic, self.name)

    @property
    def acked_above(self) -> AckedSeqs:
        return AckedSeqs(self.floor, self.above)

    def acked(self, seqs: Iterable[int]) -> Cursor:
        """Return the cursor with these seqs acked, too. Raise `Conflict` for one that is too far above the floor."""
        first = self.floor + 1
        if isinstance(seqs, range) and seqs.step == 1:
            places: Sequence[int] = range(max(0, seqs.start - first), max(0, seqs.stop - first))
            if places and not places[0]:  # the bitmap needs not hold what the floor passes at once
                return _raised(self, len(places))
        else:
            places = [seq - first for seq in seqs if seq >= first]
        if not places:
            return self
        most = places[-1] if isinstance(places, range) else max(places)
        if most >= ABOVE_MAX:
            text = f"seq {first + most} is too far above the ack floor {self.floor} of {self.key}"
            raise Conflict(text, hint='ack the records before it first, for example with {"up_to": N}')
        above = self.above | BitMap(places)
        return _raised(replace(self, above=above), 0)

    def cut(self, seq: int, epoch: int) -> Cursor:
        """Return the cursor after a truncation that took the records from `seq` on (ACKED-2)."""
        floor = min(self.floor, max(0, seq - 1))
        above = BitMap()
        if floor == self.floor:
            above = self.above.copy()
            kept = seq - floor - 1
            if kept < ABOVE_MAX:
                above.remove_range(kept, ABOVE_MAX)
        return replace(self, epoch=epoch, floor=floor, above=above)

    def at(self, floor: int, epoch: int, incarnation: str) -> Cursor:
        """Return the cursor with each seq up to `floor` acked, and no other one."""
        return Cursor(self.topic, self.name, incarnation, epoch, floor)


def _raised(cursor: Cursor, count: int) -> Cursor:
    """Return the cursor with the floor raised by `count`, and over the run of acked seqs behind that (ACKED-3)."""
    count += _run(cursor.above, count)
    above = _shifted(cursor.above, count)
    return replace(cursor, floor=cursor.floor + count, above=above) if count else cursor


def _run(above: BitMap, first: int) -> int:
    """Return how many numbers from `first` on are in the bitmap without a gap."""
    if first >= ABOVE_MAX or first not in above:
        return 0
    least, most = 1, above.max() - first + 1
    while least < most:
        middle = (least + most + 1) // 2
        if above.contains_range(first, first + middle):
            least = middle
        else:
            most = middle - 1
    return least


def _shifted(above: BitMap, count: int) -> BitMap:
    if not above or count > above.max():
        return BitMap()
    return above.shift(-count)


def encode_cursor(cursor: Cursor) -> bytes:
    """Return the record of a cursor. Raise `Conflict` for one with too many holes (ACKED-4)."""
    texts = [text.encode() for text in (cursor.topic, cursor.name, cursor.incarnation)]
    head = HEADER.pack(_VERSION, not cursor.is_deleted, *map(len, texts), cursor.epoch, cursor.floor, cursor.ts_ms)
    above = BitMap(cursor.above)
    above.run_optimize()
    value = b"".join([head, *texts, above.serialize() if above else b""])
    if len(value) > RECORD_MAX_BYTES:
        text = f"{cursor.key} has too many acked seqs between others that are not: its state takes {len(value):,} bytes"
        raise Conflict(text, hint='ack the records behind the ack floor first, for example with {"up_to": N}')
    return value


def decode_cursor(value: bytes, tag: str | None) -> Cursor:
    """Return the cursor of a record. Raise `UnreadableState` for a record that is none of this version."""
    try:
        return _decoded(value, tag)
    except (ValueError, struct.error) as error:
        raise UnreadableState(f"this is no cursor of this version: {value[:50]!r} ({error})", tag) from error


def _decoded(value: bytes, tag: str | None) -> Cursor:
    version, state, topic, name, incarnation, epoch, floor, ts_ms = HEADER.unpack_from(value)
    if version != _VERSION or state > 1:
        raise ValueError(f"version {version}, state {state}")
    texts, at = [], HEADER.size
    for size in (topic, name, incarnation):
        texts.append(value[at : at + size].decode())
        at += size
    if at > len(value):
        raise ValueError("it is cut")
    if max(epoch, floor, ts_ms) > WHOLE_MAX or key_of(texts[0], texts[1]) != tag:
        raise ValueError("its tag or its numbers do not fit")
    above = BitMap.deserialize(value[at:]) if len(value) > at else BitMap()
    return Cursor(texts[0], texts[1], texts[2], epoch, floor, above, is_deleted=not state, ts_ms=ts_ms)
