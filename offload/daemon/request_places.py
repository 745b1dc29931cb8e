"""The places of requests under way, the memory of their bodies, and how long a refused client waits.

    a body that is taken           the request gets its place         it gives the place back
    as a whole                     when its body is whole             when its answer has ended
    part by part (an append)       when the log gets a part           when the log has acked the part

ROOM-1  A body that comes slowly has no place. So clients that send slowly leave the places to others.
ROOM-2  The first 256 KiB of each body need no room. Beyond them, all bodies together hold at most `max_bodies_bytes`.
    One body alone may hold more, so that a body of `max_body_bytes` always fits. Each record that the log gets counts
    128 bytes beside its value, because an empty one takes memory, too.
ROOM-3  A request keeps its place and its bytes until its answer has ended, or until its part is acked.
ROOM-4  A request that waits for new records is a follower. It gives its place back, and takes one of `max_followers`.
    So followers leave the places of requests alone.
ROOM-5  A request is refused before it changes anything. An append whose first part is in waits for room instead, for at
    most `body_timeout_s`.
ROOM-6  A refused client gets a time to wait: the requests and bytes under way, by the rate at which they ended lately.
    Only time in which a request is under way counts, so a burst after a quiet hour waits no longer.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, MutableMapping
from types import TracebackType
from typing import Any

from offload.daemon.problems import RETRY_AFTER_S
from offload.daemon.revocation import keep_open
from offload.errors import Busy
from offload.settings import ServeSettings

_RECENT_S = 10.0
_FREE_BYTES = 256 * 1024
_LONGEST_WAIT_S = 30
_PLACE = "seglog.place"


class Places:
    """The places that are taken, and the bytes that bodies hold. For one event loop.

    `clock_s` returns a time that never goes back. `count_refused` runs when a request that the guard let in is refused
    a place: that of a follower, or of a part.
    """

    def __init__(self, count_refused: Callable[[], None] = lambda: None) -> None:
        self.count_refused = count_refused
        self.clock_s: Callable[[], float] = time.monotonic
        self.taken = 0
        self.followers = 0
        self.held_bytes = 0
        self.body_bytes = 0
        self._busy_s = 0.0
        self._busy_since_s: float | None = None
        self._requests, self._bytes = RecentRate(0.0), RecentRate(0.0)
        self._waiting: list[asyncio.Future[None]] = []

    def check(self, settings: ServeSettings) -> None:
        """Raise `Busy` if all places are taken."""
        if self.taken >= settings.max_requests:
            raise self.busy("serve.max_requests")

    def busy(self, setting: str) -> Busy:
        """Return the refusal, with the time that all requests under way are expected to take (ROOM-6)."""
        now_s = self._clock_s()
        waits = [_wait_s(self.taken, self._requests.per_s(now_s)), _wait_s(self.body_bytes, self._bytes.per_s(now_s))]
        return Busy(max(waits), setting)

    def begin(self) -> None:
        """Take note that a request is under way from now on."""
        if self._busy_since_s is None:
            self._busy_since_s = self.clock_s()

    def free(self, places: int, size_bytes: int) -> None:
        """Take note that requests, or parts of them, have ended. Wake the appends that wait."""
        now_s = self._clock_s()
        self._requests.note(places, now_s)
        self._bytes.note(size_bytes, now_s)
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _clock_s(self) -> float:
        """Return the time in which a request was under way, up to now."""
        now_s = self.clock_s()
        if self._busy_since_s is not None:
            self._busy_s += now_s - self._busy_since_s
        self._busy_since_s = now_s if self.taken or self.body_bytes else None
        return self._busy_s

    async def until(self, attempt: Callable[[], None], timeout_s: float) -> None:
        """Call `attempt` again whenever a request ends, until it succeeds. Raise its `Busy` after `timeout_s`."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        while True:
            try:
                attempt()
            except Busy:
                turn: asyncio.Future[None] = loop.create_future()
                self._waiting.append(turn)
                await asyncio.wait({turn}, timeout=end_s - loop.time())
                if not turn.done():
                    raise
            else:
                return


def _wait_s(amount: int, per_s: float) -> int:
    """Return how long the amount takes, from 1 to 30 s. Nothing ended yet if the rate is 0."""
    if not per_s:
        return RETRY_AFTER_S
    return max(RETRY_AFTER_S, min(_LONGEST_WAIT_S, math.ceil(amount / per_s)))


