"""Ways to append: one after the other, from threads, from asyncio tasks, at a given rate.

Each function turns a store into a subject for `benchmarks.slices`.
"""

from __future__ import annotations

import asyncio
import heapq
import importlib.util
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import TypeAlias

import seglog
from benchmarks.runner import Figures
from benchmarks.slices import Open, Slice, Unavailable, rate_and_percentiles
from benchmarks.stores import Append, Store, jetstream
from seglog import aio

__all__ = [
    "AppendOne",
    "AsyncStore",
    "MakeLoop",
    "bare",
    "by_tasks",
    "in_a_loop",
    "loop",
    "nats",
    "new_uvloop",
    "ours_async",
    "paced",
    "threaded",
]

AppendOne: TypeAlias = Callable[[bytes], Awaitable[object]]
AsyncStore: TypeAlias = Callable[[Path], AbstractAsyncContextManager[AppendOne]]
MakeLoop: TypeAlias = Callable[[], asyncio.AbstractEventLoop]

# At most so many tasks are timed: timing all of them would distort the measurement.
_TIMED_TASKS = 16
# JetStream syncs one record after the other: the last of 2,000 tasks waits for all of them.
_ACK_LIMIT_S = 120


def in_a_loop(store: Store, batches: Sequence[Sequence[bytes]]) -> Open:
    """One caller appends batch after batch."""

    @contextmanager
    def open_subject(directory: Path) -> Iterator[Slice]:
        with store(directory) as append:
            position = count()
            yield lambda slice_s: loop(append, batches, position, slice_s)

    return open_subject


def loop(append: Append, batches: Sequence[Sequence[bytes]], position: Iterator[int], slice_s: float) -> Figures:
    clock = time.perf_counter
    times: list[float] = []
    records = 0
    begin = now = clock()
    while now - begin < slice_s:
        batch = batches[next(position) % len(batches)]
        start = now
        append(batch)
        now = clock()
        times.append(now - start)
        records += len(batch)
    return rate_and_percentiles(records, now - begin, times)


def threaded(store: Store, threads: int, values: Sequence[bytes]) -> Open:
    """Each thread appends one value after the other."""
    batches = [[value] for value in values]

    @contextmanager
    def open_subject(directory: Path) -> Iterator[Slice]:
        with store(directory) as append:
            yield lambda slice_s: _from_threads(append, threads, batches, slice_s)

    return open_subject


def _from_threads(append: Append, threads: int, batches: Sequence[Sequence[bytes]], slice_s: float) -> Figures:
    gate = threading.Barrier(threads + 1)
    times: list[list[float]] = []

    def work() -> None:
        clock = time.perf_counter
        own: list[float] = []
        gate.wait()
        begin = now = clock()
        while now - begin < slice_s:
            start = now
            append(batches[len(own) % len(batches)])
            now = clock()
            own.append(now - start)
        times.append(own)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    gate.wait()
    begin = time.perf_counter()
    for worker in workers:
        worker.join()
    elapsed = time.perf_counter() - begin
    if len(times) != threads:
        raise RuntimeError("a thread failed: the figure would be wrong")
    every = [one for own in times for one in own]
    return rate_and_percentiles(len(every), elapsed, every)


def ours_async(
    durability: str = "fsync",
    topics: int = 1,
    settings: seglog.LogSettings | None = None,
    *,
    loop_wait_ms: float = 0,
) -> AsyncStore:
    """Return a store that appends with `AsyncTopic.append`, one value each, to so many topics in turn."""

    @asynccontextmanager
    async def store(directory: Path) -> AsyncIterator[AppendOne]:
        async with aio.open(directory / "data", loop_wait_ms=loop_wait_ms, settings=settings) as log:
            log.sync.topic_defaults = seglog.TopicConfig(durability=durability)
            appends = [log.topic(f"bench-{number}").append for number in range(topics)]
            for append in appends:
                await append([b"makes the topic"])
            if topics == 1:
                [only] = appends
                yield lambda value: only([value])
                return
            turn = count()
            yield lambda value: appends[next(turn) % topics]([value])

    return store


@asynccontextmanager
async def nats(directory: Path) -> AsyncIterator[AppendOne]:
    with jetstream.running(directory) as address:
        async with jetstream.connected(address) as stream:
            yield lambda value: stream.publish(jetstream.SUBJECT, value, timeout=_ACK_LIMIT_S)


@asynccontextmanager
async def bare(_directory: Path) -> AsyncIterator[AppendOne]:
    """Yield an append that keeps nothing: the task awaits a future, and one callback resolves those of a tick."""
    running = asyncio.get_running_loop()
    waiting: list[asyncio.Future[None]] = []

    def resolve() -> None:
        resolved = waiting[:]
        waiting.clear()
        for future in resolved:
            future.set_result(None)

    def append(_value: bytes) -> asyncio.Future[None]:
        future = running.create_future()
        if not waiting:
            running.call_soon(resolve)
        waiting.append(future)
        return future

    yield append


