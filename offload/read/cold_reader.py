"""The cold reader: it reads records from object storage. It fetches the head of an index object once, then chunks by
ranged GETs, ahead of the reader.

COLD-1  Every byte is verified before it is returned. The index head is checked against the hash in the commit, and each
    chunk against its XXH3. Each record is checked against the XXH3 of its append.
COLD-2  If an object is missing or damaged, the error names the object and the place. The cold reader never skips a
    record for it.
COLD-3  Memory holds the index cache and the bytes read ahead (`read_ahead_total_bytes` for all readers). For each
    reader, it also holds one window and one decompressed chunk. A reader of arrays holds two chunks: a thread
    decompresses the next one while the caller works on one.
COLD-4  A pool of its own makes the GETs ahead, and only cold reads wait for it. `close` waits for the GETs that are
    under way.

docs/requests.md and offload.read.chunk_fetcher say which GETs a read makes.

**The index cache** has index objects in memory, without their trailers. All readers share it, and its bytes are
bounded.

ICACHE-1  The cache keeps an index only after checking it against the hash in the commit. If the index does not match,
    the cache fetches it once more, because the store's copy may be whole and only the answer damaged.
ICACHE-2  Readers that want the same index at the same time share one GET.

`SingleFlight` makes one call of work for all callers that want the same result at the same time.

FLIGHT-1  While one caller works for a key, the others wait, and all get its result.
FLIGHT-2  If the work fails, only the working caller gets the error at once. The waiting callers try once more, one for
    all of them, before they fail too.

**The records of a decoded chunk** come many at once, as objects or as arrays, or a few one by one.

CHUNK-1  This module checks every record before it returns it: XXH3, seq, topic, lengths. It checks many records as
    arrays, as the log does (seglog.format.frames.read_headers). If that check fails, it goes through the records one by
    one. So the caller gets the sound records before the damage first, and the error names the place.
CHUNK-2  A chunk has exactly the records that the chunk table says. A chunk that ends early is damage, not an end.
"""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing
from itertools import chain, repeat
from typing import Generic, TypeVar

from pyroaring import BitMap

from catalog import SegmentRef, SegmentView, Snapshot, Vid
from catalog.format import keys
from catalog.objects.object_store import ObjectStore, past_cache
from offload.errors import InvalidChunk, InvalidIndex
from offload.format.block import ChunkRef
from offload.format.entry import ENTRY, entries, frame_of
from offload.format.index import decode_head
from offload.format.metadata import SegmentIndex
from offload.read.chunk_cache import ChunkCache
from offload.read.chunk_fetcher import ChunkFetcher, ChunkRequest, Pool, ReadAhead, one_ahead
from offload.settings import ColdSettings
from seglog import Record
from seglog.base.lazy import logger
from seglog.base.ownership import Owned, is_foreign
from seglog.errors import InvalidFrame
from seglog.format.arrays import NDArray, np
from seglog.format.frame import DELETED, HAS_NODE, HAS_TAG, UNTERMINATED, FrameType, Header, read_header, record_of
from seglog.format.frames import read_headers
from seglog.format.record_arrays import RecordArrays, in_arrays

_FEW = 16
_ENTRY_LENGTH = struct.Struct(">I")
_FRAME_AT = ENTRY.size - 4  # offset within an entry: the frame's own length fits before the entry's data
_MORE_THAN_A_VALUE = HAS_TAG | HAS_NODE | UNTERMINATED


def records_of_chunk(
    raw: bytes | memoryview, chunk: ChunkRef, topic_id: int, key: str, first: int, last: int
) -> Iterable[Record]:
    """Return the records with `first <= seq <= last` that are not erased, ascending.

    If a record is damaged, the iteration raises `InvalidChunk` when it gets there.
    """
    first, last = max(first, chunk.first_seq), min(last, chunk.last_seq)
    if first > last:
        return []
    if last - first >= _FEW:
        records = _many(raw, chunk, topic_id, first, last)
        if records is not None:
            return records
    return _one_by_one(raw, chunk, topic_id, key, first, last)