class Place:
    """The place of one request, as a context manager. A probe is not `limited`, and takes none."""

    __slots__ = (
        "_body_bytes",
        "_held_bytes",
        "_is_by_parts",
        "_is_follower",
        "_is_taken",
        "_limited",
        "_part_is_in",
        "_places",
        "_settings",
    )

    def __init__(self, places: Places, settings: ServeSettings, *, limited: bool) -> None:
        self._places = places
        self._settings = settings
        self._limited = limited
        self._is_taken = False
        self._is_follower = False
        self._is_by_parts = False
        self._part_is_in = False
        self._body_bytes = 0
        self._held_bytes = 0

    @classmethod
    def of(cls, scope: MutableMapping[str, Any], settings: ServeSettings) -> Place:
        """Return the place that the guard gave to a request, or one that is free if there is no guard."""
        place = scope.get(_PLACE)
        return place if isinstance(place, cls) else cls(Places(), settings, limited=False)

    def enter(self, scope: MutableMapping[str, Any]) -> None:
        """Put the place into the ASGI scope of its request, where the route finds it."""
        scope[_PLACE] = self

    def __enter__(self) -> Place:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self._places.followers -= self._is_follower
        self._give_back(self._body_bytes)

    def by_parts(self) -> None:
        """Say that the route takes the body by parts, or bounds it itself. It calls `begin_part` and `end_part`."""
        self._is_by_parts = True

    @property
    def is_by_parts(self) -> bool:
        return self._is_by_parts

    def take(self) -> None:
        """Take the place, unless the request has it. Raises `Busy` if all are taken."""
        if self._limited and not self._is_taken and not self._is_follower:
            self._places.check(self._settings)
            self._places.begin()
            self._places.taken += 1
            self._is_taken = True

    def follow(self) -> None:
        """Change into the place of a follower, for the rest of the request (ROOM-4). Raises `Busy` if all are taken."""
        if self._is_follower:
            return
        if self._places.followers >= self._settings.max_followers:
            self._places.count_refused()
            raise Busy(RETRY_AFTER_S, "serve.max_followers")
        self._places.followers += 1
        self._is_follower = True
        if self._is_taken:
            self._places.taken -= 1
            self._is_taken = False
            self._places.free(0, 0)

    @property
    def is_follower(self) -> bool:
        return self._is_follower

    def hold(self, size_bytes: int) -> None:
        """Add bytes of the body that came. Raises `Busy` if they need more room than there is (ROOM-2)."""
        now_held = max(0, self._body_bytes + size_bytes - _FREE_BYTES)
        held_elsewhere = self._places.held_bytes - self._held_bytes
        if held_elsewhere and now_held and held_elsewhere + now_held > self._settings.max_bodies_bytes:
            raise self._places.busy("serve.max_bodies_bytes")
        self._places.begin()
        self._add(size_bytes)

    def holds(self, size_bytes: int) -> None:
        """Hold so many bytes from now on, in the place of those before: for messages that share a connection.

        Raises `Busy` as `hold` does.
        """
        more_bytes = size_bytes - self._body_bytes
        if more_bytes > 0:
            self.hold(more_bytes)
        else:
            self._add(more_bytes)
            self._places.free(0, 0)

    async def came(self, size_bytes: int, *, is_whole: bool) -> None:
        """Hold bytes of the body. If it is whole, take the place. Raises `Busy`."""
        if self._part_is_in:
            await self._places.until(lambda: self.hold(size_bytes), self._settings.body_timeout_s)
        else:
            self.hold(size_bytes)
        if is_whole and not self._is_by_parts:
            self.take()

    async def begin_part(self) -> None:
        """Take the place for a part that the log gets now. Raises `Busy`, also if that takes too long (ROOM-5)."""
        try:
            if self._part_is_in:
                await self._places.until(self.take, self._settings.body_timeout_s)
            else:
                self.take()
        except Busy:
            self._places.count_refused()
            raise
        self._part_is_in = True

    def end_part(self, size_bytes: int) -> None:
        """Give back the place and the bytes of a part that is acked."""
        self._give_back(min(size_bytes, self._body_bytes))

    def let_go(self, size_bytes: int) -> None:
        """Give back bytes that were decoded to others."""
        self._add(-size_bytes)

    def _give_back(self, size_bytes: int) -> None:
        places, self._is_taken = int(self._is_taken), False
        self._places.taken -= places
        self._add(-size_bytes)
        self._places.free(places, size_bytes)

    def _add(self, size_bytes: int) -> None:
        self._body_bytes += size_bytes
        now_held = max(0, self._body_bytes - _FREE_BYTES)
        self._places.body_bytes += size_bytes
        self._places.held_bytes += now_held - self._held_bytes
        self._held_bytes = now_held


def become_follower(scope: MutableMapping[str, Any]) -> None:
    """Make the request of this ASGI scope a follower, before its first wait. Without a guard, nothing is limited.

    Raises `Busy`, and `Refused` (401) if the token lost a right since the request began.
    """
    keep_open(scope)
    place = scope.get(_PLACE)
    if isinstance(place, Place):
        place.follow()


class RecentRate:
    """An amount a second, over about the last ten seconds. The times never go back."""

    __slots__ = ("_begin_s", "_last_s", "_recent")

    def __init__(self, now_s: float) -> None:
        self._begin_s = self._last_s = now_s
        self._recent = 0.0

    def note(self, amount: int, now_s: float) -> None:
        self._recent = self._recent * self._kept(now_s) + amount
        self._last_s = now_s

    def per_s(self, now_s: float) -> float:
        age_s = max(now_s - self._begin_s, 0.001)
        return self._recent * self._kept(now_s) / (_RECENT_S * -math.expm1(-age_s / _RECENT_S))

    def _kept(self, now_s: float) -> float:
        return math.exp((self._last_s - now_s) / _RECENT_S)
