"""Chunks in order, fetched ahead. The longer a reader continues, the more is fetched ahead.

    window   size                              fetched
    0        one chunk                         when the reader asks for it, and nothing beyond: most reads end here
    1        1 MiB                             when the reader asks for the second chunk, together with window 2
    2 ...    twice the one before, up to       1, 2, 4, 8, then 16 windows ahead, as far as two byte limits allow: this
             `window_bytes` (8 MiB)            reader's (`read_ahead_bytes`) and all readers' (`read_ahead_total_bytes`)

Assume 30 ms to the first byte and 85 MB/s for each connection. Then 16 GETs of 8 MiB reach 1 GB/s. 8 GETs of 16 MiB
need as much memory and reach 600 MB/s.

AHEAD-1  Sizes are of stored bytes. A window is one GET, unless parts of it are in the cache or in other fetches.
AHEAD-2  Nothing is fetched beyond the last chunk of the range that the caller asked for.
AHEAD-3  If a chunk cannot be fetched, the error is raised when the reader gets there, after all chunks before it.
AHEAD-4  If a chunk does not match its checksum, the reader fetches it again, from the store alone. If the second copy
    does not match either, the error names the object and the range of bytes.
AHEAD-5  A reader that stops leaves its fetches. If no other reader wants a fetch, it is not begun any more.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Iterator

from catalog.objects.base import ObjectStore
from offload.errors import InvalidChunk
from offload.format.codec import decode_chunk
from offload.read.cache import ChunkCache
from offload.read.chunk_fetcher import ChunkFetcher, ChunkRequest, Fetch
from seglog.base.ownership import is_foreign

__all__ = ["ReadAhead"]

_log = logging.getLogger("offload.read.cold_reader")

_FIRST_BYTES = 1024 * 1024
_WINDOWS_MAX = 16

_Window = deque[tuple[ChunkRequest, Fetch | None]]


class ReadAhead:
    """One reader's way through `requests`. Threads must not share it."""

    def __init__(
        self,
        requests: Iterator[ChunkRequest],
        store: ObjectStore,
        fetcher: ChunkFetcher,
        cache: ChunkCache | None,
        *,
        window_bytes: int,
        limit_bytes: int,
    ) -> None:
        self._requests = requests
        self._store = store
        self._fetcher = fetcher
        self._cache = cache
        self._window_bytes = window_bytes
        self._limit_bytes = limit_bytes
        self._windows: deque[_Window] = deque()
        self._waiting: deque[ChunkRequest] = deque()  # taken from `requests`, and in no window yet
        self._failure: Exception | None = None
        self._planned = 0
        self._passed = 0
        self._ahead_bytes = 0

    def chunks(self) -> Generator[tuple[ChunkRequest, bytes | memoryview], None, None]:
        """Yield each request with its entries, verified and decompressed. Raises `InvalidChunk`, and what the store
        raises.
        """
        try:
            while self._fill():
                window = self._windows[0]
                request, fetch = window.popleft()
                self._ahead_bytes -= request.chunk.stored_length
                if not window:
                    self._windows.popleft()
                    self._passed += 1
                yield request, self._entries(request, fetch)
        finally:
            # In a forked child the fetches are the parent's, so there is nothing to leave.
            for window in () if is_foreign(self._fetcher) else self._windows:
                for _, fetch in window:
                    if fetch is not None:
                        self._fetcher.leave(fetch)

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
        requests = self._take(size_bytes)
        if not requests:
            return False
        if is_ahead:
            fetches = self._fetcher.join_ahead(requests)
        else:
            fetches = self._fetcher.join(requests, is_scan=self._planned > 0)
        if fetches is None:
            self._waiting.extendleft(reversed(requests))
            return False
        self._windows.append(deque(zip(requests, fetches, strict=True)))
        self._ahead_bytes += sum(request.chunk.stored_length for request in requests)
        self._planned += 1
        return True

    def _next_size(self) -> int:
        if self._planned == 0:
            return 0
        return min(_FIRST_BYTES << min(self._planned - 1, 32), self._window_bytes, self._limit_bytes)

    def _take(self, size_bytes: int) -> list[ChunkRequest]:
        """Return requests of up to `size_bytes` together, but at least one. Return an empty list at the end."""
        taken: list[ChunkRequest] = []
        taken_bytes = 0
        while not taken or taken_bytes < size_bytes:
            request = self._waiting.popleft() if self._waiting else self._next()
            if request is None:
                break
            taken_bytes += request.chunk.stored_length
            if taken and taken_bytes > size_bytes:
                self._waiting.appendleft(request)
                break
            taken.append(request)
        return taken

    def _next(self) -> ChunkRequest | None:
        try:
            return next(self._requests, None)
        except Exception as error:  # a later index failed: the reader gets the error when it arrives there (AHEAD-3)
            self._failure = error
            return None

    def _entries(self, request: ChunkRequest, fetch: Fetch | None) -> bytes | memoryview:
        stored = self._stored(request, fetch)
        try:
            return decode_chunk(stored, request.chunk, request.codec, request.key)
        except InvalidChunk as damage:
            _log.warning("fetching again: %s", damage)
        self._fetcher.forget(request)
        start, length = request.chunk.offset, request.chunk.stored_length
        stored = memoryview(self._store.get_range(request.key, start, length))
        try:
            return decode_chunk(stored, request.chunk, request.codec, request.key)
        except InvalidChunk as damage:
            reason = f"bytes {start} to {start + length}, fetched twice: {damage.reason}"
            raise InvalidChunk(request.key, start, reason) from damage

    def _stored(self, request: ChunkRequest, fetch: Fetch | None) -> bytes | memoryview:
        while fetch is None:
            cached = (
                self._cache.get(request.id, request.chunk.stored_length, request.chunk.xxh3) if self._cache else None
            )
            if cached is not None:
                return cached
            [fetch] = self._fetcher.join([request], is_scan=False)
        return self._fetcher.bytes_of(fetch, request)