def arrays_of_chunk(
    raw: bytes | memoryview, chunk: ChunkRef, topic_id: int, key: str, first: int, last: int
) -> Iterator[RecordArrays]:
    """Yield the records of `records_of_chunk` as arrays. None is empty.

    If a record is damaged, raises `InvalidChunk` after the sound records before it.
    """
    first, last = max(first, chunk.first_seq), min(last, chunk.last_seq)
    arrays = _checked(raw, chunk, topic_id, first, last)
    if arrays is None or not arrays.labels_are_text():
        yield from in_arrays(_one_by_one(raw, chunk, topic_id, key, first, last))
    elif len(arrays):
        yield arrays


def _many(raw: bytes | memoryview, chunk: ChunkRef, topic_id: int, first: int, last: int) -> list[Record] | None:
    """Return the records, checked as arrays; None if anything is wrong."""
    arrays = _checked(raw, chunk, topic_id, first, last)
    if arrays is None:
        return None
    headers, body = arrays.headers, bytes(raw)
    if (headers["flags"] & _MORE_THAN_A_VALUE).any():
        try:
            return list(map(record_of, repeat(body), arrays.starts.tolist(), map(Header._make, headers.tolist())))
        except InvalidFrame:
            return None
    _, _, starts, ends = arrays.places()
    columns = headers["seq"].tolist(), headers["ts_ms"].tolist(), starts.tolist(), ends.tolist()
    return [Record(seq, ts_ms, body[start:end]) for seq, ts_ms, start, end in zip(*columns, strict=True)]


def _checked(raw: bytes | memoryview, chunk: ChunkRef, topic_id: int, first: int, last: int) -> RecordArrays | None:
    """Return the records that are not erased; None if anything is wrong. Their labels may not be UTF-8."""
    bounds = _entry_bounds(raw)
    if bounds is None or len(bounds) != chunk.count + 1:
        return None
    starts, ends = bounds[:-1] + _FRAME_AT, bounds[1:]
    buffer = np.frombuffer(raw, dtype=np.uint8).copy()
    # An entry's data is a frame without its length. Write that length over the last bytes of the entry id.
    sizes = (ends - starts - np.int64(4)).astype("<u4")
    for byte_number, byte in enumerate(sizes.view(np.uint8).reshape(-1, 4).T):
        buffer[starts + byte_number] = byte
    headers = read_headers(buffer.data.cast("B"), starts, ends)  # type: ignore[arg-type]  # any buffer will do
    seqs = np.arange(chunk.first_seq, chunk.last_seq + 1, dtype=np.uint64)
    if headers is None or not ((headers["seq"] == seqs) & (headers["topic_id"] == topic_id)).all():
        return None
    span = slice(first - chunk.first_seq, last - chunk.first_seq + 1)
    arrays = RecordArrays(raw, starts[span], headers[span])
    return arrays.at(np.flatnonzero(arrays.headers["flags"] & DELETED == 0))


def _entry_bounds(raw: bytes | memoryview) -> NDArray[np.int64] | None:
    """Return where each entry begins, and where the last one ends.

    None: the last entry does not end with the chunk.
    """
    bounds: list[int] = []
    take, unpack = bounds.append, _ENTRY_LENGTH.unpack_from
    position, size, head_bytes = 0, len(raw), ENTRY.size
    try:
        while position < size:
            take(position)
            position += unpack(raw, position)[0] + head_bytes
    except struct.error:  # fewer than four bytes are left
        return None
    take(position)
    return np.array(bounds, dtype=np.int64) if position == size else None


def _one_by_one(
    raw: bytes | memoryview, chunk: ChunkRef, topic_id: int, key: str, first: int, last: int
) -> Iterator[Record]:
    start = _skip(raw, first - chunk.first_seq, key, chunk.offset)
    seq = first
    for _, entry in entries(memoryview(raw)[start:], key, chunk.offset):
        if seq > last:
            return
        record = _record_of(entry, seq, topic_id, key, chunk.offset)
        if record is not None:
            yield record
        seq += 1
    if seq <= last:
        raise InvalidChunk(key, chunk.offset, f"it ends before seq {seq}")


