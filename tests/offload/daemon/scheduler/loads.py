"""A load of a directory under a virtual clock: topics that get news, and slots that serve them.

The load drives the decisions of `offload.daemon.scheduler` as `Slots` and the feeds do: a feed collects news, finds a
free slot or waits, holds the slot for its page, and asks again while it has news. Each event checks what always holds.

    A feed waits once at most, and not while it has a slot.
    No slot is free while a feed may have it (SLOT-1).
    A paused feed belongs to a topic with a negative priority (READY-3).
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field

from offload.daemon.scheduler.pressure import COLLECT, FULL, PAUSE, WIDEN, collect_s
from offload.daemon.scheduler.slots import TICK_S, ReadyFeeds

__all__ = ["STEPS", "Load", "Seen"]

STEPS = {"collect": COLLECT, "widen": WIDEN, "pause": PAUSE, "full": FULL}
_PAGES = 40
_NEWS_S = 15.0
_DRAIN_S = 60.0
# A round of all topics takes so long at most. With more, no order of the feeds could keep a wait below 10 s.
_ROUND_S = 3.0


@dataclass
class Seen:
    """What a load has shown. `longest_s` is the longest wait without a pause. Steps are counted by name."""

    longest_s: float = 0.0
    pages: int = 0
    entered: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)


@dataclass
class _Topic:
    priority: int
    page_s: float
    gap_s: float  # between pages; 0 for one that always has news
    entered_s: float = 0.0
    was_paused: bool = False


class Load:
    """One load, drawn by `seed`."""

    def __init__(self, seed: int) -> None:
        draw = self._draw = random.Random(seed)
        count = draw.randint(2, 48)
        self._slots = draw.randint(1, 8)
        round_s = _ROUND_S * draw.random() ** 2 + 0.001
        page_s = round_s * self._slots / count / 1.5
        busy = draw.choice((0.0, 0.0, 0.1, 0.5, 0.95))
        self._busy_until_s, self._busy = draw.uniform(0, _NEWS_S), busy
        is_steady = draw.random() < 0.5
        self._topics = {
            f"t{number}": _Topic(
                draw.choice((draw.randint(-250, 1000), draw.choice((-250, -1, 0, 0, 249, 750, 1000)))),
                page_s * draw.uniform(0.5, 1.5),
                0.0 if is_steady or draw.random() < 0.3 else page_s * draw.uniform(0, 2 * count),
            )
            for number in range(count)
        }
        self._feeds = ReadyFeeds()
        self._served: set[str] = set()
        self._events: list[tuple[float, int, str, str]] = []
        self._number = 0
        self._ticks = False
        self._above = dict.fromkeys(STEPS, False)
        self.seen = Seen()

    def run(self) -> Seen:
        """Run the load to its end: news for some seconds, and then until all feeds are served."""
        now_s = 0.0
        for name in self._topics:
            self._later(self._draw.random() ** 2, "news", name)
        while self._events:
            now_s, _, kind, name = heapq.heappop(self._events)
            assert now_s < _NEWS_S + _DRAIN_S, "the load does not end"
            getattr(self, f"_{kind}")(now_s, name)
            is_free = len(self._served) < self._slots
            assert not (is_free and len(self._feeds.bands)), f"at {now_s} s a slot is free, and a feed waits"
        assert not len(self._feeds)
        assert not self._served
        assert self._feeds.pressure.at(now_s + 1) == 0.0
        self._note_steps(0.0)
        return self.seen

    def _later(self, at_s: float, kind: str, name: str = "") -> None:
        self._number += 1
        heapq.heappush(self._events, (at_s, self._number, kind, name))

    def _news(self, now_s: float, name: str) -> None:
        if self.seen.pages < _PAGES + 6 * len(self._topics):
            self._later(now_s + collect_s(self._feeds.pressure.at(now_s)), "ask", name)

    def _ask(self, now_s: float, name: str) -> None:
        topic = self._topics[name]
        topic.entered_s, topic.was_paused = now_s, False
        if len(self._served) < self._slots and not self._feeds.is_paused(topic.priority, now_s):
            self._feeds.passed()
            self._serve(now_s, name)
            return
        self._feeds.enter(name, topic.priority, 0, now_s)
        topic.was_paused = name in self._feeds.paused
        if not self._ticks:
            self._ticks = True
            self._later(now_s + TICK_S, "tick")

    def _serve(self, now_s: float, name: str) -> None:
        topic = self._topics[name]
        if not topic.was_paused:
            self.seen.longest_s = max(self.seen.longest_s, now_s - topic.entered_s)
        assert name not in self._served
        self._served.add(name)
        self.seen.pages += 1
        self._later(now_s + topic.page_s, "done", name)

    def _done(self, now_s: float, name: str) -> None:
        self._served.remove(name)
        self._hand_out(now_s)
        gap_s = self._topics[name].gap_s
        next_s = now_s + (self._draw.expovariate(1 / gap_s) if gap_s else 0.0)
        if next_s < _NEWS_S:
            self._later(next_s, "news", name)

    def _tick(self, now_s: float, _: str) -> None:
        busy = self._busy if now_s < self._busy_until_s else 0.0
        self._ticks = self._feeds.look(self._slots, busy, now_s)
        self._note_steps(self._feeds.pressure.at(now_s))
        for name in self._feeds.paused:
            topic = self._topics[str(name)]
            assert topic.priority < 0
            topic.was_paused = True
        assert sum(self._feeds.bands.counts) == len(self._feeds.bands)
        self._hand_out(now_s)
        if self._ticks:
            self._later(now_s + TICK_S, "tick")

    def _hand_out(self, now_s: float) -> None:
        while len(self._served) < self._slots and (name := self._feeds.serve(now_s)) is not None:
            self._serve(now_s, str(name))

    def _note_steps(self, pressure: float) -> None:
        for name, bound in STEPS.items():
            is_above = pressure >= bound if name == "full" else pressure > bound
            if name == "pause":
                is_above = self._feeds.pressure.is_pausing and pressure > 0
            if is_above != self._above[name]:
                (self.seen.entered if is_above else self.seen.left)[name] += 1
                self._above[name] = is_above
