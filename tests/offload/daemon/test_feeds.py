"""Test the feeds: the news of topics, of a log in this process. Wake-ups and thread jobs are counted."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import seglog
from offload.daemon.feeds import Feeds, Page
from offload.daemon.stopping import StopEvent
from offload.errors import Stopping
from seglog import Log, Topic
from tests.seams.log import waiters_of


class CountingPool(ThreadPoolExecutor):
    jobs = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.jobs += 1
        return super().submit(fn, *args, **kwargs)


class CountingSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """A selector that counts how often the event loop wakes."""

    waits = 0

    def select(self, timeout: float | None = None) -> Any:
        self.waits += 1
        return super().select(timeout)


class World:
    def __init__(self, log: Log) -> None:
        self.log = log
        self.topic = log.create_topic("t")
        self.pool = CountingPool(2)
        self.stopping = StopEvent()
        self.feeds = Feeds(self.pool, self.stopping)
        self.selector = CountingSelector()

    def run(self, work: Callable[[], Awaitable[None]]) -> None:
        loop = asyncio.SelectorEventLoop(self.selector)
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(_awaited(work))

    def followers(self, count: int, seq: int) -> list[asyncio.Task[Page | None]]:
        epoch = self.topic.epoch
        return [asyncio.create_task(self.feeds.wait(self.topic, epoch, seq)) for _ in range(count)]

    async def settled(self) -> None:
        """Wait until the topic has the waiter of a feed."""
        while not waiters_of(self.log, "t"):
            await asyncio.sleep(0.001)


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with _world(tmp_path) as made:
        yield made


@contextmanager
def _world(place: Path) -> Iterator[World]:
    with seglog.open(place / "data") as log:
        world = World(log)
        with world.pool:
            yield world


def append(topic: Topic, *values: bytes) -> Awaitable[range]:
    return asyncio.to_thread(topic.append, values)


def test_1000_idle_followers_wake_nothing_and_an_append_is_read_once_for_all(world: World) -> None:
    async def work() -> None:
        followers = world.followers(1000, 1)
        await world.settled()
        await asyncio.sleep(0.2)  # the result of the job that registered the waiter comes
        jobs, waits = world.pool.jobs, world.selector.waits
        await asyncio.sleep(1.1)
        assert (world.pool.jobs - jobs, world.selector.waits - waits) in {(0, 1), (0, 2)}
        assert len(waiters_of(world.log, "t")) == 1
        await append(world.topic, b"a", b"b")
        pages = await asyncio.gather(*followers)
        assert world.pool.jobs - jobs == 1
        [page] = set(pages)
        assert page is not None
        assert (page.first_seq, page.next_seq, len(page.lines)) == (1, 3, 2)

    world.run(work)


def test_while_a_page_is_handed_out_the_event_loop_does_other_work(world: World) -> None:
    async def work() -> None:
        followers = world.followers(1000, 1)
        await world.settled()
        done: list[int] = []

        async def other() -> None:
            while not all(each.done() for each in followers):
                done.append(sum(each.done() for each in followers))
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        await append(world.topic, b"a")
        await asyncio.gather(*followers, beside)
        steps = [after - before for before, after in pairwise(done)]
        assert max(steps) <= 128

    world.run(work)


def test_a_follower_behind_its_feed_looks_for_itself(world: World) -> None:
    async def work() -> None:
        await append(world.topic, b"a")
        [follower] = world.followers(1, 2)
        await world.settled()
        assert await world.feeds.wait(world.topic, world.topic.epoch, 1) is None
        follower.cancel()

    world.run(work)


def test_a_feed_ends_with_its_last_follower(world: World) -> None:
    async def work() -> None:
        followers = world.followers(3, 1)
        await world.settled()
        for each in followers:
            each.cancel()
        await asyncio.gather(*followers, return_exceptions=True)
        while waiters_of(world.log, "t"):
            await asyncio.sleep(0.001)
        [again] = world.followers(1, 1)
        await world.settled()
        await append(world.topic, b"a")
        page = await again
        assert page is not None
        assert page.next_seq == 2

    world.run(work)


@pytest.mark.parametrize(
    "change", [lambda log: log.topic("t").truncate(1), lambda log: log.delete_topic("t"), lambda log: log.close()]
)
def test_after_a_truncation_a_deletion_and_a_close_each_follower_looks_for_itself(
    world: World, change: Callable[[Log], None]
) -> None:
    async def work() -> None:
        await append(world.topic, b"a")
        followers = world.followers(3, 2)
        await world.settled()
        await asyncio.to_thread(change, world.log)
        assert await asyncio.gather(*followers) == [None] * 3

    world.run(work)


def test_a_follower_of_a_former_epoch_gets_no_record_of_the_new_one(world: World) -> None:
    async def work() -> None:
        await append(world.topic, b"a", b"b")
        former = world.topic.epoch
        await asyncio.to_thread(world.topic.truncate, 2)
        await append(world.topic, b"new")
        assert await world.feeds.wait(world.topic, former, 2) is None

    world.run(work)


def test_all_followers_end_when_the_daemon_stops_and_none_begins(world: World) -> None:
    async def work() -> None:
        followers = world.followers(200, 1)
        await world.settled()
        await asyncio.to_thread(world.stopping.set)
        found = await asyncio.gather(*followers, return_exceptions=True)
        assert {type(each) for each in found} == {Stopping}
        with pytest.raises(Stopping):
            await world.feeds.wait(world.topic, world.topic.epoch, 1)
        while waiters_of(world.log, "t"):
            await asyncio.sleep(0.001)

    world.run(work)


def test_followers_see_each_record_once_while_others_append(world: World) -> None:
    async def follow(count: int) -> list[int]:
        found: list[int] = []
        seq = 1
        while len(found) < count:
            page = await world.feeds.wait(world.topic, world.topic.epoch, seq)
            if page is None:
                new = [each.seq for each in await asyncio.to_thread(list, world.topic.read(seq))]
            else:
                new = [each.seq for each in page.items if each.seq >= seq]  # type: ignore[union-attr]
            found += new
            seq += len(new)
            await asyncio.sleep(0.0001 * (seq % 7))
        return found

    async def work() -> None:
        followers = [asyncio.create_task(follow(400)) for _ in range(20)]
        for number in range(200):
            await append(world.topic, b"%d" % number, b"x")
        assert await asyncio.gather(*followers) == [list(range(1, 401))] * 20

    world.run(work)


def test_listeners_of_a_stop_are_called_once_also_late_ones() -> None:
    stopping, called = StopEvent(), list[int]()
    stopping.listen(lambda: called.append(1))
    stopping.set()
    stopping.set()
    stopping.listen(lambda: called.append(2))
    assert called == [1, 2]


def test_a_page_keeps_what_is_made_of_it_for_16_keys_at_most() -> None:
    page, made = Page(1, 1, 2, (), ()), list[int]()

    def make(key: int) -> bytes:
        made.append(key)
        return b"%d" % key

    for _ in range(2):
        assert [page.cached(key, lambda key=key: make(key)) for key in range(20)] == [b"%d" % key for key in range(20)]  # type: ignore[misc]
    assert made == [*range(20), *range(16, 20)]