def _skip(raw: bytes | memoryview, count: int, key: str, offset: int) -> int:
    """Return where the entry after the first `count` entries begins. This is most of the work of a point read."""
    position, unpack = 0, _ENTRY_LENGTH.unpack_from
    try:
        for _ in range(count):
            position += unpack(raw, position)[0] + ENTRY.size
    except struct.error:
        raise InvalidChunk(key, offset, "its last entry is cut") from None
    return position


def _record_of(entry: memoryview, seq: int, topic_id: int, key: str, offset: int) -> Record | None:
    """Return the record in an entry's data, or None if it was erased. `key` and `offset` are its chunk's place.

    Raises `InvalidChunk` if the frame's checksum does not match, or if the record is not the promised one.
    """
    frame = frame_of(entry)
    try:
        header = read_header(frame)
        if (header.type, header.seq, header.topic_id) != (FrameType.APPEND, seq, topic_id):
            raise InvalidChunk(
                key, offset, f"seq {header.seq} of topic id {header.topic_id} is where seq {seq} belongs"
            )
        return None if header.flags & DELETED else record_of(frame, 0, header)
    except InvalidFrame as error:
        raise InvalidChunk(key, offset, f"the record with seq {seq}: {error.reason}") from error


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_log = logger("offload.read.cold_reader")

_CHUNK_BYTES = 400  # the memory of a ChunkRef and its numbers
_INDEX_BYTES = 2000


class SingleFlight(Generic[K, V]):
    def __init__(self) -> None:
        self._flights: dict[K, Future[V]] = {}
        self._lock = threading.Lock()

    def do(self, key: K, work: Callable[[], V]) -> V:
        """Return `work()`, or the result of another caller's `work()`. Raises what the work raises."""
        failures = 0
        while True:
            with self._lock:
                flight = self._flights.get(key)
                is_mine = flight is None
                if flight is None:
                    flight = self._flights[key] = Future()
            if is_mine:
                return self._work(key, flight, work)
            error = flight.exception()
            if error is None:
                return flight.result()
            failures += 1
            if failures == 2:
                raise error

    def _work(self, key: K, flight: Future[V], work: Callable[[], V]) -> V:
        try:
            result = work()
        except BaseException as error:
            self._land(key)
            flight.set_exception(error)
            raise
        self._land(key)
        flight.set_result(result)
        return result

    def _land(self, key: K) -> None:
        with self._lock:
            del self._flights[key]


class IndexCache:
    """The index cache. Many threads may use it.

    `hits` counts the calls of `get` that found the index in memory. `misses` counts the other calls.
    """

    def __init__(self, store: ObjectStore, max_bytes: int) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._held_bytes = 0
        self._indexes: OrderedDict[bytes, SegmentIndex] = OrderedDict()
        self._lock = threading.Lock()
        self.hits = self.misses = 0
        self._flights: SingleFlight[bytes, SegmentIndex] = SingleFlight()

    def get(self, view: SegmentView) -> SegmentIndex:
        """Return the index of a segment. Raises `InvalidIndex`, and what the store raises."""
        sid = view.ref.sid.raw
        with self._lock:
            cached = self._indexes.get(sid)
            self.hits += cached is not None
            self.misses += cached is None
            if cached is not None:
                self._indexes.move_to_end(sid)
                return cached
        return self._flights.do(sid, lambda: self._load(view))

    def _load(self, view: SegmentView) -> SegmentIndex:
        try:
            index = _fetch(self._store, view)
        except InvalidIndex as damage:
            _log.warning("fetching again: %s", damage)
            index = _fetch(past_cache(self._store), view)
        self._keep(view.ref.sid.raw, index)
        return index

    def _keep(self, sid: bytes, index: SegmentIndex) -> None:
        with self._lock:
            former = self._indexes.pop(sid, None)
            self._held_bytes += _size_of(index) - (_size_of(former) if former else 0)
            self._indexes[sid] = index
            while self._held_bytes > self._max_bytes:
                self._held_bytes -= _size_of(self._indexes.popitem(last=False)[1])


def _fetch(store: ObjectStore, view: SegmentView) -> SegmentIndex:
    key = keys.index_key(view.vid, view.ref.sid)
    head = store.get_range(key, 0, view.ref.index_head_length)
    return decode_head(head, key, view.ref.index_head_hash)


