"""A reader of offloaded ledgers, by Apache Pulsar or by seglog. It reads their entries, from an index object and its
data object.

LEDGER-1  The index object and the headers of the blocks say where an entry is. The reader uses neither the store's
    parts nor user metadata, which some writers leave out. It ignores the bytes after those that the index object names.
LEDGER-2  The reader returns the entries of a ledger in ascending order and without a gap. Otherwise it raises an error
    that names the object and the offset. It returns the entries before the damage first.
LEDGER-3  Objects of Pulsar carry no checksum. The reader checks the headers, each entry's id and length, the padding,
    and that the last entry is there. It cannot see a flipped bit inside an entry's data. In objects of seglog it checks
    each chunk.
LEDGER-4  Memory holds the index object and a window of `_WINDOW_BYTES`. If an entry (in objects of seglog: a chunk) is
    larger, memory holds that instead of the window.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from operator import attrgetter

from catalog.errors import InvalidObject
from catalog.format.keys import Key
from catalog.objects.object_store import ObjectStore
from offload.errors import ObjectDamaged
from offload.format.block import BLOCK_HEADER_LENGTH, PADDING, decode_block_header
from offload.format.codec import decode_chunk
from offload.format.entry import ENTRY
from offload.format.entry import entries as entries_of
from offload.format.index import LedgerIndex, decode_ledger_index
from offload.format.metadata import SegmentIndex
from offload.format.streamed import MAGIC as STREAMED_MAGIC
from offload.format.streamed import StreamedIndex, decode_streamed_block_header, decode_streamed_index
from seglog.base.dataclasses import dataclass

_WINDOW_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """An entry of a ledger. Only the index object of a streaming offload names the ledger; otherwise `ledger_id` is
    None.
    """

    ledger_id: int | None
    entry_id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Block:
    """A block as the index object lists it. It ends where the next block starts, of whichever ledger."""

    first_entry_id: int
    offset: int
    end: int


@dataclass(frozen=True, slots=True)
class _Ledger:
    """The blocks of a ledger. `last_entry_id` is None if only the last block tells it."""

    ledger_id: int | None
    blocks: tuple[_Block, ...]
    last_entry_id: int | None


def open_ledgers(store: ObjectStore, data_key: Key, body: bytes, index_key: str) -> OffloadedLedgers:
    """Return the ledgers of the data object `data_key`. `body` is its index object, and `index_key` names that in
    errors.

    Makes no request. Raises `InvalidIndex` and `FormatUnsupported`.
    """
    if int.from_bytes(body[:4], "big") == STREAMED_MAGIC:
        streamed = decode_streamed_index(body, index_key)
        return OffloadedLedgers(store, data_key, streamed.data_length, _streamed_ledgers(streamed), None)
    index = decode_ledger_index(body, index_key)
    return OffloadedLedgers(store, data_key, index.data_length, (_whole_ledger(index),), index.segment)


class OffloadedLedgers:
    """The ledgers of one data object. It keeps no position, so any number of threads may read it."""

    def __init__(
        self,
        store: ObjectStore,
        data_key: Key,
        data_length: int,
        ledgers: tuple[_Ledger, ...],
        segment: SegmentIndex | None,
    ) -> None:
        self._store = store
        self._key = data_key
        self._data_length = data_length
        self._ledgers = ledgers
        self._segment = segment

    @property
    def ledger_ids(self) -> tuple[int | None, ...]:
        """Return the ids of the ledgers, in the order of their bytes in the data object."""
        return tuple(ledger.ledger_id for ledger in self._ledgers)

    def entries(self, first: int = 0, last: int | None = None) -> Iterator[LedgerEntry]:
        """Yield the entries of each ledger with `first <= entry id <= last`, ascending.

        Raises `ObjectDamaged`, `InvalidChunk`, and what the store raises.
        """
        if self._segment is not None:
            yield from self._own_entries(self._segment, first, last)
            return
        window = _Window(self._store, self._key, self._data_length)
        for ledger in self._ledgers:
            yield from self._ledger_entries(window, ledger, first, last)

    def _own_entries(self, segment: SegmentIndex, first: int, last: int | None) -> Iterator[LedgerEntry]:
        """Yield the entries of a data object of seglog, by its chunk table."""
        last = segment.count - 1 if last is None else last
        for chunk in segment.chunks_between(segment.first_seq + first, segment.first_seq + last):
            stored = self._store.get_range(self._key, chunk.offset, chunk.stored_length)
            raw = decode_chunk(stored, chunk, segment.codec, self._key)
            for entry_id, data in entries_of(raw, self._key, chunk.offset):
                if first <= entry_id <= last:
                    yield LedgerEntry(None, entry_id, bytes(data))

    def _ledger_entries(self, window: _Window, ledger: _Ledger, first: int, last: int | None) -> Iterator[LedgerEntry]:
        start = max(bisect_right(ledger.blocks, first, key=attrgetter("first_entry_id")) - 1, 0)
        expected = ledger.blocks[start].first_entry_id
        for block in ledger.blocks[start:]:
            if last is not None and block.first_entry_id > last:
                return
            if block.first_entry_id != expected:
                raise ObjectDamaged(
                    self._key, block.offset, f"it begins with entry {block.first_entry_id}, not {expected}"
                )
            for entry in self._block_entries(window, ledger, block):
                expected = entry.entry_id + 1
                if last is not None and entry.entry_id > last:
                    return
                if entry.entry_id >= first:
                    yield entry
        if ledger.last_entry_id is not None and expected <= ledger.last_entry_id:
            raise ObjectDamaged(
                self._key,
                self._data_length,
                f"it ends before entry {expected} of {ledger.last_entry_id}: Pulsar cuts a ledger, without an error, "
                "at an entry that no block takes",
            )

    def _block_entries(self, window: _Window, ledger: _Ledger, block: _Block) -> Iterator[LedgerEntry]:
        self._check_header(window, ledger, block)
        end = block.end
        expected = block.first_entry_id
        position = block.offset + BLOCK_HEADER_LENGTH
        while position < end:
            head = window.at(position, min(ENTRY.size, end - position))
            if head[:1] == PADDING[:1]:
                if head[: len(PADDING)] != PADDING[: len(head)]:
                    raise ObjectDamaged(self._key, position, "neither an entry nor padding")
                return
            if len(head) < ENTRY.size:
                raise ObjectDamaged(self._key, position, "its last entry is cut")
            length, entry_id = ENTRY.unpack(head)
            if position + ENTRY.size + length > end:
                raise ObjectDamaged(self._key, position, f"an entry of {length} bytes goes beyond its block")
            if entry_id != expected:
                raise ObjectDamaged(self._key, position, f"entry {entry_id} where {expected} must be")
            yield LedgerEntry(ledger.ledger_id, entry_id, window.at(position + ENTRY.size, length))
            position += ENTRY.size + length
            expected += 1

    def _check_header(self, window: _Window, ledger: _Ledger, block: _Block) -> None:
        """Raise `ObjectDamaged` if the block's header does not agree with the index object."""
        header = window.at(block.offset, BLOCK_HEADER_LENGTH)
        length: int
        if ledger.ledger_id is None:
            decoded = decode_block_header(header, self._key, block.offset)
            length, first_entry_id, ledger_id = decoded.length, decoded.first_entry_id, None
        else:
            streamed = decode_streamed_block_header(header, self._key, block.offset)
            length, first_entry_id, ledger_id = streamed.length, streamed.first_entry_id, streamed.ledger_id
        if (first_entry_id, ledger_id) != (block.first_entry_id, ledger.ledger_id):
            raise ObjectDamaged(
                self._key,
                block.offset,
                f"its header is of entry {first_entry_id} of ledger {ledger_id}, "
                f"the index object's of entry {block.first_entry_id} of {ledger.ledger_id}",
            )
        if block.offset + length != block.end:
            raise ObjectDamaged(
                self._key, block.offset, f"a block of {length} bytes where {block.end - block.offset} are"
            )


