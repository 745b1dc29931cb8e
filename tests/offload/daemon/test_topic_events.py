"""Test several topics as one stream of events: what comes, in which order, and how a client resumes."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from offload.daemon import merged_news as merged_news_module
from offload.daemon import topic_news as topic_news_module
from offload.daemon.feeds import read_page
from offload.daemon.http import topic_events
from offload.daemon.merged_news import Arrival, FollowedTopic, MergedNews, Position, Syncs
from offload.daemon.threads import in_threads
from offload.daemon.topic_news import Acked, Begin, EventId, News, Truncation
from offload.errors import InvalidOption
from offload.operations.cursor import create
from offload.token_rights import Role
from seglog import Topic, TopicConfig
from tests.offload.daemon.live_answers import Listening, LiveEvent, events_in, listening
from tests.seams.delivery import has_waiters
from tests.worlds.services import directory_of, until

BOTH = "/events?topic=orders:1&topic=web:1"


def run(directory: Path, body: Callable[[Listening], Awaitable[None]], *lines: Any, **more: Any) -> None:
    async def within() -> None:
        async with listening(directory / "place", *lines, **more) as daemon:
            await body(daemon)

    asyncio.run(within())


def shown(events: list[LiveEvent]) -> list[tuple[str, str, str]]:
    return [(each.data["topic"], each.data.get("value", each.name), each.id) for each in events]


def test_a_stream_begins_at_the_head_or_at_a_seq_and_each_id_has_all_topics(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        daemon.append("orders", "o1", "o2")
        daemon.append("web", "w1")
        async with daemon.get("/events?topic=orders:2&topic=web") as stream:
            [first] = await stream.take(1)
            assert stream.raw.startswith(b"retry: 1000\nid: orders:1-1,web:1-1\n\n")
            assert (first.name, first.id) == ("record", "orders:1-2,web:1-1")
            assert first.data == {"topic": "orders", "schema": 1, "kind": "record", "seq": 2,
                                  "ts_ms": first.data["ts_ms"], "value": "o2"}  # fmt: skip
            daemon.append("web", "w2")
            assert shown(await stream.take(1)) == [("web", "w2", "orders:1-2,web:1-2")]
            daemon.append("orders", "o3")
            assert shown(await stream.take(1)) == [("orders", "o3", "orders:1-3,web:1-2")]
        assert stream.answer_headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.answer_headers["cache-control"] == "no-cache"
        assert stream.answer_headers["x-accel-buffering"] == "no"
        assert stream.answer_headers["referrer-policy"] == "no-referrer"

    run(tmp_path, body)


def test_filters_hold_for_all_topics_and_the_position_moves_over_what_they_leave_out(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        for topic in ("orders", "web"):
            daemon.append(topic, "no", tag="us")
            daemon.append(topic, f"{topic} yes", tag="eu")
            daemon.append(topic, "mine", tag="eu", node="me")
            daemon.append(topic, "mine", tag="eu", node="you")
        query = f"{BOTH}&tag=e*&exclude_node=me&exclude_node=you"
        async with daemon.get(query) as stream:
            values = [value for _, value, _ in shown(await stream.take(2))]
            assert sorted(values) == ["orders yes", "web yes"]
            daemon.append("orders", "last", tag="eu")
            assert shown(await stream.take(1)) == [("orders", "last", "orders:1-5,web:1-4")]

    run(tmp_path, body)


def test_the_header_counts_more_than_the_query_and_a_topic_that_neither_has_begins_as_asked(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        daemon.append("orders", "o1", "o2", "o3")
        daemon.append("web", "w1", "w2")
        for query, header, expected in (
            ("&last_event_id=orders:1-2,web:1-2", None, ["o3"]),
            ("&last_event_id=orders:1-2,web:1-2", "orders:1-3,web:1-1", ["w2"]),
            ("&last_event_id=orders:1-1", None, ["o2", "o3", "w1", "w2"]),
            ("", "web:1-2", ["o1", "o2", "o3"]),
        ):
            async with daemon.get(BOTH + query, **({"Last_Event_ID": header} if header else {})) as stream:
                assert sorted(value for _, value, _ in shown(await stream.take(len(expected)))) == expected

    run(tmp_path, body)


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("", "topic"),
        ("topic=", "name"),
        ("topic=orders&topic=orders", "twice"),
        ("topic=orders:1&topic=orders", "twice"),
        ("&".join(f"topic=t{number}" for number in range(33)), "33"),
        ("topic=orders:", "NAME:SEQ"),
        ("topic=orders:x", "NAME:SEQ"),
        ("topic=orders:-1", "NAME:SEQ"),
        ("topic=orders:9223372036854775808", "NAME:SEQ"),
        ("topic=or%20ders", "name"),
        ("topic=orders&gaps=2", "gaps"),
        ("topic=orders&consistency=weak", "strong"),
        ("topic=orders&tag=a&tag=b", "twice"),
        ("topic=orders&tag=%FF", "UTF-8"),
        ("topic=orders&from=1", "from"),
        ("topic=orders&limit=1", "limit"),
        ("topic=orders:1&cursor=c", "seqs"),
        ("topic=orders&last_event_id=x", "Last-Event-ID"),
        ("topic=orders&last_event_id=orders", "Last-Event-ID"),
        ("topic=orders&last_event_id=orders:1", "Last-Event-ID"),
        ("topic=orders&last_event_id=orders:", "Last-Event-ID"),
        ("topic=orders&last_event_id=1-2", "Last-Event-ID"),
        ("topic=orders&last_event_id=web:1-2", "none of the topics"),
        ("topic=orders&last_event_id=orders:1-2,orders:1-2", "Last-Event-ID"),
        ("topic=orders&last_event_id=orders:1-2,", "Last-Event-ID"),
        ("topic=orders&last_event_id=orders:1-99999999999999999999", "Last-Event-ID"),
    ],
)
def test_a_wrong_request_is_refused_with_the_name_of_what_is_wrong(tmp_path: Path, query: str, word: str) -> None:
    async def body(daemon: Listening) -> None:
        daemon.append("orders", "o1")
        status, problem = await daemon.ask(f"/events?{query}")
        assert status == 400, problem
        assert word in f"{problem['detail']} {problem.get('hint')}"

    run(tmp_path, body)


def test_a_topic_that_is_missing_or_a_seq_behind_the_head_is_refused_with_its_status(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        daemon.append("orders", "o1")
        for query, status, title in (
            ("topic=orders&topic=absent", 404, "NoSuchTopic"),
            ("topic=orders:9", 404, "SeqOutOfRange"),
            ("topic=orders@absent", 404, "NoSuchTopic"),
        ):
            found, problem = await daemon.ask(f"/events?{query}")
            assert (found, problem["title"]) == (status, title), problem
        daemon.service.sync.topic("orders").append([b"x"] * 9)
        daemon.service.sync.topic("orders").evict(5)
        status, problem = await daemon.ask("/events?topic=orders:1")
        assert (status, problem["title"]) == (410, "Evicted")
        async with daemon.get("/events?topic=orders:1&gaps=1") as stream:
            [gap] = await stream.take(1)
            assert (gap.name, gap.id) == ("gap", "orders:1-4")
            assert (gap.data["topic"], gap.data["gap_from"], gap.data["gap_to"]) == ("orders", 1, 4)

    run(tmp_path, body)


class Copy:
    """The records of a client, which checks that each comes once and in order."""

    def __init__(self) -> None:
        self.records: dict[str, dict[int, str]] = {}
        self.last: dict[str, int] = {}

    def take(self, event: LiveEvent) -> None:
        topic = event.data["topic"]
        records = self.records.setdefault(topic, {})
        if event.name == "truncated":
            for seq in [each for each in records if each >= event.data["from"]]:
                del records[seq]
            self.last[topic] = event.data["from"] - 1
        elif event.name == "gap":
            assert event.data["gap_from"] == self.last.get(topic, 0) + 1
            self.last[topic] = event.data["gap_to"]
        else:
            assert event.name == "record", event
            assert event.data["seq"] > self.last.get(topic, 0), "a record came twice, or too late"
            records[event.data["seq"]] = event.data["value"]
            self.last[topic] = event.data["seq"]


@pytest.mark.long
def test_a_connection_that_drops_at_any_byte_resumes_without_a_double_or_a_loss(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        daemon.append("orders", "o1", "o2")
        daemon.append("web", "w1")
        async with daemon.get(f"{BOTH}&gaps=1") as stream:
            await stream.take(3)
            daemon.append("web", "w2")
            await stream.take(1)
            daemon.service.sync.topic("orders").truncate(2)
            await stream.take(1)
            daemon.append("orders", "other 2")
            await stream.take(1)
        daemon.append("orders", "last")
        daemon.append("web", "last")
        expected = {
            name: {each.seq: each.value.decode() for each in daemon.service.sync.topic(name).read()}
            for name in ("orders", "web")
        }
        for size in range(len(stream.raw) + 1):
            before, copy = events_in(stream.raw[:size]), Copy()
            for event in before:
                if event.name:
                    copy.take(event)
            last = {"Last_Event_ID": before[-1].id} if before else {}
            async with daemon.get(f"{BOTH}&gaps=1", **last) as again:
                while copy.records != expected:
                    for event in await again.take(1):
                        copy.take(event)

    run(tmp_path, body)


@pytest.mark.parametrize("seed", range(8))
def test_a_client_that_is_cut_at_random_has_each_record_of_a_random_history_once(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    names = ["orders", "web", "clicks"]

    async def change(daemon: Listening) -> None:
        topic = daemon.service.sync.topic(chance.choice(names))
        kind = chance.random()
        if kind < 0.75:
            topic.append([b"%d" % chance.randrange(10**9) for _ in range(chance.randrange(1, 5))])
        elif kind < 0.87 and topic.head_seq > topic.earliest_seq:
            topic.truncate(chance.randrange(topic.earliest_seq, topic.head_seq + 1))
        elif topic.head_seq > topic.earliest_seq:
            topic.evict(chance.randrange(topic.earliest_seq, topic.head_seq + 1))

    async def body(daemon: Listening) -> None:
        for name in names:
            daemon.append(name, "first")
        copy, last = Copy(), ""
        query = "/events?gaps=1&" + "&".join(f"topic={name}:1" for name in names)
        for _ in range(12):
            async with daemon.get(query, **({"Last_Event_ID": last} if last else {})) as stream:
                await stream.begin()
                for _ in range(chance.randrange(8)):
                    await change(daemon)
                    if chance.random() < 0.5:
                        await asyncio.sleep(0.002)
            raw = stream.raw[: chance.randrange(len(stream.raw) + 1)]
            for event in events_in(raw, last):
                last = event.id
                if event.name:
                    copy.take(event)
        for name in names:
            daemon.append(name, "the end")
        async with daemon.get(query, **({"Last_Event_ID": last} if last else {})) as stream:
            ended = set[str]()
            while len(ended) < len(names):
                [event] = await stream.take(1)
                copy.take(event)
                ended |= {event.data["topic"]} if event.data.get("value") == "the end" else set()
        for name in names:
            for record in daemon.service.sync.topic(name).read():
                assert copy.records[name].pop(record.seq) == record.value.decode()
            first = daemon.service.sync.topic(name).earliest_seq
            assert all(seq < first for seq in copy.records[name]), "what is left was evicted later"

    run(tmp_path, body)


def test_a_client_that_is_cut_off_before_its_first_event_misses_nothing(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        daemon.append("orders", "o1")
        async with daemon.get("/events?topic=orders") as stream:
            await stream.begin()
        [block] = events_in(stream.raw)
        daemon.append("orders", "meanwhile")
        async with daemon.get("/events?topic=orders", Last_Event_ID=block.id) as again:
            assert shown(await again.take(1)) == [("orders", "meanwhile", "orders:1-2")]

    run(tmp_path, body)


def test_a_client_that_began_at_an_empty_topic_learns_what_retention_took_since(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        topic = daemon.service.sync.create_topic("orders", TopicConfig())
        async with daemon.get("/events?topic=orders") as stream:
            await stream.begin()
            assert b"id: orders:1-0\n" in stream.raw
        daemon.append("orders", "o1", "o2")
        topic.seal()
        daemon.append("orders", "o3")
        topic.evict(3)
        status, problem = await daemon.ask("/events?topic=orders", Last_Event_ID="orders:1-0")
        assert (status, problem["title"], problem["gap_to"]) == (410, "Evicted", 2)
        async with daemon.get("/events?topic=orders&gaps=1", Last_Event_ID="orders:1-0") as stream:
            assert shown(await stream.take(2)) == [("orders", "gap", "orders:1-2"), ("orders", "o3", "orders:1-3")]
        async with daemon.get("/events?topic=orders", Last_Event_ID="orders:9-1") as stream:
            found = shown(await stream.take(2))
            assert found == [("orders", "truncated", "orders:1-0"), ("orders", "o3", "orders:1-3")], (
                "all is void anyway"
            )

    run(tmp_path, body)


def test_a_silent_stream_gets_a_comment_which_brings_the_position_if_it_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_events, "KEEP_ALIVE_S", 0.05)

    async def body(daemon: Listening) -> None:
        daemon.append("orders", "o1")
        async with daemon.get("/events?topic=orders&tag=eu") as stream:
            await stream.wait_for(lambda: b":\n\n" in stream.raw)
            daemon.append("orders", "another", tag="us")
            await stream.wait_for(lambda: b":\nid: orders:1-2\n\n" in stream.raw)
            await stream.wait_for(lambda: stream.raw.endswith(b":\nid: orders:1-2\n\n:\n\n"))

    run(tmp_path, body)


def test_no_topic_waits_for_more_than_one_page_of_another(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        for _ in range(40):
            daemon.append("orders", "x" * 200_000)
        daemon.append("web", "w1")
        async with daemon.get(BOTH) as stream:
            found = await stream.until(lambda event: event.data["topic"] == "web")
            topics = [each.data["topic"] for each in found]
            assert topics.index("web") <= 2, "the 8 MB of orders come one page at a time"
            stream.stick()
            daemon.append("web", "w2")
            stream.flow()
            await stream.until(lambda event: event.data.get("value") == "w2")

    run(tmp_path, body)


def test_a_client_that_takes_nothing_holds_one_page_of_each_topic_and_no_other_client(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        daemon.append("orders", "o1")
        daemon.append("web", "w1")
        async with daemon.get(BOTH) as stuck, daemon.get("/events?topic=orders&topic=web") as free:
            await stuck.take(2)
            await free.begin()
            stuck.stick()
            for number in range(30):
                daemon.append("orders", f"{number}" * 100_000)
                [event] = await free.take(1)
                assert event.data["seq"] == number + 2
            assert len(stuck.raw) < 2_000_000, "the rest of the 6 MB waits in the log"
            stuck.flow()
            found = await stuck.until(lambda event: event.data["seq"] == 31)
            assert [each.data["seq"] for each in found if each.data["topic"] == "orders"] == list(range(1, 32))

    run(tmp_path, body)


def test_a_topic_reads_on_only_when_the_client_is_done_with_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(daemon: Listening) -> None:
        log = daemon.service.sync
        for name in ("orders", "web"):
            for _ in range(5):
                daemon.append(name, "x" * 300_000)
        followed = {name: FollowedTopic(log.topic(name), Begin(1)) for name in ("orders", "web")}
        seen, reads, goes_on = list[tuple[str, int]](), list[str](), asyncio.Semaphore(0)
        real = topic_news_module.read_page

        def read_page(topic: Any, follower: Any) -> Any:
            reads.append(topic.name)
            return real(topic, follower)

        async def deliver(arrival: Arrival | None) -> bool:
            assert arrival is not None
            assert isinstance(arrival.found, News)
            seen.append((arrival.topic, arrival.found.first_seq))
            await goes_on.acquire()
            return True

        monkeypatch.setattr(topic_news_module, "read_page", read_page)
        async with MergedNews(daemon.service, followed) as news:
            running = asyncio.create_task(news.run(deliver, 60))
            for taken in range(8):
                await until(lambda taken=taken: len(seen) == taken + 1, "the next page")  # type: ignore[misc]
                await asyncio.sleep(0.02)
                assert len(reads) <= taken + 2, "one page of each topic is read and not taken"
                goes_on.release()
            running.cancel()
        assert [seq for name, seq in seen if name == "web"][:4] == [1, 2, 3, 4], "the topics take turns"
        assert [name for name, _ in seen[:4]].count("web") == 2

    run(tmp_path, body)


def test_a_failure_of_the_client_is_none_of_the_topic(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        daemon.append("orders", "o1")
        followed = {"orders": FollowedTopic(daemon.service.sync.topic("orders"), Begin(1))}

        async def deliver(_arrival: Arrival | None) -> bool:
            raise TimeoutError("the client takes nothing")

        async with MergedNews(daemon.service, followed) as news:
            with pytest.raises(TimeoutError, match="takes nothing"):
                await news.run(deliver, 60)

    run(tmp_path, body)


def test_nothing_follows_a_page_that_the_client_took_in_part(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        told: list[Arrival | None] = []
        for topic in ("orders", "web"):
            daemon.append(topic, "one")
        followed = {name: FollowedTopic(daemon.service.sync.topic(name), Begin(1)) for name in ("orders", "web")}

        async def deliver(arrival: Arrival | None) -> bool:
            told.append(arrival)
            await until(lambda: has_waiters(news), "the other topic waits for its turn")
            raise TimeoutError("the client takes nothing more")

        async with MergedNews(daemon.service, followed) as news:
            with pytest.raises(TimeoutError, match="nothing more"):
                await news.run(deliver, 60)
        assert len(told) == 1

    run(tmp_path, body)


def test_a_request_that_is_cancelled_just_as_it_begins_leaves_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(daemon: Listening) -> None:
        daemon.append("orders", "o1")
        before, stream, real = asyncio.all_tasks(), daemon.get("/events?topic=orders:1"), MergedNews.__aenter__

        async def entering(news: MergedNews) -> MergedNews:
            entered = await real(news)
            asyncio.get_running_loop().call_soon(stream.task.cancel)
            return entered

        monkeypatch.setattr(MergedNews, "__aenter__", entering)
        async with stream:
            await stream.end()
            assert stream.status == 0
            assert asyncio.all_tasks() == before

    run(tmp_path, body)


def test_a_topic_that_is_truncated_as_it_begins_has_its_place_in_the_first_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def news(*_: Any) -> Any:
        yield Truncation(2, 7)

    async def body(daemon: Listening) -> None:
        daemon.append("orders", "o1")
        monkeypatch.setattr(merged_news_module, "topic_news", news)
        async with daemon.get("/events?topic=orders") as stream:
            await stream.begin()
            assert stream.raw.startswith(b"retry: 1000\nid: orders:2-6\n\n")

    run(tmp_path, body)


def test_a_strong_follower_waits_for_a_sync_that_began_after_its_record(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        goes_on, begun = threading.Event(), list[int]()

        class Inner:
            def sync(self) -> None:
                begun.append(1)
                goes_on.wait(20)

        topic: Any = SimpleNamespace(inner=Inner())
        syncs = Syncs(daemon.service)
        first = asyncio.create_task(syncs.cover(topic))
        await until(lambda: len(begun) == 1, "the first sync runs")
        later = [asyncio.create_task(syncs.cover(topic)) for _ in range(5)]
        await asyncio.sleep(0.01)
        assert not any(each.done() for each in later)
        goes_on.set()
        await asyncio.gather(first, *later)
        assert len(begun) == 2, "one more for all of them"

    run(tmp_path, body)


def test_each_topic_needs_the_role_read_and_a_refusal_does_not_say_whether_it_exists(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        daemon.append("orders", "o1")
        daemon.append("secret", "s1")
        told = set[str]()
        for name in ("secret", "absent"):
            status, problem = await daemon.ask(f"/events?topic=orders&topic={name}", "reader")
            assert (status, problem["title"]) == (403, "NotAllowed")
            told.add(problem["detail"].replace(name, "X"))
        assert len(told) == 1
        assert (await daemon.ask("/events?topic=orders", "metrics"))[0] == 403
        assert (await daemon.ask("/events?topic=orders"))[0] == 401
        async with daemon.get("/events?topic=orders:1", "reader") as stream:
            await stream.take(1)

    run(tmp_path, body, ("reader", Role.READ, "orders"), ("metrics", Role.METRICS, "*"))


def test_a_stream_ends_once_with_the_reason(tmp_path: Path) -> None:
    lines = (("reader", Role.READ, "*"), ("boss", Role.ADMIN, "*"))

    async def body(daemon: Listening) -> None:
        daemon.append("orders", "o1")
        daemon.append("web", "w1")
        async with daemon.get(BOTH, "reader") as revoked, daemon.get(BOTH, "boss") as stopped:
            async with daemon.get("/events?topic=orders:1&topic=gone:1", "boss") as failed:
                assert (await failed.whole())["title"] == "NoSuchTopic"
            daemon.append("gone", "g1")
            async with daemon.get("/events?topic=orders:1&topic=gone:1", "boss") as failed:
                await failed.take(2)
                daemon.service.sync.delete_topic("gone")
                last = (await failed.end())[-1]
                assert (last.name, last.data["reason"], last.data["topic"]) == ("end", "error", "gone")
                assert last.data["error"]["error"] == "NoSuchTopic"
            await revoked.take(2)
            await stopped.take(2)
            daemon.reload(lines[1])
            assert [each.data for each in await revoked.end() if each.name == "end"] == [{"reason": "revoked"}]
            daemon.service.stopping.set()
            assert [each.data for each in await stopped.end() if each.name == "end"] == [{"reason": "stopping"}]
            status, problem = await daemon.ask(BOTH, "boss")
            assert (status, problem["title"]) == (503, "Stopping")

    run(tmp_path, body, *lines)


def test_followers_of_several_topics_take_one_place_each(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        daemon.append("orders", "o1")
        daemon.append("web", "w1")
        async with daemon.get(BOTH) as stream:
            await stream.take(2)
            status, problem = await daemon.ask(BOTH)
            assert (status, problem["title"]) == (429, "Busy")
        async with daemon.get(BOTH) as stream:
            await stream.take(2)

    run(tmp_path, body, max_followers=1)


def test_a_strong_follower_sees_what_a_sync_covers_and_no_ephemeral_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[str] = []

    async def body(daemon: Listening) -> None:
        log = daemon.service.sync
        log.create_topic("memory", TopicConfig(durability="memory"))
        log.create_topic("lost", TopicConfig(durability="ephemeral"))
        daemon.append("memory", "m1")
        status, problem = await daemon.ask("/events?topic=memory&topic=lost&consistency=strong")
        assert status == 400
        assert "ephemeral" in problem["detail"]
        inner = type(log.topic("memory").inner)
        real = inner.sync

        def sync(self: Any) -> None:
            syncs.append(self.name)
            real(self)

        monkeypatch.setattr(inner, "sync", sync)
        async with (
            daemon.get("/events?topic=memory:1&consistency=strong") as strong,
            daemon.get("/events?topic=memory:1") as eventual,
        ):
            assert shown(await eventual.take(1)) == shown(await strong.take(1)) == [("memory", "m1", "memory:1-1")]
            assert syncs == ["memory"]
            daemon.append("memory", "in memory only", durability="ephemeral")
            daemon.append("memory", "m3")
            assert [value for _, value, _ in shown(await eventual.take(2))] == ["in memory only", "m3"]
            assert shown(await strong.take(1)) == [("memory", "m3", "memory:1-3")]
            monkeypatch.setattr(inner, "sync", _fails)
            daemon.append("memory", "m4")
            [last] = await strong.take(1)
            assert (last.name, last.data["reason"]) == ("end", "error"), "no sync covers m4"

    run(tmp_path, body)


def test_the_first_id_of_a_strong_follower_names_no_seq_that_a_power_cut_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(daemon: Listening) -> None:
        log, ends = daemon.service.sync, threading.Event()
        log.create_topic("memory", TopicConfig(durability="memory"))
        daemon.append("memory", "m1")
        monkeypatch.setattr(type(log.topic("memory").inner), "sync", lambda _: ends.wait(20))
        async with daemon.get("/events?topic=memory&consistency=strong") as stream:
            await asyncio.sleep(0.1)
            assert stream.raw == b""
            ends.set()
            await stream.begin()
            assert b"id: memory:1-1\n" in stream.raw

    run(tmp_path, body)


def _fails(_topic: Any) -> None:
    raise OSError(5, "the disk does not sync")


def test_strong_followers_share_their_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    async def body(daemon: Listening) -> None:
        daemon.append("orders", "o1")
        inner = type(daemon.service.sync.topic("orders").inner)
        real = inner.sync
        monkeypatch.setattr(inner, "sync", lambda self: (calls.append(1), real(self))[1])
        streams = [daemon.get("/events?topic=orders&consistency=strong") for _ in range(20)]
        for each in streams:
            await each.__aenter__()
            await each.begin()
        calls.clear()
        daemon.append("orders", "o2")
        for each in streams:
            await each.take(1)
        assert 1 <= len(calls) <= 4
        for each in streams:
            await each.leave()

    run(tmp_path, body)


class Cursors:
    """Cursors of a table: a place, and what is acked above it."""

    def __init__(self, places: dict[tuple[str, str], tuple[int, int, set[int]]]) -> None:
        self._places = places

    async def begin(self, topic: Topic, name: str) -> tuple[EventId, Acked]:
        if (topic.name, name) not in self._places:
            raise InvalidOption("cursor", f"{topic.name} has no cursor {name}")
        epoch, floor, above = self._places[topic.name, name]
        return EventId(epoch, floor), Acked(topic, above, epoch)


def test_a_cursor_says_where_each_topic_begins_and_what_it_acked_is_left_out(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        daemon.append("orders", "o1", "o2", "o3", "o4")
        daemon.append("web", "w1", "w2")
        cursors = Cursors({("orders", "billing"): (1, 1, {3}), ("web", "billing"): (1, 1, set())})
        daemon.service.cursors = cursors  # type: ignore[attr-defined]
        async with daemon.get("/events?topic=orders&topic=web&cursor=billing") as stream:
            found = shown(await stream.take(3))
            assert sorted(value for _, value, _ in found) == ["o2", "o4", "w2"]
            assert found[-1][2] == "orders:1-4,web:1-2"
        async with daemon.get("/events?topic=orders&topic=web&cursor=billing", Last_Event_ID="orders:1-3") as stream:
            assert sorted(value for _, value, _ in shown(await stream.take(2))) == ["o4", "w2"]
        status, problem = await daemon.ask("/events?topic=orders&cursor=other")
        assert (status, "no cursor other" in problem["detail"]) == (400, True)

    run(tmp_path, body)


def test_records_that_come_after_a_truncation_are_shown_whatever_was_acked_before(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        daemon.append("orders", "o1", "o2", "o3", "o4", "o5")
        await in_threads(daemon.service.commands, create, directory_of(daemon.service), "orders", "billing", "earliest")
        await daemon.service.cursors.ack("orders", "billing", [2, 4], 1)
        async with daemon.get("/events?topic=orders&cursor=billing") as stream:
            assert [value for _, value, _ in shown(await stream.take(3))] == ["o1", "o3", "o5"]
            daemon.service.sync.topic("orders").truncate(4)
            daemon.append("orders", "n4", "n5")
            assert shown(await stream.take(3)) == [
                ("orders", "truncated", "orders:2-3"), ("orders", "n4", "orders:2-4"), ("orders", "n5", "orders:2-5"),
            ]  # fmt: skip
        acked = Acked(daemon.service.sync.topic("orders"), {2, 4}, 1)
        assert [seq for seq in range(1, 6) if seq in acked.in_epoch(2)] == [2], "an ack below the cut counts"

    run(tmp_path, body)


def test_what_was_collected_under_pressure_comes_as_one_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(daemon: Listening) -> None:
        daemon.append("orders", "o1", "o2", "o3")
        daemon.append("web", "w1")
        async with daemon.get("/events?topic=orders:1&topic=web") as stream:
            [event] = await stream.take(1)
            assert (event.name, event.id) == ("records", "orders:1-3,web:1-1")
            assert [(each["topic"], each["seq"], each["value"]) for each in event.data] == [
                ("orders", 1, "o1"), ("orders", 2, "o2"), ("orders", 3, "o3"),
            ]  # fmt: skip
            daemon.append("web", "w2")
            [event] = await stream.take(1)
            assert event.name == "record", "one record needs no array"

    monkeypatch.setattr(
        topic_news_module, "read_page", lambda *of: dataclasses.replace(read_page(*of), is_collected=True)
    )
    run(tmp_path, body)


def test_a_head_request_tells_the_form_and_waits_for_nothing(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        daemon.append("orders", "o1")
        async with daemon.get("/events?topic=orders", method="HEAD") as answer:
            assert await answer.whole() == b""
            assert answer.status == 200

    run(tmp_path, body)


@pytest.mark.parametrize("text", ["orders:3-812,web:1-77", "web:1-77", "", "orders@try:1-0"])
def test_a_position_is_printed_as_it_was_parsed(text: str) -> None:
    assert str(Position.of(text, ["orders", "orders@try", "web"])) == text


def test_the_parts_around_a_topic_make_the_id() -> None:
    position = Position(["a", "b", "c"], {"a": EventId(1, 2), "b": EventId(3, 4), "c": EventId(5, 6)})
    for name in "abc":
        before, behind = position.around(name)
        assert f"{before.decode()}{position.places[name]}{behind.decode()}" == str(position)
    assert json.dumps(str(Position(["a", "b"], {"b": EventId(1, 2)}))) == '"b:1-2"'
