"""Test what queues do when something goes wrong in the midst of a call: no job is lost, and none comes twice."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from offload.daemon.threads import in_threads
from offload.errors import Misuse
from offload.operations.queue import TOPIC, create, delete, delete_acked, list_queues, redrive, set_queue
from seglog import DiskFull, Topic, TopicConfig
from seglog.base.errors import Corrupt
from seglog.delivery.queue import Kind, decode_events, encode_event
from seglog.delivery.queue_states import QueueStates
from tests.seams.delivery import hold_reads, stop_clock, work_events
from tests.seams.limits import Limit, set_limit
from tests.worlds.queues import ack, claim, command, ids, nack, seqs, shown, world
from tests.worlds.services import serving, until


def queue_of(service: Any) -> Any:
    return QueueStates.of(service.sync).find("orders", "billing")


@pytest.mark.parametrize("comes_again", [False, True])
def test_a_client_that_leaves_while_its_jobs_are_read_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, comes_again: bool
) -> None:
    async def run() -> None:
        async with world(tmp_path, records=6) as service:
            service.sync.topic("orders").delete(seqs=[4])
            if comes_again:
                await nack(service, *await claim(service, 3))
            gate = asyncio.Event()
            hold_reads(monkeypatch, gate)
            leaves, stays = asyncio.create_task(claim(service, 5)), asyncio.create_task(claim(service, 1))
            await asyncio.sleep(0.1)
            leaves.cancel()
            gate.set()
            assert seqs(await stays) == [1]
            assert (await shown(service)).listed.reason is None
            assert seqs(await claim(service, 9)) == [2, 3, 5, 6]

    asyncio.run(run())


def test_a_claim_that_fails_behind_its_read_loses_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with world(tmp_path, records=3) as service:
            await nack(service, *await claim(service, 3))
            gate, states = asyncio.Event(), QueueStates.of(service.sync)
            hold_reads(monkeypatch, gate)
            fails, begin = asyncio.create_task(claim(service, 3)), states.begin
            await asyncio.sleep(0.1)

            def refuse(*_: str) -> Any:
                raise OSError("the disk is away")

            states.begin = refuse  # type: ignore[method-assign]
            gate.set()
            with pytest.raises(OSError, match="away"):
                await fails
            states.begin = begin  # type: ignore[method-assign]
            assert seqs(await claim(service, 9)) == [1, 2, 3]

    asyncio.run(run())


@pytest.mark.long  # an offload starts a process
def test_a_replica_that_looked_at_its_queues_takes_them_over_as_they_are_then(tmp_path: Path) -> None:
    async def offload(service: Any) -> None:
        for name in ("orders", TOPIC):
            service.sync.seal([name])
            await in_threads(service.cold_reads, service.archive.offload, name)

    async def run() -> None:
        remote = f"file://{tmp_path}/remote"
        async with world(tmp_path / "writer", remote) as writer, serving(tmp_path / "other", remote) as other:
            archive: Any = other.archive

            async def look() -> None:
                await command(other, lambda each: [*list_queues(each)])

            await look()
            await ack(writer, *await claim(writer))
            for _ in range(2):
                await offload(writer)
                for name in ("orders", TOPIC):
                    await in_threads(other.cold_reads, archive.replication.sync, name)
                await look()
                if len(jobs := await claim(writer, 4)):
                    await ack(writer, *jobs)
            for name in ("orders", TOPIC):
                await in_threads(other.cold_reads, archive.replication.take_over, name)
            assert seqs(await claim(other, 9)) == [6, 7, 8, 9, 10]

    asyncio.run(run())


def test_a_queue_in_the_making_keeps_its_first_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with world(tmp_path, records=3) as service:
            set_limit(monkeypatch, Limit.EVENTS_OF_A_SNAPSHOT, 0)
            jobs, states = await claim(service, 3), QueueStates.of(service.sync)
            appended, go, append = threading.Event(), threading.Event(), Topic.append

            def slow(topic: Topic, values: Any, **named: Any) -> Any:
                seqs = append(topic, values, **named)
                if named.get("tag") == "orders/audit":
                    appended.set()
                    go.wait(10)
                return seqs

            monkeypatch.setattr(Topic, "append", slow)
            making = asyncio.create_task(command(service, create, "orders", "audit"))
            while not appended.is_set():
                await asyncio.sleep(0.01)
            for _ in range(8):
                await service.queues.extend("orders", "billing", ids(*jobs))
            topic = service.sync.topic(TOPIC)
            keeping = asyncio.create_task(
                in_threads(service.local, states.keep_up, lambda seq: topic.delete(before=seq))
            )
            await asyncio.wait({keeping}, timeout=0.3)
            go.set()
            await asyncio.gather(making, keeping)
        async with serving(tmp_path / "d", "") as service:
            states = await service.queues.states()
            assert [queue.key for queue in states.all()] == ["orders/audit", "orders/billing"]

    asyncio.run(run())


def test_a_queue_that_is_deleted_right_behind_a_truncation_stays_away(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            await claim(service, 6)
            service.sync.topic("orders").truncate(4)
            await command(service, delete, "orders", "billing")
        async with serving(tmp_path / "d", "") as service:
            assert (await service.queues.states()).all() == []

    asyncio.run(run())


@pytest.mark.parametrize("where", ["settings", "fields"])
def test_a_state_of_a_later_version_makes_its_queue_unknown_and_stops_no_offload(tmp_path: Path, where: str) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            topic = service.sync.topic(TOPIC)
            [record] = topic.read()
            [state] = decode_events(record.value, record.tag)
            told = json.loads(state.text)
            (told["settings"] if where == "settings" else told)["later"] = 1
            topic.append([encode_event(state._replace(text=json.dumps(told)))], tag="orders/billing")
        async with serving(tmp_path / "d", "") as service:
            with pytest.raises(Corrupt, match="the state of the queue orders/billing is unknown"):
                await claim(service)
            assert await in_threads(service.local, delete_acked, service.sync, None, "orders") == 0

    asyncio.run(run())


def refuse_acks_of_letters(service: Any, refusals: list[bool]) -> None:
    """Let the first acks of buried jobs fail, one per item."""
    append = service.queues.append

    async def failing(states: Any, queue: Any, events: Any) -> None:
        if refusals and [event.kind for event in events] == [Kind.ACKED]:
            refusals.pop()
            queue.rollback()
            raise DiskFull("the disk is full")
        await append(states, queue, events)

    service.queues.append = failing


def test_many_letters_whose_ack_fails_once_are_there_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, records=8, max_deliver=1, dead_letter="dead") as service:
            await nack(service, *await claim(service, 8))
            refusals = [True]
            refuse_acks_of_letters(service, refusals)
            assert await claim(service, 8) == []
            queue = queue_of(service)
            await until(lambda: not queue.dying, "the acks of the letters")
            assert (refusals, queue.stuck, queue.cursor.floor) == ([], "", 8)
            assert [letter.value for letter in service.sync.topic("dead").read()] == [b"%d" % n for n in range(1, 9)]

    asyncio.run(run())


def slow_letters(service: Any, meanwhile: Any) -> None:
    """Let something happen while the first letter is on its way."""
    append, begun = service.queues.dead_letters.append, list[bool]()

    async def slow(*letter: Any) -> None:
        await append(*letter)
        if not begun:
            begun.append(True)
            await meanwhile()

    service.queues.dead_letters.append = slow


def test_a_queue_that_is_made_again_while_a_letter_is_on_its_way_loses_no_job(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, records=3, max_deliver=1, dead_letter="dead") as service:
            await nack(service, *await claim(service, 3))
            done = asyncio.Event()

            async def make_again() -> None:
                await command(service, delete, "orders", "billing")
                await command(service, create, "orders", "billing", dead_letter="dead", max_deliver=1)
                done.set()

            slow_letters(service, make_again)
            assert await claim(service, 3) == []
            await done.wait()
            await asyncio.sleep(0.2)
            assert queue_of(service).cursor.floor == 0
        async with serving(tmp_path / "d", "") as service:
            assert seqs(await claim(service, 9)) == [1, 2, 3]
            assert service.sync.topic("dead").head_seq == 1, "the others never died in this queue"

    asyncio.run(run())


def test_a_truncation_while_letters_are_on_their_way_makes_no_letter_of_a_new_record(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, records=3, max_deliver=1, dead_letter="dead") as service:
            await nack(service, *await claim(service, 3))
            done = asyncio.Event()

            async def truncate() -> None:
                service.sync.topic("orders").truncate(2)
                await service.log.topic("orders").append([b"new 2", b"new 3"])
                done.set()

            slow_letters(service, truncate)
            assert await claim(service, 3) == []
            await done.wait()
            assert [job.record.value for job in await claim(service, 9, 10)] == [b"new 2", b"new 3"]
            assert [letter.value for letter in service.sync.topic("dead").read()] == [b"1"]

    asyncio.run(run())


def test_a_queue_that_is_made_again_has_letters_of_its_own_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        options = {"max_deliver": 1, "dead_letter": "dead"}
        async with world(tmp_path, records=1, **options) as service:
            for _ in range(2):
                await nack(service, *await claim(service))
                assert await claim(service) == []
                queue = queue_of(service)
                await until(lambda queue=queue: not queue.dying, "the letter")
                await command(service, delete, "orders", "billing")
                stop_clock(monkeypatch, 1_000)
                await command(service, create, "orders", "billing", **options)
            assert service.sync.topic("dead").head_seq == 2

    asyncio.run(run())


def events_of(service: Any, most: int = 1) -> Any:
    return work_events(service, "orders", "billing", most, "ada")


def test_a_stream_of_work_goes_on_when_its_worker_dropped_a_job(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, records=3, lease="200ms") as service:
            events, got = events_of(service), list[bytes]()
            async with asyncio.timeout(10):
                while len(got) < 2:
                    event = await anext(events)
                    got += [event] if event.startswith(b"event: job") else []
            assert b'"deliveries": 2' in got[1], "its own lease is over, so it gets the job again"
            await events.aclose()

    asyncio.run(run())


def test_a_full_stream_of_work_ends_with_the_daemon(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, records=3) as service:
            events = events_of(service)
            for _ in range(2):
                await anext(events)
            last = asyncio.create_task(anext(events))
            await asyncio.sleep(0.05)
            service.stopping.set()
            async with asyncio.timeout(5):
                assert b"stopping" in await last

    asyncio.run(run())


def test_a_claim_whose_client_never_saw_its_jobs_is_no_delivery(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, records=2, max_deliver=2) as service:
            append = service.queues.append
            for _ in range(3):
                gone = asyncio.create_task(claim(service, 2))

                async def leave(*given: Any, gone: asyncio.Task[Any] = gone) -> None:
                    gone.cancel()
                    await append(*given)

                service.queues.append = leave  # type: ignore[method-assign]
                await asyncio.wait({gone})
                queue = queue_of(service)
                await until(lambda queue=queue: bool(queue.waiting), "the jobs are back")
                service.queues.append = append  # type: ignore[method-assign]
            assert [job.deliveries for job in await claim(service, 2)] == [1, 1]
        async with serving(tmp_path / "d", "") as service:
            await service.queues.states()
            assert queue_of(service).deliveries == {1: 1, 2: 1}

    asyncio.run(run())


@pytest.mark.parametrize("options", [{"lease": "8d"}, {"claim_jitter_ms": 10**12}, {"max_deliver": 10**30}])
def test_a_setting_that_no_claim_survives_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            with pytest.raises(Misuse, match=next(iter(options)).replace("_", "-")):
                await command(service, set_queue, "orders", "billing", **options)
            assert seqs(await claim(service)) == [1]

    asyncio.run(run())


def test_letters_of_another_topic_are_redriven_too_and_none_twice(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, records=4, max_deliver=1, dead_letter="one") as service:
            queue = queue_of(service)
            service.sync.create_topic("copy")
            jobs = await claim(service, 2)
            for letters, redriven in (("one", 2), ("two", 2), ("one", 0)):
                await command(service, set_queue, "orders", "billing", dead_letter=letters)
                if redriven:
                    await nack(service, *jobs)
                    jobs = await claim(service, 2)
                    await until(lambda: not queue.dying and not queue.waiting, "the letters")
                await command(service, redrive, "orders", "billing", "copy")
            copied = [record.value for record in service.sync.topic("copy").read()]
            assert len(copied) == len(set(copied)) == 4

    asyncio.run(run())


def test_a_redrive_holds_up_no_ack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with world(tmp_path, records=3, max_deliver=1, dead_letter="dead") as service:
            await nack(service, *await claim(service))
            jobs, queue = await claim(service, 2), queue_of(service)
            await until(lambda: queue.dead == 1 and not queue.dying, "the letter")
            go, append = threading.Event(), Topic.append

            def slow(topic: Topic, values: Any, **named: Any) -> Any:
                if topic.name == "copy":
                    go.wait(30)
                return append(topic, values, **named)

            monkeypatch.setattr(Topic, "append", slow)
            service.sync.create_topic("copy")
            redriving = asyncio.create_task(command(service, redrive, "orders", "billing", "copy"))
            await asyncio.sleep(0.1)
            async with asyncio.timeout(10):
                assert (await ack(service, *jobs)).done == [2, 3]
            assert not redriving.done()
            go.set()
            assert (await redriving).letters == 1

    asyncio.run(run())


def test_a_waiting_claim_gets_its_job_soon_after_the_bound_in_flight_is_lifted(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, records=3, max_in_flight="1") as service:
            await claim(service)
            waiting = asyncio.create_task(claim(service, wait_s=25))
            await asyncio.sleep(0.05)
            await command(service, set_queue, "orders", "billing", max_in_flight="none")
            async with asyncio.timeout(8):
                assert seqs(await waiting) == [2]

    asyncio.run(run())


@pytest.mark.parametrize("comes_again", [False, True])
def test_large_jobs_come_a_few_at_a_time_and_reach_each_claim_that_waits(tmp_path: Path, *, comes_again: bool) -> None:
    async def run() -> None:
        async with world(tmp_path, records=0) as service:
            await service.log.topic("orders").append([b"x" * 600_000] * 9)
            if comes_again:
                for _ in range(5):
                    jobs = await claim(service, 9)
                    assert len(jobs) <= 2
                await nack(service, *jobs)
                queue = queue_of(service)
                held = [(seq, lease.id) for seq, lease in queue.jobs.items()]
                await service.queues.nack("orders", "billing", held)
            async with asyncio.timeout(10):
                hands = await asyncio.gather(*(claim(service, 3, 20) for _ in range(3)))
            assert sorted(len(hand) for hand in hands) in ([1, 1, 2], [1, 2, 2], [2, 2, 2])

    asyncio.run(run())


def test_a_queue_of_a_topic_that_became_ephemeral_says_why_no_job_comes(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, records=0) as service:
            service.sync.reconfigure("orders", lambda _: TopicConfig(durability="ephemeral"))
            await service.log.topic("orders").append([b"x"])
            assert await claim(service) == []
            reason = (await shown(service)).listed.reason
            assert reason == "1 record of orders in memory only, and no job before a durable one"

    asyncio.run(run())


def test_a_full_disk_lets_a_snapshot_wait_and_the_rest_of_the_look_go_on(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            await claim(service, 6)
            states, events = QueueStates.of(service.sync), service.sync.topic(TOPIC)
            service.sync.topic("orders").truncate(4)
            service.sync.hold_appends("the disk is full")
            await in_threads(service.local, states.keep_up, lambda seq: events.delete(before=seq))
            assert events.earliest_seq == 1
            service.sync.hold_appends(None)
            await in_threads(service.local, states.keep_up, lambda seq: events.delete(before=seq))
            assert events.earliest_seq > 1  # by this look, or by that of the daemon

    asyncio.run(run())
