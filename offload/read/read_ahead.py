"""Chunks in order, fetched ahead. The longer a reader continues, the more is fetched ahead.

    window   size                              fetched
    0        one chunk                         when the reader asks for it, and nothing beyond: most reads end here
    1        1 MiB                             when the reader asks for the second chunk, together with window 2
    2 ...    twice the one before, up to       1, 2, 4, 8, then 16 windows ahead, as far as two byte limits allow: this
             `window_bytes` (8 MiB)            reader's (`read_ahead_bytes`) and all readers' (`read_ahead_total_bytes`)

Assume 30 ms to the first byte and 85 MB/s for each connection. Then 16 GETs of 8 MiB reach 1 GB/s. 8 GETs of 16 MiB
need as much memory and reach 600 MB/s.

AHEAD-1  Sizes are of stored bytes. A window is one GET, unless parts of it are in the cache or in other flights.
AHEAD-2  Nothing is fetched beyond the last chunk of the range that the caller asked for.
AHEAD-3  If a chunk cannot be fetched, the error is raised when the reader gets there, after all chunks before it.
AHEAD-4  If a chunk does not match its checksum, the reader fetches it again, from the store alone. If the second copy
    does not match either, the error names the object and the range of bytes.
AHEAD-5  A reader that stops leaves its flights. If no other reader wants a flight, it is not begun any more.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Iterator

from catalog.objects.base import ObjectStore
from offload.errors import InvalidChunk
from offload.format.codec import decode_chunk
from offload.read.cache import ChunkCache
from offload.read.chunk_fetcher import Flight, Flights, Place
from seglog.process.ownership import is_foreign

__all__ = ["ReadAhead"]

_log = logging.getLogger("offload.read.cold_reader")

_FIRST_BYTES = 1024 * 1024
_WINDOWS_MAX = 16

_Window = deque[tuple[Place, Flight | None]]


class ReadAhead:
    """One reader's way through `places`. Threads must not share it."""

    def __init__(
        self,
        places: Iterator[Place],
        store: ObjectStore,
        flights: Flights,
        cache: ChunkCache | None,
        *,
        window_bytes: int,
        limit_bytes: int,
    ) -> None:
        self._places = places
        self._store = store
        self._flights = flights
        self._cache = cache
        self._window_bytes = window_bytes
        self._limit_bytes = limit_bytes
        self._windows: deque[_Window] = deque()
        self._waiting: deque[Place] = deque()  # taken from `places`, and in no window yet
        self._failure: Exception | None = None
        self._planned = 0
        self._passed = 0
        self._ahead_bytes = 0

    def chunks(self) -> Generator[tuple[Place, bytes | memoryview], None, None]:
        """Yield each place with its entries, verified and decompressed. Raises `InvalidChunk`, and what the store
        raises.
        """
        try:
            while self._fill():
                window = self._windows[0]
                place, flight = window.popleft()
                self._ahead_bytes -= place.chunk.stored_length
                if not window:
                    self._windows.popleft()
                    self._passed += 1
                yield place, self._entries(place, flight)
        finally:
            # In a forked child the flights are the parent's, so there is nothing to leave.
            for window in () if is_foreign(self._flights) else self._windows:
                for _, flight in window:
                    if flight is not None:
                        self._flights.leave(flight)

    def _fill(self) -> bool:
        """Plan the windows that the reader needs by now. Return False at the end."""
        if not self._windows and not self._plan(is_ahead=False):
            if self._failure is not None:
                raise self._failure
            return False
        ahead = min(1 << (self._passed - 1), _WINDOWS_MAX) if self._passed else 0
        while len(self._windows) <= ahead and self._ahead_bytes < self._limit_bytes and self._plan(is_ahead=True):
            pass
        return True

    def _plan(self, *, is_ahead: bool) -> bool:
        """Plan the next window. Return False if there is none, or if there is no room to fetch it ahead."""
        size_bytes = self._next_size()
        if is_ahead and self._ahead_bytes + size_bytes > self._limit_bytes:
            return False
        places = self._take(size_bytes)
        if not places:
            return False
        if is_ahead:
            flights = self._flights.join_ahead(places)
        else:
            flights = self._flights.join(places, is_scan=self._planned > 0)
        if flights is None:
            self._waiting.extendleft(reversed(places))
            return False
        self._windows.append(deque(zip(places, flights, strict=True)))
        self._ahead_bytes += sum(place.chunk.stored_length for place in places)
        self._planned += 1
        return True

    def _next_size(self) -> int:
        if self._planned == 0:
            return 0
        return min(_FIRST_BYTES << min(self._planned - 1, 32), self._window_bytes, self._limit_bytes)

    def _take(self, size_bytes: int) -> list[Place]:
        """Return places of up to `size_bytes` together, but at least one. Return an empty list at the end."""
        taken: list[Place] = []
        taken_bytes = 0
        while not taken or taken_bytes < size_bytes:
            place = self._waiting.popleft() if self._waiting else self._next()
            if place is None:
                break
            taken_bytes += place.chunk.stored_length
            if taken and taken_bytes > size_bytes:
                self._waiting.appendleft(place)
                break
            taken.append(place)
        return taken

    def _next(self) -> Place | None:
        try:
            return next(self._places, None)
        except Exception as error:  # a later index failed: the reader gets the error when it arrives there (AHEAD-3)
            self._failure = error
            return None

    def _entries(self, place: Place, flight: Flight | None) -> bytes | memoryview:
        stored = self._stored(place, flight)
        try:
            return decode_chunk(stored, place.chunk, place.codec, place.key)
        except InvalidChunk as damage:
            _log.warning("fetching again: %s", damage)
        self._flights.forget(place)
        start, length = place.chunk.offset, place.chunk.stored_length
        stored = memoryview(self._store.get_range(place.key, start, length))
        try:
            return decode_chunk(stored, place.chunk, place.codec, place.key)
        except InvalidChunk as damage:
            reason = f"bytes {start} to {start + length}, fetched twice: {damage.reason}"
            raise InvalidChunk(place.key, start, reason) from damage

    def _stored(self, place: Place, flight: Flight | None) -> bytes | memoryview:
        while flight is None:
            cached = self._cache.get(place.id, place.chunk.stored_length, place.chunk.xxh3) if self._cache else None
            if cached is not None:
                return cached
            [flight] = self._flights.join([place], is_scan=False)
        return self._flights.bytes_of(flight, place)
