"""Test what queues do when something goes wrong in the midst of a call: no job is lost, and none comes twice."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from offload.daemon.threads import in_threads
from offload.operations.queue import TOPIC, create, delete, delete_acked, list_queues
from seglog import Topic
from seglog.base.errors import Corrupt
from seglog.delivery.queue import decode_events, encode_event
from seglog.delivery.queue_states import QueueStates
from tests.offload.daemon.test_queues import ack, claim, command, ids, nack, seqs, shown, world
from tests.seams.delivery import hold_reads
from tests.seams.limits import Limit, set_limit
from tests.worlds.services import serving


def queue_of(service: Any) -> Any:
    return QueueStates.of(service.sync).find("orders", "billing")


@pytest.mark.parametrize("comes_again", [False, True])
def test_a_client_that_leaves_while_its_jobs_are_read_loses_none(tmp_path: Path, *, comes_again: bool) -> None:
    async def run() -> None:
        async with world(tmp_path, records=6) as service:
            service.sync.topic("orders").delete(seqs=[4])
            if comes_again:
                await nack(service, *await claim(service, 3))
            gate = asyncio.Event()
            hold_reads(service.queues, gate)
            leaves, stays = asyncio.create_task(claim(service, 5)), asyncio.create_task(claim(service, 1))
            await asyncio.sleep(0.1)
            leaves.cancel()
            gate.set()
            assert seqs(await stays) == [1]
            assert (await shown(service)).listed.reason is None
            assert seqs(await claim(service, 9)) == [2, 3, 5, 6]

    asyncio.run(run())


def test_a_claim_that_fails_behind_its_read_loses_no_job(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, records=3) as service:
            await nack(service, *await claim(service, 3))
            gate, states = asyncio.Event(), QueueStates.of(service.sync)
            hold_reads(service.queues, gate)
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