class _Window:
    """A window over the bytes of an object. It fetches many bytes at a time."""

    def __init__(self, store: ObjectStore, key: Key, size: int) -> None:
        self._store = store
        self._key = key
        self._size = size
        self._start = 0
        self._body = b""

    def at(self, offset: int, length: int) -> bytes:
        inside = offset - self._start
        if inside < 0 or inside + length > len(self._body):
            size_bytes = max(length, min(_WINDOW_BYTES, self._size - offset))
            try:
                self._body = self._store.get_range(self._key, offset, size_bytes)
            except InvalidObject as error:
                raise ObjectDamaged(self._key, offset, f"the object is shorter than its index says: {error}") from error
            self._start, inside = offset, 0
        return self._body[inside : inside + length]


def _whole_ledger(index: LedgerIndex) -> _Ledger:
    ends = [*(entry.offset for entry in index.entries[1:]), index.data_length]
    blocks = (_Block(entry.first_entry_id, entry.offset, end) for entry, end in zip(index.entries, ends, strict=True))
    return _Ledger(None, tuple(blocks), index.ledger.last_entry_id)


def _streamed_ledgers(index: StreamedIndex) -> tuple[_Ledger, ...]:
    offsets = [*sorted(entry.offset for ledger in index.ledgers for entry in ledger.entries), index.data_length]
    ends = dict(pairwise(offsets))
    ledgers = sorted(index.ledgers, key=lambda ledger: ledger.entries[0].offset)
    return tuple(
        _Ledger(
            ledger.ledger_id,
            tuple(_Block(entry.first_entry_id, entry.offset, ends[entry.offset]) for entry in ledger.entries),
            None,
        )
        for ledger in ledgers
    )
