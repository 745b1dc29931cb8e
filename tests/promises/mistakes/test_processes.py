"""Forks, threads, signals, event loops and objects are used wrongly, or the program ends too early."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import FrameType

import pytest

import seglog
from seglog import CalledWithin, LogClosed, NoSuchTopic, OtherLoop, aio
from seglog.journal.journal import Journal
from tests.children import in_child, outcome_of
from tests.faults.files import UnsyncedFiles
from tests.promises.mistakes.scene import filled, numbered, values
from tests.worlds.command import ROOT


def _program(text: str, directory: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a program of a user, which prints what was acked."""
    line = [sys.executable, "-c", text, str(directory)]
    return subprocess.run(line, capture_output=True, cwd=ROOT, check=False, timeout=120)


def test_a_forked_child_appends_and_closes(tmp_path: Path) -> None:
    """A program forks while it has a log open, and the child appends and closes it.

    Outcome: the child is refused with `OpenedByParent`, and its `close` does nothing. The parent's log still works.
    """
    with seglog.open(tmp_path / "data") as log:
        log.topic("orders").append(numbered(10))

        def child() -> str:
            outcome = outcome_of(lambda: log.topic("orders").append([b"of the child"]))
            log.close()
            return outcome

        assert in_child(child) == "OpenedByParent"
        log.topic("orders").append([b"after"])
    assert values(tmp_path / "data") == [*numbered(10), b"after"]


def test_a_forked_child_opens_the_directory_of_its_parent(tmp_path: Path) -> None:
    """A worker that was forked opens the directory that its parent has open.

    Outcome: refused with `DirectoryInUse`. The parent's log still works.
    """
    filled(tmp_path / "data")
    with seglog.open(tmp_path / "data") as log:
        assert in_child(lambda: outcome_of(lambda: seglog.open(tmp_path / "data"))) == "DirectoryInUse"
        log.topic("orders").append([b"after"])
    assert values(tmp_path / "data") == [*numbered(10), b"after"]


def test_a_signal_handler_appends(tmp_path: Path) -> None:
    """A signal handler appends to the topic that its thread is appending to.

    Outcome: the handler's append works, or is refused with `CalledWithin` at once; nothing hangs, and nothing is lost.
    """
    acked: list[bytes] = []
    refused: list[CalledWithin] = []
    numbers = count()

    def handler(_number: int, _frame: FrameType | None) -> None:
        value = b"signal %d" % next(numbers)
        try:
            log.topic("orders").append([value])
            acked.append(value)
        except CalledWithin as error:
            refused.append(error)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with seglog.open(tmp_path / "data", files=UnsyncedFiles()) as log:
            signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
            for number in range(20_000):
                log.topic("orders").append([b"main %d" % number])
                if len(refused) > 20:
                    break
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert refused
    found = values(tmp_path / "data")
    assert sorted(value for value in found if value.startswith(b"signal")) == sorted(acked)
    assert [value for value in found if value.startswith(b"main")] == [b"main %d" % each for each in range(number + 1)]


