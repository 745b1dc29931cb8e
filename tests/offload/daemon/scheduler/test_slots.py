"""Test the slots of a process in an event loop, with a clock of the test: who gets one, and what runs meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from offload.daemon.scheduler.slots import ReadySet, Slots
from tests.seams.delivery import timer_of


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class World:
    def __init__(self, count: int = 1) -> None:
        self.clock = Clock()
        self.count = count
        self.slots = Slots(lambda: self.count, self.clock)
        self.ready = self.slots.ready_set()
        self.served: list[object] = []

    def ask(self, key: str, priority: int = 0, ready: ReadySet | None = None, pages: int = 1) -> asyncio.Task[None]:
        return asyncio.create_task(self._read(ready or self.ready, key, priority, pages))

    async def _read(self, ready: ReadySet, key: str, priority: int, pages: int) -> None:
        for _ in range(pages):
            await ready.take(key, priority)
            try:
                self.served.append(key)
                await asyncio.sleep(0)
            finally:
                ready.give_back()

    async def ticks(self, until: Callable[[], bool]) -> None:
        """Let the clock go on with each tick of the slots, until `until` returns True."""
        for _ in range(60):
            if until():
                return
            await asyncio.sleep(0.055)
            self.clock.now_s += 0.05
        raise AssertionError("waited in vain")


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await work()

    asyncio.run(whole())


def test_a_free_slot_is_there_at_once() -> None:
    async def work() -> None:
        world = World(2)
        taking = world.ready.take("a")
        with pytest.raises(StopIteration):  # it makes no step in the loop
            taking.send(None)
        assert world.slots.taken == 1
        assert timer_of(world.slots) is None
        world.ready.give_back()
        assert world.slots.taken == 0

    run(work)


def test_a_feed_that_waits_comes_next_by_its_band() -> None:
    async def work() -> None:
        world = World()
        await world.ready.take("first")
        feeds = [world.ask(name, priority) for name, priority in (("b1", 0), ("b3", 500), ("b4", 1000), ("b1 too", 3))]
        await asyncio.sleep(0)
        world.ready.give_back()
        await asyncio.gather(*feeds)
        assert world.served == ["b4", "b3", "b1", "b1 too"]
        assert world.slots.taken == 0

    run(work)


def test_a_feed_with_more_news_enters_at_the_end_of_its_band() -> None:
    async def work() -> None:
        world = World()
        await world.ready.take("first")
        feeds = [world.ask(name, pages=3) for name in "abc"]
        await asyncio.sleep(0)
        world.ready.give_back()
        await asyncio.gather(*feeds)
        assert "".join(map(str, world.served)) == "abcabcabc"

    run(work)


def test_slots_go_round_the_tenants_whatever_their_priorities() -> None:
    async def work() -> None:
        world = World(2)
        tenants = {name: world.slots.ready_set() for name in ("loud", "quiet", "low")}
        for _ in range(2):
            await world.ready.take("held")
        feeds = [world.ask(f"loud {each}", 1000, tenants["loud"], pages=5) for each in range(20)]
        feeds += [world.ask(f"quiet {each}", 0, tenants["quiet"], pages=10) for each in range(4)]
        feeds += [world.ask(f"low {each}", -250, tenants["low"], pages=10) for each in range(4)]
        await asyncio.sleep(0)
        for _ in range(2):
            world.ready.give_back()
        await asyncio.gather(*feeds)
        pages = Counter(str(each).split()[0] for each in world.served[:48])
        assert all(pages[name] in {15, 16, 17} for name in tenants)

    run(work)


def test_a_pause_holds_no_topic_of_another_tenant() -> None:
    async def work() -> None:
        world = World()
        other = world.slots.ready_set()
        await world.ready.take("held")
        feeds = [world.ask(name, priority) for name, priority in (("a", 0), ("b", 0), ("low", -1))]
        await world.ticks(lambda: world.ready.paused == 1)
        assert world.ready.is_full
        assert (world.ready.is_paused(-1), world.ready.is_paused(0)) == (True, False)
        assert (other.pressure, other.is_paused(-1)) == (0.0, False)
        feeds.append(world.ask("other low", -1, other))
        world.ready.give_back()
        await asyncio.gather(feeds[0], feeds[1], feeds[3])
        assert "low" not in world.served
        await world.ticks(feeds[2].done)
        assert world.served[-1] == "low"
        assert not world.ready.is_paused(-1)

    run(work)


def test_a_feed_that_is_cancelled_leaves_and_its_slot_goes_on() -> None:
    async def work() -> None:
        world = World()
        await world.ready.take("held")
        feeds = [world.ask(name) for name in "abcd"]
        await asyncio.sleep(0)
        feeds[1].cancel()
        world.ready.leave("c")
        world.ready.give_back()  # a gets the slot
        feeds[0].cancel()  # before it runs: d gets it
        found = await asyncio.gather(*feeds, return_exceptions=True)
        assert [type(each) for each in found] == [asyncio.CancelledError] * 3 + [type(None)]
        assert world.served == ["d"]
        assert world.slots.taken == 0
        assert not world.ready.has_next

    run(work)


def test_a_feed_that_is_cancelled_in_the_moment_of_its_turn_costs_nobody_a_slot() -> None:
    async def work() -> None:
        world = World()
        await world.ready.take("held")
        feeds = [world.ask(name) for name in "ab"]
        await asyncio.sleep(0)
        feeds[0].cancel()  # its future is cancelled, and its task has not run since
        world.ready.give_back()
        await asyncio.gather(*feeds, return_exceptions=True)
        assert world.served == ["b"]
        assert world.slots.taken == 0

    run(work)


def test_more_slots_serve_at_the_next_tick() -> None:
    async def work() -> None:
        world = World()
        await world.ready.take("held")
        feed = world.ask("a")
        await asyncio.sleep(0)
        world.count = 2
        await world.ticks(feed.done)
        assert world.served == ["a"]
        world.ready.give_back()

    run(work)


def test_ticks_end_with_the_last_feed_that_waits() -> None:
    async def work() -> None:
        world = World()
        await world.ready.take("held")
        feed = world.ask("a")
        await world.ticks(lambda: world.ready.pressure == 1.0)
        assert world.ready.group_wait_s() == pytest.approx(0.01)
        assert world.ready.collect_s == pytest.approx(0.02)
        world.ready.give_back()
        await feed
        await world.ticks(lambda: timer_of(world.slots) is None)
        world.clock.now_s += 0.1
        assert (world.ready.pressure, world.ready.group_wait_s(), world.ready.collect_s) == (0.0, 0.0, 0.0)

    run(work)
