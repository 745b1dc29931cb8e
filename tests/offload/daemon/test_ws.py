"""Test `/ws`: subscriptions, appends and acks over one WebSocket, on a real server behind all layers of the daemon."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib import util
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from catalog.objects import MemoryStore
from catalog.objects.wrapped import T, WrappedStore
from offload.daemon.feeds import Page
from offload.daemon.http import socket_messages as messages
from offload.daemon.http import websocket
from offload.daemon.http.appends import append_endpoint
from offload.daemon.http.socket_messages import decode
from offload.daemon.service import Service
from offload.daemon.threads import in_threads
from offload.daemon.topic_news import EventId
from offload.errors import InvalidOption
from offload.operations.cursor import create
from offload.replication.replica_follower import epoch_of
from offload.token_rights import Role
from tests.faults.store import unreachable
from tests.offload.replicas import collect, opened, ship
from tests.seams.delivery import Session, joined
from tests.worlds.proxies import QUIET
from tests.worlds.services import directory_of, serving, until
from tests.worlds.sockets import SocketWorld, Talk, end_of, in_the_loop, refusal

KIB = 1024
MIB = 1024 * KIB
PAGE = Path(__file__).resolve().parents[3] / "docs" / "delivery.md"


@pytest.fixture
def world(tmp_path: Path) -> SocketWorld:
    return SocketWorld(tmp_path)


async def append(service: Service, topic: str, *values: str, **more: Any) -> None:
    await service.log.topic(topic).append([value.encode() for value in values], **more)


def values_of(records: Sequence[tuple[int, str]]) -> list[str]:
    return [value for _, value in records]


# ---------------------------------------------------------------- subscriptions


def test_two_topics_and_an_append_share_a_connection(world: SocketWorld) -> None:
    async def run() -> None:
        async with world.served() as served, served.talking() as talk:
            await append(served.service, "orders", "one", "two")
            await append(served.service, "web", "before")
            told = await talk.ask("subscribe", 1, topic="orders", **{"from": 1})
            assert told == {"is": "subscribed", "id": 1, "topic": "orders", "last": talk.last[1]}
            assert await talk.until(1, 2) == [(1, "one"), (2, "two")]
            assert talk.last[1].endswith("-2")
            assert (await talk.ask("subscribe", 2, topic="web"))["is"] == "subscribed"
            told = await talk.ask("append", 7, topic="orders", records=[{"value": "three", "tag": "eu"}])
            while told["is"] != "appended":  # the record may come before the answer
                told = await talk.hear()
            assert (told["id"], told["first_seq"], told["appended"], told["next_seq"]) == (7, 3, 1, 4)
            await append(served.service, "web", "behind")
            assert await talk.until(2, 1) == [(2, "behind")]
            assert await talk.until(1, 3) == [(1, "one"), (2, "two"), (3, "three")]
            assert await talk.ask("unsubscribe", 1) == {"is": "unsubscribed", "id": 1}
            await append(served.service, "orders", "unheard")
            assert await talk.is_quiet()
            assert (await talk.ask("subscribe", 1, topic="orders", last=talk.last[1]))["is"] == "subscribed"
            assert (await talk.until(1, 4))[3:] == [(4, "unheard")]

    in_the_loop(run())


def test_no_more_records_come_than_the_credit_allows_and_none_is_left_out(world: SocketWorld) -> None:
    async def run() -> None:
        async with world.served() as served, served.talking() as talk:
            await append(served.service, "t", *map(str, range(1, 8)))
            await talk.ask("subscribe", 1, topic="t", credit=0, **{"from": 1})
            assert await talk.is_quiet()
            for credit, count in ((2, 2), (1, 3), (3, 6)):
                await talk.say("credit", 1, records=credit)
                assert len(await talk.until(1, count)) == count
                assert await talk.is_quiet()
                assert talk.last[1].endswith(f"-{count}")
            await append(served.service, "t", "8")
            await talk.say("credit", 1, records=100)
            assert await talk.until(1, 8) == [(seq, str(seq)) for seq in range(1, 9)]

    in_the_loop(run())


@pytest.mark.parametrize(
    ("members", "seqs"),
    [
        ({"from": 1}, [1, 2, 3, 4]),
        ({"from": 3}, [3, 4]),
        ({"tail": 1}, [4]),
        ({"from": 1, "tag": "eu"}, [1, 3]),
        ({"from": 1, "tag": "e*", "exclude_node": ["b"]}, [1]),
        ({"from": 1, "exclude_node": ["a", "b"]}, [2, 4]),
        ({"last": "0-2"}, [3, 4]),
    ],
)
def test_a_subscription_begins_where_it_says_and_gets_what_it_chooses(
    world: SocketWorld, members: dict[str, Any], seqs: list[int]
) -> None:
    async def run() -> None:
        async with world.served() as served, served.talking() as talk:
            for tag, node in (("eu", "a"), ("us", None), ("eu", "b"), (None, None)):
                await append(served.service, "t", "x", tag=tag, node=node)
            if "last" in members:
                members["last"] = f"{served.service.sync.topic('t').epoch}-2"
            await talk.ask("subscribe", 1, topic="t", **members)
            assert [seq for seq, _ in await talk.until(1, len(seqs))] == seqs
            assert await talk.is_quiet()

    in_the_loop(run())


def test_a_truncation_is_told_and_the_new_records_follow(world: SocketWorld) -> None:
    async def run() -> None:
        async with world.served() as served, served.talking() as talk:
            await append(served.service, "t", "one", "two", "three")
            await talk.ask("subscribe", 1, topic="t", **{"from": 1})
            await talk.until(1, 3)
            before = talk.last[1]
            await asyncio.to_thread(served.service.sync.get_topic("t").truncate, 2)
            told = await talk.hear()
            assert (told["is"], told["id"], told["from"]) == ("truncated", 1, 2)
            await append(served.service, "t", "again")
            assert (await talk.until(1, 4))[3:] == [(2, "again")]
            await talk.ask("unsubscribe", 1)
            await talk.ask("subscribe", 2, topic="t", last=before)
            assert (await talk.hear())["from"] == 2
            assert await talk.until(2, 1) == [(2, "again")]

    in_the_loop(run())


def test_a_subscription_that_fails_ends_with_the_problem_and_the_connection_stays(world: SocketWorld) -> None:
    async def run() -> None:
        async with world.served() as served, served.talking() as talk:
            await append(served.service, "t", "one")
            told = await talk.ask("subscribe", 1, topic="t", **{"from": 9})
            assert (told["is"], told["id"], told["error"]["title"]) == ("error", 1, "SeqOutOfRange")
            assert (await talk.ask("subscribe", 1, topic="t"))["is"] == "subscribed"
            await served.service.log.delete_topic("t")
            told = await talk.hear()
            assert (told["is"], told["id"], told["reason"]) == ("end", 1, "error")
            assert told["error"]["title"] == "NoSuchTopic"
            await append(served.service, "t", "two")
            assert (await talk.ask("subscribe", 1, topic="t"))["is"] == "subscribed"  # both are free again

    in_the_loop(run())


def test_a_client_that_was_cut_off_before_its_first_record_misses_none(world: SocketWorld) -> None:
    async def run() -> None:
        async with world.served() as served:
            await append(served.service, "t", "x")
            async with served.talking() as first:
                await first.ask("subscribe", 1, topic="t")
            await append(served.service, "t", "meanwhile")
            async with served.talking() as second:
                await second.ask("subscribe", 1, topic="t", last=first.last[1])
                await append(served.service, "t", "afterwards")
                assert await second.until(1, 2) == [(2, "meanwhile"), (3, "afterwards")]

    in_the_loop(run())


def test_a_record_that_is_appended_as_soon_as_the_client_is_subscribed_comes(
    world: SocketWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_before = messages.said

    async def run() -> None:
        async with world.served() as served, served.talking() as talk:

            def said(kind: str, number: int, **members: object) -> str:
                if kind == "subscribed":
                    served.service.sync.topic("t").append([b"y"])
                return as_before(kind, number, **members)

            await append(served.service, "t", "x")
            monkeypatch.setattr(messages, "said", said)
            assert (await talk.ask("subscribe", 1, topic="t"))["is"] == "subscribed"
            assert await talk.until(1, 1) == [(2, "y")]

    in_the_loop(run())


def test_last_moves_over_hidden_records_so_that_a_client_resumes_after_retention_took_them(
    world: SocketWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "KEEP_ALIVE_S", 0.05)

    async def run() -> None:
        async with world.served() as served, served.talking() as talk:
            await append(served.service, "t", "seen", tag="eu")
            await talk.ask("subscribe", 1, topic="t", tag="eu", **{"from": 1})
            await talk.until(1, 1)
            assert await talk.is_quiet(), "there is nothing to say"
            for count in (2, 3):
                await append(served.service, "t", "hidden", tag="us")
                told = await talk.hear()
                assert (told["is"], told["id"], told["records"]) == ("records", 1, [])
                assert told["last"].endswith(f"-{count}")
                assert await talk.is_quiet(), "it is said once"
            await asyncio.to_thread(served.service.sync.topic("t").evict, 4)
            await append(served.service, "t", "next", tag="eu")
            await talk.until(1, 2)
            await talk.ask("unsubscribe", 1)
            assert (await talk.ask("subscribe", 2, topic="t", tag="eu", last=told["last"]))["is"] == "subscribed"
            assert await talk.until(2, 1) == [(4, "next")]

    in_the_loop(run())


def test_a_client_that_catches_up_with_hidden_records_hears_at_times_how_far_it_is(
    world: SocketWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "KEEP_ALIVE_S", 0.0)

    async def run() -> None:
        async with world.served() as served, served.talking() as talk:
            await append(served.service, "t", *["hidden"] * 2000)
            await talk.ask("subscribe", 1, topic="t", tag="eu", credit=0, **{"from": 1})
            places = [(await talk.hear())["last"].partition("-")[2] for _ in range(4)]
            assert places == ["512", "1024", "1536", "2000"]

    in_the_loop(run())


def test_a_connection_has_32_subscriptions_and_each_topic_once(world: SocketWorld) -> None:
    async def run() -> None:
        async with world.served() as served, served.talking() as talk:
            for number in range(33):
                await append(served.service, f"t{number}", "x")
            for number in range(32):
                assert (await talk.ask("subscribe", number, topic=f"t{number}"))["is"] == "subscribed"
            for number, topic, word in ((32, "t32", "at most 32"), (33, "t0", "has a subscription"), (0, "t32", "id")):
                told = await talk.ask("subscribe", number, topic=topic)
                assert (told["is"], told["id"]) == ("error", number)
                assert word in told["error"]["detail"]
            await append(served.service, "t31", "y")
            assert values_of(await talk.until(31, 1)) == ["y"]

    in_the_loop(run())


# ---------------------------------------------------------------- replicas, and their store


class DeadStore(WrappedStore):
    """A store that answers no read while `is_dead`, until the test ends."""

    is_dead = False
    waiting = 0

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.released = threading.Event()

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        if self.is_dead:
            self.waiting += 1
            assert self.released.wait(60)
            raise unreachable(key)
        return act()


@asynccontextmanager
async def following_replicas(
    world: SocketWorld, names: Sequence[str]
) -> AsyncIterator[tuple[SocketWorld, DeadStore, list[str]]]:
    """Serve replicas, and yield of each the `last` of a client whose commits only the store may know."""
    store = DeadStore(MemoryStore())
    with opened(world.directory / "writer", store) as (log, archive):
        for name in names:
            for value in (b"one", b"two", b"three"):
                ship(archive, log, name, value)
            collect(store, archive.history.snapshot(name).vid, 3)
        async with world.served(store=store, **QUIET) as served:
            found = served.service.archive
            assert found is not None
            lasts = []
            for name in names:
                await asyncio.to_thread(found.replication.sync, name)
                _, snapshot = found.replication.newest(name)
                lasts.append(f"{epoch_of(snapshot.vid, 1)}-1")
            try:
                yield served, store, lasts
            finally:
                store.is_dead = False
                store.released.set()


def test_a_subscription_to_a_replica_begins_and_follows(world: SocketWorld) -> None:
    async def run() -> None:
        async with following_replicas(world, ["r"]) as (served, _, (last,)), served.talking() as talk:
            await talk.say("subscribe", 1, topic="r", credit=1, **{"from": 1})
            await talk.say("credit", 1, records=1)
            told = await talk.hear()
            assert (told["is"], told["topic"]) == ("subscribed", "r")
            assert await talk.until(1, 2) == [(1, "one"), (2, "two")]
            two = talk.last[1]
            for number, members, title in ((2, {"from": 9}, "SeqOutOfRange"), (3, {"cursor": "c"}, "Conflict")):
                await talk.ask("unsubscribe", number - 1)
                told = await talk.ask("subscribe", number, topic="r", **members)
                assert (told["is"], told["id"], told["error"]["title"]) == ("error", number, title)
            await talk.ask("subscribe", 2, topic="r", last=two)
            assert await talk.until(2, 1) == [(3, "three")]
            await talk.ask("unsubscribe", 2)
            told = await talk.ask("subscribe", 3, topic="r", last=last)
            assert (told["is"], told.get("last")) == ("subscribed", None)
            assert ((await talk.hear())["from"], await talk.until(3, 3)) == (1, [(1, "one"), (2, "two"), (3, "three")])

    in_the_loop(run())


def test_a_dead_store_delays_no_other_message_and_no_end_of_its_client(world: SocketWorld) -> None:
    async def run() -> None:
        async with following_replicas(world, ["r", "s"]) as (served, store, lasts):
            async with served.talking() as talk:
                store.is_dead = True
                for number, (topic, last) in enumerate(zip("rs", lasts, strict=True), 1):
                    await talk.say("subscribe", number, topic=topic, last=last)
                await until(lambda: store.waiting > 0, "the store is asked")
                told = await talk.ask("append", 3, topic="t", records=[{"value": "x"}])
                assert told["is"] == "appended"
                told = await talk.ask("subscribe", 4, topic="r")
                assert (told["is"], told["error"]["title"]) == ("error", "InvalidOption"), "r has one, which begins"
                assert store.waiting == 1, "the other one waits for its turn, and holds no thread"
                assert await talk.ask("unsubscribe", 2) == {"is": "unsubscribed", "id": 2}
                assert await talk.ask("unsubscribe", 1) == {"is": "unsubscribed", "id": 1}
                await talk.say("subscribe", 1, topic="r", last=lasts[0])
            await until(lambda: not served.server.server_state.connections, "the connection ends")
            assert not [each for each in asyncio.all_tasks() if "_follow" in repr(each.get_coro())]

    in_the_loop(run())


def test_a_replica_whose_store_fails_is_told_as_an_error_and_its_id_is_free(world: SocketWorld) -> None:
    async def run() -> None:
        async with following_replicas(world, ["r"]) as (served, store, (last,)), served.talking() as talk:
            store.is_dead = True
            store.released.set()
            told = await talk.ask("subscribe", 1, topic="r", last=last)
            assert (told["is"], told["id"], told["error"]["title"]) == ("error", 1, "StoreUnreachable")
            store.is_dead = False
            assert (await talk.ask("subscribe", 1, topic="r", last=last))["is"] == "subscribed"

    in_the_loop(run())


# ---------------------------------------------------------------- appends and acks


def test_an_append_is_that_of_a_post(world: SocketWorld) -> None:
    async def run() -> None:
        async with world.served() as served, served.talking() as talk:
            row = [{"value": "one", "tag": "eu"}, {"value_base64": base64.b64encode(b"\xff").decode(), "tag": "eu"}]
            told = await talk.ask("append", 1, topic="t", records=row, key="k é", node="a")
            assert (told["is"], told["duplicate"], told["first_seq"], told["last_seq"]) == ("appended", False, 1, 2)
            assert [(each.value, each.tag, each.node) for each in served.service.sync.get_topic("t").read()] == [
                (b"one", "eu", "a"),
                (b"\xff", "eu", "a"),
            ]
            again = await talk.ask("append", 2, topic="t", records=row, key="k é", node="a")
            assert (again["duplicate"], again["first_seq"]) == (True, 1)
            batch = {"id": "p", "epoch": 0, "seq": 0}
            told = await talk.ask("append", 3, topic="t", records=[{"value": "x"}], producer=batch, durability="memory")
            assert (told["duplicate"], told["first_seq"]) == (False, 3)
            told = await talk.ask("append", 4, topic="t", records=[{"value": "y"}], producer={**batch, "seq": 5})
            assert (told["is"], told["error"]["title"], told["error"]["expected"]) == ("error", "ProducerGap", 1)
            told = await talk.ask("append", 5, topic="t", records=[{"value": "y"}], if_head=1)
            assert (told["error"]["title"], told["error"]["head_seq"]) == ("HeadMoved", 3)
            told = await talk.ask("append", 6, topic="t", records=[{"value": "y"}], if_incarnation="other")
            assert told["error"]["title"] == "OtherIncarnation"
            told = await talk.ask("append", 7, topic="_streams", records=[{"value": "y"}])
            assert told["error"]["status"] == 409
            told = await talk.ask("append", 8, topic="t", records=[{"value": 7}])
            assert told["error"]["title"] == "InvalidInput"
            big = [{"value": "v" * 1000}] * 3000  # more than a part of a body
            told = await talk.ask("append", 9, topic="t", records=big)
            assert (told["appended"], told["last_seq"]) == (3000, 3003)

    in_the_loop(run())


def test_appends_count_as_requests_and_are_refused_over_the_rate_and_without_a_place(world: SocketWorld) -> None:
    async def run() -> None:
        async with world.served(TENANT_REQUESTS_PER_S="3") as served, served.talking() as talk:
            told = [await talk.ask("append", 1, topic="t", records=[{"value": "x"}]) for _ in range(8)]
            refused = [each["error"]["title"] for each in told if each["is"] == "error"]
            assert refused
            assert {*refused} == {"OverRate"}
            assert served.service.sync.get_topic("t").head_seq == len(told) - len(refused)

    in_the_loop(run())


async def create_cursor(service: Service, topic: str, name: str) -> None:
    await in_threads(service.commands, create, directory_of(service), topic, name, "earliest")


def test_a_cursor_says_where_a_subscription_begins_and_an_ack_goes_to_it(world: SocketWorld) -> None:
    async def run() -> None:
        async with world.served() as served, served.talking() as talk:
            await append(served.service, "t", *"abcde")
            await create_cursor(served.service, "t", "billing")
            await talk.ask("subscribe", 1, topic="t", cursor="billing")
            assert values_of(await talk.until(1, 5)) == [*"abcde"]
            epoch = served.service.sync.get_topic("t").epoch
            told = await talk.ask("ack", 2, topic="t", cursor="billing", seqs=[1, 2, 4], epoch=epoch)
            assert told == {"is": "acked", "id": 2, "last": f"{epoch}-2"}
            told = await talk.ask("ack", 3, topic="t", cursor="billing", seqs=[9], epoch=epoch)
            assert (told["is"], told["id"], told["error"]["title"]) == ("error", 3, "SeqOutOfRange")
            told = await talk.ask("ack", 4, topic="t", cursor="billing", seqs=[5], epoch=epoch + 1)
            assert (told["is"], told["error"]["status"]) == ("error", 409)
            assert await talk.ask("unsubscribe", 1) == {"is": "unsubscribed", "id": 1}
            await talk.ask("subscribe", 5, topic="t", cursor="billing")
            assert await talk.until(5, 2) == [(3, "c"), (5, "e")]

    in_the_loop(run())


def test_after_a_truncation_a_cursor_hides_no_new_record(world: SocketWorld) -> None:
    async def run() -> None:
        async with world.served() as served, served.talking() as talk:
            await append(served.service, "t", *"abcdefg")
            await create_cursor(served.service, "t", "billing")
            epoch = served.service.sync.get_topic("t").epoch
            await talk.ask("ack", 1, topic="t", cursor="billing", seqs=[1, 3, 6], epoch=epoch)
            await talk.ask("subscribe", 2, topic="t", cursor="billing")
            assert values_of(await talk.until(2, 4)) == [*"bdeg"]
            await asyncio.to_thread(served.service.sync.get_topic("t").truncate, 5)
            assert (await talk.hear())["from"] == 5
            await append(served.service, "t", *"EFG")
            assert (await talk.until(2, 7))[4:] == [(5, "E"), (6, "F"), (7, "G")]

    in_the_loop(run())


def test_a_cursor_hides_no_new_record_from_a_client_that_was_not_yet_at_the_cut(world: SocketWorld) -> None:
    async def run() -> None:
        async with world.served() as served, served.talking() as talk:
            topic = served.service.sync.topic("t")
            topic.append([b"old"] * 600)
            await create_cursor(served.service, "t", "billing")
            await talk.ask("ack", 1, topic="t", cursor="billing", seqs=[590], epoch=topic.epoch)
            await talk.ask("subscribe", 2, topic="t", cursor="billing", credit=1)
            assert await talk.until(2, 1) == [(1, "old")]
            await asyncio.to_thread(topic.truncate, 580)
            topic.append([b"new"] * 20)
            await talk.say("credit", 2, records=1000)
            found = await talk.until(2, 599)
            assert [seq for seq, value in found if value == "new"] == [*range(580, 600)]

    in_the_loop(run())


def test_a_message_is_encoded_once_for_all_clients_that_want_the_same(
    world: SocketWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    encode = messages.records

    def counted(number: int, last: object, lines: bytes) -> str:
        encoded.append(number)
        return encode(number, last, lines)

    async def run() -> None:
        async with world.served() as served, AsyncExitStack() as stack:
            await append(served.service, "t", "before")
            talks = [await stack.enter_async_context(served.talking()) for _ in range(6)]
            for number, talk in enumerate(talks):
                await talk.ask("subscribe", 1 + number // 5, topic="t", tag="eu")
            await asyncio.sleep(0.1)  # all wait
            monkeypatch.setattr(messages, "records", counted)
            for count in range(1, 4):
                await append(served.service, "t", "no")
                await append(served.service, "t", "yes", tag="eu")
                for number, talk in enumerate(talks):
                    found = await talk.until(1 + number // 5, count)
                    assert found == [(1 + 2 * each, "yes") for each in range(1, count + 1)]
                    assert talk.last[1 + number // 5].endswith(f"-{1 + 2 * count}")
                await asyncio.sleep(0.02)  # and wait again
                assert sorted(encoded) == [1, 2], "one for each number of a subscription"
                encoded.clear()

    in_the_loop(run())


@pytest.mark.parametrize("topic", ["_seglog.cursors", "_seglog.x@main", "_streams"])
def test_an_append_to_a_topic_of_the_daemon_is_refused(world: SocketWorld, topic: str) -> None:
    async def run() -> None:
        async with world.served() as served, served.talking() as talk:
            told = await talk.ask("append", 1, topic=topic, records=[{"value": "x"}])
            assert (told["is"], told["error"]["status"]) == ("error", 409)

    in_the_loop(run())


def test_each_subscribe_and_each_ack_counts_as_a_request(world: SocketWorld) -> None:
    async def run() -> None:
        async with world.served(TENANT_REQUESTS_PER_S="3") as served, served.talking() as talk:
            for do, members in (
                ("subscribe", {"topic": "nope"}),
                ("ack", {"topic": "nope", "cursor": "c", "seqs": [1], "epoch": 1}),
            ):
                told = [(await talk.ask(do, 1, **members))["error"] for _ in range(8)]
                assert {each["status"] for each in told} == {404, 429}
                await asyncio.sleep(1)

    in_the_loop(run())


def test_an_ack_under_way_has_a_place(world: SocketWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with world.served(SERVE_MAX_REQUESTS="1") as served, served.talking() as one, served.talking() as two:
            await append(served.service, "t", "x")
            begun, ends = asyncio.Event(), asyncio.Event()

            async def ack(*_: Any) -> None:
                begun.set()
                await ends.wait()
                raise InvalidOption("seqs", "as the test wants it")

            monkeypatch.setattr(served.service.cursors, "ack", ack)
            await one.say("ack", 1, topic="t", cursor="c", seqs=[1], epoch=1)
            for do, more in (
                ("ack", {"cursor": "c", "seqs": [1], "epoch": 1}),
                ("subscribe", {}),
                ("append", {"records": []}),
            ):
                told = await two.ask(do, 2, topic="t", **more)
                assert (told["is"], told["error"]["status"]) == ("error", 429)
            ends.set()
            assert (await one.hear())["error"]["status"] == 400
            assert (await two.ask("subscribe", 3, topic="t"))["is"] == "subscribed"

    in_the_loop(run())


def test_an_ack_under_way_counts_as_a_body(world: SocketWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        settings = {"SERVE_MAX_BODIES_BYTES": str(MIB)}
        async with world.served(**settings) as served, served.talking() as one, served.talking() as two:
            ends, acks = asyncio.Event(), list[int]()

            async def ack(_topic: str, _cursor: str, seqs: Sequence[int], _epoch: int) -> EventId:
                acks.append(len(seqs))
                await ends.wait()
                return EventId(1, 1)

            monkeypatch.setattr(served.service.cursors, "ack", ack)
            seqs = [1] * (400 * KIB)  # two characters each, and a space
            await one.say("ack", 1, topic="t", cursor="c", seqs=seqs, epoch=1)
            await until(lambda: acks == [len(seqs)], "the first ack is under way")
            await two.say("ack", 2, topic="t", cursor="c", seqs=seqs, epoch=1)
            assert (await end_of(two.client))[0] == 1013
            ends.set()
            assert (await one.hear())["is"] == "acked"
            async with served.talking() as three:
                assert (await three.ask("ack", 3, topic="t", cursor="c", seqs=seqs, epoch=1))["is"] == "acked"
            assert len(acks) == 2

    in_the_loop(run())


def test_a_long_record_is_made_ready_in_a_thread(world: SocketWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []
    as_before = messages.body_of

    def body_of(wanted: messages.Append) -> bytes:
        threads.append(threading.current_thread() is threading.main_thread())
        return as_before(wanted)

    monkeypatch.setattr(messages, "body_of", body_of)

    async def run() -> None:
        async with world.served() as served, served.talking() as talk:
            for length in (10, 1_000_000):
                told = await talk.ask("append", 1, topic="t", records=[{"value": "v" * length}])
                assert told["is"] == "appended"
            assert threads == [True, False]

    in_the_loop(run())


# ---------------------------------------------------------------- bad messages


@pytest.mark.parametrize(
    ("text", "number", "word"),
    [
        ("{", None, "JSON"),
        ("[" * 100_000, None, "JSON"),
        ("[]", None, "object"),
        ("{}", None, "option do"),
        ('{"do": ["append"], "id": 3}', 3, "option do"),
        ('{"do": "subscribe", "id": 4}', 4, "option topic"),
        ('{"do": "subscribe", "id": true, "topic": "t"}', None, "argument id"),
        ('{"do": "subscribe", "id": 5, "topic": "t", "where": 1}', 5, "where"),
        ('{"do": "subscribe", "id": 5, "topic": "t", "start": 1}', 5, "start"),
        ('{"do": "subscribe", "id": 5, "topic": "t", "from": -1}', 5, "argument from"),
        ('{"do": "subscribe", "id": 5, "topic": "t", "from": 1, "tail": 1}', 5, "second place"),
        ('{"do": "subscribe", "id": 5, "topic": "t", "last": "7"}', 5, "option last"),
        ('{"do": "subscribe", "id": 5, "topic": "t", "last": ""}', 5, "option last"),
        ('{"do": "subscribe", "id": 5, "topic": "t", "exclude_node": "a"}', 5, "argument exclude_node"),
        ('{"do": "subscribe", "id": 5, "topic": "t", "cursor": "c"}', 5, "no cursor c"),
        ('{"do": "subscribe", "id": 5, "topic": "nope"}', 5, "nope"),
        ('{"do": "credit", "id": 6, "records": 1}', 6, "no subscription"),
        ('{"do": "unsubscribe", "id": 6}', 6, "no subscription"),
        ('{"do": "append", "id": 7, "topic": "t", "records": "x"}', 7, "argument records"),
        ('{"do": "append", "id": 7, "topic": "t", "records": [3]}', 7, "line 1"),
        ('{"do": "append", "id": 7, "topic": "t", "records": [], "key": ""}', 7, "Idempotency-Key"),
        ('{"do": "append", "id": 7, "topic": "t", "records": [], "producer": {"id": "p"}}', 7, "option epoch"),
        ('{"do": "append", "id": 7, "topic": "t", "records": [], "producer": 3}', 7, "argument producer"),
        ('{"do": "append", "id": 7, "topic": "t", "records": [], "durability": "none"}', 7, "durability"),
        ('{"do": "append", "id": 7, "topic": "t", "records": [], "durability": ""}', 7, "durability"),
        ('{"do": "credit", "id": 1, "records": 1, "\\ud800": 1}', 1, "unknown"),
        ('{"do": "subscribe", "id": 8, "topic": "t", "exclude_node": [' + '"node",' * 3000 + '"node"]}', 8, "too long"),
        (b"\0", None, "text"),
    ],
)
def test_a_bad_message_gets_an_error_and_the_connection_stays(
    world: SocketWorld, text: str | bytes, number: int | None, word: str
) -> None:
    async def run() -> None:
        async with world.served() as served, served.talking() as talk:
            await append(served.service, "t", "one")
            await talk.client.send(text)
            told = await talk.hear()
            assert (told["is"], told["id"]) == ("error", number)
            assert word in told["error"]["detail"]
            assert 400 <= told["error"]["status"] <= 501
            assert served.service.sync.get_topic("t").head_seq == 1
            await talk.ask("subscribe", 1, topic="t", **{"from": 1})
            assert await talk.until(1, 1) == [(1, "one")]

    in_the_loop(run())


def test_a_message_that_decodes_has_its_members() -> None:
    assert decode('{"do": "credit", "id": 1, "records": 500}') == (1, messages.Credit(1, 500))
    number, found = decode('{"do": "subscribe", "id": 2, "topic": "t", "from": 3, "exclude_node": ["a"], "tag": null}')
    assert (number, found) == (2, messages.Subscribe(2, "t", start=3, exclude_node=("a",)))


def test_a_message_over_the_bound_closes_with_1009(world: SocketWorld) -> None:
    async def run() -> None:
        async with world.served(SERVE_MAX_BODY_BYTES="4096") as served, served.talking() as talk:
            told = await talk.ask("append", 1, topic="t", records=[{"value": "v" * 3900}])
            assert told["is"] == "appended"
            await talk.say("append", 2, topic="t", records=[{"value": "v" * 4097}])
            assert (await end_of(talk.client))[0] == 1009
            assert served.service.sync.get_topic("t").head_seq == 1

    in_the_loop(run())


# ---------------------------------------------------------------- rights, limits, ends


def test_each_topic_needs_its_role(world: SocketWorld) -> None:
    async def run() -> None:
        async with world.served() as served:
            served.reload(("reader", Role.READ, "web"), ("metrics", Role.METRICS, "*"))
            for topic in ("web", "orders"):
                await append(served.service, topic, "x")
            status, problem = await refusal(served.connected("metrics"))
            assert (status, problem["reason"]) == (403, "role")
            async with served.talking("reader") as talk:
                assert (await talk.ask("subscribe", 1, topic="web"))["is"] == "subscribed"
                for do, members in (
                    ("subscribe", {"topic": "orders"}),
                    ("subscribe", {"topic": "nope"}),  # which tells nothing of what there is
                    ("append", {"topic": "web", "records": [{"value": "x"}]}),
                    ("ack", {"topic": "orders", "cursor": "c", "seqs": [1], "epoch": 0}),
                ):
                    told = await talk.ask(do, 2, **members)
                    assert (told["error"]["status"], told["error"]["reason"]) == (403, "role")

    in_the_loop(run())


def test_a_session_takes_the_place_of_a_follower_and_its_query_is_checked(world: SocketWorld) -> None:
    async def run() -> None:
        async with world.served(SERVE_MAX_FOLLOWERS="1") as served:
            async with served.talking():
                status, problem = await refusal(served.connected())
                assert (status, problem["title"]) == (429, "Busy")
            await until(lambda: not served.server.server_state.connections, "the connection is gone")
            status, problem = await refusal(served.connected(path="/ws?topic=t"))
            assert (status, problem["title"]) == (400, "InvalidOption")
            async with served.talking():
                pass

    in_the_loop(run())


@pytest.mark.parametrize(("is_there", "status"), [(True, 426), (False, 501)])
def test_a_get_without_a_websocket_says_what_to_do(
    world: SocketWorld, monkeypatch: pytest.MonkeyPatch, is_there: bool, status: int
) -> None:
    async def run() -> None:
        async with world.served() as served:
            headers = {"Authorization": "Bearer secret-of-stays"}
            if not is_there:
                headers |= {"Connection": "Upgrade", "Upgrade": "websocket"}
                served.server.config.ws_protocol_class = None  # as the daemon then has it
                monkeypatch.setattr(websocket, "find_spec", lambda _: None)
            async with httpx.AsyncClient(trust_env=False) as client:
                answer = await client.get(f"http://127.0.0.1:{served.port}/ws", headers=headers)
            assert answer.status_code == answer.json()["status"] == status
            assert ("seglog[ws]" in answer.json()["hint"]) is not is_there
            assert answer.headers.get("upgrade") == ("websocket" if is_there else None)

    assert util.find_spec("websockets") is not None
    in_the_loop(run())


def test_a_ticket_opens_a_session_which_ends_with_its_token(world: SocketWorld) -> None:
    async def ticket(served: SocketWorld) -> str:
        async with httpx.AsyncClient(trust_env=False) as client:
            headers = {"Authorization": "Bearer secret-of-gone"}
            answer = await client.post(f"http://127.0.0.1:{served.port}/tickets", headers=headers)
        return str(answer.json()["ticket"])

    async def run() -> None:
        async with world.served() as served:
            path = f"/ws?ticket={await ticket(served)}"
            status, problem = await refusal(served.connected("nobody", path[:-1]))
            assert (status, problem["reason"]) == (401, "ticket")
            status, problem = await refusal(served.connected("stays", "/ws?token=secret-of-stays"))
            assert (status, problem["title"]) == (400, "InvalidOption")
            await append(served.service, "t", "one")
            async with served.connected("nobody", path) as first, served.connected("nobody", path) as second:
                for client in (first, second):
                    await Talk(client).ask("subscribe", 1, topic="t")
                served.reload("stays")
                for client in (first, second):
                    assert await end_of(client) == (1008, "revoked")
            status, problem = await refusal(served.connected("nobody", path))
            assert (status, problem["reason"]) == (401, "ticket")

    in_the_loop(run())


async def _flood(service: Service, topic: str, pages: int) -> None:
    """Append pages of 256 KiB, each in one append."""
    for page in range(pages):
        values = [f"{page}-{number} " + "v" * 4 * KIB for number in range(64)]
        await append(service, topic, *values, durability="memory")


def test_a_stop_closes_with_1012_after_whole_messages_and_a_client_resumes_without_a_double(
    world: SocketWorld,
) -> None:
    async def run() -> None:
        async with world.served() as served, served.talking() as talk:
            await append(served.service, "t", "first")
            await talk.ask("subscribe", 1, topic="t", **{"from": 1})
            flooding = asyncio.create_task(_flood(served.service, "t", 40))
            await talk.until(1, 200)
            flooding.cancel()
            await talk.say("append", 2, topic="t", records=[{"value": "mine"}], key="k")
            served.service.stopping.set()
            served.server.end()
            assert await _all_until_the_end(talk) == 1012
        heard.extend(talk.heard[1])
        last = talk.last[1]
        async with world.served() as served, served.talking() as talk:
            again = await talk.ask("append", 2, topic="t", records=[{"value": "mine"}], key="k")
            assert again["is"] == "appended"
            await talk.ask("subscribe", 1, topic="t", last=last)
            head = served.service.sync.get_topic("t").head_seq
            rest = head - heard[-1][0]
            if rest:
                heard.extend(await talk.until(1, rest))
            assert [seq for seq, _ in heard] == list(range(1, head + 1))
            assert values_of(heard).count("mine") == 1

    heard: list[tuple[int, str]] = []
    in_the_loop(run())


async def _all_until_the_end(talk: Talk) -> int | None:
    """Hear all that comes, of which each message has to be whole, and return the code of the close."""
    with suppress(ConnectionClosed):
        while True:
            await talk.hear()
    return talk.client.close_code


def test_a_token_that_lost_a_right_closes_with_1008_after_whole_messages(world: SocketWorld) -> None:
    async def run() -> None:
        async with world.served() as served, served.talking("gone") as gone, served.talking("stays") as stays:
            await append(served.service, "t", "first")
            for talk in (gone, stays):
                await talk.ask("subscribe", 1, topic="t", **{"from": 1})
            flooding = asyncio.create_task(_flood(served.service, "t", 20))
            await gone.until(1, 100)
            served.reload("stays")
            assert await _all_until_the_end(gone) == 1008
            assert gone.client.close_reason == "revoked"
            await flooding
            assert len(await stays.until(1, 1281)) == 1281

    in_the_loop(run())


# ---------------------------------------------------------------- a client that reads nothing


@pytest.mark.long
def test_a_client_that_reads_nothing_costs_no_other_one_anything(
    world: SocketWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    as_before = messages.records

    def counted(number: int, last: object, lines: bytes) -> str:
        encoded.append(number)
        return as_before(number, last, lines)

    monkeypatch.setattr(messages, "records", counted)

    async def run() -> None:
        async with world.served() as served, served.talking() as talk:
            for topic in ("a", "b", "c"):
                await append(served.service, topic, "first")
            reader, writer = await _stuck(served, ("a", "b", "c"))
            assert (await talk.ask("subscribe", 1, topic="a"))["is"] == "subscribed"
            hearing = asyncio.create_task(talk.until(1, 60 * 64))
            for topic in ("a", "b", "c"):
                await _flood(served.service, topic, 60)
            assert len(await hearing) == 60 * 64  # so the appends and this follower went on
            await asyncio.sleep(0.2)
            stuck = len(encoded) - encoded.count(1)
            # 45 MiB came for it: a few pages are in the sockets, and four messages wait.
            buffered = max(each.transport.get_write_buffer_size() for each in served.server.server_state.connections)
            assert buffered < 8 * 300 * KIB
            await _flood(served.service, "b", 5)
            await asyncio.sleep(0.2)
            assert len(encoded) - encoded.count(1) == stuck < 100  # of 180
            writer.transport.abort()
            assert not reader.at_eof()

    in_the_loop(run())


async def _stuck(served: SocketWorld, topics: Sequence[str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a client that subscribes to topics, from 101 on, and reads nothing behind its handshake."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1)
    writer.write(
        b"GET /ws HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret-of-stays\r\nConnection: Upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
        + base64.b64encode(bytes(16))
        + b"\r\n\r\n"
    )
    for number, topic in enumerate(topics, 101):
        text = json.dumps({"do": "subscribe", "id": number, "topic": topic, "from": 1}).encode()
        assert len(text) < 126
        writer.write(bytes([0x81, 0x80 | len(text)]) + bytes(4) + text)  # with an empty mask
    await writer.drain()
    return reader, writer


def test_a_client_that_takes_no_byte_is_cut_off(world: SocketWorld) -> None:
    async def run() -> None:
        async with world.served(SERVE_BODY_TIMEOUT_S="1") as served:
            await _flood(served.service, "a", 60)
            _, writer = await _stuck(served, ["a"])
            await until(lambda: served.rejected("slow"), "the guard counts it")
            await until(lambda: not served.server.server_state.connections, "the connection is cut")
            writer.transport.abort()
            async with served.talking() as talk:
                assert (await talk.ask("subscribe", 1, topic="a"))["is"] == "subscribed"

    in_the_loop(run())


def test_followers_of_the_same_records_share_what_is_encoded(
    world: SocketWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    joins: list[int] = []

    def counting(as_before: Any) -> Any:
        def counted(page: Page, places: list[int]) -> Any:
            joins.append(len(places))
            return as_before(page, places)

        return counted

    joined(monkeypatch, counting)

    async def run() -> None:
        async with world.served() as served, served.talking() as one, served.talking() as two:
            await append(served.service, "t", "before")
            for talk in (one, two):
                await talk.ask("subscribe", 1, topic="t")
            await asyncio.sleep(0.2)  # both wait at the feed
            await append(served.service, "t", "a", "b")
            for talk in (one, two):
                assert values_of(await talk.until(1, 2)) == ["a", "b"]
            assert joins == [2]

    in_the_loop(run())


def test_four_messages_wait_for_a_client_and_no_other_page_is_encoded(tmp_path: Path) -> None:
    waiting: list[int] = []
    told: list[int] = []

    async def run() -> None:
        async with serving(tmp_path / "d", "", None) as service:
            inbox, takes = asyncio.Queue[dict[str, Any]](), asyncio.Event()

            async def send(message: Any) -> None:
                text = json.loads(message["text"])
                if text["is"] == "records":
                    waiting.append(text["id"])
                    await takes.wait()
                    told.append(text["id"])

            for number in range(8):
                await append(service, f"t{number}", "x")
                wanted = {"do": "subscribe", "id": number, "topic": f"t{number}", "from": 1}
                await inbox.put({"type": "websocket.receive", "text": json.dumps(wanted)})
            session = Session(service, append_endpoint(service), {"type": "websocket"}, inbox.get, send)
            task = asyncio.create_task(session.run())
            await until(lambda: len(waiting) >= websocket.MOST_WAITING, "four pages wait")
            await asyncio.sleep(0.2)
            assert len(waiting) == websocket.MOST_WAITING
            takes.set()
            await until(lambda: len(told) == 8, "each subscription has its page")
            assert sorted(told) == list(range(8))
            await inbox.put({"type": "websocket.disconnect"})
            await task
            assert not [each for each in asyncio.all_tasks() if "_follow" in repr(each.get_coro())]

    in_the_loop(run())


@pytest.mark.parametrize("do", ["subscribe", "unsubscribe"])
def test_a_message_behind_the_close_of_the_server_ends_the_session(tmp_path: Path, do: str) -> None:
    """The server closes by itself with 1009 and 1011. What comes behind that is no failure."""

    async def run() -> None:
        async with serving(tmp_path / "d", "", None) as service:
            await append(service, "t", "x")
            inbox = asyncio.Queue[dict[str, Any]]()

            async def send(_: Any) -> None:
                raise RuntimeError("Unexpected ASGI message 'websocket.send', after sending 'websocket.close'.")

            text = json.dumps({"do": do, "id": 1, **({"topic": "t"} if do == "subscribe" else {})})
            await inbox.put({"type": "websocket.receive", "text": text})
            await Session(service, append_endpoint(service), {"type": "websocket"}, inbox.get, send).run()

    in_the_loop(run())


def test_a_subscription_whose_end_waits_for_a_place_ends_with_the_session(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path / "d", "", None) as service:
            await append(service, "t", "x")
            inbox, told = asyncio.Queue[dict[str, Any]](), list[str]()

            async def send(message: Any) -> None:
                told.append(json.loads(message["text"])["is"])
                if told[-1] == "end":
                    await asyncio.Event().wait()  # the client takes nothing

            wanted = {"do": "subscribe", "id": 1, "topic": "t"}
            await inbox.put({"type": "websocket.receive", "text": json.dumps(wanted)})
            session = Session(service, append_endpoint(service), {"type": "websocket"}, inbox.get, send)
            task = asyncio.create_task(session.run())
            await until(lambda: told == ["subscribed"], "it has begun")
            await service.log.delete_topic("t")
            await until(lambda: told == ["subscribed", "end"], "the end waits")
            await inbox.put({"type": "websocket.disconnect"})
            await task
            assert not [each for each in asyncio.all_tasks() if "_follow" in repr(each.get_coro())]

    in_the_loop(run())


# ---------------------------------------------------------------- the page


def test_the_session_of_the_page_is_as_written(world: SocketWorld) -> None:
    section = PAGE.read_text().partition("\n## WebSocket\n")[2]
    lines = section.partition("```text\n")[2].partition("```")[0].splitlines()
    assert len(lines) > 8

    async def run() -> None:
        async with world.served(asks_for_tokens=False) as served, served.talking() as talk:
            for line in lines:
                if line.startswith("> "):
                    await talk.client.send(line[2:])
                else:
                    assert _fits(json.loads(line[2:]), await talk.hear()), line

    in_the_loop(run())


def _fits(shown: Any, found: Any) -> bool:
    """Return whether what a page shows is a part of what came. `…` stands for anything."""
    if isinstance(shown, dict):
        return all(name in found and _fits(value, found[name]) for name, value in shown.items())
    if isinstance(shown, list):
        return len(shown) == len(found) and all(map(_fits, shown, found))
    return bool(shown in ("…", found))
