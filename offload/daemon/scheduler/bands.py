"""The feeds that wait for a slot, in five bands.

    band   effective priority   pages of a round
    B4     750 and more         8
    B3     500 to 749           4
    B2     250 to 499           2
    B1     0 to 249             1
    B0     below 0              1

    effective priority = `priority` of the topic + its boost + its age

    1  A feed enters with the priority of its topic, at the end of its band.
    2  As it waits it gets older: 100 a second, 1,000 at most. `age` moves what is old enough into a higher band.
    3  `take` gives the feed that comes next. Each page costs its band a credit. Once no band that has a feed has a
       credit, a new round gives each band its credits again (deficit round robin).

BAND-1  A feed is in the bands once at most.
BAND-2  In a band, first in is first out. The time of entering counts, also for a feed that its age has moved there.
BAND-3  Each round takes from each band that has a feed. So the first feed of a band waits for 30 pages of other
    bands at most: the rest of a round, and the beginning of the next one.
BAND-4  Only a slot ends the age of a feed: a new priority, or a pause, leaves it as it is.
BAND-5  Whatever its priority, a feed is in the highest band after 10 s. There it stands before all that came later.

The boost of a topic with `auto_priority` follows how much of it is read. Each page counts once for each follower that
took it, and half as much every 10 s. From 100 pages on, the boost is 250.

No I/O, no clock: the caller says what time it is.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Hashable
from typing import Final

from seglog.base.dataclasses import dataclass

BANDS: Final = ("B0", "B1", "B2", "B3", "B4")
CREDITS: Final = (1, 1, 2, 4, 8)
"""The pages of a round, by band."""
AGE_PER_S: Final = 100
AGE_MOST: Final = 1000
BOOST_MOST: Final = 250

_STARTS = (0, 250, 500, 750)  # of B1 to B4
_BOOST_PAGES = 100
_BOOST_HALF_S = 10.0
_FORGOTTEN_PAGES = 0.5
_MOST_TOPICS = 1024


def band_of(priority: float) -> int:
    """Return the number of the band for an effective priority: 0 to 4."""
    return bisect_right(_STARTS, priority)


def age_of(waited_s: float) -> float:
    """Return what a wait adds to a priority."""
    return min(AGE_MOST, AGE_PER_S * max(0.0, waited_s))


@dataclass(slots=True, eq=False)
class Ready:
    """A feed that waits for a slot. `is_low` says that the topic's own priority is negative."""

    key: Hashable
    priority: int
    is_low: bool
    entered_s: float
    band: int = 0


class Bands:
    """The feeds that may get a slot. For one thread."""

    def __init__(self) -> None:
        self.counts = [0] * len(CREDITS)
        """The feeds in each band."""
        self._ready: dict[Hashable, Ready] = {}
        # Heaps. What one has of a feed that has left, or that is in another band by now, is passed over.
        self._queues: list[list[tuple[float, int, Ready]]] = [[] for _ in CREDITS]
        self._credits = list(CREDITS)
        self._number = 0

    def __len__(self) -> int:
        return len(self._ready)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._ready

    def enter(self, feed: Ready, now_s: float) -> None:
        """Add a feed. One that comes back from a pause keeps its `entered_s`, and so its age (BAND-4)."""
        assert feed.key not in self._ready  # noqa: S101 - BAND-1: a feed has one task, which waits here
        self._ready[feed.key] = feed
        self._join(feed, band_of(feed.priority + age_of(now_s - feed.entered_s)))

    def leave(self, key: Hashable) -> Ready | None:
        """Remove a feed that wants no slot any more. Return it; None if it is not here."""
        feed = self._ready.pop(key, None)
        if feed is not None:
            self._count_out(feed)
        return feed

    def age(self, now_s: float) -> None:
        """Move each feed that has become old enough into a higher band."""
        for feed in self._ready.values():
            if feed.band == len(_STARTS):
                continue
            band = band_of(feed.priority + age_of(now_s - feed.entered_s))
            if band > feed.band:
                self._count_out(feed)
                self._join(feed, band)

    def take(self) -> Ready | None:
        """Remove and return the feed that comes next, or None if there is none."""
        if not self._ready:
            return None
        while True:
            for band in reversed(range(len(CREDITS))):
                if self._credits[band] and self.counts[band]:
                    self._credits[band] -= 1
                    return self._first(band)
            self._credits = list(CREDITS)

    def take_low(self) -> list[Ready]:
        """Remove and return the feeds of all topics with a negative priority, for a pause."""
        low = [feed for feed in self._ready.values() if feed.is_low]
        for feed in low:
            self.leave(feed.key)
        return low

    def oldest_wait_s(self, now_s: float) -> float:
        """Return how long the feed waits that has waited longest; 0 without one."""
        fronts = [self._front(band).entered_s for band in range(len(CREDITS)) if self.counts[band]]
        return max(0.0, now_s - min(fronts, default=now_s))

    def _join(self, feed: Ready, band: int) -> None:
        feed.band = band
        self.counts[band] += 1
        self._number += 1
        heapq.heappush(self._queues[band], (feed.entered_s, self._number, feed))

    def _first(self, band: int) -> Ready:
        feed = self._front(band)
        heapq.heappop(self._queues[band])
        del self._ready[feed.key]
        self._count_out(feed)
        return feed

    def _front(self, band: int) -> Ready:
        queue = self._queues[band]
        while (feed := queue[0][2]).band != band or self._ready.get(feed.key) is not feed:
            heapq.heappop(queue)
        return feed

    def _count_out(self, feed: Ready) -> None:
        """Count a feed that leaves its band. What the heap of an empty band still has is of no feed there."""
        self.counts[feed.band] -= 1
        if not self.counts[feed.band]:
            self._queues[feed.band].clear()


class Consumption:
    """How much of each topic with `auto_priority` is read: pages that followers took, less by half every 10 s."""

    def __init__(self) -> None:
        self._pages: dict[str, tuple[float, float]] = {}  # and when they were counted

    def add(self, topic: str, pages: int, now_s: float) -> None:
        """Count a page of a topic for each of the followers that took it."""
        if topic not in self._pages and len(self._pages) >= _MOST_TOPICS:
            kept = [name for name in self._pages if self._left(name, now_s) >= _FORGOTTEN_PAGES]
            self._pages = {name: self._pages[name] for name in kept}
        self._pages[topic] = (self._left(topic, now_s) + pages, now_s)

    def boost(self, topic: str, now_s: float) -> int:
        """Return what the topic's consumption adds to its priority: 0 to 250."""
        return int(BOOST_MOST * min(1.0, self._left(topic, now_s) / _BOOST_PAGES))

    def _left(self, topic: str, now_s: float) -> float:
        pages, at_s = self._pages.get(topic, (0.0, now_s))
        return pages * math.exp2(-max(0.0, now_s - at_s) / _BOOST_HALF_S)