def test_a_logging_handler_appends_to_the_log_that_it_hears_of(tmp_path: Path) -> None:
    """A program sends its log messages, and so those of seglog, to a topic of the same log.

    Outcome: nothing hangs. A message of seglog within an append is refused with `CalledWithin`. The append continues.
    """
    outcomes: list[object] = []

    class ToTopic(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            try:
                outcomes.append(log.topic("messages").append([record.getMessage().encode()]))
            except CalledWithin as error:
                outcomes.append(error)

    class Clock:
        ms = 1_700_000_000_000

        def now_ms(self) -> int:
            return self.ms

    handler, clock = ToTopic(), Clock()
    logging.getLogger("seglog").addHandler(handler)
    try:
        with seglog.open(tmp_path / "data", clock=clock) as log:
            log.topic("orders").append(numbered(5))
            clock.ms += 3 * 86_400_000  # the log warns of that while it appends
            log.topic("orders").append(numbered(5, first=6))
    finally:
        logging.getLogger("seglog").removeHandler(handler)
    assert any(isinstance(outcome, CalledWithin) for outcome in outcomes)
    assert values(tmp_path / "data") == numbered(10)


@pytest.mark.long
def test_a_finalizer_appends(tmp_path: Path) -> None:
    """An object appends to the log in its `__del__`, which the garbage collector calls within an append.

    Outcome: the finalizer's append works or is refused with `CalledWithin` at once. The outer append continues.
    """
    outcomes: list[object] = []

    class Last:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            try:
                outcomes.append(log.topic("orders").append([b"finalizer"]))
            except CalledWithin as error:
                outcomes.append(error)

    class Collecting(UnsyncedFiles):
        def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
            gc.collect()
            super().pwrite(fd, data, offset)

        def pwritev(self, fd: int, pieces: object, offset: int) -> None:
            gc.collect()
            super().pwritev(fd, pieces, offset)  # type: ignore[arg-type]

    with seglog.open(tmp_path / "data", files=Collecting()) as log:
        Last()
        log.topic("orders").append([b"outer"])
    assert len(outcomes) == 1
    assert isinstance(outcomes[0], CalledWithin)
    assert values(tmp_path / "data") == [b"outer"]


def test_an_append_is_interrupted_by_the_keyboard(tmp_path: Path) -> None:
    """Somebody presses Ctrl-C while a program appends, and the program catches it and continues.

    Outcome: nothing is lost. The append that was hit may be there or not; the log takes more.
    """

    class Interrupted(UnsyncedFiles):
        is_armed = False

        def datasync(self, fd: int) -> None:
            super().datasync(fd)
            if self.is_armed:
                self.is_armed = False
                signal.raise_signal(signal.SIGINT)

    files = Interrupted()
    with seglog.open(tmp_path / "data", files=files) as log:
        log.topic("orders").append(numbered(10))
        files.is_armed = True
        with pytest.raises(KeyboardInterrupt):
            log.topic("orders").append([b"hit"])
        log.topic("orders").append([b"after"])
    assert [value for value in values(tmp_path / "data") if value != b"hit"] == [*numbered(10), b"after"]


def test_objects_are_used_after_close(tmp_path: Path) -> None:
    """A program keeps a log, a topic, an iterator and a follower, and uses them after `close`.

    Outcome: each call is refused with `LogClosed`. An iterator gives what it has in memory first; a follower ends.
    """
    filled(tmp_path / "data", seal=True)
    log = seglog.open(tmp_path / "data")
    topic, reader, batches = log.topic("orders"), log.topic("orders").read(), log.topic("orders").read_batches()
    follower = topic.follow()
    assert next(reader).value == next(follower).value == numbered(1)[0]
    log.close()
    log.close()
    calls = (lambda: topic.append([b"x"]), topic.read, topic.seal, lambda: topic.delete(before=5), log.checkpoint)
    for call in calls:
        with pytest.raises(LogClosed):
            call()
    with pytest.raises(LogClosed):
        list(batches)
    assert [record.value for record in reader] == numbered(9, first=2)
    assert [record.value for record in follower] in ([], numbered(9, first=2))
    assert values(tmp_path / "data") == numbered(10)


def test_a_journal_is_used_after_close(tmp_path: Path) -> None:
    """A program keeps a journal and uses it after `close`.

    Outcome: each call is refused with `LogClosed`; what was synced is there.
    """
    journal = Journal(tmp_path / "journal")
    journal.append(1, b"item")
    journal.sync(1)
    journal.close()
    journal.close()
    for call in (lambda: journal.append(1, b"x"), lambda: journal.get(1, 0), lambda: journal.sync(1), journal.replay):
        with pytest.raises(LogClosed):
            call()
    with Journal(tmp_path / "journal") as again:
        assert [item.data for item in again.replay()] == [b"item"]


def test_a_log_is_closed_while_threads_append(tmp_path: Path) -> None:
    """One thread closes the log, and a second one closes it too, while others append.

    Outcome: nothing is lost. Appends end with `LogClosed`, both closes return, and each acked record is there.
    """
    log = seglog.open(tmp_path / "data", files=UnsyncedFiles())
    acked: list[list[bytes]] = [[] for _ in range(3)]
    ended: list[type[BaseException]] = []

    def work(number: int) -> None:
        try:
            while True:
                value = b"%d %d" % (number, len(acked[number]))
                log.topic("orders").append([value])
                acked[number].append(value)
        except BaseException as error:
            ended.append(type(error))

    failures: list[BaseException] = []

    def close() -> None:
        try:
            log.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(3)]
    for thread in threads:
        thread.start()
    while not all(len(each) > 20 for each in acked):
        threading.Event().wait(0.001)
    closers = [threading.Thread(target=close, daemon=True) for _ in range(2)]
    for thread in closers:
        thread.start()
    for thread in (*closers, *threads):
        thread.join(60)
    assert ended == [LogClosed] * 3
    assert failures == []
    found = values(tmp_path / "data")
    for number, mine in enumerate(acked):
        assert [value for value in found if value.startswith(b"%d " % number)] == mine


