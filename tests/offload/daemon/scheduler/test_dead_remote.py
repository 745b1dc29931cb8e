"""Test that followers of replicas, whose remote does not answer, delay no follower and no append of a local topic."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from catalog.objects import MemoryStore
from catalog.objects.wrapped import T, WrappedStore
from offload.daemon.service import Service
from offload.daemon.topic_news import Begin, News, topic_news
from offload.replica_topic import ReplicaTopic
from seglog import Record, Topic, TopicConfig
from tests.faults.store import unreachable
from tests.offload.replicas import opened, ship
from tests.seams.proxy import look_at_remote
from tests.worlds.proxies import QUIET
from tests.worlds.services import serving, until

_REPLICAS = 20  # more than slots, and more than threads of cold reads


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
        async with aclosing(topic_news(service, topic, Begin(), None)) as news:
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
