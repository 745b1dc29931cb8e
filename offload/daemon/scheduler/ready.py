"""The ready set of one directory: its feeds with news that wait for a slot, those that are paused, and its pressure.

    state of a feed   what is true                                           step that follows
    ready             it is in a band, and may get a slot                    served, paused, left
    paused            its topic's priority is negative, and the pressure     ready, once the pressure is below 0.6, or
                      was above 0.8                                          the priority is another one; left
    served            it has a slot                                          none: it may enter again

READY-1  A feed is in the set once at most, ready or paused.
READY-2  A pause keeps the time when a feed entered. So a topic that comes back is as old as it is.
READY-3  No age ends a pause: it is for topics that may wait. Their records are stored, and reads show them.

No I/O, no clock: the caller says what time it is.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from offload.daemon.scheduler.bands import Bands, Consumption, Ready
from offload.daemon.scheduler.pressure import Pressure


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
