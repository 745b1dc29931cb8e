"""Groups that the loop writes itself, because the log was opened with `loop_wait_ms` (AIO-5)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from seglog import InvalidArgument, aio
from seglog.aio import AsyncLog
from seglog.aio.append_queue import LoopTime
from tests.faults.files import UnsyncedFiles
from tests.seglog.loops import on_both_loops, run_on


class NotedFiles(UnsyncedFiles):
    """A file port that notes whether the loop makes a sync, and that waits for the gate if there is one."""

    def __init__(self) -> None:
        self.in_loop: list[bool] = []
        self.gate: threading.Event | None = None
        self.is_waiting = threading.Event()

    def datasync(self, fd: int) -> None:
        self.in_loop.append(threading.current_thread() is threading.main_thread())
        if self.gate is not None and not self.in_loop[-1]:
            self.is_waiting.set()
            assert self.gate.wait(60)


def run(
    test: Callable[[AsyncLog], Awaitable[None]], directory: Path, loop: str, files: NotedFiles, **given: float
) -> None:
    async def whole() -> None:
        async with aio.open(directory, files=files, **given) as log:
            await log.topic("t").append([b"makes the topic"])
            files.in_loop.clear()
            await asyncio.wait_for(test(log), 60)

    run_on(loop, whole())


@on_both_loops
def test_a_thread_writes_if_nothing_else_is_said_and_the_loop_if_it_may(tmp_path: Path, loop: str) -> None:
    files = NotedFiles()

    async def test(log: AsyncLog) -> None:
        for number in range(3):
            assert await log.topic("t").append([b"x"]) == range(2 + number, 3 + number)
        ranges = await asyncio.gather(*[log.topic("t").append([b"y"]) for _ in range(20)])
        assert ranges == [range(seq, seq + 1) for seq in range(5, 25)]

    run(test, tmp_path / "thread", loop, files)
    assert set(files.in_loop[:4]) == {False}
    run(test, tmp_path / "loop", loop, files, loop_wait_ms=60_000)
    assert files.in_loop[:4] == [True] * 4


def test_a_thread_writes_much_at_once(tmp_path: Path) -> None:
    files = NotedFiles()

    async def test(log: AsyncLog) -> None:
        await log.topic("t").append([b"x" * 300_000])
        await log.topic("t").append([b"x"])
        assert files.in_loop[:2] == [False, True]

    run(test, tmp_path / "data", "asyncio", files, loop_wait_ms=60_000)


def test_the_loop_does_not_wait_for_another_thread_that_writes(tmp_path: Path) -> None:
    files = NotedFiles()

    async def test(log: AsyncLog) -> None:
        files.gate = threading.Event()
        other = asyncio.create_task(asyncio.to_thread(log.sync.topic("t").append, [b"by a thread"]))
        await asyncio.to_thread(files.is_waiting.wait, 60)
        one = asyncio.create_task(log.topic("t").append([b"by a task"]))
        await asyncio.sleep(0.01)
        assert not one.done()
        files.gate.set()
        assert (await other, await one) == (range(2, 3), range(3, 4))
        assert files.in_loop == [False, False]

    run(test, tmp_path / "data", "asyncio", files, loop_wait_ms=60_000)


def test_groups_keep_their_order_whoever_writes_them(tmp_path: Path) -> None:
    files = NotedFiles()

    async def test(log: AsyncLog) -> None:
        async def work(task: int) -> None:
            for number in range(30):
                await log.topic("t").append([b"%d %d" % (task, number)] * (1_500 if number % 7 == task else 1))

        await asyncio.gather(*[work(task) for task in range(7)])
        found = [record.value for record in log.sync.topic("t").read(2)]
        for task in range(7):
            own = [int(value.split()[1]) for value in found if value.startswith(b"%d " % task)]
            assert own == sorted(own)
            assert set(own) == set(range(30))

    run(test, tmp_path / "data", "asyncio", files, loop_wait_ms=60_000)


def test_after_a_slow_write_a_thread_makes_the_next_ones_and_more_each_time() -> None:
    time = LoopTime(0.001)

    def groups_for_thread() -> int:
        groups = 0
        while not time.allows_next():
            groups += 1
        return groups

    assert groups_for_thread() == 0
    for pause in (64, 128, 256):
        time.note(0.002)
        assert groups_for_thread() == pause
    time.note(0.001)
    assert groups_for_thread() == 0
    time.note(0.002)
    assert groups_for_thread() == 64
    for _ in range(20):
        time.note(0.002)
    assert groups_for_thread() == 65_536
    assert not LoopTime(0).allows_next()


@pytest.mark.parametrize("wrong", [-1, "1", True, None])
def test_a_wrong_time_is_refused_before_anything_is_opened(tmp_path: Path, wrong: object) -> None:
    with pytest.raises(InvalidArgument, match="loop_wait_ms"):
        aio.open(tmp_path / "data", loop_wait_ms=wrong)  # type: ignore[arg-type]
