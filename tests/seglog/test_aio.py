from __future__ import annotations

import asyncio
import errno
import inspect
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog import (
    DiskFull,
    FileCorrupt,
    Gap,
    LogClosed,
    LogSettings,
    NoSuchTopic,
    RecordTooLarge,
    TopicConfig,
    TopicFull,
    Truncated,
    WriterPoisoned,
    aio,
)
from seglog.aio import AsyncLog
from seglog.aio.merged import Ack
from seglog.format.lines import Lines
from tests.faults.files import FailingFiles, UnsyncedFiles
from tests.faults.gated_files import GatedFiles
from tests.seams.log import async_queue_of, note_groups, parts_of, shards_of, waiters_of
from tests.seglog.loops import factory_of, on_both_loops, run_on


def run(test: Callable[[AsyncLog], Awaitable[None]], directory: Path, *, loop: str = "asyncio", **options: Any) -> None:
    async def whole() -> None:
        async with aio.open(directory, **options) as log:
            await asyncio.wait_for(test(log), 60)

    run_on(loop, whole())


def _values(log: seglog.Log, name: str = "t") -> list[bytes]:
    return [record.value for record in log.topic(name).read()]


async def _begin_one_that_waits_in_its_sync(log: AsyncLog, files: GatedFiles) -> asyncio.Task[range]:
    files.gate.clear()
    files.waiting.clear()
    first = asyncio.create_task(log.topic("t").append([b"first"]))
    await asyncio.to_thread(files.waiting.wait, 60)
    return first


@on_both_loops
def test_what_is_appended_is_read(tmp_path: Path, loop: str) -> None:
    async def test(log: AsyncLog) -> None:
        topic = log.topic("t")
        assert await topic.append([b"one", b"two"], tag="eu", node="n") == range(1, 3)
        assert await topic.append([]) == range(3, 3)
        assert await topic.append([b"three"], durability="memory") == range(3, 4)
        found = [record async for record in topic.read()]
        assert found == list(log.sync.topic("t").read())
        assert [record.seq async for record in topic.read(2, 2)] == [2]
        assert (topic.name, topic.sync.head_seq, found[0].tag) == ("t", 3, "eu")

    run(test, tmp_path / "data", loop=loop)
    with seglog.open(tmp_path / "data") as log:
        assert _values(log) == [b"one", b"two", b"three"]


