"""Reads records from object storage: the index object's head once, then one ranged GET for each run of chunks.

R1  No byte is returned unverified: the index head against the hash in the commit, each chunk against its XXH3,
    each record against the XXH3 that was made when it was appended.
R2  A missing or damaged object is an error that names the object and the place; a record is never skipped for it.
R3  Memory: one read of at most `_READ_BYTES` (or one chunk, if that is larger), and its chunks one at a time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator

from pyroaring import BitMap

from catalog import SegmentRef, SegmentView, Snapshot, Vid, keys
from catalog.objects.base import ObjectStore
from offload.block import ChunkRef, adjacent
from offload.codec import decode_chunk
from offload.entry import entries
from offload.index import decode_head
from offload.metadata import SegmentIndex
from offload.records import record_of_entry
from seglog import Record

__all__ = ["ColdReader"]

_READ_BYTES = 8 * 1024 * 1024
_CACHED_INDEXES = 256


class ColdReader:
    """Readers share its index cache; it keeps no position, so any number of threads may use it."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._indexes: OrderedDict[bytes, SegmentIndex] = OrderedDict()
        self._lock = threading.Lock()

    def records(self, snapshot: Snapshot, first: int, last: int) -> Iterator[Record]:
        """Live records of `snapshot` with `first <= seq <= last`, ascending."""
        for view in snapshot.segments:
            low, high = max(first, view.first), min(last, view.last)
            if low > high:
                continue
            deleted = BitMap.deserialize(view.deleted) if view.deleted else BitMap()
            for record in self.segment_records(view, low, high):
                if record.seq - view.ref.first_seq not in deleted:
                    yield record

    def segment_records(self, view: SegmentView, first: int, last: int) -> Iterator[Record]:
        """Records of one segment whatever later commits deleted; those whose bytes are gone are left out."""
        index = self.index(view)
        key = keys.data_key(view.vid, view.ref.sid)
        for chunk, raw in self._chunks(view, index, first, last):
            for entry_id, entry in entries(raw, key, chunk.offset):
                seq = view.ref.first_seq + entry_id
                if first <= seq <= last:
                    record = record_of_entry(entry, seq, index.topic_id, key, chunk.offset)
                    if record is not None:
                        yield record

    def index(self, view: SegmentView) -> SegmentIndex:
        """The segment's index, without its trailer. Raises `InvalidIndex`."""
        sid = view.ref.sid.raw
        with self._lock:
            cached = self._indexes.get(sid)
            if cached is not None:
                self._indexes.move_to_end(sid)
                return cached
        key = keys.index_key(view.vid, view.ref.sid)
        head = self._store.get_range(key, 0, view.ref.index_head_length)
        index = decode_head(head, key, view.ref.index_head_hash)
        with self._lock:
            self._indexes[sid] = index
            while len(self._indexes) > _CACHED_INDEXES:
                self._indexes.popitem(last=False)
        return index

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

    def _chunks(
        self, view: SegmentView, index: SegmentIndex, first: int, last: int
    ) -> Iterator[tuple[ChunkRef, bytes]]:
        """Each chunk that holds a seq of the range, verified and decompressed."""
        key = keys.data_key(view.vid, view.ref.sid)
        for run in adjacent(index.chunks_between(first, last), _READ_BYTES):
            start = run[0].offset
            body = self._store.get_range(key, start, run[-1].offset + run[-1].stored_length - start)
            for chunk in run:
                offset = chunk.offset - start
                yield chunk, decode_chunk(body[offset : offset + chunk.stored_length], chunk, view.ref.codec, key)
