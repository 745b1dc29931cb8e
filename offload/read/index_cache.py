"""A cache of index objects in memory, without their trailers. All readers share it, and its bytes are bounded.

ICACHE-1  The cache keeps an index only after checking it against the hash in the commit. If the index does not match,
    the cache fetches it once more, because the store's copy may be whole and only the answer damaged.
ICACHE-2  Readers that want the same index at the same time share one GET.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict

from catalog import SegmentView
from catalog.format import keys
from catalog.objects.base import ObjectStore
from offload.errors import InvalidIndex
from offload.format.index import decode_head
from offload.format.metadata import SegmentIndex
from offload.read.single_flight import SingleFlight

__all__ = ["IndexCache", "size_of"]

_log = logging.getLogger("offload.read.cold_reader")

_CHUNK_BYTES = 400  # the memory of a ChunkRef and its numbers
_INDEX_BYTES = 2000


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
            index = self._fetch(view)
        except InvalidIndex as damage:
            _log.warning("fetching again: %s", damage)
            index = self._fetch(view)
        self._keep(view.ref.sid.raw, index)
        return index

    def _fetch(self, view: SegmentView) -> SegmentIndex:
        key = keys.index_key(view.vid, view.ref.sid)
        head = self._store.get_range(key, 0, view.ref.index_head_length)
        return decode_head(head, key, view.ref.index_head_hash)

    def _keep(self, sid: bytes, index: SegmentIndex) -> None:
        with self._lock:
            former = self._indexes.pop(sid, None)
            self._held_bytes += size_of(index) - (size_of(former) if former else 0)
            self._indexes[sid] = index
            while self._held_bytes > self._max_bytes:
                self._held_bytes -= size_of(self._indexes.popitem(last=False)[1])


def size_of(index: SegmentIndex) -> int:
    """Return the approximate memory of an index, in bytes."""
    tags = sum(len(tag) + len(bitmap) for tag, bitmap in (index.tags or {}).items())
    return _INDEX_BYTES + _CHUNK_BYTES * len(index.chunks) + len(index.live) + tags
