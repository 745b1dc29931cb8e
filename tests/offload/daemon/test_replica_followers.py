"""Test followers of the records of a replica: they get each commit that a sync brings, and the ids of a replica."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from catalog import Snapshot
from catalog.objects import MemoryStore, ObjectStore
from offload.archive import Archive
from offload.daemon.asgi import App
from offload.daemon.clients import for_checked_clients
from offload.daemon.credential_files import Access
from offload.daemon.http import direct, make_app
from offload.daemon.http.followers import follow
from offload.daemon.http.read_request import Choice, Form, RangeQuery
from offload.daemon.request_limits import Guard
from offload.daemon.request_log import entrance
from offload.daemon.service import Service
from offload.replica_topic import ReplicaTopic
from offload.replication.replica_follower import Epochs, epoch_of
from offload.settings import ServeSettings
from offload.token_rights import Role, token_line
from seglog import Log
from seglog.client.connections import Answer as AnswerHead
from seglog.client.reading import Reading
from seglog.client.requests import Asked
from tests.faults.store import CountingStore, Fault, FaultyStore, unreachable
from tests.offload.daemon.events_of import Event, EventDecoder
from tests.offload.replicas import collect, opened, ship
from tests.seams.proxy import look_at_remote
from tests.worlds.proxies import QUIET
from tests.worlds.services import serving, until


@dataclass
class Writer:
    """The directory that writes the topic `t`, and its store."""

    log: Log
    archive: Archive
    store: MemoryStore = field(default_factory=MemoryStore)

    def ship(self, *given: bytes, name: str = "t", tag: str | None = None) -> None:
        ship(self.archive, self.log, name, *given, tag=tag)

    def truncate(self, seq: int) -> None:
        self.archive.truncate("t", seq)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    with _writing(tmp_path) as writer:
        yield writer


@contextmanager
def _writing(tmp_path: Path) -> Iterator[Writer]:
    store = MemoryStore()
    with opened(tmp_path / "writer", store) as (log, archive):
        yield Writer(log, archive, store)


class Answered:
    """A request to the application of a daemon, and its answer as it comes."""

    def __init__(self, app: App, target: str, headers: dict[str, str]) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self._decoder = EventDecoder()
        self._events: list[Event] = []
        self._came = asyncio.Event()
        path, _, query = target.partition("?")
        scope: dict[str, Any] = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "http_version": "1.1",
            "query_string": query.encode(), "root_path": "", "state": {}, "scheme": "http",
            "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
            "headers": [(b"host", b"127.0.0.1"), *((name.encode(), text.encode()) for name, text in headers.items())],
        }  # fmt: skip
        self.task = asyncio.create_task(self._run(app, scope))

    async def _run(self, app: App, scope: dict[str, Any]) -> None:
        given = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> dict[str, Any]:
            if not given:
                await asyncio.Event().wait()
            return given.pop()

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.headers = {name.decode(): text.decode() for name, text in message["headers"]}
            self.body += message.get("body", b"")
            self._events += self._decoder.feed(message.get("body", b""))
            self._came.set()

        try:
            await app(scope, receive, send)
        finally:
            self._came.set()

    async def events(self, count: int) -> list[Event]:
        """Return the next events. Fewer mean that the answer has ended."""
        async with asyncio.timeout(10):
            while len(self._events) < count and not self.task.done():
                self._came.clear()
                await self._came.wait()
        taken, self._events = self._events[:count], self._events[count:]
        return taken

    async def ended(self) -> list[dict[str, Any]]:
        """Return the JSON lines of the whole answer."""
        async with asyncio.timeout(10):
            await self.task
        return [json.loads(line) for line in self.body.splitlines()]

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@dataclass
class Proxy:
    """A proxy in this process. `look` syncs what it follows."""

    service: Service
    app: App
    access: Access
    asked: list[Answered] = field(default_factory=list)

    def look(self) -> None:
        look_at_remote(self.service)

    def ask(self, target: str, **headers: str) -> Answered:
        answer = Answered(self.app, target, {name.lower().replace("_", "-"): text for name, text in headers.items()})
        self.asked.append(answer)
        return answer

    async def follow(self, query: str = "", **headers: str) -> Answered:
        answer = self.ask(f"/topics/t/records?follow=1&{query}", Accept="text/event-stream", **headers)
        await until(lambda: answer.status != 0, "the head of the answer")
        return answer

    async def idle(self, count: int) -> None:
        """Wait until so many followers wait, and the feed is at the head."""
        await until(lambda: _value(self.service) == count, "followers")
        await asyncio.sleep(0.02)


def _value(service: Service) -> float:
    [metric] = service.metrics.http_followers.collect()
    return metric.samples[0].value


@asynccontextmanager
async def proxy_of(
    directory: Path, store: ObjectStore, settings: ServeSettings | None = None, **variables: str
) -> AsyncIterator[Proxy]:
    access = Access(settings or ServeSettings())
    async with serving(directory, store, None, **{"SERVE_PROXY": "true", **QUIET, **variables}) as service:
        guard = Guard(direct(make_app(service)), lambda: service.settings, service.metrics, service.quota)
        app = for_checked_clients(
            guard.known, lambda: settings or service.settings, lambda: access.tokens, lambda _: None,
            access.open_answers,
        )  # fmt: skip
        proxy = Proxy(service, entrance(app, service), access)
        proxy.look()
        try:
            yield proxy
        finally:
            await asyncio.gather(*(each.leave() for each in proxy.asked if not service.stopping.is_set()))


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def awaited() -> None:
        await work()

    asyncio.run(awaited())


def told(events: list[Event]) -> list[tuple[str, int | str]]:
    """Return the name of each event, and its value, the seq it has, or its reason."""
    found: list[tuple[str, int | str]] = []
    for event in events:
        data = json.loads(event.data)
        found.append((event.name, data.get("value", data.get("from", data.get("gap_to", data.get("reason"))))))
    return found


def records(*given: str) -> list[tuple[str, int | str]]:
    return [("record", value) for value in given]


def test_each_sync_brings_a_follower_the_new_records_once(tmp_path: Path, writer: Writer) -> None:
    async def work() -> None:
        writer.ship(b"one", b"two")
        async with proxy_of(tmp_path / "proxy", writer.store) as proxy:
            answer = await proxy.follow("from=2")
            assert (answer.status, answer.headers["cache-control"]) == (200, "no-cache")
            assert told(await answer.events(1)) == records("two")
            lines = proxy.ask("/topics/t/records?follow=1&tag=x*&limit=2")
            await proxy.idle(2)
            writer.ship(b"three", tag="xa")
            writer.ship(b"four", tag="y")
            proxy.look()
            events = await answer.events(2)
            assert told(events) == records("three", "four")
            vid = writer.archive.history.snapshot("t").vid
            assert [event.id for event in events] == [f"{epoch_of(vid, 3)}-{seq}" for seq in (3, 4)]
            writer.ship(b"five", tag="xb")
            proxy.look()
            assert told(await answer.events(1)) == records("five")
            assert [line["value"] for line in await lines.ended()] == ["three", "five"]

    run(work)


def test_a_client_continues_after_its_last_id_at_a_restarted_proxy_and_at_another_one(
    tmp_path: Path, writer: Writer
) -> None:
    async def work() -> None:
        writer.ship(b"one")
        async with proxy_of(tmp_path / "proxy", writer.store) as proxy:
            answer = await proxy.follow()
            await answer.events(1)
            for value in (b"two", b"three"):
                writer.ship(value)
                proxy.look()
                [last] = await answer.events(1)
        collect(writer.store, writer.archive.history.snapshot("t").vid, 3)
        for number in range(20):  # more than come one by one
            writer.ship(b"more %d" % number)
        for directory in ("proxy", "other"):
            async with proxy_of(tmp_path / directory, writer.store) as proxy:
                answer = await proxy.follow("from=1", Last_Event_ID=last.id)
                assert told(await answer.events(3)) == records("more 0", "more 1", "more 2")

    run(work)


def test_a_truncation_is_an_event_and_for_lines_an_error(tmp_path: Path, writer: Writer) -> None:
    async def work() -> None:
        writer.ship(b"one", b"two", b"three")
        async with proxy_of(tmp_path / "proxy", writer.store) as proxy:
            answer = await proxy.follow()
            seen = await answer.events(3)
            lines = proxy.ask("/topics/t/records?follow=1")
            waits = proxy.ask("/topics/t/records?from=4&wait_s=50")
            await proxy.idle(3)
            before = (await _head(proxy))["seglog-epoch"]
            writer.truncate(2)
            writer.ship(b"other", b"more")
            proxy.look()
            events = await answer.events(3)
            assert told(events) == [("truncated", 2), *records("other", "more")]
            after = (await _head(proxy))["seglog-epoch"]
            assert (events[0].id, before != after) == (f"{after}-1", True)
            error = (await lines.ended())[-1]["error"]
            assert (error["error"], error["seq"], error["epoch"]) == ("Truncated", 2, int(after))
            assert [(each["title"], each["status"]) for each in await waits.ended()] == [("Truncated", 409)]
            for last, expected in (
                (seen[0].id, records("other", "more")),
                (seen[2].id, [("truncated", 2), *records("other", "more")]),
                (events[1].id, records("more")),
            ):
                again = await proxy.follow(Last_Event_ID=last)
                assert told(await again.events(len(expected))) == expected
            refused = proxy.ask("/topics/t/records?follow=1", Last_Event_ID=seen[2].id)
            assert [each["title"] for each in await refused.ended()] == ["Truncated"]
        async with proxy_of(tmp_path / "proxy", writer.store) as proxy:  # the commits tell, also after a restart
            again = await proxy.follow(Last_Event_ID=seen[2].id)
            assert told(await again.events(2)) == [("truncated", 2), *records("other")]

    run(work)


async def _head(proxy: Proxy) -> dict[str, str]:
    answer = proxy.ask("/topics/t/records?from=1&wait_s=1")
    await answer.ended()
    return answer.headers


def test_a_read_in_parts_goes_on_at_a_proxy_with_another_number_of_the_epoch(tmp_path: Path, writer: Writer) -> None:
    async def work() -> None:
        writer.ship(b"one", b"two")
        read, epochs = Reading("t", Asked()), set[str]()
        for directory in ("proxy", "other"):
            async with proxy_of(tmp_path / directory, writer.store) as proxy:
                answer = proxy.ask("/topics/t/records")
                await answer.ended()
                assert (answer.status, answer.headers["seglog-head"]) == (200, str(len(epochs) + 2))
                read = read.begun(AnswerHead(answer.status, answer.headers))
                epochs.add((await _head(proxy))["seglog-epoch"])
                writer.ship(b"more")
        assert len(epochs) == 2

    run(work)


def test_the_tail_is_that_of_the_state_in_which_the_follower_begins(tmp_path: Path, writer: Writer) -> None:
    async def work() -> None:
        writer.ship(b"one", b"two", b"three")
        async with proxy_of(tmp_path / "proxy", writer.store) as proxy:
            assert proxy.service.archive is not None
            topic = ReplicaTopic(proxy.service.archive, "t")
            writer.truncate(2)
            proxy.look()
            query = RangeQuery(None, None, 0, None, Choice(), 2, None, gaps=False, follow=True, wait_s=0)
            answer = follow(proxy.service, topic, query, Form.LINES, None)
            assert await anext(answer) == b""  # it waits for the record after the head
            writer.ship(b"other", b"more")
            proxy.look()
            async with asyncio.timeout(10):
                lines = b"".join([piece async for piece in answer]).splitlines()
            assert [json.loads(line)["value"] for line in lines] == ["other", "more"]

    run(work)


class Cut:
    """The epochs of names whose states the test gives. Commits are looked up in `looked`, and none is here."""

    def __init__(self, first: Snapshot) -> None:
        self.first = first
        self.states: dict[str, Snapshot] = {}
        self.looked: Callable[[], object] = lambda: None
        local = SimpleNamespace(has_commits=lambda *_: bool(self.looked()) and False)
        replicas: Any = SimpleNamespace(is_replica=lambda _: True)
        context: Any = SimpleNamespace(local=local)
        self.epochs = Epochs(context, replicas, self.states.__getitem__, lambda *_: 1)

    def newest(self, name: str, lsn: int) -> int:
        """Return the LSN at which the epoch begins in which the newest state of the name is."""
        self.states[name] = replace(self.first, lsn=lsn)
        return self.epochs.newest(name)[0] - epoch_of(self.first.vid, 0)


def test_the_names_that_were_used_last_keep_their_epochs(writer: Writer) -> None:
    writer.ship(b"one")
    cut = Cut(writer.archive.history.snapshot("t"))
    assert [cut.newest(name, 1) for name in ("kept", "left")] == [1, 1]
    for number in range(63):
        cut.newest(f"other-{number}", 1)
        assert cut.newest("kept", number + 2) == 1
    assert cut.newest("left", 2) == 2  # the epoch that it had is forgotten


def test_a_look_at_the_commits_of_one_name_holds_up_no_other_name(writer: Writer) -> None:
    writer.ship(b"one")
    cut = Cut(writer.archive.history.snapshot("t"))
    assert cut.newest("slow", 1) == 1
    is_inside, may_end = threading.Event(), threading.Event()

    def look() -> None:
        is_inside.set()
        may_end.wait(1)

    cut.looked = look
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(cut.newest, "slow", 2)
        assert is_inside.wait(5)
        assert cut.newest("other", 1) == 1
        cut.looked = lambda: None
        assert cut.newest("slow", 3) == 1
        assert not slow.done()
        may_end.set()
        assert slow.result() == 1
    cut.states["slow"] = cut.first  # as a slower look found it
    assert cut.epochs.newest("slow")[1].lsn == 3  # what the faster one took in stays


def test_deletes_leave_records_out_and_an_eviction_is_a_gap(tmp_path: Path, writer: Writer) -> None:
    async def work() -> None:
        writer.ship(b"one")
        async with proxy_of(tmp_path / "proxy", writer.store) as proxy:
            answer = await proxy.follow("from=2")
            gaps = await proxy.follow("from=2&gaps=1")
            await proxy.idle(2)
            writer.ship(b"two", b"three", b"four")
            writer.archive.delete("t", seqs=[3])
            proxy.look()
            assert told(await answer.events(2)) == records("two", "four")
            assert told(await gaps.events(2)) == records("two", "four")
            writer.ship(b"five", b"six")
            writer.archive.evict("t", 6)
            proxy.look()
            assert told(await gaps.events(2)) == [("gap", 5), *records("six")]
            [end] = await answer.events(1)
            assert json.loads(end.data)["error"]["error"] == "Evicted"
            again = await proxy.follow("from=1")
            assert again.status == 410

    run(work)


def test_a_promoted_branch_takes_the_records_above_its_fork_away(tmp_path: Path, writer: Writer) -> None:
    async def work() -> None:
        writer.ship(b"one", b"two")
        writer.archive.restore("t", to="seq:1", name="fix")
        writer.ship(b"other", name="t@fix")
        async with proxy_of(tmp_path / "proxy", writer.store) as proxy:
            answer = await proxy.follow()
            seen = await answer.events(2)
            await proxy.idle(1)
            writer.archive.branches.promote_branch("t", "fix", keep="was", leave=True)
            proxy.look()
            events = await answer.events(2)
            assert told(events) == [("truncated", 2), *records("other")]
            again = await proxy.follow(Last_Event_ID=events[1].id)
            writer.archive.replication.sync("t")
            writer.archive.replication.take_over("t")
            writer.ship(b"next")
            proxy.look()
            assert told(await again.events(1)) == records("next")
        async with proxy_of(tmp_path / "proxy", writer.store) as proxy:  # nothing tells what a former volume had
            again = await proxy.follow(Last_Event_ID=seen[1].id)
            assert told(await again.events(2)) == [("truncated", 1), *records("one")]

    run(work)


def test_a_jump_behind_a_collection_tells_no_truncation_that_was_none(tmp_path: Path, writer: Writer) -> None:
    async def work() -> None:
        writer.ship(b"one")
        async with proxy_of(tmp_path / "proxy", writer.store) as proxy:
            answer = await proxy.follow()
            await answer.events(1)
            await proxy.idle(1)
            for number in range(20):
                writer.ship(b"more %d" % number)
            collect(writer.store, writer.archive.history.snapshot("t").vid, 20)
            proxy.look()
            assert told(await answer.events(20)) == records(*(f"more {number}" for number in range(20)))
            await proxy.idle(1)
            writer.truncate(15)
            for number in range(20):
                writer.ship(b"other %d" % number)
            collect(writer.store, writer.archive.history.snapshot("t").vid, 41)
            proxy.look()
            assert told(await answer.events(2)) == [("truncated", 15), *records("other 0")]

    run(work)


def test_a_follower_ends_once_the_name_is_gone_or_the_daemon_writes_it(tmp_path: Path, writer: Writer) -> None:
    async def work() -> None:
        writer.ship(b"one")
        writer.archive.restore("t", to="head", name="gone")
        async with proxy_of(tmp_path / "proxy", writer.store) as proxy:
            branch = proxy.ask("/topics/t@gone/records?follow=1")
            answer = await proxy.follow()
            await answer.events(1)
            await proxy.idle(2)
            writer.archive.branches.delete_branch("t", "gone")
            proxy.look()
            proxy.look()
            assert (await branch.ended())[-1]["error"]["error"] == "NoSuchTopic"
            archive = proxy.service.archive
            assert archive is not None
            await asyncio.to_thread(archive.replication.take_over, "t")
            assert told(await answer.events(1)) == [("end", "stopping")]
            own = await proxy.follow("from=2")
            await asyncio.to_thread(proxy.service.sync.topic("t").append, [b"two"])
            assert told(await own.events(1)) == records("two")

    run(work)


def test_while_the_store_is_away_a_follower_is_quiet_and_then_goes_on(tmp_path: Path, writer: Writer) -> None:
    async def work() -> None:
        writer.ship(b"one")
        faulty = FaultyStore(writer.store, [])
        async with proxy_of(tmp_path / "proxy", faulty) as proxy:
            answer = await proxy.follow()
            await answer.events(1)
            waits = proxy.ask("/topics/t/records?from=2&wait_s=1")
            await proxy.idle(2)
            writer.ship(b"two")
            faulty.fail([Fault(method="get_with_etag", error=unreachable)])
            proxy.look()
            assert proxy.service.works.of("t").sync_error is not None
            assert (await waits.ended(), waits.status, waits.headers["seglog-next-seq"]) == ([], 200, "2")
            assert not answer.task.done()
            faulty.fail([])
            proxy.look()
            assert told(await answer.events(1)) == records("two")

    run(work)


def test_many_that_wait_hold_no_thread_and_one_read_serves_all(tmp_path: Path, writer: Writer) -> None:
    async def work() -> None:
        writer.ship(b"one")
        counting = CountingStore(writer.store)
        limit = {"SERVE_MAX_FOLLOWERS": "40"}
        async with proxy_of(tmp_path / "proxy", counting, **limit) as proxy:
            waits = [proxy.ask("/topics/t/records?from=2&wait_s=60&exclude_node=me") for _ in range(20)]
            follows = [await proxy.follow("from=2") for _ in range(20)]
            await proxy.idle(40)
            refused = proxy.ask("/topics/t/records?from=2&wait_s=60")
            assert [each["title"] for each in await refused.ended()] == ["Busy"]
            await until(lambda: not proxy.service.has_work, "no thread works")
            names = [each.name for each in threading.enumerate()]
            assert len([name for name in names if name.startswith("seglog-cold")]) <= 16
            assert not [name for name in names if name.startswith("seglog-read")]  # those are for hot reads
            writer.archive.open_for_append("t").append([b"mine"], node="me")
            writer.ship(b"two")
            counting.counts.clear()
            proxy.look()
            of_sync = counting.counts.total()
            assert {line["value"] for each in waits for line in await each.ended()} == {"two"}
            assert {each.headers["seglog-next-seq"] for each in waits} == {"4"}
            for each in follows:
                assert told(await each.events(2)) == records("mine", "two")
            assert counting.counts.total() - of_sync <= 4  # the segment and its index, once

    run(work)


def test_a_revoked_follower_and_a_stop_end_the_stream(tmp_path: Path, writer: Writer) -> None:
    async def work() -> None:
        writer.ship(b"one")
        tokens = tmp_path / "tokens"
        settings = ServeSettings(token_file=str(tokens))

        def give(*names: str) -> None:
            lines = (token_line(name, Role.READ, "t", f"secret-of-{name}-0123456789") for name in names)
            tokens.write_text("".join(f"{line}\n" for line in lines))
            tokens.chmod(0o600)

        give("stays", "gone")
        async with proxy_of(tmp_path / "proxy", writer.store, settings) as proxy:
            gone = await proxy.follow("from=2", Authorization="Bearer secret-of-gone-0123456789")
            stays = await proxy.follow("from=2", Authorization="Bearer secret-of-stays-0123456789")
            assert (await proxy.follow()).status == 401
            await proxy.idle(2)
            give("stays")
            proxy.access.reload(settings, [])
            assert told(await gone.events(1)) == [("end", "revoked")]
            proxy.service.stopping.set()
            assert told(await stays.events(1)) == [("end", "stopping")]

    run(work)


def test_a_client_that_knows_more_than_the_proxy_asks_again_and_gets_nothing_old(
    tmp_path: Path, writer: Writer
) -> None:
    async def work() -> None:
        writer.ship(b"one", b"two")
        async with (
            proxy_of(tmp_path / "late", writer.store) as late, proxy_of(tmp_path / "proxy", writer.store) as proxy,
        ):  # fmt: skip
            writer.truncate(2)
            writer.ship(b"other", b"more")
            proxy.look()
            [_, _, last] = await (await proxy.follow()).events(3)
            refused = await late.follow(Last_Event_ID=last.id)
            assert (refused.status, "retry-after" in refused.headers) == (503, True)
            late.look()
            writer.ship(b"next")
            late.look()
            again = await late.follow(Last_Event_ID=last.id)
            assert told(await again.events(1)) == records("next")
            ahead = f"{(await _head(late))['seglog-epoch']}-5"  # the epoch began before record 5
            refused = await late.follow(Last_Event_ID=ahead)
            assert (refused.status, "retry-after" in refused.headers) == (503, True)
            assert (await late.follow("from=6")).status == 404
            writer.ship(b"five", b"six")
            late.look()
            again = await late.follow(Last_Event_ID=ahead)
            assert told(await again.events(1)) == records("six")

    run(work)
