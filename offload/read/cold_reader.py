"""Reads records from object storage: the index object's head once, then ranged GETs of chunks, ahead of the reader.

R1  No byte is returned unverified: the index head against the hash in the commit, each chunk against its XXH3,
    each record against the XXH3 that was made when it was appended.
R2  A missing or damaged object is an error that names the object and the place; a record is never skipped for it.
R3  Memory: the index cache, what is read ahead (`read_ahead_total_bytes` for all readers), and of each reader one
    window and one chunk decompressed.
R4  GETs ahead are made by a pool of their own, which nothing but cold reads waits for. `close` waits for those that
    are under way.

Which GETs a read makes: docs/requests.md, offload.read.read_ahead, offload.read.chunk_fetcher.
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
from offload.cold_settings import ColdSettings
from offload.format.metadata import SegmentIndex
from offload.read.budget import ByteBudget
from offload.read.cache import ChunkCache
from offload.read.chunk_fetcher import Flights, Place
from offload.read.chunk_records import records_of_chunk
from offload.read.index_cache import IndexCache
from offload.read.pool import Pool
from offload.read.read_ahead import ReadAhead
from seglog import Record
from seglog.process.ownership import Owned, is_foreign

__all__ = ["ColdReader"]

_INDEXES_AHEAD = 4
_INDEXES_AT_A_TIME = 16

_Segment = tuple[SegmentView, int, int]
"""A segment, and the seqs to read of it, inclusive."""


class ColdReader(Owned):
    """Readers share its caches and GETs; it keeps no position, so any number of threads may use it.

    It closes `cache` with itself.
    """

    def __init__(
        self, store: ObjectStore, settings: ColdSettings | None = None, cache: ChunkCache | None = None
    ) -> None:
        self._store = store
        self._settings = settings or ColdSettings()
        self._cache = cache
        self._indexes = IndexCache(store, self._settings.index_cache_bytes)
        self._pool = Pool(self._settings.connections, "seglog-cold")
        self._flights = Flights(store, cache, ByteBudget(self._settings.read_ahead_total_bytes), self._pool)

    def cache_counts(self) -> Iterator[tuple[str, int, int]]:
        """Name, hits and misses of each cache."""
        yield "index", self._indexes.hits, self._indexes.misses
        if self._cache is not None:
            yield "chunk", self._cache.hits, self._cache.misses

    def close(self) -> None:
        """What was read ahead and not begun is given up. Idempotent."""
        if is_foreign(self):
            return
        self._pool.close()
        if self._cache is not None:
            self._cache.close()

    def records(self, snapshot: Snapshot, first: int, last: int) -> Iterator[Record]:
        """Live records of `snapshot` with `first <= seq <= last`, ascending."""
        wanted = [
            (view, max(first, view.first), min(last, view.last))
            for view in snapshot.segments
            if view.first <= last and first <= view.last
        ]
        current: SegmentView | None = None
        deleted = BitMap()
        for view, records in self._records(wanted):
            if view is not current:
                current, deleted = view, BitMap.deserialize(view.deleted) if view.deleted else BitMap()
            if deleted:
                first_seq = view.ref.first_seq
                yield from (record for record in records if record.seq - first_seq not in deleted)
            else:
                yield from records

    def segment_records(self, view: SegmentView, first: int, last: int) -> Iterator[Record]:
        """Records of one segment whatever later commits deleted; those whose bytes are gone are left out."""
        return chain.from_iterable(records for _, records in self._records([(view, first, last)]))

    def segment_chunks(self, view: SegmentView) -> Iterator[bytes | memoryview]:
        """The entries of each chunk of a segment, verified and decompressed, whatever is visible of them."""
        with closing(self._chunks([(view, view.ref.first_seq, view.ref.last_seq)])) as chunks:
            for _, raw in chunks:
                yield raw

    def index(self, view: SegmentView) -> SegmentIndex:
        """The segment's index, without its trailer. Raises `InvalidIndex`."""
        return self._indexes.get(view)

    def indexed(self, views: Iterable[SegmentView]) -> Iterator[SegmentView]:
        """The views, each when its index is at hand; several are fetched at a time. Raises as `index`."""
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
        """The last seq of a segment with a ts at or before `ts_ms`; one below its first if there is none."""
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
        """Of each segment those between its two seqs, chunk by chunk, with the segment."""
        with closing(self._chunks(segments)) as chunks:
            for place, raw in chunks:
                topic_id = place.index.topic_id
                yield (
                    place.view,
                    records_of_chunk(raw, place.chunk, topic_id, place.key, place.first, place.last),
                )

    def _chunks(self, segments: list[_Segment]) -> Generator[tuple[Place, bytes | memoryview], None, None]:
        return ReadAhead(
            self._places(segments),
            self._store,
            self._flights,
            self._cache,
            window_bytes=self._settings.window_bytes,
            limit_bytes=self._settings.read_ahead_bytes,
        ).chunks()

    def _places(self, segments: list[_Segment]) -> Iterator[Place]:
        """The chunks to read. Whoever asks for a second one goes on, probably: then the next indexes are fetched."""
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
                yield Place(view, index, chunk, key, first, last)

    def _when_indexed(self, view: SegmentView, index: Future[SegmentIndex] | None) -> SegmentView:
        if index is None:
            self._indexes.get(view)
        else:
            index.result()
        return view