def new_uvloop() -> asyncio.AbstractEventLoop:
    """Return a new loop of uvloop. Raise `Unavailable` without uvloop."""
    if importlib.util.find_spec("uvloop") is None:
        raise Unavailable("uvloop is not installed")
    import uvloop

    made: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return made


def by_tasks(
    store: AsyncStore, tasks: int, values: Sequence[bytes], make_loop: MakeLoop = asyncio.new_event_loop
) -> Open:
    """Each task appends one value after the other."""

    async def work(append: AppendOne, slice_s: float) -> Figures:
        done: list[int] = []
        times: list[float] = []
        begin = time.perf_counter()
        end = begin + slice_s
        timed = min(tasks, _TIMED_TASKS)
        await asyncio.gather(
            *[_timed(append, values, end, times, done) for _ in range(timed)],
            *[_untimed(append, values, end, done) for _ in range(tasks - timed)],
        )
        return rate_and_percentiles(sum(done), time.perf_counter() - begin, times)

    return _in_a_loop_of_its_own(store, work, make_loop)


async def _timed(append: AppendOne, values: Sequence[bytes], end: float, times: list[float], done: list[int]) -> None:
    clock = time.perf_counter
    number = 0
    now = clock()
    while now < end or not number:  # a slice may be over before the task begins
        start = now
        await append(values[number % len(values)])
        now = clock()
        times.append(now - start)
        number += 1
    done.append(number)


async def _untimed(append: AppendOne, values: Sequence[bytes], end: float, done: list[int]) -> None:
    clock = time.perf_counter
    number = 0
    while clock() < end:
        await append(values[number % len(values)])
        number += 1
    done.append(number)


def paced(
    store: AsyncStore,
    tasks: int,
    records_per_s: Callable[[], float],
    values: Sequence[bytes],
    make_loop: MakeLoop = asyncio.new_event_loop,
) -> Open:
    """Each task appends one value when its turn comes, so that all tasks together append so many values a second.

    A task that is late appends at once, and does not catch up on missed turns. A time covers the call, not the wait
    before. One timer wakes all tasks whose turn has come, so that the load of the pace itself is small.
    """

    async def work(append: AppendOne, slice_s: float) -> Figures:
        turns, clock = _Turns(), time.perf_counter
        period_s = tasks / records_per_s()
        begin = clock()
        times: list[float] = []

        async def one(number: int) -> None:
            due = begin + period_s * number / tasks
            while due < begin + slice_s:
                await turns.come(due)
                start = clock()
                await append(values[number % len(values)])
                now = clock()
                times.append(now - start)
                due = max(due + period_s, now)

        await asyncio.gather(*[one(number) for number in range(tasks)])
        return rate_and_percentiles(len(times), clock() - begin, times)

    return _in_a_loop_of_its_own(store, work, make_loop)


class _Turns:
    """The tasks that wait for a time, and one timer for the first of them."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._number = count()
        self._timer: asyncio.TimerHandle | None = None

    def come(self, due: float) -> asyncio.Future[None]:
        """Return a future that is done when `time.perf_counter` has reached `due`."""
        turn = self._loop.create_future()
        heapq.heappush(self._waiting, (due, next(self._number), turn))
        if self._waiting[0][2] is turn:
            if self._timer is not None:
                self._timer.cancel()
            self._wait_for_first()
        return turn

    def _wake(self) -> None:
        self._timer = None
        now = time.perf_counter()  # the clock of uvloop counts milliseconds
        while self._waiting and self._waiting[0][0] <= now:
            heapq.heappop(self._waiting)[2].set_result(None)
        if self._waiting:
            self._wait_for_first()

    def _wait_for_first(self) -> None:
        self._timer = self._loop.call_later(max(0.0, self._waiting[0][0] - time.perf_counter()), self._wake)


def _in_a_loop_of_its_own(
    store: AsyncStore, work: Callable[[AppendOne, float], Awaitable[Figures]], make_loop: MakeLoop
) -> Open:
    @contextmanager
    def open_subject(directory: Path) -> Iterator[Slice]:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            opening = store(directory)
            append = runner.run(_enter(opening))
            try:

                def measure(slice_s: float) -> Figures:
                    async def whole() -> Figures:
                        return await work(append, slice_s)

                    return runner.run(whole())

                yield measure
            finally:
                runner.run(_leave(opening))

    return open_subject


async def _enter(opening: AbstractAsyncContextManager[AppendOne]) -> AppendOne:
    return await opening.__aenter__()


async def _leave(opening: AbstractAsyncContextManager[AppendOne]) -> None:
    await opening.__aexit__(None, None, None)
