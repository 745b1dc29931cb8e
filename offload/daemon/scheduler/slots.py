"""The slots in which feeds read their pages, and the feeds that wait for one.

    F, a feed with news; S, the slots of the process; R, the ready set of F's directory

    1  F asks R for a slot. If one is free, F has it at once: no other task runs in between, and no timer begins.
    2  Otherwise F enters R, in the band of its priority (offload.daemon.scheduler.bands).
    3  Another feed gives its slot back. S asks the ready sets in turn, and the next feed of one of them gets the slot.
    4  F reads one page, hands it out, and gives the slot back. With more news it enters again, at the end of its band.
    5  While a feed waits, S looks every 50 ms at the age of all, and every 100 ms at the pressure.

SLOT-1  A slot is free only while no feed may have it. So a feed that finds a free one passes nobody.
SLOT-2  A directory has one ready set for its local topics, and the directories of a process take turns. So a priority
    counts among the topics of one tenant, and each tenant with news gets as many slots as another one.
SLOT-3  The pressure is that of one directory: its own feeds, waits and threads for hot reads. A tenant under load
    delays itself.
SLOT-4  A feed that is cancelled leaves the ready set. If it had its slot already, the next feed gets the slot.
SLOT-5  Without a feed that waits, nothing runs.
SLOT-6  A replica's page comes from the remote, which may not answer. So the replicas of a directory have slots, a ready
    set and a pressure of their own. A dead remote takes no slot from a local topic or another tenant, delays no append,
    and pauses no local topic.

The event loop owns slots and ready sets. Any thread may ask for `pressure`, `group_wait_s` and `is_paused`.

**The ready set of one directory** has its feeds with news that wait for a slot, those that are paused, and its
pressure. `ReadyFeeds` does no I/O and has no clock: the caller says what time it is.

    state of a feed   what is true                                           step that follows
    ready             it is in a band, and may get a slot                    served, paused, left
    paused            its topic's priority is negative, and the pressure     ready, once the pressure is below 0.6, or
                      was above 0.8                                          the priority is another one; left
    served            it has a slot                                          none: it may enter again

READY-1  A feed is in the set once at most, ready or paused.
READY-2  A pause keeps the time when a feed entered. So a topic that comes back is as old as it is.
READY-3  No age ends a pause: it is for topics that may wait. Their records are stored, and reads show them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Final

from offload.daemon.scheduler import pressure as steps
from offload.daemon.scheduler.bands import Bands, Consumption, Ready
from offload.daemon.scheduler.pressure import FULL, Pressure

TICK_S: Final = 0.05


class ReadyFeeds:
    """The ready set of one directory. One thread changes it. Any thread may ask for `pressure` and `is_paused`."""

    def __init__(self) -> None:
        self.bands = Bands()
        self.paused: dict[Hashable, Ready] = {}
        self.pressure = Pressure()
        self.consumption = Consumption()

    def __len__(self) -> int:
        return len(self.bands) + len(self.paused)

    def is_paused(self, priority: int, now_s: float) -> bool:
        """Return whether topics with this priority get no slot now."""
        return priority < 0 and self.pressure.is_pausing and now_s < self.pressure.ends_s

    def passed(self) -> None:
        """Take note that a feed found a free slot."""
        self.pressure.note(0.0)

    def enter(self, key: Hashable, priority: int, boost: int, now_s: float) -> None:
        """Let a feed wait. `priority` is that of its topic, and `boost` what comes to it."""
        if not len(self):
            self.pressure.begin(now_s)
        feed = Ready(key, priority + boost, priority < 0, now_s)
        if self.is_paused(priority, now_s):
            self.paused[key] = feed
        else:
            self.bands.enter(feed, now_s)

    def resume(self, key: Hashable, now_s: float) -> None:
        """End the pause of a feed, if it is paused: its topic's priority is not negative any more."""
        feed = self.paused.pop(key, None)
        if feed is not None:
            self.bands.enter(replace(feed, priority=0, is_low=False), now_s)

    def leave(self, key: Hashable) -> None:
        """Remove a feed that wants no slot any more."""
        self.paused.pop(key, None)
        self.bands.leave(key)

    def serve(self, now_s: float) -> Hashable | None:
        """Remove and return the feed that comes next, or None if there is none."""
        feed = self.bands.take()
        if feed is None:
            return None
        self.pressure.note(now_s - feed.entered_s)
        return feed.key

    def look(self, slots: int, busy: float, now_s: float) -> bool:
        """Look at the ages, and at the pressure if that is due. Return whether a feed waits still.

        `busy` is the share of the threads for reads that work.
        """
        self.bands.age(now_s)
        if self.pressure.is_due(now_s):
            self.pressure.sample(len(self.bands), slots, self.bands.oldest_wait_s(now_s), busy, now_s)
            self._pause(now_s)
        if not len(self):
            self.pressure.end(now_s)
        return len(self) > 0

    def _pause(self, now_s: float) -> None:
        """Pause the topics with a negative priority, or let them go on."""
        if self.pressure.is_pausing:
            self.paused |= {feed.key: feed for feed in self.bands.take_low()}
            return
        for feed in self.paused.values():
            self.bands.enter(feed, now_s)
        self.paused.clear()


