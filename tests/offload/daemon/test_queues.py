"""Test queues in a service of this process: leases, acks together and alone, dead letters, deletes, and routes."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from catalog.format.commit import Deletions
from offload.daemon.http import make_app
from offload.daemon.threads import in_threads
from offload.operations.offload import offload as offload_topic
from offload.operations.queue import (
    TOPIC,
    OnAck,
    create,
    delete,
    delete_acked,
    letter_of,
    list_queues,
    redrive,
    set_queue,
)
from offload.token_rights import RIGHTS_KEY, Grant, Rights, Role
from seglog import AppendsHeld, LeaseLost, NoSuchTopic, TopicConfig
from seglog.base.errors import Conflict, Corrupt, Missing
from seglog.delivery.queue_states import QueueStates
from tests.offload.daemon.live_answers import listening
from tests.seams.delivery import bury_none
from tests.seams.limits import Limit, set_limit
from tests.worlds.asgi import asked
from tests.worlds.clock import HandClock
from tests.worlds.queues import ack, claim, command, ids, nack, seqs, shown, world
from tests.worlds.services import serving, until

PLACE = "/topics/orders/queues/billing"
LEASE_MS = 30_000


def test_each_job_goes_to_one_worker_and_an_acked_one_never_comes_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            hands = await asyncio.gather(*(claim(service, 3) for _ in range(4)))
            assert sorted(seq for hand in hands for seq in seqs(hand)) == [*range(1, 11)]
            assert [len(hand) for hand in hands] == [3, 3, 2, 2], "claims of one tick share evenly"
            assert len({job.lease_id for hand in hands for job in hand}) == 4
            assert hands[0][0].record.value == b"%d" % hands[0][0].record.seq
            await asyncio.gather(*(ack(service, *hand) for hand in hands))
            assert await claim(service) == []
            found = await shown(service)
            assert (found.floor, found.listed.reason) == (10, "empty")
        async with serving(tmp_path / "d", "") as service:
            assert await claim(service) == []
            await service.log.topic("orders").append([b"new"])
            assert seqs(await claim(service, 5)) == [11]

    asyncio.run(run())


def test_acks_of_one_tick_are_one_record_and_claims_cost_no_sync(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            jobs = await claim(service, 10)
            topic = service.sync.topic(TOPIC)
            before = topic.head_seq
            settled = await asyncio.gather(*(ack(service, job) for job in jobs))
            assert [each.done for each in settled] == [[job.record.seq] for job in jobs]
            assert topic.head_seq == before + 1

    asyncio.run(run())


def test_a_lease_that_is_over_goes_to_another_worker_and_the_late_one_changes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        clock = HandClock()
        async with world(tmp_path, records=2, clock=clock) as service:
            [ada] = await claim(service)
            clock.ms += LEASE_MS
            [bob, _] = await claim(service, 2, client="bob")
            assert (bob.record.seq, bob.deliveries) == (1, 2)
            assert bob.lease_id != ada.lease_id
            before = service.sync.topic(TOPIC).head_seq
            for call in (ack, nack):
                with pytest.raises(LeaseLost, match="the lease of job 1 of orders/billing is over"):
                    await call(service, ada)
            with pytest.raises(LeaseLost):
                await service.queues.extend("orders", "billing", ids(ada))
            assert service.sync.topic(TOPIC).head_seq == before
            mixed = await ack(service, ada, bob)
            assert (mixed.done, mixed.lost) == ([1], [])
            repeated = await ack(service, bob)
            assert repeated.done == [1], "a repeated ack, as after a lost answer, counts"

    asyncio.run(run())


def test_each_job_of_a_call_has_its_own_outcome(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            [one, two] = await claim(service, 2)
            wrong = (two.record.seq, two.lease_id ^ 1)
            settled = await service.queues.ack("orders", "billing", [*ids(one), wrong, (9, 1)])
            assert (settled.done, settled.lost) == ([1], [2, 9])
            settled = await ack(service, two)
            assert settled.done == [2]

    asyncio.run(run())


def test_an_extension_keeps_the_lease_and_a_nack_brings_the_job_after_its_delay(tmp_path: Path) -> None:
    async def run() -> None:
        clock = HandClock()
        async with world(tmp_path, records=1, clock=clock) as service:
            [job] = await claim(service)
            clock.ms += LEASE_MS - 1
            settled = await service.queues.extend("orders", "billing", ids(job))
            assert settled.deadline_ms == clock.now_ms() + LEASE_MS
            clock.ms += LEASE_MS - 1
            assert await claim(service) == []
            await nack(service, job, delay_ms=1000)
            assert await claim(service) == []
            clock.ms += 1000
            assert [each.deliveries for each in await claim(service)] == [2]

    asyncio.run(run())


def test_a_claim_waits_for_a_record_for_a_nack_and_for_the_end_of_a_lease(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, records=0, lease="300ms") as service:
            waiting = asyncio.create_task(claim(service, wait_s=20))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await service.log.topic("orders").append([b"one"])
            async with asyncio.timeout(10):
                [job] = await waiting
                waiting = asyncio.create_task(claim(service, wait_s=20))
                await asyncio.sleep(0.05)
                await nack(service, job)
                assert seqs(await waiting) == [1]
                assert [each.deliveries for each in await claim(service, wait_s=20)] == [3], "its lease was over"
            assert await claim(service, wait_s=0.01) == []

    asyncio.run(run())


def test_a_waiting_claim_ends_with_the_daemon(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, records=0) as service:
            waiting = asyncio.create_task(claim(service, wait_s=60))
            await asyncio.sleep(0.05)
            service.stopping.set()
            async with asyncio.timeout(10):
                with pytest.raises(Exception, match="stopping"):
                    await waiting

    asyncio.run(run())


def test_a_claim_whose_client_has_gone_gives_its_jobs_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, records=1) as service:
            gone = asyncio.create_task(claim(service))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            gone.cancel()
            async with asyncio.timeout(10):
                assert seqs(await claim(service, wait_s=10)) == [1]

    asyncio.run(run())


def test_leases_and_counts_survive_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        clock = HandClock()
        async with world(tmp_path, clock=clock) as service:
            [one, two, three] = await claim(service, 3)
            await ack(service, two)
            await nack(service, three, delay_ms=500)
        async with serving(tmp_path / "d", "", clock) as service:
            assert seqs(await claim(service, 1)) == [4]
            clock.ms += 500
            assert [(each.record.seq, each.deliveries) for each in await claim(service)] == [(3, 2)]
            assert (await ack(service, one)).done == [1], "her lease holds until its deadline"
            assert (await shown(service)).floor == 2

    asyncio.run(run())


def test_a_refused_append_changes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            jobs = await claim(service, 2)
            service.sync.hold_appends("the disk is full")
            for call in (claim(service), ack(service, *jobs), nack(service, *jobs)):
                with pytest.raises(AppendsHeld):
                    await call
            service.sync.hold_appends(None)
            assert seqs(await claim(service)) == [3]
            assert (await ack(service, *jobs)).done == [1, 2]
        async with serving(tmp_path / "d", "") as service:
            assert (await shown(service)).floor == 2

    asyncio.run(run())


def test_deleted_records_are_passed_over_and_evicted_ones_are_counted_as_lost(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            topic = service.sync.topic("orders")
            [first] = await claim(service)
            topic.delete(start=2, end=3)
            topic.evict(6)
            await nack(service, first)
            assert seqs(await claim(service, 2)) == [6, 7]
            found = await shown(service)
            assert (found.floor, found.lost_from, found.lost_to) == (5, 1, 5)
            assert found.listed.lost == 5, "a gap has one range, so it counts the deleted ones, too (FLOOR-3)"
            topic.delete(before=10)
            assert seqs(await claim(service, 5)) == [10]
            assert await claim(service) == []

    asyncio.run(run())


def test_a_truncation_ends_the_leases_of_the_jobs_that_it_takes(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            jobs = await claim(service, 6)
            await ack(service, jobs[0], jobs[4])
            service.sync.topic("orders").truncate(4)
            await service.log.topic("orders").append([b"new"] * 3)
            settled = await ack(service, *jobs[1:3], jobs[3], jobs[5])
            assert (settled.done, settled.lost) == ([2, 3], [4, 6])
            again = await claim(service, 9)
            assert [(each.record.seq, each.record.value, each.deliveries) for each in again] == [
                (4, b"new", 1), (5, b"new", 1), (6, b"new", 1)
            ]  # fmt: skip
        async with serving(tmp_path / "d", "") as service:
            assert (await ack(service, *again)).done == [4, 5, 6]

    asyncio.run(run())


def test_a_queue_ends_with_its_topic(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            service.sync.delete_topic("orders")
            with pytest.raises(NoSuchTopic):
                await claim(service)
            await service.log.topic("orders").append([b"x"])
            with pytest.raises(Missing, match="topic orders has no queue billing"):
                await claim(service)
            assert await command(service, lambda each: [*list_queues(each)]) == []

    asyncio.run(run())


def test_a_queue_that_is_made_again_begins_anew(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            jobs = await claim(service, 3)
            await ack(service, *jobs)
            with pytest.raises(Conflict, match="has a queue billing already"):
                await command(service, create, "orders", "billing")
            await command(service, delete, "orders", "billing")
            with pytest.raises(Missing):
                await claim(service)
            await command(service, create, "orders", "billing")
            assert seqs(await claim(service, 4)) == [1, 2, 3, 4]

    asyncio.run(run())


def test_a_dead_job_becomes_one_letter_with_its_story(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, records=2, max_deliver=2, dead_letter="dead") as service:
            for _ in range(2):
                jobs = await claim(service, 2)
                await nack(service, jobs[0])
                await ack(service, *jobs[1:])
            assert await claim(service) == []
            dead = service.sync.topic("dead")
            await until(lambda: dead.head_seq == 1, "the letter")
            [letter] = dead.read()
            told = {"queue": "orders/billing", "seq": 1, "deliveries": 2, "reason": "max_deliver", "node": None}
            assert (letter.value, letter.tag, letter_of(letter)) == (b"1", "eu", told)
            await until(lambda: not QueueStates.of(service.sync).find("orders", "billing").dying, "its ack")
            found = await shown(service)
            assert (found.floor, found.listed.dead, found.listed.reason) == (2, 1, "empty")
            redriven = await command(service, redrive, "orders", "billing")
            assert (redriven.letters, redriven.to, redriven.up_to) == (1, "orders", 1)
            assert (await command(service, redrive, "orders", "billing")).letters == 0
            assert [(each.record.seq, each.record.value) for each in await claim(service, 5)] == [(3, b"1")]

    asyncio.run(run())


def test_a_crash_between_the_letter_and_its_ack_leaves_one_letter(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, records=1, max_deliver=1, dead_letter="dead") as service:
            await nack(service, *await claim(service))
            bury_none(service.queues)
            assert await claim(service) == []
            queue = QueueStates.of(service.sync).find("orders", "billing")
            assert queue.dying == {1: 0}
            [record] = service.sync.topic("orders").read()
            await service.queues.dead_letters.append(queue, "dead", record, 0)
        async with serving(tmp_path / "d", "") as service:
            await service.queues.states()
            queue = QueueStates.of(service.sync).find("orders", "billing")
            assert queue.dying == {1: 0}
            await until(lambda: not queue.dying, "the ack of the letter")
            assert service.sync.topic("dead").head_seq == 1

    asyncio.run(run())


def test_dead_letters_that_are_refused_pause_the_queue_and_nobody_else(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, records=3, max_deliver=1, dead_letter="dead") as service:
            service.sync.create_topic("dead", TopicConfig(cap_records=1, discard="reject"))
            service.sync.topic("dead").append([b"full"])
            await command(service, create, "orders", "audit")
            await nack(service, *await claim(service))
            await claim(service)
            queue = QueueStates.of(service.sync).find("orders", "billing")
            await until(lambda: bool(queue.stuck), "the refusal")
            assert await claim(service) == []
            reason = (await shown(service)).listed.reason
            assert reason.startswith("paused: topic dead takes no dead letter: ")
            assert len(await service.queues.claim("orders", "audit", 5)) == 3
            await service.log.topic("orders").append([b"more"])
            service.sync.reconfigure("dead", lambda _: TopicConfig())
            await until(lambda: not queue.dying, "the letter")
            assert service.sync.topic("dead").head_seq == 2
            assert seqs(await claim(service, 5)) == [3, 4]

    asyncio.run(run())


def test_a_dead_downstream_pauses_the_queue_instead_of_draining_it(tmp_path: Path) -> None:
    async def run() -> None:
        clock = HandClock()
        options = {"max_deliver": 1, "max_dead_per_minute": 3}
        async with world(tmp_path, records=10, clock=clock, **options) as service:
            await nack(service, *await claim(service, 8))
            assert await claim(service) == []
            found = await shown(service)
            assert found.listed.reason.startswith("paused: more than 3 jobs died within a minute")
            assert found.listed.dead == 3
        async with serving(tmp_path / "d", "", clock) as service:
            clock.ms += 60_000
            assert await claim(service) == [], "it stays paused"
            await command(service, set_queue, "orders", "billing", max_deliver=9, resume=True)
            assert seqs(await claim(service, 9)) == [4, 5, 6, 7, 8, 9, 10]
            assert (await shown(service)).max_deliver == 9

    asyncio.run(run())


def test_acks_that_delete_are_one_delete(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, on_ack=OnAck.DELETE) as service:
            topic = service.sync.topic("orders")
            jobs = await claim(service, 9)
            await asyncio.gather(*(ack(service, job) for job in jobs if job.record.seq not in {2, 5}))
            version = topic.inner.lasting_version
            assert await in_threads(service.local, delete_acked, service.sync, None, "orders") == 7
            assert [record.seq for record in topic.read()] == [2, 5, 10]
            assert topic.inner.lasting_version[2] == version[2] + 1
            assert await in_threads(service.local, delete_acked, service.sync, None, "orders") == 0
            await ack(service, *(job for job in jobs if job.record.seq in {2, 5}))
            with pytest.raises(Conflict, match="a queue that deletes is the only one"):
                await command(service, create, "orders", "audit")
        async with serving(tmp_path / "d", "") as service:
            await in_threads(service.local, delete_acked, service.sync, None, "orders")
            assert [record.seq for record in service.sync.topic("orders").read()] == [10]

    asyncio.run(run())


def test_an_ack_that_is_not_durable_deletes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, on_ack=OnAck.DELETE) as service:
            [job] = await claim(service)
            queue = QueueStates.of(service.sync).find("orders", "billing")
            acked = asyncio.create_task(ack(service, job))
            while queue.cursor.floor == 0:
                await asyncio.sleep(0)
            assert queue.stored.floor == 0, "the append of the ack is under way"
            await acked
            assert queue.stored.floor == 1

    asyncio.run(run())


def test_an_offload_publishes_what_was_acked_as_one_commit_of_deletes(tmp_path: Path) -> None:
    async def run() -> None:
        remote = f"file://{tmp_path}/remote"
        async with world(tmp_path, remote, records=20, on_ack=OnAck.DELETE) as service:
            assert service.archive is not None
            for _ in range(4):
                jobs = await claim(service, 5)
                await asyncio.gather(*(ack(service, job) for job in jobs[:4]))
            service.sync.topic("orders").seal()
            host: Any = SimpleNamespace(progress=lambda *_: nullcontext(lambda _: None))
            for _ in range(2):
                await command(service, lambda each: [*offload_topic(replace(each, host=host), "orders")])
            commits = [each.commit for each in service.archive.history.commits("orders")]
            assert sum(each.deletions != Deletions() for each in commits) == 1
            assert [record.seq for record in service.archive.read("orders")] == [5, 10, 15, 20]

    asyncio.run(run())


def test_claims_within_the_jitter_share_the_jobs_evenly(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, records=4, claim_jitter_ms=100) as service:
            first = asyncio.create_task(claim(service, 4))
            await asyncio.sleep(0.02)
            second = asyncio.create_task(claim(service, 4))
            assert [len(each) for each in await asyncio.gather(first, second)] == [2, 2]

    asyncio.run(run())


def test_what_no_queue_takes_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            service.sync.create_topic("quick", TopicConfig(durability="ephemeral"))
            for topic, name, text in (("quick", "q", "is ephemeral"), (TOPIC, "q", "the daemon's own records")):
                with pytest.raises(Conflict, match=text):
                    await command(service, create, topic, name)
            with pytest.raises(Conflict, match="gets no dead letters"):
                await command(service, create, "orders", "q", dead_letter="orders")
            with pytest.raises(Conflict, match="has no topic of dead letters"):
                await command(service, redrive, "orders", "billing")
            with pytest.raises(NoSuchTopic):
                await command(service, create, "nothing", "q")

    asyncio.run(run())


def test_a_record_of_a_later_version_makes_its_queue_unknown_and_no_other_one(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            await command(service, create, "orders", "audit")
            await service.log.topic(TOPIC).append([b"\x07later"], tag="orders/billing")
        async with serving(tmp_path / "d", "") as service:
            with pytest.raises(Corrupt, match="the state of the queue orders/billing is unknown"):
                await claim(service)
            assert len(await service.queues.claim("orders", "audit", 5)) == 5

    asyncio.run(run())


def test_a_log_with_shards_keeps_its_queues(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path / "d", "", LOG_WAL_SHARDS="4") as service:
            await service.log.topic("orders").append([b"x"] * 10, durability="memory")
            await command(service, create, "orders", "billing")
            await ack(service, *await claim(service, 4))
        async with serving(tmp_path / "d", "", LOG_WAL_SHARDS="4") as service:
            assert seqs(await claim(service)) == [5]

    asyncio.run(run())


def test_snapshots_let_the_events_before_them_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with world(tmp_path, records=200) as service:
            set_limit(monkeypatch, Limit.EVENTS_OF_A_SNAPSHOT, 20)
            await command(service, create, "orders", "quiet")
            topic = service.sync.topic(TOPIC)
            held = await claim(service)
            for _ in range(150):
                await ack(service, *await claim(service))
            await until(lambda: topic.head_seq - topic.earliest_seq < 250, "the deletion")
        async with serving(tmp_path / "d", "") as service:
            assert (await ack(service, *held)).done == [1]
            assert (await shown(service)).floor == 151
            assert len(await service.queues.claim("orders", "quiet", 7)) == 7

    asyncio.run(run())


def rights(role: Role) -> Rights:
    return Rights("worker", (Grant(role, ("*",)),))


def test_the_routes_claim_ack_and_refuse(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            app = make_app(service)

            async def post(path: str, body: Any, **more: Any) -> tuple[int, Any, Any]:
                given = json.dumps(body).encode()
                return await asked(app, f"{PLACE}/{path}", (b"content-type", b"application/json"), body=given, **more)

            status, answer, route = await post("claims", {"max": 2, "worker": "ada"})
            assert (status, route) == (200, "/topics/{topic}/queues/{queue}/claims")
            [one, two] = answer["jobs"]
            assert (one["seq"], one["value"], one["tag"], one["deliveries"]) == (1, "1", "eu", 1)
            assert one["deadline_ms"] > one["ts_ms"]
            job = {"seq": one["seq"], "lease_id": one["lease_id"]}
            assert (await post("acks", {"jobs": [job]}))[:2] == (200, {"done": [1], "lost": []})
            old = {"seq": two["seq"], "lease_id": "0" * 16}
            status, problem, _ = await post("acks", {"jobs": [old]})
            assert (status, problem["title"], problem["class"]) == (409, "LeaseLost", "seglog.errors.LeaseLost")
            status, answer, _ = await post("extensions", {"jobs": [{**job, "seq": 2}]})
            assert (status, answer["done"]) == (200, [2])
            assert answer["deadline_ms"] >= two["deadline_ms"]
            status, answer, _ = await post("nacks", {"jobs": [{**job, "seq": 2}], "delay_ms": 5})
            assert (status, answer) == (200, {"done": [2], "lost": []})
            for path, body in (
                ("claims", {"max": 0}), ("claims", {"max": True}), ("claims", {"wait_s": 99}), ("claims", {"other": 1}),
                ("claims", {"worker": "x" * 200}), ("claims", {"worker": "\ud800"}),
                ("claims", {"worker": "a\nb"}), ("acks", {}), ("acks", {"jobs": []}), ("acks", {"jobs": [{}]}),
                ("acks", {"jobs": [{"seq": 1, "lease_id": 7}]}), ("acks", {"jobs": [{**job, "seq": 0}]}),
                ("nacks", {"jobs": [job], "delay_ms": -1}), ("acks", {"jobs": [job], "delay_ms": 1}),
            ):  # fmt: skip
                status, problem, _ = await post(path, body)
                assert (status, problem["title"]) == (400, "InvalidOption"), (path, body)
            assert (await post("claims", {}, **{RIGHTS_KEY: rights(Role.READ)}))[0] == 403
            assert (await post("claims", {}, **{RIGHTS_KEY: rights(Role.APPEND)}))[0] == 200

    asyncio.run(run())


def test_a_stream_of_work_holds_so_many_jobs_and_gives_them_back_when_its_client_leaves(tmp_path: Path) -> None:
    async def run() -> None:
        async with listening(tmp_path) as daemon:
            service = daemon.service
            await service.log.topic("orders").append([b"%d" % seq for seq in range(1, 5)])
            await command(service, create, "orders", "billing")
            async with daemon.get(f"{PLACE}/work?max=2&worker=ada") as stream:
                one, two = [event.data for event in await stream.take(2)]
                assert (one["seq"], one["value"], two["seq"]) == (1, "1", 2)
                await asyncio.sleep(0.05)
                assert len(stream.events) == 2
                await service.queues.ack("orders", "billing", [(1, int(one["lease_id"], 16))])
                [three] = [event.data for event in await stream.take(1)]
                assert three["seq"] == 3
            async with asyncio.timeout(10):
                jobs = await claim(service, 3, 10)
                while len(jobs) < 3:
                    jobs += await claim(service, 3 - len(jobs), 10)
            assert [(job.record.seq, job.deliveries) for job in sorted(jobs, key=lambda job: job.record.seq)] == [
                (2, 2), (3, 2), (4, 1)
            ]  # fmt: skip
            async with daemon.get("/topics/orders/queues/nope/work") as refused:
                assert (await refused.whole())["title"] == "Missing"
                assert refused.status == 404

    asyncio.run(run())


def test_queues_have_metrics(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            await claim(service, 3)
            text = service.metrics.text().decode()
            for name, value in (("ready", 7), ("in_flight", 3), ("dead", 0), ("lost", 0)):
                assert f'seglog_queue_{name}{{queue="billing",topic="orders"}} {value}.0' in text

    asyncio.run(run())
