"""Test a service in this process under pressure: pauses, collected pages, larger groups of appends, and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from catalog.objects.memory import MemoryStore
from offload.daemon.feeds import Page
from offload.daemon.http import direct, make_app
from offload.daemon.service import Service
from offload.daemon.topic_news import Begin, News, begin_news, topic_news
from offload.token_rights import EVERYTHING, RIGHTS_KEY
from seglog import NoSuchTopic, Record, TopicConfig
from seglog.client.bodies import LINES_TYPE
from tests.worlds.services import serving, until

_BYTES = {"content-type": "application/octet-stream"}


class World:
    """A service with one slot, which the test holds as long as it wants the feeds to wait."""

    def __init__(self, service: Service, client: httpx.AsyncClient) -> None:
        self.service = service
        self.client = client
        self.ready = service.feeds.ready
        self.pages: dict[str, list[Page]] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def follow(self, name: str, priority: int = 0, *, auto: bool = False) -> None:
        """Make a topic, and follow it from its head."""
        await self.service.log.create_topic(name, TopicConfig(priority=priority, auto_priority=auto))
        await self.service.log.topic(name).append([b"first"])
        self.tasks.append(asyncio.create_task(self._follow(name)))
        await until(lambda: name in self.pages, f"{name} is followed")

    async def _follow(self, name: str) -> None:
        topic = self.service.sync.topic(name)
        start = await begin_news(self.service, topic, Begin(), None)
        async with aclosing(topic_news(self.service, topic, Begin(), start)) as news:
            async for found in news:
                assert isinstance(found, News)
                self.pages.setdefault(name, []).append(found.page)

    def values(self, name: str) -> list[bytes]:
        return [item.value for page in self.pages[name] for item in page.items if isinstance(item, Record)]

    async def press(self) -> None:
        """Take the slot, and let feeds wait until the pressure is 1."""
        await self.ready.take("held")
        self.tasks += [asyncio.create_task(self._wait(f"waits {number}")) for number in range(2)]
        await until(lambda: self.ready.is_full, "the pressure is 1")

    async def _wait(self, key: str) -> None:
        await self.ready.take(key)
        self.ready.give_back()

    async def append(self, name: str, query: str = "") -> httpx.Response:
        return await self.client.post(f"/topics/{name}/records{query}", content=b"x", headers=_BYTES)


@asynccontextmanager
async def _world(directory: Path, **variables: str) -> AsyncIterator[World]:
    given = {"SERVE_DELIVERY_SLOTS": "1", **variables}
    async with serving(directory, MemoryStore(), **given) as service:
        app_of_service = direct(make_app(service))

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await app_of_service({**scope, RIGHTS_KEY: EVERYTHING}, receive, send)

        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            world = World(service, client)
            try:
                yield world
            finally:
                for task in world.tasks:
                    task.cancel()
                await asyncio.gather(*world.tasks, return_exceptions=True)


def run(directory: Path, work: Callable[[World], Awaitable[None]], **variables: str) -> None:
    async def whole() -> None:
        async with _world(directory, **variables) as world:
            await work(world)

    asyncio.run(whole())


def test_a_negative_priority_is_paused_and_read_meanwhile_and_goes_on(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        await world.follow("low", -100)
        await world.follow("high", 500)
        await world.press()
        assert (await world.append("low")).status_code == 201
        await until(lambda: world.ready.paused == 1, "the feed is paused")
        assert (await world.append("high")).status_code == 201
        read = await world.client.get("/topics/low/records?from=2", headers={"accept": "application/x-ndjson"})
        assert (read.status_code, read.json()["value"]) == (200, "x")
        [shown] = [each for each in await _status(world, "low") if each.get("topic", each.get("name")) == "low"]
        assert shown["delivery_paused"].startswith("its priority is -100, and the pressure is 1.00")
        assert all("delivery_paused" not in each for each in await _status(world, "high"))
        await until(lambda: world.ready.waiting(3) == 1, "the feed waits for a slot")
        metrics = (await world.client.get("/metrics")).text.splitlines()
        assert "seglog_delivery_pressure 1.0" in metrics
        assert "seglog_delivery_paused_topics 1.0" in metrics
        bands = ("B3", "B4")  # its age lifts it after 2.5 s, on a busy machine
        assert any(f'seglog_delivery_ready_feeds{{band="{band}"}} 1.0' in metrics for band in bands)
        assert world.values("low") == [b"first"]
        world.ready.give_back()
        await until(lambda: world.values("high") == [b"first", b"x"], "the other topic has its news")
        await until(lambda: world.values("low") == [b"first", b"x"], "the pause ends")
        await until(lambda: world.ready.pressure == 0.0, "the pressure ends")
        assert (await world.append("low")).status_code == 201
        await until(lambda: world.values("low") == [b"first", b"x", b"x"], "news come again")
        assert all("delivery_paused" not in each for each in await _status(world, "low"))

    run(tmp_path / "data", work)


async def _status(world: World, topic: str) -> list[dict[str, Any]]:
    answer = await world.client.post("/rpc/status", json={"topic": topic})
    assert answer.status_code == 200, answer.text
    return [httpx.Response(200, content=line).json() for line in answer.text.splitlines()]


def test_a_page_under_pressure_is_collected_and_others_are_not(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        await world.follow("t")
        assert (await world.append("t")).status_code == 201
        await until(lambda: len(world.pages["t"]) >= 3, "a page without pressure")
        await world.press()
        for _ in range(5):
            assert (await world.append("t", "?disable_backpressure=1")).status_code == 201
        await until(lambda: world.ready.waiting(1) == 3, "its feed waits")
        world.ready.give_back()
        await until(lambda: len(world.values("t")) == 7, "the page comes")
        assert [page.is_collected for page in world.pages["t"] if page.items] == [False, False, True]
        assert len(world.pages["t"][-1].items) == 5

    run(tmp_path / "data", work)


def test_a_feed_whose_last_follower_leaves_waits_no_more(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        await world.follow("low", -1)
        await world.press()
        await world.append("low")
        await until(lambda: world.ready.paused == 1, "the feed is paused")
        world.tasks[0].cancel()
        await until(lambda: world.ready.paused == 0, "the feed is gone")
        world.ready.give_back()

    run(tmp_path / "data", work)


def test_consumption_lifts_a_topic_with_auto_priority(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        await world.follow("auto", auto=True)
        await world.follow("plain")
        for number in range(30):
            await world.append("auto")
            await world.append("plain")
            await until(lambda number=number: len(world.values("auto")) == number + 2, "a page")
        assert 20 < world.ready.boost("auto") <= 75
        assert world.ready.boost("plain") == 0

    run(tmp_path / "data", work)


def test_appends_wait_under_pressure_and_their_answers_say_so(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        await world.follow("t")
        calm = (await world.append("t")).headers["server-timing"]
        assert calm.startswith("sync;dur=")
        assert "throttle" not in calm
        assert float(calm.partition("=")[2]) > 0
        await world.press()
        throttled = await asyncio.gather(*(world.append("t") for _ in range(3)))
        for answer in throttled:
            sync, throttle = answer.headers["server-timing"].split(", ")
            assert sync.startswith("sync;dur=")
            assert 0 < float(throttle.removeprefix("throttle;dur=")) <= 10
        assert world.service.log.queue.waited_s > 0
        empty = await world.client.post("/topics/t/records", content=b"", headers={"content-type": LINES_TYPE})
        assert (empty.json()["appended"], "throttle" in empty.headers["server-timing"]) == (0, False)
        world.ready.give_back()
        await until(lambda: world.ready.pressure == 0.0, "the pressure ends")
        assert "throttle" not in (await world.append("t")).headers["server-timing"]

    run(tmp_path / "data", work)


def test_at_full_pressure_and_a_full_queue_appends_are_refused_unless_they_wait(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        await world.follow("t")
        queue = world.service.log.queue
        queue.group_wait_s = lambda: 0.5  # so that an append waits in the queue
        first = asyncio.create_task(world.append("t"))
        await until(lambda: queue.is_full, "the queue is full")
        assert (await asyncio.gather(first, world.append("t")))[1].status_code == 201, "without pressure it waits"
        await world.press()
        first = asyncio.create_task(world.append("t"))
        await until(lambda: queue.is_full, "the queue is full")
        refused = await world.append("t")
        put = await world.client.put("/topics/t/records", content=b"x", headers=_BYTES)
        for answer in (refused, put):
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
            assert answer.json()["detail"] == "the daemon has reached its limit log.queue_max_bytes, at pressure 1"
        waits = await world.append("t", "?disable_backpressure=1")
        assert (waits.status_code, (await first).status_code) == (201, 201)
        head = world.service.sync.topic("t").head_seq
        assert head == 5, "what was refused is not there"
        metrics = (await world.client.get("/metrics")).text
        assert 'seglog_http_rejected_total{reason="pressure"} 2.0' in metrics
        wrong = await world.append("t", "?disable_backpressure=maybe")
        assert (wrong.status_code, wrong.json()["title"]) == (400, "InvalidOption")

    run(tmp_path / "data", work, LOG_QUEUE_MAX_BYTES="1")


def test_a_late_follower_is_counted(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        await world.follow("t")
        topic = world.service.sync.topic("t")
        await world.append("t")
        await until(lambda: len(world.values("t")) == 2, "the feed goes on")
        await asyncio.sleep(0.05)  # and waits for the next append
        assert await world.service.feeds.wait(topic, topic.epoch, 1) is None
        assert "seglog_delivery_late_followers_total 1.0" in (await world.client.get("/metrics")).text

    run(tmp_path / "data", work)


def test_the_slots_are_a_live_setting(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        await world.ready.take("held")
        asked = asyncio.create_task(world.ready.take("next"))
        await asyncio.sleep(0.06)
        assert not asked.done()
        world.service.reload({"SEGLOG_SERVE_DELIVERY_SLOTS": "2"})
        await until(asked.done, "the second slot")
        for _ in range(2):
            world.ready.give_back()

    run(tmp_path / "data", work)


@pytest.mark.parametrize(
    ("values", "config"), [({"priority": -250}, (-250, False)), ({"priority": 7, "auto_priority": "on"}, (7, True))]
)
def test_a_topic_gets_its_priority_over_http(tmp_path: Path, values: dict[str, Any], config: tuple[int, bool]) -> None:
    async def work(world: World) -> None:
        for path, name in (("create", "made"), ("set", "set")):
            if path == "set":
                await world.append(name)
            answer = await world.client.post(f"/topics/{name}/rpc/topic/{path}", json=values)
            assert answer.status_code == 200, answer.text
            found = world.service.sync.topic(name).config
            assert (found.priority, found.auto_priority) == config
        for bad in ({"priority": -251}, {"priority": 1001}, {"priority": 0.5}, {"auto_priority": "yes"}):
            answer = await world.client.post("/topics/made/rpc/topic/set", json=bad)
            assert answer.status_code == 400, (bad, answer.text)
        assert world.service.sync.topic("made").config.priority == config[0]

    run(tmp_path / "data", work)


def test_a_topic_whose_priority_is_no_more_negative_goes_on_under_the_same_pressure(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        for name in ("low", "lower"):
            await world.follow(name, -100)
        await world.press()
        for name in ("low", "lower"):
            await world.append(name)
        await until(lambda: world.ready.paused == 2, "both feeds are paused")
        answer = await world.client.post("/topics/low/rpc/topic/set", json={"priority": 0})
        assert answer.status_code == 200, answer.text
        await until(lambda: world.ready.paused == 1, "the feed waits for a slot")
        assert world.ready.waiting(1) == 3
        assert world.ready.is_full
        world.ready.give_back()
        await until(lambda: world.values("low") == [b"first", b"x"], "its news come")
        await until(lambda: world.values("lower") == [b"first", b"x"], "the pause ends")

    run(tmp_path / "data", work)


def test_the_end_of_a_paused_topic_ends_its_followers(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        await world.follow("low", -100)
        await world.press()
        await world.append("low")
        await until(lambda: world.ready.paused == 1, "the feed is paused")
        await world.service.log.delete_topic("low")
        await until(lambda: world.ready.paused == 0, "the feed waits for a slot")
        world.ready.give_back()
        await until(world.tasks[0].done, "its follower ends")
        assert isinstance(world.tasks[0].exception(), NoSuchTopic)

    run(tmp_path / "data", work)