def test_appends_of_a_tick_share_a_sync_and_keep_their_order(tmp_path: Path) -> None:
    files = GatedFiles()

    async def test(log: AsyncLog) -> None:
        await log.topic("t").append([b"makes the topic"])
        files.syncs = 0
        calls = [log.topic("t").append([b"%d" % n] * (n % 3 + 1), tag="ab"[n // 7 % 2]) for n in range(100)]
        ranges = await asyncio.gather(*calls)
        assert files.syncs == 1
        assert [seq for seqs in ranges for seq in seqs] == list(range(2, ranges[-1].stop))
        records = list(log.sync.topic("t").read())
        for number, seqs in enumerate(ranges):
            assert {records[seq - 1].value for seq in seqs} == {b"%d" % number}
            assert {records[seq - 1].tag for seq in seqs} == {"ab"[number // 7 % 2]}

    run(test, tmp_path / "data", files=files)


def test_what_is_called_while_a_group_is_written_is_the_next_group(tmp_path: Path) -> None:
    files = GatedFiles()

    async def test(log: AsyncLog) -> None:
        await log.topic("t").append([b"makes the topic"])
        first = await _begin_one_that_waits_in_its_sync(log, files)
        others = [asyncio.create_task(log.topic(f"t{n % 3}").append([b"x"])) for n in range(30)]
        await asyncio.sleep(0)
        files.syncs = 0
        files.gate.set()
        await asyncio.gather(first, *others)
        assert files.syncs == 2
        assert log.sync.topics() == ["t", "t0", "t1", "t2"]
        assert [log.sync.topic(f"t{n}").head_seq for n in range(3)] == [10] * 3

    run(test, tmp_path / "data", files=files)


def test_the_ticks_during_a_sync_are_one_group_without_those_that_were_cancelled(tmp_path: Path) -> None:
    files = GatedFiles()

    async def test(log: AsyncLog) -> None:
        await log.topic("t").append([b"makes the topic"])
        [shard] = shards_of(log.sync)
        first = await _begin_one_that_waits_in_its_sync(log, files)
        files.syncs, groups, tasks = 0, note_groups(shard), []
        for tick in range(6):
            calls = [log.topic("t").append([b"%d.%d" % (tick, n)] * n, tag="ab"[tick // 3]) for n in (1, 2)]
            tasks += [asyncio.create_task(call) for call in calls]
            await asyncio.sleep(0.001)
        tasks[3].cancel()
        tasks[8].cancel()
        files.gate.set()
        outcomes = await asyncio.gather(first, *tasks, return_exceptions=True)
        assert (files.syncs, groups) == (2, [2])
        kept = [one for one in outcomes if isinstance(one, range)]
        assert [seq for seqs in kept for seq in seqs] == list(range(2, 18))
        left = [(tick, n) for tick in range(6) for n in (1, 2) if (tick, n) not in ((1, 2), (4, 1))]
        assert _values(log.sync)[2:] == [b"%d.%d" % (tick, n) for tick, n in left for _ in range(n)]

    run(test, tmp_path / "data", files=files)


def test_appends_to_several_topics_in_turn_are_one_entry_for_each(tmp_path: Path) -> None:
    async def test(log: AsyncLog) -> None:
        names = [f"t{number}" for number in range(8)]
        for name in names:
            await log.topic(name).append([b"makes the topic"])
        [shard] = shards_of(log.sync)
        ends = [shard.published_end]
        groups = note_groups(shard)
        ranges = await asyncio.gather(*[log.topic(names[n % 8]).append([b"%d" % n]) for n in range(64)])
        assert groups == [8]
        assert shard.published_end.ordinal == ends[0].ordinal + 64 + 8 + 1  # with a UNIT frame for each topic
        assert ranges == [range(n // 8 + 2, n // 8 + 3) for n in range(64)]
        assert _values(log.sync, "t3")[1:] == [b"%d" % n for n in range(3, 64, 8)]

    run(test, tmp_path / "data")


def test_one_that_is_refused_fails_alone(tmp_path: Path) -> None:
    async def test(log: AsyncLog) -> None:
        topic = log.topic("t")
        outcomes = await asyncio.gather(
            topic.append([b"a"]),
            topic.append([b"x" * 1001]),
            topic.append(["text"]),  # type: ignore[list-item] - a caller's mistake
            topic.append([b"b"]),
            return_exceptions=True,
        )
        assert outcomes[0] == range(1, 2)
        assert isinstance(outcomes[1], RecordTooLarge)
        assert isinstance(outcomes[2], TypeError)
        assert outcomes[3] == range(2, 3)

    run(test, tmp_path / "data", settings=LogSettings(max_record_bytes=1000))


def test_of_appends_that_do_not_fit_together_those_that_fit_are_in(tmp_path: Path) -> None:
    async def test(log: AsyncLog) -> None:
        topic = await log.create_topic("t", TopicConfig(cap_records=5, discard="reject"))
        calls = [topic.append([b"%d" % n] * count) for n, count in enumerate((1, 2, 3, 1, 2, 1))]
        tasks = [asyncio.create_task(call) for call in calls]
        await asyncio.sleep(0)
        tasks[0].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in outcomes] == [
            asyncio.CancelledError,
            range,
            range,
            TopicFull,
            TopicFull,
            TopicFull,
        ]
        assert outcomes[1:3] == [range(1, 3), range(3, 6)]
        assert _values(log.sync) == [b"1"] * 2 + [b"2"] * 3
        queue = async_queue_of(log)
        assert queue.waiting.unsettled_bytes == 0

    run(test, tmp_path / "data")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_all_of_a_group_hear_of_its_failure_each_with_an_error_of_its_own(tmp_path: Path, number: int) -> None:
    files = FailingFiles(UnsyncedFiles(), 0, number, for_good=True, only=("pwritev",))

    async def test(log: AsyncLog) -> None:
        topic = log.topic("t")
        await topic.append([b"a"])
        files.at = 1
        outcomes = await asyncio.gather(*[topic.append([b"b"]) for _ in range(5)], return_exceptions=True)
        assert {type(one) for one in outcomes} == {DiskFull if number == errno.ENOSPC else WriterPoisoned}
        assert len({id(one) for one in outcomes}) == 5
        assert "b" not in str(_values(log.sync)[1:])
        files.at = 0
        if number == errno.ENOSPC:
            assert await topic.append([b"c"]) == range(2, 3)

    run(test, tmp_path / "data", files=files)


def test_one_that_is_cancelled_before_its_group_begins_appends_nothing(tmp_path: Path) -> None:
    files = GatedFiles()

    async def test(log: AsyncLog) -> None:
        first = await _begin_one_that_waits_in_its_sync(log, files)
        tasks = [asyncio.create_task(log.topic("t").append([b"%d" % n])) for n in range(4)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        files.gate.set()
        outcomes = await asyncio.gather(first, *tasks, return_exceptions=True)
        assert isinstance(outcomes.pop(2), asyncio.CancelledError)
        assert outcomes == [range(1, 2), range(2, 3), range(3, 4), range(4, 5)]
        assert _values(log.sync) == [b"first", b"0", b"2", b"3"]

    run(test, tmp_path / "data", files=files)


def test_the_lines_of_an_append_that_is_merged_with_no_other_are_not_cut_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [b"%d" % number for number in range(100)]

    async def test(log: AsyncLog) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Lines, "__iter__", None)
            assert await log.topic("t").append(Lines.of(b"\n".join([*lines, b""]))) == range(1, 101)
        assert _values(log.sync) == lines

    run(test, tmp_path / "data")


@on_both_loops
def test_what_is_left_of_a_group_keeps_its_values_and_seqs(tmp_path: Path, loop: str) -> None:
    files = GatedFiles()

    async def test(log: AsyncLog) -> None:
        first = await _begin_one_that_waits_in_its_sync(log, files)
        tasks = [asyncio.create_task(log.topic("t").append([b"%d.%d" % (n, i) for i in range(n)])) for n in range(1, 7)]
        await asyncio.sleep(0)
        for number in (0, 2, 5):
            tasks[number].cancel()
        files.gate.set()
        outcomes = await asyncio.gather(first, *tasks, return_exceptions=True)
        kept = [one for one in outcomes if isinstance(one, range)]
        assert kept == [range(1, 2), range(2, 4), range(4, 8), range(8, 13)]
        assert _values(log.sync)[1:] == [b"%d.%d" % (n, i) for n in (2, 4, 5) for i in range(n)]

    run(test, tmp_path / "data", loop=loop, files=files)


def test_a_group_that_all_have_left_is_nothing(tmp_path: Path) -> None:
    files = GatedFiles()

    async def test(log: AsyncLog) -> None:
        first = await _begin_one_that_waits_in_its_sync(log, files)
        task = asyncio.create_task(log.topic("other").append([b"x"]))
        await asyncio.sleep(0)
        task.cancel()
        files.gate.set()
        assert await first == range(1, 2)
        assert await log.topic("t").append([b"y"]) == range(2, 3)
        assert log.sync.topics() == ["t"]

    run(test, tmp_path / "data", files=files)


def test_those_behind_one_that_is_cancelled_later_hear_of_their_own_seqs(tmp_path: Path) -> None:
    files = GatedFiles()

    async def test(log: AsyncLog) -> None:
        files.gate.clear()
        files.waiting.clear()
        tasks = [asyncio.create_task(log.topic("t").append([b"%d" % n] * 2)) for n in range(3)]
        await asyncio.to_thread(files.waiting.wait, 60)
        tasks[1].cancel()
        await asyncio.sleep(0)
        files.gate.set()
        assert [await tasks[0], await tasks[2]] == [range(1, 3), range(5, 7)]
        assert _values(log.sync) == [b"0"] * 2 + [b"1"] * 2 + [b"2"] * 2

    run(test, tmp_path / "data", files=files)


@on_both_loops
def test_one_that_is_cancelled_later_is_appended_once(tmp_path: Path, loop: str) -> None:
    files = GatedFiles()

    async def test(log: AsyncLog) -> None:
        first = await _begin_one_that_waits_in_its_sync(log, files)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        files.gate.set()
        assert await log.topic("t").append([b"second"]) == range(2, 3)
        assert _values(log.sync) == [b"first", b"second"]

    run(test, tmp_path / "data", loop=loop, files=files)


def test_one_that_waits_for_a_deletion_does_not_fail_those_beside_it(tmp_path: Path) -> None:
    files = GatedFiles()

    async def test(log: AsyncLog) -> None:
        for name in ("t", "gone"):
            await log.topic(name).append([b"makes the topic"])
        files.gate.clear()
        files.waiting.clear()
        deleting = asyncio.create_task(log.delete_topic("gone"))
        await asyncio.to_thread(files.waiting.wait, 60)
        calls = [log.topic(name).append([b"%d" % n]) for n, name in enumerate(["t", "gone", "t", "gone"])]
        appending = asyncio.gather(*calls)
        await asyncio.sleep(0.01)
        files.gate.set()
        assert await appending == [range(2, 3), range(1, 2), range(3, 4), range(2, 3)]
        await deleting
        assert [_values(log.sync, name)[-2:] for name in ("t", "gone")] == [[b"0", b"2"], [b"1", b"3"]]

    run(test, tmp_path / "data", files=files)


@on_both_loops
def test_each_task_goes_on_in_its_own_context(tmp_path: Path, loop: str) -> None:
    number: ContextVar[int] = ContextVar("number")

    async def append(log: AsyncLog, own: int) -> int:
        number.set(own)
        for _ in range(3):
            await log.topic("t").append([b"%d" % own])
            assert asyncio.current_task() is tasks[own]
        return number.get()

    tasks: list[asyncio.Task[int]] = []

    async def test(log: AsyncLog) -> None:
        tasks.extend(asyncio.create_task(append(log, own)) for own in range(20))
        assert await asyncio.gather(*tasks) == list(range(20))

    run(test, tmp_path / "data", loop=loop)


@on_both_loops
def test_one_that_is_cancelled_by_another_of_its_group_has_its_records(tmp_path: Path, loop: str) -> None:
    async def test(log: AsyncLog) -> None:
        async def first() -> range:
            seqs = await log.topic("t").append([b"first"])
            assert second.cancel()
            return seqs

        tasks = [asyncio.create_task(first())]
        second = asyncio.create_task(log.topic("t").append([b"second"]))
        outcomes = await asyncio.gather(*tasks, second, return_exceptions=True)
        assert outcomes[0] == range(1, 2)
        assert isinstance(outcomes[1], asyncio.CancelledError)
        assert _values(log.sync) == [b"first", b"second"]

    run(test, tmp_path / "data", loop=loop)


@on_both_loops
def test_a_task_that_ends_the_loop_keeps_no_other_task_waiting(tmp_path: Path, loop: str) -> None:
    class Ended(SystemExit):
        pass

    async def ends(log: AsyncLog) -> None:
        await log.topic("t").append([b"ends the loop"])
        raise Ended

    async def begin() -> tuple[AsyncLog, list[asyncio.Task[Any]]]:
        log = await aio.open(tmp_path / "data").__aenter__()
        calls = [log.topic("t").append([b"%d" % n]) for n in range(5)]
        return log, [asyncio.create_task(call) for call in (*calls[:2], ends(log), *calls[2:])]

    runs = factory_of(loop)()
    try:
        log, tasks = runs.run_until_complete(begin())
        with pytest.raises(Ended):
            runs.run_until_complete(asyncio.wait(tasks, timeout=60))
        others = [*tasks[:2], *tasks[3:]]
        outcomes = runs.run_until_complete(asyncio.wait_for(asyncio.gather(*others), 20))
        assert outcomes == [range(1, 2), range(2, 3), range(4, 5), range(5, 6), range(6, 7)]
        assert runs.run_until_complete(log.topic("t").append([b"after"])) == range(7, 8)
        runs.run_until_complete(log.close())
        with pytest.raises(Ended):
            tasks[2].result()
    finally:
        runs.close()


@on_both_loops
def test_appends_wait_for_room_in_order(tmp_path: Path, loop: str) -> None:
    files = GatedFiles()

    async def test(log: AsyncLog) -> None:
        first = await _begin_one_that_waits_in_its_sync(log, files)
        topic = log.topic("t")
        tasks = [asyncio.create_task(topic.append([b"%d" % n * 60])) for n in range(5)]
        tasks.append(asyncio.create_task(topic.append([b"large" * 60])))
        tasks.append(asyncio.create_task(topic.append([b"small"])))
        await asyncio.sleep(0.01)
        queue = async_queue_of(log)
        assert (queue.waiting.unsettled_bytes, len(parts_of(queue)), len(queue.for_room)) == (65, 1, 6)
        tasks[3].cancel()
        files.gate.set()
        outcomes = await asyncio.gather(first, *tasks, return_exceptions=True)
        assert isinstance(outcomes.pop(4), asyncio.CancelledError)
        assert outcomes == [range(seq, seq + 1) for seq in range(1, 8)]
        assert (queue.waiting.unsettled_bytes, len(parts_of(queue)), len(queue.for_room)) == (0, 0, 0)

    run(test, tmp_path / "data", loop=loop, files=files, settings=LogSettings(queue_max_bytes=100))


def test_what_waits_is_bounded_when_a_group_is_done_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other appends wait while the previous group ends. Their bytes count towards the bound."""
    files = GatedFiles()
    waiting = []

    async def test(log: AsyncLog) -> None:
        first = await _begin_one_that_waits_in_its_sync(log, files)
        queue = async_queue_of(log)
        join = Ack.add_done_callback

        def noted(ack: Ack, *given: Any, **named: Any) -> None:
            join(ack, *given, **named)
            waiting.append(sum(part.size_bytes for part in parts_of(queue)))

        monkeypatch.setattr(Ack, "add_done_callback", noted)
        tasks = [asyncio.create_task(log.topic("t").append([b"x" * 60])) for _ in range(5)]
        await asyncio.sleep(0.01)
        files.gate.set()
        await asyncio.gather(first, *tasks)
        assert waiting == [60] * 5

    run(test, tmp_path / "data", files=files, settings=LogSettings(queue_max_bytes=100))


def test_a_program_under_load_lets_groups_wait_and_tasks_learn_how_long(tmp_path: Path) -> None:
    waits_s = [0.05, 0.0, 0.0, 0.0]

    async def test(log: AsyncLog) -> None:
        log.queue.group_wait_s = lambda: waits_s.pop(0)
        [shard] = shards_of(log.sync)
        groups = note_groups(shard)
        waited_s = []

        async def append(number: int) -> None:
            await log.topic("t").append([b"%d" % number])
            waited_s.append(log.queue.waited_s)

        tasks = []
        for number in range(5):
            tasks.append(asyncio.create_task(append(number)))
            await asyncio.sleep(0.002)  # several ticks, and one group
        await asyncio.gather(*tasks)
        assert waited_s == [0.05] * 5
        await append(5)
        assert waited_s[5] == 0.0
        assert len(groups) == 1
        assert _values(log.sync) == [b"%d" % number for number in range(6)]

    run(test, tmp_path / "data")


def test_the_loop_writes_no_group_that_should_wait(tmp_path: Path) -> None:
    async def test(log: AsyncLog) -> None:
        log.queue.group_wait_s = lambda: 0.001
        await log.topic("t").append([b"a"])
        assert log.queue.waited_s == 0.001
        log.queue.group_wait_s = lambda: 0.0
        await log.topic("t").append([b"b"])
        assert log.queue.waited_s == 0.0

    run(test, tmp_path / "data", loop_wait_ms=10_000)


def test_a_queue_is_full_when_the_next_append_would_wait(tmp_path: Path) -> None:
    files = GatedFiles()

    async def test(log: AsyncLog) -> None:
        assert not log.queue.is_full
        first = await _begin_one_that_waits_in_its_sync(log, files)
        assert not log.queue.is_full
        second = asyncio.create_task(log.topic("t").append([b"x" * 60]))
        await asyncio.sleep(0.01)
        assert log.queue.is_full
        files.gate.set()
        await asyncio.gather(first, second)
        assert not log.queue.is_full

    run(test, tmp_path / "data", files=files, settings=LogSettings(queue_max_bytes=60))


@on_both_loops
def test_close_waits_for_appends_on_their_way_and_takes_no_more(tmp_path: Path, loop: str) -> None:
    files = GatedFiles()

    async def test(log: AsyncLog) -> None:
        topic = log.topic("t")
        first = await _begin_one_that_waits_in_its_sync(log, files)
        second = asyncio.create_task(topic.append([b"x" * 80]))
        third = asyncio.create_task(topic.append([b"x" * 80]))
        await asyncio.sleep(0)
        closing = asyncio.create_task(log.close())
        await asyncio.sleep(0)
        with pytest.raises(LogClosed):
            await topic.append([b"late"])
        files.gate.set()
        await closing
        assert [await first, await second] == [range(1, 2), range(2, 3)]
        with pytest.raises(LogClosed):
            await third
        await log.close()

    run(test, tmp_path / "data", loop=loop, files=files, settings=LogSettings(queue_max_bytes=100))


@on_both_loops
def test_threads_and_tasks_append_to_one_log(tmp_path: Path, loop: str) -> None:
    async def test(log: AsyncLog) -> None:
        def work() -> None:
            for number in range(200):
                log.sync.topic("t").append([b"thread %d" % number])

        async def tasks(who: int) -> None:
            for number in range(50):
                await log.topic("t").append([b"task%d %d" % (who, number)])

        await asyncio.gather(asyncio.to_thread(work), *[tasks(who) for who in range(8)])
        found = _values(log.sync)
        assert len(found) == 600
        for who in (b"thread", *[b"task%d" % n for n in range(8)]):
            numbers = [int(value.split()[1]) for value in found if value.startswith(who + b" ")]
            assert numbers == list(range(len(numbers)))

    run(test, tmp_path / "data", loop=loop, settings=LogSettings(wal_file_bytes=8192, segment_max_events=50))


def test_a_reader_shows_what_comes_before_an_error(tmp_path: Path) -> None:
    async def test(log: AsyncLog) -> None:
        with pytest.raises(NoSuchTopic):
            await anext(log.topic("t").read())
        await log.topic("t").append([b"value-%04d" % n for n in range(3000)])
        await asyncio.to_thread(log.sync.topic("t").seal)
        [data] = log.sync.path.glob("topics/*/*.data")
        body = bytearray(data.read_bytes())
        body[body.index(b"value-2500")] ^= 1
        data.write_bytes(body)
        records = log.topic("t").read()
        assert [(await anext(records)).seq for _ in range(2500)] == list(range(1, 2501))
        with pytest.raises(FileCorrupt):
            await anext(records)

    run(test, tmp_path / "data")


def test_a_log_that_is_not_open_says_so(tmp_path: Path) -> None:
    log = aio.open(tmp_path / "data")
    with pytest.raises(LogClosed):
        log.topic("t")
    asyncio.run(log.close())
    assert not (tmp_path / "data").exists()


async def _until(holds: Callable[[], object]) -> None:
    for _ in range(60_000):
        if holds():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("what the test waits for never came")


@on_both_loops
def test_a_follower_gets_what_comes_and_no_thread_waits(tmp_path: Path, loop: str) -> None:
    async def test(log: AsyncLog) -> None:
        topic = log.topic("t")
        await topic.append([b"1", b"2"])
        followed = topic.follow(2)
        assert (await anext(followed)).value == b"2"
        later = asyncio.ensure_future(anext(followed))
        await _until(lambda: waiters_of(log.sync, "t"))
        await asyncio.to_thread(log.sync.topic("t").append, [b"3"])
        assert (await later).value == b"3"
        assert [record.seq async for record in topic.follow(3, timeout_s=0)] == [3]
        waiting = [asyncio.ensure_future(anext(topic.follow(4))) for _ in range(100)]
        await _until(lambda: len(waiters_of(log.sync, "t")) == 100)
        assert threading.active_count() < 50
        for each in waiting[1:]:
            each.cancel()
        await asyncio.wait(waiting[1:])
        assert len(waiters_of(log.sync, "t")) == 1
        await topic.append([b"4"])
        assert (await waiting[0]).seq == 4

    run(test, tmp_path / "data", loop=loop)


def test_a_follower_ends_with_its_log_and_with_its_topic(tmp_path: Path) -> None:
    async def test(log: AsyncLog) -> None:
        for name in ("gone", "t"):
            await log.topic(name).append([b"1"])
        ends = [asyncio.ensure_future(_count(log.topic(name))) for name in ("gone", "t")]
        await _until(lambda: all(waiters_of(log.sync, name) for name in ("gone", "t")))
        await log.delete_topic("gone")
        with pytest.raises(NoSuchTopic):
            await ends[0]
        await log.close()
        assert await ends[1] == 1

    async def _count(topic: aio.AsyncTopic) -> int:
        return len([record async for record in topic.follow()])

    run(test, tmp_path / "data")


def test_a_follower_that_names_its_epoch_is_told_of_a_truncation_since_then(tmp_path: Path) -> None:
    async def test(log: AsyncLog) -> None:
        topic = log.topic("t")
        await topic.append([b"1", b"2", b"3"])
        epoch = topic.sync.epoch
        await topic.truncate(2)
        await topic.append([b"other"] * 3)
        with pytest.raises(Truncated) as cut:
            await anext(topic.follow(4, epoch=epoch))
        again = topic.follow(cut.value.seq, epoch=cut.value.epoch, timeout_s=0)
        assert [record.seq async for record in again] == [2, 3, 4]

    run(test, tmp_path / "data")


def test_what_a_log_does_it_does_with_await(tmp_path: Path) -> None:
    async def test(log: AsyncLog) -> None:
        topic = await log.create_topic("t", TopicConfig(durability="disk"))
        assert (await log.topics(), log.get_topic("t").sync.config.durability) == (["t"], "disk")
        await topic.append([b"5", b"6", b"7"])
        await topic.append([b"8"], tag="x")
        await topic.seal()
        assert topic.sync.inner.sealed_seq == 4
        assert await topic.seq_at(0) == 1
        assert await topic.delete(tag="x") == seglog.Removed(None, None, number=1)
        await topic.truncate(3)
        assert [record.value async for record in topic.read(1, since_ms=0)] == [b"5", b"6"]
        await topic.seal()
        await topic.append([b"7"])
        await topic.seal()
        await log.configure("t", TopicConfig(cap_records=2))
        assert (await log.reconfigure("t", lambda config: replace(config, cap_records=1))).cap_records == 1
        assert (await topic.enforce_retention()).evicted_seq == 2
        assert [item.gap_to async for item in topic.read(1, gaps=True) if isinstance(item, Gap)] == [2]
        assert await log.enforce_retention() == []
        await log.checkpoint()
        await log.delete_topic("t")
        with pytest.raises(NoSuchTopic):
            log.get_topic("t")

    run(test, tmp_path / "data", files=UnsyncedFiles())


def test_every_method_that_waits_has_a_twin() -> None:
    for face, twin, without in (
        (
            seglog.Log,
            AsyncLog,
            {"attach_cold", "check_writable", "detach_cold", "has_topic", "hold_appends"}
            | {"append_upkeep", "known_appends", "make_room", "mark_elsewhere", "versions"},
        ),
        (
            seglog.Topic,
            aio.AsyncTopic,
            {"read_arrays", "read_batches"},
        ),
    ):
        methods = {name for name, _ in inspect.getmembers(face, inspect.isfunction) if not name.startswith("_")}
        assert methods - {name for name in dir(twin) if not name.startswith("_")} == without