def test_a_topic_is_used_after_it_was_deleted(tmp_path: Path) -> None:
    """A program keeps a topic object and an iterator, and deletes the topic; later it makes one of the same name.

    Outcome: calls and the iterator are refused with `NoSuchTopic`; afterwards the object is the new topic.
    """
    with seglog.open(tmp_path / "data") as log:
        topic = log.topic("orders")
        topic.append(numbered(10))
        reader = topic.read()
        assert next(reader).value == numbered(1)[0]
        log.delete_topic("orders")
        for call in (topic.read, topic.seal, lambda: topic.delete(before=2), lambda: list(reader)):
            with pytest.raises(NoSuchTopic):
                call()
        topic.append([b"new"])
        assert [record.value for record in log.topic("orders").read()] == [b"new"]
        with pytest.raises((NoSuchTopic, StopIteration)):
            next(reader)
    assert values(tmp_path / "data") == [b"new"]


def test_readers_are_never_exhausted(tmp_path: Path) -> None:
    """A program begins thousands of reads, takes one record of each, and keeps the iterators.

    Outcome: nothing is lost, and no file descriptor is kept for each.
    """
    filled(tmp_path / "data", seal=True)
    with seglog.open(tmp_path / "data") as log:
        before = len(os.listdir("/proc/self/fd"))
        readers: list[Iterator[seglog.Record]] = [log.topic("orders").read() for _ in range(1000)]
        assert {next(reader).value for reader in readers} == {numbered(1)[0]}
        assert len(os.listdir("/proc/self/fd")) <= before + 8
        log.topic("orders").append([b"after"])
        log.topic("orders").seal()
        assert [record.value for record in readers[-1]] == numbered(9, first=2)
    assert values(tmp_path / "data") == [*numbered(10), b"after"]


def test_the_with_block_raises(tmp_path: Path) -> None:
    """The body of `with seglog.open(...)` raises an exception.

    Outcome: nothing is lost. The log is closed, and the caller gets the exception unchanged.
    """
    log = seglog.open(tmp_path / "data")

    def program() -> None:
        with log:
            log.topic("orders").append(numbered(10), durability="memory")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program()
    with pytest.raises(LogClosed):
        log.topic("orders").append([b"x"])
    assert values(tmp_path / "data") == numbered(10)


def test_the_program_ends_without_close(tmp_path: Path) -> None:
    """A program never closes the log; at its end a daemon thread still appends, and another thread calls `sys.exit`.

    Outcome: nothing that was acked at fsync is lost. The program ends, and the next opening recovers.
    """
    done = _program(
        "import sys, threading, os, seglog\n"
        "log = seglog.open(sys.argv[1])\n"
        "counted = threading.Event()\n"
        "def work():\n"
        "    number = 0\n"
        "    while True:\n"
        "        log.topic('orders').append([b'%d' % number])\n"
        "        os.write(1, b'%d\\n' % number)\n"
        "        number += 1\n"
        "        if number == 20: counted.set()\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "threading.Thread(target=lambda: (log.topic('other').append([b'x']), sys.exit(3))).start()\n"
        "counted.wait()\n",
        tmp_path / "data",
    )
    acked = done.stdout.split()
    assert done.returncode == 0, done.stderr
    assert len(acked) >= 20
    assert values(tmp_path / "data")[: len(acked)] == acked
    assert values(tmp_path / "data", "other") == [b"x"]


