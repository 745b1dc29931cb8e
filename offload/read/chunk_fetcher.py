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

**Threads** for reads: a pool for optional work ahead of time, and work whose results come in order.

**Read-ahead** fetches chunks in order. The longer a reader continues, the more is fetched ahead.

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

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from typing import ParamSpec, TypeVar

from catalog import Codec, SegmentView
from catalog.format.keys import Key
from catalog.objects.object_store import ObjectStore, past_cache
from catalog.objects.store_timeout import carried
from offload.errors import InvalidChunk
from offload.format.block import ChunkRef
from offload.format.codec import decode_chunk
from offload.format.metadata import SegmentIndex
from offload.read.chunk_cache import ChunkCache
from seglog.base.dataclasses import dataclass
from seglog.base.lazy import logger
from seglog.base.ownership import Owned, check_process, is_foreign

P = ParamSpec("P")
T = TypeVar("T")


class Pool(Owned):
    """A thread pool for optional work. If the pool has not done the work, the caller does it."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._is_closed = False
        self._lock = threading.Lock()

    def begin(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T] | None:
        """Submit `work` to a thread, and return its future. Return None once the pool is closed."""
        with self._lock:
            return None if self._is_closed else self._threads.submit(carried(work), *args, **kwargs)

    def close(self) -> None:
        """Wait for the work that is under way, and cancel the rest. Idempotent."""
        with self._lock:
            self._is_closed = True
        self._threads.shutdown(wait=True, cancel_futures=True)


def in_order(work: Iterable[Callable[[], T]], at_a_time: int, name: str) -> Iterator[T]:
    """Yield the result of each task, in order. At most `at_a_time` tasks have begun and not been yielded yet.

    Raises what a task raises. The threads live as long as the iterator. If a task has not begun when the iterator ends,
    it never runs.
    """
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(at_a_time, thread_name_prefix=name) as pool:
        try:
            for task in work:
                if len(waiting) == at_a_time:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(carried(task)))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def one_ahead(items: Generator[T, None, None], owner: Owned, name: str) -> Generator[T, None, None]:
    """Yield the items. From the second on, a thread makes the next item while the caller works on one.

    No item is None. The iterator closes `items` at its end, after the thread. In a forked child, the next item raises
    `OpenedByParent`, as `owner` does.
    """
    thread: ThreadPoolExecutor | None = None
    try:
        first = next(items, None)
        if first is None:
            return
        yield first
        thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        coming = thread.submit(carried(next), items, None)
        while True:
            check_process(owner)
            item = coming.result()
            if item is None:
                return
            coming = thread.submit(carried(next), items, None)
            yield item
    finally:
        # A child has no such thread, and the parent's is in the middle of `items`.
        if not is_foreign(owner):
            if thread is not None:
                thread.shutdown()
            items.close()


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
        fetches = self._join(requests, is_scan=is_scan, is_ahead=False)
        assert fetches is not None  # noqa: S101 - only what is ahead may find no room
        return fetches

    def join_ahead(self, requests: Sequence[ChunkRequest]) -> list[Fetch | None] | None:
        """Return fetches for requests that the reader does not need yet. The pool runs them. Return None if there
        is no room.
        """
        return self._join(requests, is_scan=True, is_ahead=True)

    def _join(self, requests: Sequence[ChunkRequest], *, is_scan: bool, is_ahead: bool) -> list[Fetch | None] | None:
        joined_fetches: list[Fetch | None] = []
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
                joined_fetches.append(joined)
        if is_ahead:
            for fetch in fetches:
                self._pool.begin(self._run, fetch)
        return joined_fetches

    def bytes_of(self, fetch: Fetch, request: ChunkRequest) -> memoryview:
        """Return the stored bytes of a request of the fetch, and leave the fetch.

        Waits for the bytes, or makes the GET. Raises the error of the GET (FETCH-4).
        """
        is_mine = self._run(fetch)
        outcome = self._wait(fetch, request)
        if is_mine or not isinstance(outcome, BaseException):
            return _given(outcome)
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


def _given(outcome: memoryview | BaseException) -> memoryview:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _is_near(before: ChunkRequest, request: ChunkRequest) -> bool:
    gap_bytes = request.chunk.offset - before.chunk.offset - before.chunk.stored_length
    return before.key == request.key and 0 <= gap_bytes <= _GAP_BYTES


_log = logger("offload.read.cold_reader")

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
        requests: list[ChunkRequest] = []
        taken_bytes = 0
        while not requests or taken_bytes < size_bytes:
            request = self._waiting.popleft() if self._waiting else self._next()
            if request is None:
                break
            taken_bytes += request.chunk.stored_length
            if requests and taken_bytes > size_bytes:
                self._waiting.appendleft(request)
                break
            requests.append(request)
        return requests

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
        stored = memoryview(past_cache(self._store).get_range(request.key, start, length))
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
