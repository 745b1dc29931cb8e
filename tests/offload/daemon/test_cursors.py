"""Test cursors in a service of this process: acks together and alone, refusals, routes, and the reserved topics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from offload.daemon.background.disk import DiskWatch
from offload.daemon.http import make_app
from offload.daemon.quota import frame_bytes
from offload.daemon.service import Service
from offload.daemon.threads import in_threads
from offload.daemon.topic_news import EventId
from offload.operations.cursor import TOPIC, create, delete, list_cursors, reset
from offload.settings import TenantSettings
from offload.token_rights import RIGHTS_KEY, Grant, Rights, Role
from seglog import AppendsHeld, InvalidArgument, NoSuchTopic, SeqOutOfRange, Topic
from seglog.base.errors import Conflict, Corrupt, Missing
from tests.seams.delivery import load_states, replace_states
from tests.seams.limits import Limit, set_limit
from tests.worlds.asgi import asked
from tests.worlds.services import directory_of, serving, until

ACKS = "/topics/orders/cursors/billing/acks"


async def command(service: Service, work: Any, *given: Any) -> Any:
    """Run a command in a thread, as the daemon does."""
    return await in_threads(service.commands, work, directory_of(service), *given)


@asynccontextmanager
async def world(place: Path, remote: str = "", *, at: str = "earliest") -> AsyncIterator[Service]:
    """Serve a directory with ten orders and the cursor `billing`."""
    async with serving(place / "d", remote) as service:
        await service.log.topic("orders").append([b"%d" % seq for seq in range(1, 11)])
        await command(service, create, "orders", "billing", at)
        yield service


def records(service: Service) -> int:
    return service.sync.topic(TOPIC).head_seq


async def acked(service: Service, name: str = "billing") -> set[int]:
    position, above = await service.cursors.begin(service.sync.topic("orders"), name)
    head_seq = service.sync.topic("orders").head_seq
    seqs = range(1, head_seq + 1)
    return {seq for seq in seqs if seq <= position.seq or (above is not None and seq in above.in_epoch(position.epoch))}


def test_acks_of_one_tick_are_one_record_and_none_loses_anothers_seqs(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            before = records(service)
            acks = [service.cursors.ack("orders", "billing", [seq], 1) for seq in (1, 3, 2, 7)]
            assert await asyncio.gather(*acks) == [EventId(1, 3)] * 4
            assert records(service) == before + 1
            assert await acked(service) == {1, 2, 3, 7}
            more = [asyncio.create_task(service.cursors.ack("orders", "billing", [4], 1))]
            await until(lambda: records(service) == before + 2, "the first record")
            more += [asyncio.create_task(service.cursors.ack("orders", "billing", [seq], 1)) for seq in (6, 9)]
            await asyncio.gather(*more)
            assert await acked(service) == {1, 2, 3, 4, 6, 7, 9}
            assert records(service) == before + 3
            assert await service.cursors.ack("orders", "billing", range(1, 10), 1) == EventId(1, 9)
            await service.cursors.ack("orders", "billing", [5], 1)  # again: no record is needed
            assert records(service) == before + 4

    asyncio.run(run())


def test_acks_of_many_cursors_and_commands_in_between_lose_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            names = [f"c{number}" for number in range(5)]
            for name in names:
                await command(service, create, "orders", name, "earliest")
            acks = [service.cursors.ack("orders", name, [seq], 1) for seq in range(1, 11) for name in names]
            moves = [command(service, reset, "orders", "billing", f"seq:{seq}") for seq in (3, 5, 7)]
            moves += [service.cursors.ack("orders", "billing", [10], 1) for _ in range(3)]
            await asyncio.gather(*acks, *moves)
            for name in names:
                assert await acked(service, name) == {*range(1, 11)}
            assert (await service.cursors.position("orders", "billing")).seq in {3, 5, 7}

    asyncio.run(run())


def test_a_refused_ack_changes_nothing_and_the_others_of_its_tick_count(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            ack = service.cursors.ack
            found = await asyncio.gather(
                ack("orders", "billing", [1], 1),
                ack("orders", "billing", [2, 11], 1),
                ack("orders", "billing", [2], 7),
                ack("orders", "billing", [0], 1),
                ack("orders", "nobody", [1], 1),
                ack("nothing", "billing", [1], 1),
                return_exceptions=True,
            )
            kinds = [EventId, SeqOutOfRange, Conflict, InvalidArgument, Missing, NoSuchTopic]
            assert [type(each) for each in found] == kinds
            assert await acked(service) == {1}

    asyncio.run(run())


def test_an_ack_that_cannot_be_durable_changes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            await service.cursors.ack("orders", "billing", [1], 1)
            service.sync.hold_appends("the disk is full")
            with pytest.raises(AppendsHeld):
                await service.cursors.ack("orders", "billing", [2], 1)
            assert await acked(service) == {1}
            service.sync.hold_appends(None)
            await service.cursors.ack("orders", "billing", [3], 1)
            assert await acked(service) == {1, 3}
        async with serving(tmp_path / "d", "") as service:
            assert await acked(service) == {1, 3}

    asyncio.run(run())


def test_acks_that_do_not_fit_together_refuse_only_the_one_that_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            set_limit(monkeypatch, Limit.CURSOR_RECORD_BYTES, 100)
            acks = [service.cursors.ack("orders", "billing", seqs, 1) for seqs in ([1], [4, 6, 8, 10], [2])]
            found = await asyncio.gather(*acks, return_exceptions=True)
            assert [type(each) for each in found] == [EventId, Conflict, EventId]
            assert await acked(service) == {1, 2}

    asyncio.run(run())


def test_acks_are_refused_if_the_cursors_cannot_be_read_and_a_later_one_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            cursors, states = service.cursors, await load_states(service.cursors)
            answers: list[Any] = [states, OSError("no answer")]

            async def reads() -> Any:
                answer = answers.pop(0) if answers else states
                if isinstance(answer, OSError):
                    raise answer
                return answer

            replace_states(monkeypatch, cursors, reads)
            async with asyncio.timeout(10):
                with pytest.raises(OSError, match="no answer"):
                    await cursors.ack("orders", "billing", [1], 1)
                assert await cursors.ack("orders", "billing", [1], 1) == EventId(1, 1)

    asyncio.run(run())


def test_the_daemon_compacts_the_records_of_cursors_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            set_limit(monkeypatch, Limit.STREAM_ENTRIES_OUTDATED, 5)
            topic = service.sync.topic(TOPIC)
            await service.log.topic("orders").append([b"x"] * 200)
            for seq in range(1, 201):
                await service.cursors.ack("orders", "billing", [seq], 1)
            await until(lambda: topic.head_seq - topic.earliest_seq < 20, "the compaction")
        async with serving(tmp_path / "d", "") as service:
            assert await acked(service) == {*range(1, 201)}

    asyncio.run(run())


def test_a_log_with_shards_acks_its_cursors(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path / "d", "", LOG_WAL_SHARDS="4") as service:
            await service.log.topic("orders").append([b"x"] * 10, durability="memory")
            await command(service, create, "orders", "billing", "earliest")
            assert await service.cursors.ack("orders", "billing", [1, 2, 5], 1) == EventId(1, 2)
        async with serving(tmp_path / "d", "", LOG_WAL_SHARDS="4") as service:
            assert await acked(service) == {1, 2, 5}

    asyncio.run(run())


def test_an_ack_whose_client_has_gone_is_written_and_harms_no_other_one(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            gone = asyncio.create_task(service.cursors.ack("orders", "billing", [1], 1))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            gone.cancel()
            await service.cursors.ack("orders", "billing", [2], 1)
            assert 2 in await acked(service)

    asyncio.run(run())


def test_after_a_truncation_an_ack_needs_the_new_epoch(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            await service.cursors.ack("orders", "billing", range(1, 9), 1)
            service.sync.topic("orders").truncate(4)
            assert await service.cursors.position("orders", "billing") == EventId(2, 3)
            await service.log.topic("orders").append([b"new"] * 5)
            with pytest.raises(Conflict, match="in epoch 2, and the ack is of epoch 1"):
                await service.cursors.ack("orders", "billing", [4], 1)
            assert await service.cursors.ack("orders", "billing", [4], 2) == EventId(2, 4)
        async with serving(tmp_path / "d", "") as service:
            assert await service.cursors.position("orders", "billing") == EventId(2, 4)

    asyncio.run(run())


def test_an_eviction_leaves_the_floor_so_that_the_reader_gets_a_gap(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            service.sync.topic("orders").evict(6)
            assert await service.cursors.position("orders", "billing") == EventId(1, 0)
            [shown] = await command(service, lambda directory: [*list_cursors(directory, "orders")])
            assert (shown.floor, shown.lag_records) == (0, 5)

    asyncio.run(run())


def test_the_lag_counts_what_is_not_acked(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            await service.cursors.ack("orders", "billing", [1, 2, 5], 1)
            metrics = service.metrics.text().decode()
            assert 'seglog_cursor_lag_records{cursor="billing",topic="orders"} 7.0' in metrics
            topic = service.sync.topic("orders")
            size_bytes = topic.inner.bytes_hot / 10 * 7
            assert f'seglog_cursor_lag_bytes{{cursor="billing",topic="orders"}} {float(-(-size_bytes // 1))}' in metrics
            [shown] = await command(service, lambda directory: [*list_cursors(directory)])
            assert (shown.epoch, shown.floor, shown.acked_above, shown.lag_records) == (1, 2, 1, 7)
            assert 0 <= shown.lag_s < 60
            await service.cursors.ack("orders", "billing", range(1, 11), 1)
            metrics = service.metrics.text(lambda topic: topic == "orders").decode()
            for unit in ("records", "bytes", "seconds"):
                assert f'seglog_cursor_lag_{unit}{{cursor="billing",topic="orders"}} 0.0' in metrics
            assert "billing" not in service.metrics.text(lambda topic: topic == "web").decode()

    asyncio.run(run())


def test_a_scrape_reads_only_for_cursors_that_moved_since_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int | None] = []
    read = Topic.read

    def counted(topic: Topic, start: int | None = None, *given: Any, **named: Any) -> Any:
        reads.append(start)
        return read(topic, start, *given, **named)

    async def run() -> None:
        async with world(tmp_path) as service:
            for name in ("audit", "mail", "late"):
                await command(service, create, "orders", name, "seq:8" if name == "late" else "earliest")

            def scrape() -> tuple[str, list[int | None]]:
                reads.clear()
                return service.metrics.text().decode(), [*reads]

            monkeypatch.setattr(Topic, "read", counted)
            text, found = scrape()
            assert found == [1, 9], "the cursors of one place need one read"
            assert 'seglog_cursor_lag_seconds{cursor="late",topic="orders"}' in text
            again, found = scrape()
            assert found == []
            assert again.count("seglog_cursor_lag_seconds{") == 4
            await service.cursors.ack("orders", "billing", [1, 2], 1)
            assert scrape()[1] == [3]
            assert scrape()[1] == []
            service.sync.topic("orders").append([b"more"])
            assert scrape()[1] == [], "a new record is not the one that they wait for"
            service.sync.topic("orders").delete(before=2)
            assert scrape()[1] == [2, 3, 9], "a delete may have taken any of them"
            service.sync.topic("orders").truncate(9)
            assert scrape()[1] == [2, 3]
            await command(service, delete, "orders", "late")
            assert scrape()[1] == []

    asyncio.run(run())


def test_a_deleted_cursor_is_unknown_and_one_made_again_begins_anew(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            await service.cursors.ack("orders", "billing", [1, 2], 1)
            with pytest.raises(Conflict, match="has a cursor billing already"):
                await command(service, create, "orders", "billing")
            await command(service, delete, "orders", "billing")
            with pytest.raises(Missing):
                await service.cursors.ack("orders", "billing", [3], 1)
            await command(service, create, "orders", "billing", "seq:7")
            assert await acked(service) == {*range(1, 8)}
        async with serving(tmp_path / "d", "") as service:
            assert await acked(service) == {*range(1, 8)}

    asyncio.run(run())


def test_a_record_of_a_later_version_makes_its_cursor_unknown_and_no_other_one(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            await command(service, create, "orders", "audit", "seq:3")
            await service.log.topic(TOPIC).append([b"\x07later"], tag="orders/billing")
        async with serving(tmp_path / "d", "") as service:
            with pytest.raises(Corrupt, match="is no cursor of this version"):
                await service.cursors.ack("orders", "billing", [1], 1)
            assert await acked(service, "audit") == {1, 2, 3}

    asyncio.run(run())


def test_an_ack_counts_for_the_quotas_as_an_append_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def does_not_look(watch: DiskWatch) -> None:
        """A look counts the bytes on the disk, and `since_bytes` begins anew."""

    monkeypatch.setattr(DiskWatch, "look", does_not_look)

    async def run() -> None:
        async with world(tmp_path) as service:
            app, quota = make_app(service), service.quota

            async def post(up_to: int) -> tuple[int, Any]:
                body = json.dumps({"up_to": up_to, "epoch": 1}).encode()
                status, told, _ = await asked(app, ACKS, (b"content-type", b"application/json"), body=body)
                return status, told.get("title", told.get("floor"))

            assert await post(1) == (200, 1)
            record = [*service.sync.topic(TOPIC).read()][-1]
            size_bytes = frame_bytes([record.value], record.tag)
            assert quota.since_bytes == size_bytes
            quota.change(TenantSettings(quota_bytes=2 * size_bytes))
            assert await post(2) == (200, 2)
            written = records(service)
            assert await post(3) == (507, "OverQuota")
            assert await post(2) == (200, 2), "it says nothing new, so it needs no record"
            assert quota.since_bytes == 2 * size_bytes, "a refused ack holds nothing"
            quota.change(TenantSettings(append_bytes_per_s=1))
            assert await post(4) == (200, 4), "what is larger than a second's worth passes, and is paid off"
            assert await post(5) == (429, "OverRate")
            assert records(service) == written + 1
            assert await acked(service) == {1, 2, 3, 4}
            await command(service, reset, "orders", "billing", "seq:2")
            quota.change(TenantSettings())
            assert await post(5) == (200, 5)

    asyncio.run(run())


def test_the_route_acks_and_refuses_with_a_problem(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            app = make_app(service)

            async def post(body: object, path: str = ACKS) -> tuple[int, Any]:
                status, answer, _ = await asked(app, path, body=json.dumps(body).encode())
                return status, answer

            assert await post({"seqs": [1, 3], "epoch": 1}) == (200, {"floor": 1, "epoch": 1, "acked_above": 1})
            assert await post({"up_to": 4, "epoch": 1}) == (200, {"floor": 4, "epoch": 1, "acked_above": 0})
            assert await post({"seqs": [], "epoch": 1}) == (200, {"floor": 4, "epoch": 1, "acked_above": 0})
            for body in (
                {"seqs": [5]},
                {"epoch": 1},
                {"seqs": [5], "up_to": 5, "epoch": 1},
                {"seqs": 5, "epoch": 1},
                {"seqs": [0], "epoch": 1},
                {"seqs": [True], "epoch": 1},
                {"seqs": [5.0], "epoch": 1},
                {"up_to": 2**63, "epoch": 1},
                {"seqs": [5], "epoch": "1"},
                {"seqs": [5], "epoch": 1, "more": 1},
                {"seqs": [5] * 100_001, "epoch": 1},
                [5],
            ):
                status, problem = await post(body)
                assert (status, problem["status"]) == (400, 400), body
            assert (await post({"seqs": [11], "epoch": 1}))[0] == 404
            assert (await post({"seqs": [5], "epoch": 2}))[0] == 409
            status, problem = await post({"seqs": [5], "epoch": 1}, ACKS.replace("billing", "nobody"))
            assert (status, "`seglog cursor create orders nobody`" in problem["hint"]) == (404, True)
            assert await acked(service) == {1, 2, 3, 4}

    asyncio.run(run())


def test_an_ack_needs_the_role_read_on_the_topic_and_a_change_the_role_append(tmp_path: Path) -> None:
    def rights(role: Role, topic: str = "orders") -> dict[str, Rights]:
        return {RIGHTS_KEY: Rights("t", (Grant(role, (topic,)),))}

    async def run() -> None:
        async with world(tmp_path) as service:
            app = make_app(service)
            ack = json.dumps({"seqs": [1], "epoch": 1}).encode()
            new = json.dumps({"name": "new"}).encode()
            create_path = "/topics/orders/rpc/cursor/create"
            assert (await asked(app, ACKS, body=ack, **rights(Role.READ, "web")))[0] == 403
            assert (await asked(app, ACKS, body=ack, **rights(Role.METRICS)))[0] == 403
            assert (await asked(app, ACKS, body=ack, **rights(Role.READ)))[0] == 200
            assert (await asked(app, create_path, body=new, **rights(Role.READ)))[0] == 403
            status, _ = await lines_of(app, create_path, new, rights(Role.APPEND))
            assert status == 200
            status, found = await lines_of(app, "/topics/orders/cursors", b"", {**rights(Role.READ), "method": "GET"})
            assert (status, [line["cursor"] for line in found]) == (200, ["billing", "new"])

    asyncio.run(run())


async def lines_of(app: Any, path: str, body: bytes, more: Mapping[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """Send a request. Return the status, and the objects of the answer, one a line."""
    sent: list[Any] = []
    bodies = [body]

    async def receive() -> dict[str, Any]:
        if not bodies:
            await asyncio.Event().wait()  # the client stays
        return {"type": "http.request", "body": bodies.pop(), "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "root_path": "", "headers": []}
    await app({**scope, **more}, receive, send)
    answer = b"".join(each.get("body", b"") for each in sent[1:])
    return sent[0]["status"], [json.loads(line) for line in answer.splitlines()]


@pytest.mark.parametrize("name", [TOPIC, f"{TOPIC}@main", "_seglog.anything", "_streams"])
def test_no_client_writes_a_topic_of_the_daemon(tmp_path: Path, name: str) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            app = make_app(service)
            before = service.sync.topic(TOPIC).head_seq
            binary = (b"content-type", b"application/octet-stream")
            assert (await asked(app, f"/topics/{name}/records", binary))[0] == 409
            assert (await asked(app, f"/topics/{name}/records", binary, method="PUT"))[0] == 409
            for path, given in (
                ("truncate", {"seq": 1}),
                ("rpc/delete", {"before": 9, "yes": True}),
                ("rpc/evict", {"before": 9, "yes": True}),
                ("rpc/topic/set", {"ttl": "1h"}),
                ("rpc/topic/delete", {"yes": True}),
            ):
                route = f"/topics/{name}/{path if path.startswith('rpc') else f'rpc/{path}'}"
                status, problem, _ = await asked(app, route, body=json.dumps(given).encode())
                assert (status, problem["title"]) == (409, "Conflict"), (path, problem)
                assert "only the daemon writes it" in problem["detail"]
            body = json.dumps({"topic": name.removesuffix("@main")}).encode()
            assert (await asked(app, "/rpc/topic/create", body=body))[0] == 409
            copy = json.dumps({"topic": "orders", "new": name.removesuffix("@main")}).encode()
            assert (await asked(app, "/rpc/copy", body=copy))[0] == 409
            assert service.sync.topic(TOPIC).head_seq == before
            if name == TOPIC:
                with pytest.raises(Conflict, match="the daemon's own records"):
                    await command(service, create, TOPIC, "billing")

    asyncio.run(run())


def test_cursors_are_loaded_when_the_service_starts(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, at="seq:4"):
            pass
        async with serving(tmp_path / "d", "") as service:
            shown = b'seglog_cursor_lag_records{cursor="billing",topic="orders"} 6.0'
            await until(lambda: shown in service.metrics.text(), "the metric")

    asyncio.run(run())


def test_a_cursor_of_a_topic_that_another_directory_writes_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        remote = (tmp_path / "remote").as_uri()
        async with world(tmp_path, remote) as service:
            assert service.archive is not None
            service.sync.seal(["orders"])
            await in_threads(service.cold_reads, service.archive.offload, "orders")
        async with serving(tmp_path / "other", remote) as service:
            assert service.archive is not None
            await in_threads(service.cold_reads, service.archive.replication.sync, "orders")
            with pytest.raises(Conflict, match="does not write it"):
                await service.cursors.position("orders", "billing")
            with pytest.raises(Conflict, match="does not write it"):
                await command(service, create, "orders", "billing")

    asyncio.run(run())


def syncs(service: Service) -> int:
    [line] = [each for each in service.metrics.text().decode().splitlines() if "wal_sync_seconds_count" in each]
    return int(float(line.split()[-1]))


def test_acks_of_many_cursors_in_one_tick_share_a_sync(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as service:
            names = [f"c{number}" for number in range(30)]
            for name in names:
                await command(service, create, "orders", name, "earliest")
            await asyncio.sleep(0.05)
            before, records_before = syncs(service), records(service)
            await asyncio.gather(*(service.cursors.ack("orders", name, [1], 1) for name in names))
            assert records(service) == records_before + 30
            assert syncs(service) - before <= 3  # one for the acks; the background may make another one

    asyncio.run(run())
