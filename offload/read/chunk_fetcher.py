"""Fetches of chunks: all readers that want a chunk at the same time share one GET.

    state     meaning                                          next step
    WAITING   registered, and a reader wants it                run, by a pool thread or by a reader that needs it first
    RUNNING   the GET is under way; cache room is reserved     done
    DONE      the bytes or an error are there                  leave, by each reader; the last one frees the fetch

FETCH-1  A fetch is one GET for chunks of one object with at most `_GAP_BYTES` between them.
FETCH-2  If a chunk is in a fetch, a reader that wants the chunk joins the fetch. If no pool thread has run the fetch
    when the reader needs it, the reader runs it. So no reader waits for a full pool.
FETCH-3  A fetch that no reader wants any more is not run. A fetch that runs already is left to end, at the store's
    timeout at the latest.
FETCH-4  If a reader ran a fetch because it needed the bytes, it gets the fetch's error. The other readers ask once
    more, for their chunk alone.
FETCH-5  A fetch's bytes are held from the registration until the last reader leaves. Bytes that a reader needs now
    may exceed the limit. Reads ahead wait for room below it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from catalog import Codec, SegmentView
from catalog.format.keys import Key
from catalog.objects.base import ObjectStore
from offload.format.block import ChunkRef
from offload.format.metadata import SegmentIndex
from offload.read.cache import ChunkCache
from offload.read.pool import Pool
from seglog.base.ownership import Owned

__all__ = ["ChunkFetcher", "ChunkRequest", "Fetch"]

_GAP_BYTES = 64 * 1024  # a block's header and padding, or a chunk that the cache has: cheaper than another GET


@dataclass(frozen=True, slots=True)
class ChunkRequest:
    """A chunk of a segment, and where it is. The reader wants its records from `first` to `last`."""

    view: SegmentView
    index: SegmentIndex
    chunk: ChunkRef
    key: Key
    first: int
    last: int

    @property
    def id(self) -> tuple[bytes, int]:
        return self.view.ref.sid.raw, self.chunk.offset

    @property
    def codec(self) -> Codec:
        return self.view.ref.codec


class _State(Enum):
    WAITING = 1
    RUNNING = 2
    DONE = 3


class Fetch:
    """One GET. Only `ChunkFetcher` reads and writes its fields."""

    __slots__ = ("body", "done", "error", "is_scan", "length", "requests", "start", "state", "users")

    def __init__(self, requests: list[ChunkRequest], *, is_scan: bool) -> None:
        last = requests[-1].chunk
        self.requests = requests
        self.start = requests[0].chunk.offset
        self.length = last.offset + last.stored_length - self.start
        self.is_scan = is_scan
        self.users = 0
        self.state = _State.WAITING
        self.done = threading.Event()
        self.body = b""
        self.error: BaseException | None = None


class ChunkFetcher(Owned):
    """The fetches of all readers of one store."""

    def __init__(self, store: ObjectStore, cache: ChunkCache | None, limit_bytes: int, pool: Pool) -> None:
        self._store = store
        self._cache = cache
        self._limit_bytes = limit_bytes
        self._pool = pool
        self._lock = threading.Lock()
        self.held_bytes = 0
        self._fetches: dict[tuple[bytes, int], Fetch] = {}

    def join(self, requests: Sequence[ChunkRequest], *, is_scan: bool) -> list[Fetch | None]:
        """Return a fetch for each request, new or shared; None for a request that the cache has.

        The caller must leave a fetch as often as the result contains it. If `is_scan`, the cache need not keep the
        chunks (POLICY-1).
        """
        found = self._join(requests, is_scan=is_scan, is_ahead=False)
        assert found is not None  # noqa: S101 - only what is ahead may find no room
        return found

    def join_ahead(self, requests: Sequence[ChunkRequest]) -> list[Fetch | None] | None:
        """Return fetches for requests that the reader does not need yet. The pool runs them. Return None if there
        is no room.
        """
        return self._join(requests, is_scan=True, is_ahead=True)

    def _join(self, requests: Sequence[ChunkRequest], *, is_scan: bool, is_ahead: bool) -> list[Fetch | None] | None:
        found: list[Fetch | None] = []
        groups: list[list[ChunkRequest]] = []
        with self._lock:
            for request in requests:
                fetch = self._fetches.get(request.id)
                if fetch is None and not self._is_cached(request):
                    if not (groups and _is_near(groups[-1][-1], request)):
                        groups.append([])
                    groups[-1].append(request)
            fetches = [Fetch(group, is_scan=is_scan) for group in groups]
            size_bytes = sum(fetch.length for fetch in fetches)
            if is_ahead and self.held_bytes + size_bytes > self._limit_bytes:
                return None
            self.held_bytes += size_bytes
            for fetch in fetches:
                self._fetches.update({request.id: fetch for request in fetch.requests})
            for request in requests:
                joined = self._fetches.get(request.id)
                if joined is not None:
                    joined.users += 1
                found.append(joined)
        if is_ahead:
            for fetch in fetches:
                self._pool.begin(self._run, fetch)
        return found

    def bytes_of(self, fetch: Fetch, request: ChunkRequest) -> memoryview:
        """Return the stored bytes of a request of the fetch, and leave the fetch.

        Waits for the bytes, or makes the GET. Raises the error of the GET (FETCH-4).
        """
        is_mine = self._run(fetch)
        found = self._wait(fetch, request)
        if is_mine or not isinstance(found, BaseException):
            return _given(found)
        [again] = self.join([request], is_scan=fetch.is_scan)
        if again is None:  # the cache has it by now, and only `ReadAhead` asks the cache
            return memoryview(self._store.get_range(request.key, request.chunk.offset, request.chunk.stored_length))
        self._run(again)
        return _given(self._wait(again, request))

    def leave(self, fetch: Fetch) -> None:
        with self._lock:
            fetch.users -= 1
            if fetch.users == 0 and fetch.state is not _State.RUNNING:
                self._free(fetch)

    def forget(self, request: ChunkRequest) -> None:
        """Unlist the fetch of a request whose bytes are damaged, so that no other reader joins it."""
        with self._lock:
            fetch = self._fetches.get(request.id)
            if fetch is not None and fetch.state is _State.DONE:
                self._unlist(fetch)

    def _wait(self, fetch: Fetch, request: ChunkRequest) -> memoryview | BaseException:
        """Return the request's bytes or the fetch's error. Raises only what interrupts this thread."""
        try:
            fetch.done.wait()
            if fetch.error is not None:
                return fetch.error
            offset = request.chunk.offset - fetch.start
            return memoryview(fetch.body)[offset : offset + request.chunk.stored_length]
        finally:
            self.leave(fetch)

    def _run(self, fetch: Fetch) -> bool:
        """Make the fetch's GET, unless another thread did or no reader wants it. Return whether this call made it."""
        with self._lock:
            if fetch.state is not _State.WAITING:
                return False
            fetch.state = _State.RUNNING
        admitted: list[ChunkRequest] = []
        try:
            admitted = self._reserve(fetch)
            fetch.body = self._store.get_range(fetch.requests[0].key, fetch.start, fetch.length)
        except BaseException as error:  # the waiting readers get it
            fetch.error = error
        self._hand_to_cache(fetch, admitted)
        with self._lock:
            fetch.state = _State.DONE
            if fetch.error is not None:
                self._unlist(fetch)
            if fetch.users == 0:
                self._free(fetch)
        fetch.done.set()
        # A reader that needs a first chunk does not wait for the disk.
        if admitted and (fetch.is_scan or not self._pool.begin(self._write_to_cache, admitted)):
            self._write_to_cache(admitted)
        return True

    def _reserve(self, fetch: Fetch) -> list[ChunkRequest]:
        if self._cache is None:
            return []
        cache = self._cache
        return [p for p in fetch.requests if cache.admit(p.id, p.chunk.stored_length, is_scan=fetch.is_scan)]

    def _hand_to_cache(self, fetch: Fetch, admitted: list[ChunkRequest]) -> None:
        for request in admitted:
            assert self._cache is not None  # noqa: S101 - or nothing was admitted
            offset = request.chunk.offset - fetch.start
            if fetch.error is None:
                self._cache.hand_over(request.id, fetch.body[offset : offset + request.chunk.stored_length])
            else:
                self._cache.drop(request.id)

    def _write_to_cache(self, admitted: list[ChunkRequest]) -> None:
        for request in admitted:
            assert self._cache is not None  # noqa: S101 - or nothing was admitted
            self._cache.write(request.id, request.chunk.xxh3)

    def _is_cached(self, request: ChunkRequest) -> bool:
        return self._cache is not None and self._cache.has(request.id)

    def _free(self, fetch: Fetch) -> None:
        """Free the fetch. The caller holds the lock, and no reader wants the fetch."""
        fetch.state = _State.DONE
        self._unlist(fetch)
        self.held_bytes -= fetch.length

    def _unlist(self, fetch: Fetch) -> None:
        for request in fetch.requests:
            if self._fetches.get(request.id) is fetch:
                del self._fetches[request.id]


def _given(found: memoryview | BaseException) -> memoryview:
    if isinstance(found, BaseException):
        raise found
    return found


def _is_near(before: ChunkRequest, request: ChunkRequest) -> bool:
    gap_bytes = request.chunk.offset - before.chunk.offset - before.chunk.stored_length
    return before.key == request.key and 0 <= gap_bytes <= _GAP_BYTES
