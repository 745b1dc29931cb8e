"""A cache of index objects in memory, without their trailers. All readers share it, and its bytes are bounded.

ICACHE-1  The cache keeps an index only after checking it against the hash in the commit. If the index does not match,
    the cache fetches it once more, because the store's copy may be whole and only the answer damaged.
ICACHE-2  Readers that want the same index at the same time share one GET.

`SingleFlight` makes one call of work for all callers that want the same result at the same time.

FLIGHT-1  While one caller works for a key, the others wait, and all get its result.
FLIGHT-2  If the work fails, only the working caller gets the error at once. The waiting callers try once more, one for
    all of them, before they fail too.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

from catalog import SegmentView
from catalog.format import keys
from catalog.objects.base import ObjectStore
from offload.errors import InvalidIndex
from offload.format.index import decode_head
from offload.format.metadata import SegmentIndex

__all__ = ["IndexCache", "SingleFlight"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_log = logging.getLogger("offload.read.cold_reader")

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
            self._held_bytes += _size_of(index) - (_size_of(former) if former else 0)
            self._indexes[sid] = index
            while self._held_bytes > self._max_bytes:
                self._held_bytes -= _size_of(self._indexes.popitem(last=False)[1])


def _size_of(index: SegmentIndex) -> int:
    """Return the approximate memory of an index, in bytes."""
    tags = sum(len(tag) + len(bitmap) for tag, bitmap in (index.tags or {}).items())
    return _INDEX_BYTES + _CHUNK_BYTES * len(index.chunks) + len(index.live) + tags
