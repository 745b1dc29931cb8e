"""Test that followers of replicas, whose remote does not answer, delay no follower and no append of a local topic.

In a daemon of many tenants, those of another tenant do the same work as without them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from catalog.objects import MemoryStore
from catalog.objects.wrapped import T, WrappedStore
from offload.daemon import feeds
from offload.daemon import topic_news as topic_news_module
from offload.daemon.feeds import Page, read_page
from offload.daemon.scheduler.slots import ReadySet, Slots
from offload.daemon.service import Service
from offload.daemon.topic_news import Begin, News, begin_news, topic_news
from offload.replica_topic import ReplicaTopic
from seglog import Record, Topic, TopicConfig
from tests.faults.store import unreachable
from tests.offload.replicas import opened, ship
from tests.seams.proxy import look_at_remote
from tests.worlds.proxies import QUIET
from tests.worlds.services import serving, until

_REPLICAS = 20  # more than slots, and more than threads of cold reads
_NAMES = ("high", "low")


class SilentSegments(WrappedStore):
    """A store that gives no segment while `is_silent`, until the test ends."""

    is_silent = False
    waiting = 0

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.release = threading.Event()

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        if self.is_silent:
            self.waiting += 1
            assert self.release.wait(60)
            raise unreachable(key)
        return act()


@pytest.fixture
def store() -> Iterator[SilentSegments]:
    made = SilentSegments(MemoryStore())
    yield made
    made.release.set()


class Followed:
    """The values that followers have."""

    def __init__(self) -> None:
        self.values: dict[str, list[bytes]] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def begin(self, service: Service, topic: Topic | ReplicaTopic) -> None:
        self.tasks.append(asyncio.create_task(self._follow(service, topic)))
        await until(lambda: topic.name in self.values, f"{topic.name} is followed")

    async def _follow(self, service: Service, topic: Topic | ReplicaTopic) -> None:
        start = await begin_news(service, topic, Begin(), None)
        async with aclosing(topic_news(service, topic, Begin(), start)) as news:
            async for found in news:
                assert isinstance(found, News)
                values = [item.value for item in found.page.items if isinstance(item, Record)]
                self.values.setdefault(topic.name, []).extend(values)

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def test_a_remote_that_does_not_answer_delays_no_local_topic(tmp_path: Path, store: SilentSegments) -> None:
    async def work() -> None:
        names = [f"r{number}" for number in range(_REPLICAS)]
        with opened(tmp_path / "writer", store) as (log, archive):
            for name in names:
                ship(archive, log, name, b"one")
            async with serving(tmp_path / "here", store, None, **QUIET) as service:
                followed = Followed()
                assert service.archive is not None
                for name in names:
                    await asyncio.to_thread(service.archive.replication.sync, name)
                    await followed.begin(service, ReplicaTopic(service.archive, name))
                for name, priority in (("high", 500), ("low", -100)):
                    await service.log.create_topic(name, TopicConfig(priority=priority))
                    await service.log.topic(name).append([b"0"])
                    await followed.begin(service, service.sync.topic(name))
                await asyncio.sleep(0.1)  # all wait
                for name in names:
                    ship(archive, log, name, b"two")
                look_at_remote(service)
                store.is_silent = True
                try:
                    await until(lambda: store.waiting > 0, "the remote is asked")
                    await asyncio.sleep(0.3)
                    for number in range(1, 6):
                        for name in ("high", "low"):
                            await service.log.topic(name).append([b"%d" % number])
                        await asyncio.sleep(0.05)
                    expected = [b"%d" % each for each in range(6)]
                    assert followed.values["high"] == followed.values["low"] == expected
                    ready, cold_ready = service.feeds.ready, service.feeds.cold_ready
                    assert (ready.pressure, ready.group_wait_s()) == (0.0, 0.0)
                    assert cold_ready.pressure == 1.0
                    assert sum(cold_ready.waiting(band) for band in range(5)) == _REPLICAS - 4
                finally:
                    await followed.end()
                    store.release.set()

    asyncio.run(work())


class Work:
    """What the followers of one tenant do: the slots that their feeds took, the pages that were read, and the bytes."""

    def __init__(self, service: Service) -> None:
        self.ready = service.feeds.ready
        self.slots = self.pages = self.bytes = 0


@pytest.fixture
def count_work(monkeypatch: pytest.MonkeyPatch) -> Callable[[Service], Work]:
    def count(service: Service) -> Work:
        work, take = Work(service), ReadySet.take

        async def counted_take(ready: ReadySet, *given: Any) -> None:
            await take(ready, *given)
            work.slots += ready is work.ready

        def counted_page(topic: Topic | ReplicaTopic, *given: Any, **named: Any) -> Page | None:
            page = read_page(topic, *given, **named)
            if topic.name in _NAMES and page is not None:
                work.pages += 1
                work.bytes += sum(map(len, page.lines))
            return page

        monkeypatch.setattr(ReadySet, "take", counted_take)
        for module in (feeds, topic_news_module):
            monkeypatch.setattr(module, "read_page", counted_page)
        return work

    return count


async def deliver(service: Service, work: Work) -> tuple[int, int, int]:
    """Append records, each once all six followers have the one before, and return the work for that."""
    followed = Followed()
    for name, priority in zip(_NAMES, (500, -100), strict=True):
        await service.log.create_topic(name, TopicConfig(priority=priority))
        for _ in range(3):
            await followed.begin(service, service.sync.topic(name))
    await asyncio.sleep(0.1)  # all wait
    before = work.slots, work.pages, work.bytes
    try:
        for number in range(1, 11):
            for name in _NAMES:
                await service.log.topic(name).append([b"%d" % (1000 + number)])
            await until(lambda: all(len(followed.values[name]) == 3 * number for name in _NAMES), "all have it")  # noqa: B023
            await asyncio.sleep(0.02)  # and wait again
    finally:
        await followed.end()
    return work.slots - before[0], work.pages - before[1], work.bytes - before[2]


def test_the_followers_of_a_tenant_do_the_same_work_beside_one_with_a_dead_store(
    tmp_path: Path, store: SilentSegments, count_work: Callable[[Service], Work]
) -> None:
    async def alone() -> tuple[int, int, int]:
        async with serving(tmp_path / "alone", MemoryStore(), None, Slots(lambda: 4), **QUIET) as globex:
            return await deliver(globex, count_work(globex))

    async def beside_a_dead_one() -> tuple[int, int, int]:
        slots, names = Slots(lambda: 4), [f"r{number}" for number in range(_REPLICAS)]
        with opened(tmp_path / "writer", store) as (log, archive):
            for name in names:
                ship(archive, log, name, b"one")
            async with (
                serving(tmp_path / "acme", store, None, slots, **QUIET) as acme,
                serving(tmp_path / "globex", MemoryStore(), None, slots, **QUIET) as globex,
            ):
                followed, work = Followed(), count_work(globex)
                assert acme.archive is not None
                for name in names:
                    await asyncio.to_thread(acme.archive.replication.sync, name)
                    await followed.begin(acme, ReplicaTopic(acme.archive, name))
                await asyncio.sleep(0.1)
                for name in names:
                    ship(archive, log, name, b"two")
                look_at_remote(acme)
                store.is_silent = True
                try:
                    await until(lambda: store.waiting > 0, "the remote is asked")
                    await until(lambda: acme.feeds.cold_ready.pressure == 1.0, "its followers wait")
                    found = await deliver(globex, work)
                    assert acme.feeds.cold_ready.pressure == 1.0, "they wait still"
                    assert (globex.feeds.ready.pressure, globex.feeds.cold_ready.pressure) == (0.0, 0.0)
                    return found
                finally:
                    await followed.end()
                    store.release.set()

    without = asyncio.run(alone())
    assert without[0] >= without[1] >= 20, "each record of a topic is a page, in a slot of its own"
    assert asyncio.run(beside_a_dead_one()) == without