class Slots:
    """The slots of one process. `count` returns how many there are now, and `now_s` is a clock that never goes back."""

    def __init__(self, count: Callable[[], int], now_s: Callable[[], float] = time.monotonic) -> None:
        self.count = count
        self.now_s = now_s
        self.taken = 0
        self._turns: deque[ReadySet] = deque()  # those with a feed that may get a slot, the next one first
        self._waiting: set[ReadySet] = set()  # those with any feed
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_free(self) -> bool:
        """Return whether a slot is free."""
        return self.taken < self.count()

    def ready_set(self, busy: Callable[[], float] = lambda: 0.0) -> ReadySet:
        """Return a ready set for one directory. `busy` returns the share of its threads for reads that work."""
        return ReadySet(self, busy)

    def enter(self, ready: ReadySet) -> None:
        """Let a ready set take its turn, once it has a feed that may get a slot."""
        if ready.has_next and ready not in self._turns:
            self._turns.append(ready)

    def watch(self, ready: ReadySet) -> None:
        """Look at a ready set at each tick, until no feed waits there."""
        self._waiting.add(ready)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def hand_out(self) -> None:
        """Give each free slot to the next feed: one page for each directory in turn (SLOT-2)."""
        while self._turns and self.is_free:
            ready = self._turns.popleft()
            if ready.serve():
                self.taken += 1
            self.enter(ready)

    def _tick(self) -> None:
        self._timer = None
        for ready in tuple(self._waiting):
            if not ready.look():
                self._waiting.discard(ready)
            self.enter(ready)
        self.hand_out()
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)


class ReadySet:
    """The feeds of one directory that wait for a slot, and its pressure. Make it with `Slots.ready_set`."""

    def __init__(self, slots: Slots, busy: Callable[[], float]) -> None:
        self._slots = slots
        self._busy = busy
        self._feeds = ReadyFeeds()
        self._turns: dict[Hashable, asyncio.Future[None]] = {}
        self._low: dict[Hashable, Callable[[], int]] = {}  # the priority of now, of each that waits with a negative one

    @property
    def has_next(self) -> bool:
        """Return whether a feed may get a slot."""
        return len(self._feeds.bands) > 0

    @property
    def pressure(self) -> float:
        """Return the pressure of now: 0 to 1."""
        pressure = self._feeds.pressure
        return pressure.at(self._slots.now_s()) if pressure.value else 0.0

    @property
    def is_full(self) -> bool:
        """Return whether the pressure is 1."""
        return self.pressure >= FULL

    @property
    def paused(self) -> int:
        """Return how many feeds with news are paused."""
        return len(self._feeds.paused)

    @property
    def collect_s(self) -> float:
        """Return how long a feed collects news before it asks for a slot."""
        return steps.collect_s(self.pressure)

    def group_wait_s(self) -> float:
        """Return how long a group of appends waits for more of them."""
        return steps.group_wait_s(self.pressure)

    def waiting(self, band: int) -> int:
        """Return how many feeds of a band wait, 0 for B0 to 4 for B4. Paused ones do not count."""
        return self._feeds.bands.counts[band]

    def boost(self, topic: str) -> int:
        """Return what recent consumption adds to the priority of a topic with `auto_priority`."""
        return self._feeds.consumption.boost(topic, self._slots.now_s())

    def note_taken(self, topic: str, followers: int) -> None:
        """Take note that so many followers take a page of the topic."""
        self._feeds.consumption.add(topic, followers, self._slots.now_s())

    def is_paused(self, priority: int) -> bool:
        """Return whether topics with this priority get no slot now."""
        return priority < 0 and self._feeds.is_paused(priority, self._slots.now_s())

    async def take(
        self, key: Hashable, priority: int = 0, boost: int = 0, priority_now: Callable[[], int] | None = None
    ) -> None:
        """Return when the feed has a slot. It has to give the slot back.

        `priority` is that of its topic, and `boost` what comes to it. The feed must not have a slot already. Once
        `priority_now` returns another one that is not negative, a pause of the feed ends.
        """
        slots = self._slots
        if slots.is_free and not self.is_paused(priority):  # it passes nobody (SLOT-1)
            slots.taken += 1
            self._feeds.passed()
            return
        self._feeds.enter(key, priority, boost, slots.now_s())
        turn = self._turns[key] = asyncio.get_running_loop().create_future()
        if priority < 0 and priority_now is not None:
            self._low[key] = priority_now
        slots.enter(self)
        slots.watch(self)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back()  # the next feed gets its slot (SLOT-4)
            elif self._turns.get(key) is turn:
                self._remove(key)
            raise

    def give_back(self) -> None:
        """Give a slot back, to the feed that comes next."""
        self._slots.taken -= 1
        self._slots.hand_out()

    def leave(self, key: Hashable) -> None:
        """Let the feed leave if it waits here. Its `take` raises `CancelledError`."""
        if (turn := self._turns.get(key)) is not None:
            turn.cancel()
            self._remove(key)

    def serve(self) -> bool:
        """Give a slot to the feed that comes next. Return False if there is none."""
        while (key := self._feeds.serve(self._slots.now_s())) is not None:
            turn = self._turns.pop(key)
            self._low.pop(key, None)
            if not turn.done():  # else the feed was cancelled, and has not run since
                turn.set_result(None)
                return True
        return False

    def look(self) -> bool:
        """Look at the ages and the pressure. Return whether a feed waits still."""
        now_s = self._slots.now_s()
        for key, priority_now in self._low.items():
            if priority_now() >= 0:
                self._feeds.resume(key, now_s)
        return self._feeds.look(self._slots.count(), self._busy(), now_s)

    def _remove(self, key: Hashable) -> None:
        del self._turns[key]
        self._low.pop(key, None)
        self._feeds.leave(key)
