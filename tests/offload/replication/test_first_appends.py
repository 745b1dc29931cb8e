"""The first append to a branch opens it here, whichever call makes it: `restore`, append, done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

import offload
import seglog
from catalog.errors import NoSuchBranch, StoreUnreachable
from catalog.objects.memory import MemoryStore
from offload import Archive
from seglog import Log, Topic, WrittenElsewhere, aio
from tests.faults.store import Fault, FaultyStore, unreachable
from tests.offload.replicas import SMALL_WAL, opened, ship, values


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore(), [])


def restored(archive: Archive, log: Log) -> Topic:
    ship(archive, log, "t", b"a", b"b")
    archive.restore("t", to="seq:1", name="fix")
    return log.topic("t@fix")


CALLS: dict[str, Callable[[Topic], object]] = {
    "append": lambda topic: topic.append([b"c"], if_head=1),
    "append_once": lambda topic: topic.append_once([b"c"], key="k").seqs,
    "of a producer": lambda topic: topic.append_once([b"c"], producer=seglog.ProducerBatch("p", 1, 0)).seqs,
    "append_stream": lambda topic: topic.append_stream([b"c"]).seqs,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_branch_that_was_just_restored_takes_an_append(
    tmp_path: Path, store: FaultyStore, call: Callable[[Topic], object]
) -> None:
    with opened(tmp_path, store) as (log, archive):
        assert call(restored(archive, log)) == range(2, 3)
        assert log.topic("t@fix").append([b"d"]) == range(3, 4)
        assert [record.value for record in log.topic("t@fix").read()] == [b"a", b"c", b"d"]
        assert values(archive, "t") == [b"a", b"b"]
    with opened(tmp_path, store) as (log, _):
        assert log.topic("t@fix").append([b"e"]) == range(4, 5)


def test_tasks_append_to_a_branch_that_was_just_restored(tmp_path: Path, store: FaultyStore) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"chunk"

    async def together() -> list[bytes]:
        async with aio.open(tmp_path, settings=SMALL_WAL) as log:
            with offload.attach(log.sync, store=store) as archive:
                restored(archive, log.sync)
                topic = log.topic("t@fix")
                plain = [topic.append([b"%d" % number]) for number in range(5)]
                seqs = await asyncio.gather(*plain, topic.append([b"c"], key="k"), topic.append_stream(chunks()))
                assert len({str(each) for each in seqs}) == 7
                with pytest.raises(NoSuchBranch):
                    await log.topic("t@none").append([b"x"])
                with pytest.raises(NoSuchBranch):
                    await log.topic("t@none").append_once([b"x"], key="k")
                return [record.value async for record in topic.read()]

    assert sorted(asyncio.run(together())) == [b"0", b"1", b"2", b"3", b"4", b"a", b"c", b"chunk"]


def test_an_append_to_a_branch_that_is_not_there_is_refused_and_makes_none(tmp_path: Path, store: FaultyStore) -> None:
    with opened(tmp_path, store) as (log, archive):
        restored(archive, log)
        for _ in range(2):
            with pytest.raises(NoSuchBranch, match="no branch t@none"):
                log.topic("t@none").append([b"x"])
        assert log.topics() == ["t"]
        assert [each.branch for each in archive.branches.list("t")] == ["fix", "main"]


def test_an_append_that_is_refused_asks_no_remote(tmp_path: Path, store: FaultyStore) -> None:
    with opened(tmp_path, store) as (log, archive):
        topic = restored(archive, log)
        store.calls.clear()
        assert topic.append([]) == range(1, 1)
        with pytest.raises(seglog.RecordTooLarge):
            topic.append([b"x" * (1 << 20)])
        with pytest.raises(seglog.InvalidLabel):
            topic.append([b"x"], tag="x" * (1 << 17))
        log.hold_appends("the disk is full")
        with pytest.raises(seglog.AppendsHeld):
            topic.append([b"x"])
        log.hold_appends(None)
        log.topic("u").append([b"a topic has no branch to ask for"])
        assert not store.calls
        assert topic.append([b"c"]) == range(2, 3)
        assert store.calls
    with pytest.raises(seglog.LogClosed):
        topic.append([b"x"])
    with seglog.open(tmp_path, settings=SMALL_WAL) as log:  # without its archive
        with pytest.raises(seglog.NoSuchTopic):
            log.topic("t@other").append([b"x"])
        assert log.topic("t@fix").append([b"d"]) == range(3, 4)


@pytest.mark.parametrize("method", ["get", "list"])
def test_an_append_to_a_branch_works_after_a_request_that_failed(
    tmp_path: Path, store: FaultyStore, method: str
) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        restored(archive, log)
    for nth in range(1, 30):
        store.struck.clear()
        with opened(tmp_path / f"two-{nth}", store) as (log, archive):
            store.calls.clear()
            store.fail([Fault(nth, error=unreachable, method=method)])
            try:
                log.topic("t@fix").append([b"d"])
            except StoreUnreachable:
                assert log.topics() == []
                assert log.topic("u").append([b"another topic waits for nothing"]) == range(1, 2)
                store.fail([])
                log.topic("t@fix").append([b"d"])
            assert [record.value for record in log.topic("t@fix").read()] == [b"a", b"d"]
            store.fail([])
        if not store.struck:
            break
    assert 1 < nth < 30


def test_a_log_takes_no_topic_over_that_its_directory_follows(tmp_path: Path, store: FaultyStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        restored(archive, log)
    with opened(tmp_path / "two", store) as (log, archive):
        archive.replication.sync("t")
        with pytest.raises(seglog.WrittenElsewhere):
            log.topic("t").append([b"x"])
        assert log.topic("t@fix").append([b"c"]) == range(2, 3)


def test_a_log_takes_no_branch_over_that_another_directory_has_written(tmp_path: Path, store: FaultyStore) -> None:
    with opened(tmp_path / "a", store) as (log, archive), opened(tmp_path / "b", store) as (other, others):
        restored(archive, log)
        assert other.topic("t@fix").append([b"c"]) == range(2, 3)
        other.topic("t@fix").seal()
        others.offload("t@fix")
        for call in CALLS.values():
            with pytest.raises(WrittenElsewhere, match="does not write it"):
                call(log.topic("t@fix"))
        assert not log.has_topic("t@fix")
        assert other.topic("t@fix").append([b"d"]) == range(3, 4)
        others.offload("t@fix")
        assert archive.open_for_append("t@fix").append([b"e"])


def test_appends_of_tasks_to_a_new_branch_stay_in_order_beside_later_ones(tmp_path: Path, store: FaultyStore) -> None:
    async def together() -> list[bytes]:
        async with aio.open(tmp_path, settings=SMALL_WAL) as log:
            with offload.attach(log.sync, store=store) as archive:
                restored(archive, log.sync)
                topic, tasks = log.topic("t@fix"), []
                for number in range(60):
                    tasks.append(asyncio.create_task(topic.append([b"%d" % number])))
                    await asyncio.sleep(0)
                    while number == 30 and not log.sync.has_topic("t@fix"):
                        await asyncio.sleep(0)
                await asyncio.gather(*tasks)
                return [record.value async for record in topic.read(2)]

    assert asyncio.run(together()) == [b"%d" % number for number in range(60)]


def test_a_stream_to_a_branch_that_is_not_there_takes_no_chunk(tmp_path: Path, store: FaultyStore) -> None:
    taken = iter([b"chunk"] * 3)
    with opened(tmp_path, store) as (log, archive):
        restored(archive, log)
        with pytest.raises(NoSuchBranch):
            log.topic("t@none").append_stream(taken)
    assert len([*taken]) == 3


def test_a_log_takes_no_branch_over_that_its_directory_follows(tmp_path: Path, store: FaultyStore) -> None:
    """The other directory may have appends that no offload has brought to the remote."""
    with opened(tmp_path / "a", store) as (log, archive), opened(tmp_path / "b", store) as (other, others):
        restored(archive, log)
        others.replication.sync("t@fix")
        with pytest.raises(WrittenElsewhere, match="does not write it"):
            other.topic("t@fix").append([b"c"])
        assert not other.has_topic("t@fix")
