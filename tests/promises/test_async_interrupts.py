"""An interrupt of a program with an event loop stops nobody else, whichever thread it hits.

the committing thread   It is interrupted at each point of a group. Each append gets its seqs or the interrupt. Another
                        thread appends after that.
a cancelled task        Ctrl-C in `asyncio.run` cancels the main task, at any point of the loop's thread. The other
                        tasks get their seqs, and the log closes.
the loop                `KeyboardInterrupt` ends the loop at any point, and the program runs the loop again.

asyncio itself loses a callback that an interrupt hits before its first step. So the beginnings of functions are no
points of the last test.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import seglog
from seglog import CalledWithin, Log, LogSettings, aio
from tests.faults.disk import SimulatedDisk
from tests.faults.interrupts import handled, interrupted, points
from tests.seams.log import commit_for_tasks

DIRECTORY = Path("/log")
SETTINGS = LogSettings(segment_max_events=5000, wal_file_bytes=64 * 1024)
AIO = ("seglog.aio.append_queue", "seglog.aio.merged", "seglog.aio.topic")
MODULES = (
    "seglog.aio.append_queue",
    "seglog.aio.merged",
    "seglog.wal.group_commit",
    "seglog.engine.entries",
    "seglog.engine.tail",
    "seglog.wal.wal",
    "seglog.writing.append",
)


def _others_go_on(log: Log) -> None:
    done: list[range] = []
    thread = threading.Thread(target=lambda: done.append(log.topic("t").append([b"after"])), daemon=True)
    thread.start()
    thread.join(20)
    assert done, "another thread waits for ever, or was refused"


def _group(name: str) -> dict[str, list[bytes]]:
    """Return the values of a group: two topics that are there, and a new one."""
    return {"t": [b"x"] * 50, name: [b"y"], "u": [b"z"] * 2}


@pytest.mark.long
def test_an_interrupt_at_any_point_of_the_committing_thread_stops_nobody_else() -> None:
    disk = SimulatedDisk()
    log = seglog.open(DIRECTORY, files=disk, settings=SETTINGS)
    for name in ("t", "u"):
        log.topic(name).append([b"a" * 1000])
    count = points(lambda: commit_for_tasks(log, _group("new")), MODULES)
    assert count > 100
    acked: dict[tuple[str, int], bytes] = {}
    for at in range(1, count + 1):
        values = _group(f"new{at}")
        outcomes: dict[str, range | BaseException] = {}
        interrupted(
            lambda values=values, outcomes=outcomes: outcomes.update(commit_for_tasks(log, values)),  # type: ignore[misc]
            MODULES,
            at,
        )
        _others_go_on(log)
        assert outcomes.keys() in (set(), values.keys()), at
        for name, outcome in outcomes.items():
            if isinstance(outcome, range):
                acked |= {(name, seq): value for seq, value in zip(outcome, values[name], strict=True)}
    log.close()
    assert len(acked) > 30 * count
    with seglog.open(DIRECTORY, files=disk, settings=SETTINGS) as again:
        there = {(name, each.seq): each.value for name in again.topics() for each in again.topic(name).read()}
    assert acked.items() <= there.items()


class _Calling(SimulatedDisk):
    """A disk whose next sync is interrupted by a handler that calls the log, and lets `CalledWithin` out."""

    is_armed = False

    def datasync(self, fd: int) -> None:
        if self.is_armed:
            self.is_armed = False
            raise CalledWithin
        super().datasync(fd)


def test_a_call_within_the_committing_thread_leaves_no_other_thread_waiting() -> None:
    disk = _Calling()

    async def whole() -> None:
        async with aio.open(DIRECTORY, files=disk, settings=SETTINGS) as log:
            await log.topic("t").append([b"makes the topic"])
            disk.is_armed = True
            assert await log.topic("t").append([b"interrupted"]) == range(2, 3)
            after = asyncio.to_thread(log.sync.topic("t").append, [b"after"])
            assert await asyncio.wait_for(after, 20) == range(3, 4)

    asyncio.run(whole())


def test_a_task_that_is_cancelled_at_any_point_of_the_loop_stops_no_other() -> None:
    loop = asyncio.new_event_loop()
    log = loop.run_until_complete(aio.open(DIRECTORY, files=SimulatedDisk(), settings=SETTINGS).__aenter__())
    tasks: list[asyncio.Task[range]] = []
    hits: list[bool] = []
    cancelled = 0

    async def append() -> list[range | BaseException]:
        tasks[:] = [asyncio.create_task(log.topic("t").append([b"%d" % n])) for n in range(3)]
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)

    for at in range(1, 1000):
        tasks.clear()
        hits.clear()
        found: list[range | BaseException] = []
        before = log.sync.topic("t").head_seq if at > 1 else 0
        handled(
            lambda found=found: found.extend(loop.run_until_complete(append())),  # type: ignore[misc]
            AIO,
            at,
            lambda: hits.append(len(tasks) > 1 and tasks[1].cancel()),
        )
        values = [record.value for record in log.sync.topic("t").read(before + 1)]
        assert values in ([b"0", b"1", b"2"], [b"0", b"2"]), at
        assert found[::2] == [range(before + 1, before + 2), range(before + len(values), before + len(values) + 1)], at
        if not hits:
            break
        cancelled += hits[0]
    loop.run_until_complete(asyncio.wait_for(log.close(), 20))
    loop.close()
    assert cancelled > 10


def _until_done(
    loop: asyncio.AbstractEventLoop, tasks: list[asyncio.Task[range]]
) -> tuple[set[asyncio.Task[range]], ...]:
    """Run the loop until the tasks are done. A task whose append was interrupted ends the loop once more."""
    while True:
        try:
            return loop.run_until_complete(asyncio.wait(tasks, timeout=20))
        except KeyboardInterrupt:
            continue


@pytest.mark.parametrize("loop_wait_ms", [0, 1000])
def test_an_interrupt_of_the_loop_leaves_no_task_waiting(loop_wait_ms: int) -> None:
    loop = asyncio.new_event_loop()
    opened = aio.open(DIRECTORY, files=SimulatedDisk(), settings=SETTINGS, loop_wait_ms=loop_wait_ms)
    log = loop.run_until_complete(opened.__aenter__())

    async def begin() -> list[asyncio.Task[range]]:
        return [asyncio.create_task(log.topic("t").append([b"%d" % n])) for n in range(3)]

    hits = 0
    for at in range(1, 1000):
        tasks = loop.run_until_complete(begin())
        work = asyncio.wait(tasks, timeout=20)
        was_hit = interrupted(
            lambda work=work: loop.run_until_complete(work),  # type: ignore[misc]
            AIO,
            at,
            entries=False,
        )
        done, waiting = _until_done(loop, tasks)
        assert not waiting, f"a task waits for ever, after an interrupt at point {at}"
        acked = [task.result() for task in done if task.exception() is None]
        assert was_hit or len(acked) == len(tasks), at
        for [seq] in acked:
            assert len([*log.sync.topic("t").read(seq, seq)]) == 1
        if not was_hit:
            break
        hits += 1
    loop.run_until_complete(asyncio.wait_for(log.close(), 20))
    loop.close()
    assert hits > 10