def _size_of(index: SegmentIndex) -> int:
    """Return the approximate memory of an index, in bytes."""
    tags = sum(len(tag) + len(bitmap) for tag, bitmap in (index.tags or {}).items())
    return _INDEX_BYTES + _CHUNK_BYTES * len(index.chunks) + len(index.live) + tags


_INDEXES_AHEAD = 4
_INDEXES_AT_A_TIME = 16

_Segment = tuple[SegmentView, int, int]
"""A segment, and the first and the last seq to read, inclusive."""


class ColdReader(Owned):
    """Reads records from object storage. Its readers share its caches and GETs.

    It keeps no position, so any number of threads may use it. `close` also closes `cache`.
    """

    def __init__(
        self, store: ObjectStore, settings: ColdSettings | None = None, cache: ChunkCache | None = None
    ) -> None:
        self._store = store
        self._settings = settings or ColdSettings()
        self._cache = cache
        self._indexes = IndexCache(store, self._settings.index_cache_bytes)
        self._pool = Pool(self._settings.connections, "seglog-cold")
        self._fetcher = ChunkFetcher(store, cache, self._settings.read_ahead_total_bytes, self._pool)

    def cache_counts(self) -> Iterator[tuple[str, int, int]]:
        """Yield the name, hits and misses of each cache."""
        yield "index", self._indexes.hits, self._indexes.misses
        if self._cache is not None:
            yield "chunk", self._cache.hits, self._cache.misses

    def close(self) -> None:
        """Close the reader and its cache, and give up the reads ahead that have not begun. Idempotent."""
        if is_foreign(self):
            return
        self._pool.close()
        if self._cache is not None:
            self._cache.close()

    def records(self, snapshot: Snapshot, first: int, last: int) -> Iterator[Record]:
        """Yield the live records of `snapshot` with `first <= seq <= last`, ascending."""
        current: SegmentView | None = None
        deleted = BitMap()
        for view, records in self._records(_wanted(snapshot, first, last)):
            if view is not current:
                current, deleted = view, _deleted(view)
            if deleted:
                first_seq = view.ref.first_seq
                yield from (record for record in records if record.seq - first_seq not in deleted)
            else:
                yield from records

    def arrays(self, snapshot: Snapshot, first: int, last: int) -> Iterator[RecordArrays]:
        """Yield the records of `records` as arrays, chunk by chunk. None is empty."""
        with closing(one_ahead(self._chunks(_wanted(snapshot, first, last)), self, "seglog-decode")) as chunks:
            for request, raw in chunks:
                deleted = _deleted(request.view)
                for arrays in arrays_of_chunk(
                    raw, request.chunk, request.index.topic_id, request.key, request.first, request.last
                ):
                    visible = _without(arrays, deleted, request.view.ref.first_seq)
                    if len(visible):
                        yield visible

    def segment_records(self, view: SegmentView, first: int, last: int) -> Iterator[Record]:
        """Return the records of one segment, also the records that later commits deleted. Records whose bytes are gone
        are left out.
        """
        return chain.from_iterable(records for _, records in self._records([(view, first, last)]))

    def segment_chunks(self, view: SegmentView) -> Iterator[bytes | memoryview]:
        """Yield the entries of each chunk of a segment, verified and decompressed, including invisible entries."""
        with closing(self._chunks([(view, view.ref.first_seq, view.ref.last_seq)])) as chunks:
            for _, raw in chunks:
                yield raw

    def index(self, view: SegmentView) -> SegmentIndex:
        """Return the segment's index, without its trailer. Raises `InvalidIndex`."""
        return self._indexes.get(view)

    def indexed(self, views: Iterable[SegmentView]) -> Iterator[SegmentView]:
        """Yield each view once its index is in memory. Fetches several indexes at a time. Raises as `index` does."""
        waiting: deque[tuple[SegmentView, Future[SegmentIndex] | None]] = deque()
        try:
            for view in views:
                waiting.append((view, self._pool.begin(self._indexes.get, view)))
                if len(waiting) == _INDEXES_AT_A_TIME:
                    yield self._when_indexed(*waiting.popleft())
            while waiting:
                yield self._when_indexed(*waiting.popleft())
        finally:
            for _, future in waiting:
                if future is not None:
                    future.cancel()

    def first_seq_at(self, snapshot: Snapshot, ts_ms: int) -> int:
        """Return the first seq with a time at or after `ts_ms`, or the seq after the head."""
        for view in snapshot.segments:
            if view.ref.min_ts_ms >= ts_ms:
                return view.first
            if view.ref.max_ts_ms >= ts_ms:
                return max(view.first, self.last_seq_at(view.vid, view.ref, ts_ms - 1) + 1)
        return snapshot.bounds.head_seq + 1

    def last_seq_at(self, vid: Vid, ref: SegmentRef, ts_ms: int) -> int:
        """Return the last seq of a segment with a time at or before `ts_ms`.

        If there is none, return the seq before the segment's first.
        """
        view = SegmentView(ref, vid, lsn=0, first=ref.first_seq, last=ref.last_seq)
        last_seq = ref.first_seq - 1
        for chunk in self.index(view).chunks:
            if chunk.min_ts_ms > ts_ms:
                break
            if chunk.max_ts_ms <= ts_ms:
                last_seq = chunk.last_seq
                continue
            for record in self.segment_records(view, chunk.first_seq, chunk.last_seq):
                if record.ts_ms > ts_ms:
                    break
                last_seq = record.seq
        return last_seq

    def _records(self, segments: list[_Segment]) -> Iterator[tuple[SegmentView, Iterable[Record]]]:
        """Yield the records of each segment between its two seqs, chunk by chunk, with the segment's view."""
        with closing(self._chunks(segments)) as chunks:
            for request, raw in chunks:
                topic_id = request.index.topic_id
                yield (
                    request.view,
                    records_of_chunk(raw, request.chunk, topic_id, request.key, request.first, request.last),
                )

    def _chunks(self, segments: list[_Segment]) -> Generator[tuple[ChunkRequest, bytes | memoryview], None, None]:
        return ReadAhead(
            self._requests(segments),
            self._store,
            self._fetcher,
            self._cache,
            window_bytes=self._settings.window_bytes,
            limit_bytes=self._settings.read_ahead_bytes,
        ).chunks()

    def _requests(self, segments: list[_Segment]) -> Iterator[ChunkRequest]:
        """Yield the chunks to read.

        A reader that asks for a second chunk probably continues. From then on, the pool fetches the next indexes ahead.
        """
        requested = 0
        prefetched = 0
        for number, (view, first, last) in enumerate(segments):
            index = self._indexes.get(view)
            key = keys.data_key(view.vid, view.ref.sid)
            for chunk in index.chunks_between(first, last):
                if requested:
                    for next_view, _, _ in segments[max(prefetched, number) + 1 : number + 1 + _INDEXES_AHEAD]:
                        self._pool.begin(self._indexes.get, next_view)
                    prefetched = number + _INDEXES_AHEAD
                requested += 1
                yield ChunkRequest(view, index, chunk, key, first, last)

    def _when_indexed(self, view: SegmentView, index: Future[SegmentIndex] | None) -> SegmentView:
        if index is None:
            self._indexes.get(view)
        else:
            index.result()
        return view


def _wanted(snapshot: Snapshot, first: int, last: int) -> list[_Segment]:
    return [
        (view, max(first, view.first), min(last, view.last))
        for view in snapshot.segments
        if view.first <= last and first <= view.last
    ]


def _deleted(view: SegmentView) -> BitMap:
    """Return the entry ids of the records that later commits deleted."""
    return BitMap.deserialize(view.deleted) if view.deleted else BitMap()


def _without(arrays: RecordArrays, deleted: BitMap, first_seq: int) -> RecordArrays:
    """Return the records whose entry ids are not in `deleted`. The segment begins with `first_seq`."""
    if not deleted:
        return arrays
    ids = arrays.seqs - first_seq
    hidden = (deleted & BitMap(range(int(ids[0]), int(ids[-1]) + 1))).to_array()
    return arrays.at(np.flatnonzero(~np.isin(ids, hidden)))