# ---------------------------------------------------------------- asyncio


def test_a_coroutine_is_never_awaited(tmp_path: Path) -> None:
    """A program calls `append` of an async topic and forgets `await`.

    Outcome: nothing is appended, and Python warns of it; what was awaited is there.
    """

    async def program() -> None:
        async with aio.open(tmp_path / "data") as log:
            topic = log.topic("orders")
            await topic.append(numbered(10))
            with pytest.warns(RuntimeWarning, match="never awaited"):
                topic.append([b"forgotten"])  # type: ignore[unused-coroutine]

    asyncio.run(program())
    assert values(tmp_path / "data") == numbered(10)


async def _opened(path: Path) -> aio.AsyncLog:
    log = await aio.open(path).__aenter__()
    await log.topic("orders").append(numbered(10))
    return log


def test_an_async_log_is_used_after_its_loop_has_ended(tmp_path: Path) -> None:
    """A program opens an async log in one `asyncio.run`, and uses it in a second one.

    Outcome: an append is refused with `OtherLoop`, reads and `close` work; nothing is lost.
    """

    async def program() -> list[bytes]:
        with pytest.raises(OtherLoop):
            await log.topic("orders").append([b"refused"])
        found = [record.value async for record in log.topic("orders").read()]
        await log.close()
        return found

    log = asyncio.run(_opened(tmp_path / "data"))
    assert asyncio.run(program()) == values(tmp_path / "data") == numbered(10)


def test_an_async_log_is_used_by_two_loops(tmp_path: Path) -> None:
    """A program uses one async log in the event loops of two threads.

    Outcome: in the second loop an append and `close` are refused with `OtherLoop`. The first loop still works.
    """

    async def second(log: aio.AsyncLog) -> None:
        for call in (log.topic("orders").append([b"refused"]), log.close()):
            with pytest.raises(OtherLoop):
                await call

    async def first() -> None:
        log = await _opened(tmp_path / "data")
        await asyncio.to_thread(lambda: asyncio.run(second(log)))
        await log.topic("orders").append([b"after"])
        await log.close()

    asyncio.run(first())
    assert values(tmp_path / "data") == [*numbered(10), b"after"]


def test_an_async_append_is_cancelled(tmp_path: Path) -> None:
    """A program cancels a running append, and continues.

    Outcome: nothing is lost. The cancelled records may be there or not, once; the others are there in their order.
    """

    async def program() -> None:
        async with aio.open(tmp_path / "data") as log:
            topic = log.topic("orders")
            await topic.append(numbered(5))
            task = asyncio.ensure_future(topic.append([b"cancelled"]))
            await asyncio.sleep(0)
            task.cancel()
            await topic.append(numbered(5, first=6))
            assert task.cancelled()

    asyncio.run(program())
    assert [value for value in values(tmp_path / "data") if value != b"cancelled"] == numbered(10)


def test_a_sync_log_is_used_inside_an_event_loop(tmp_path: Path) -> None:
    """A program calls the synchronous log in an event loop, and `asyncio.run` within the running loop.

    Outcome: nothing is lost. The calls block the loop and work; Python refuses the second `asyncio.run`.
    """

    async def program() -> None:
        with seglog.open(tmp_path / "data") as log:
            log.topic("orders").append(numbered(5))
            other = log.topic("orders")
            coroutine = asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="running event loop"):
                asyncio.run(coroutine)
            coroutine.close()
            other.append(numbered(5, first=6))

    asyncio.run(program())
    assert values(tmp_path / "data") == numbered(10)
