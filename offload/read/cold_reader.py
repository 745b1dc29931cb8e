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

docs/requests.md, offload.read.read_ahead and offload.read.chunk_fetcher say which GETs a read makes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing
from itertools import chain

from pyroaring import BitMap

from catalog import SegmentRef, SegmentView, Snapshot, Vid
from catalog.format import keys
from catalog.objects.base import ObjectStore
from offload.format.metadata import SegmentIndex
from offload.read.cache import ChunkCache
from offload.read.chunk_fetcher import ChunkFetcher, ChunkRequest
from offload.read.chunk_records import arrays_of_chunk, records_of_chunk
from offload.read.index_cache import IndexCache
from offload.read.pool import Pool, one_ahead
from offload.read.read_ahead import ReadAhead
from offload.settings import ColdSettings
from seglog import Record
from seglog.base.ownership import Owned, is_foreign
from seglog.format.arrays import np
from seglog.format.record_arrays import RecordArrays

__all__ = ["ColdReader"]

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
                for found in arrays_of_chunk(
                    raw, request.chunk, request.index.topic_id, request.key, request.first, request.last
                ):
                    shown = _without(found, deleted, request.view.ref.first_seq)
                    if len(shown):
                        yield shown

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

    def last_seq_at(self, vid: Vid, ref: SegmentRef, ts_ms: int) -> int:
        """Return the last seq of a segment with a time at or before `ts_ms`.

        If there is none, return the seq before the segment's first.
        """
        view = SegmentView(ref, vid, lsn=0, first=ref.first_seq, last=ref.last_seq)
        found = ref.first_seq - 1
        for chunk in self.index(view).chunks:
            if chunk.min_ts_ms > ts_ms:
                break
            if chunk.max_ts_ms <= ts_ms:
                found = chunk.last_seq
                continue
            for record in self.segment_records(view, chunk.first_seq, chunk.last_seq):
                if record.ts_ms > ts_ms:
                    break
                found = record.seq
        return found

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
        asked = 0
        prefetched = 0
        for number, (view, first, last) in enumerate(segments):
            index = self._indexes.get(view)
            key = keys.data_key(view.vid, view.ref.sid)
            for chunk in index.chunks_between(first, last):
                if asked:
                    for next_view, _, _ in segments[max(prefetched, number) + 1 : number + 1 + _INDEXES_AHEAD]:
                        self._pool.begin(self._indexes.get, next_view)
                    prefetched = number + _INDEXES_AHEAD
                asked += 1
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


def _without(found: RecordArrays, deleted: BitMap, first_seq: int) -> RecordArrays:
    """Return the records whose entry ids are not in `deleted`. The segment begins with `first_seq`."""
    if not deleted:
        return found
    ids = found.seqs - first_seq
    hidden = (deleted & BitMap(range(int(ids[0]), int(ids[-1]) + 1))).to_array()
    return found.at(np.flatnonzero(~np.isin(ids, hidden)))
