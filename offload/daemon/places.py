"""The places of requests under way, and the memory of their bodies.

ROOM-1  A request takes its place when its body is whole. So clients that send slowly leave the places to others.
ROOM-2  The first 256 KiB of each body need no room. Beyond them, all bodies together hold at most `max_bodies_bytes`.
    One body alone may hold more, so that a body of `max_body_bytes` always fits.
ROOM-3  A request keeps its place and its bytes until its answer has ended.
ROOM-4  A request that waits for new records is a follower. It gives its place back, and takes one of `max_followers`.
    So followers leave the places of requests alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from types import TracebackType
from typing import Any

from offload.errors import Busy
from offload.settings import ServeSettings

__all__ = ["RETRY_AFTER_S", "Place", "Places", "become_follower"]

RETRY_AFTER_S = 1
_PLACE = "seglog.place"
_FREE_BYTES = 256 * 1024


class Places:
    """The places that are taken, and the bytes that bodies hold. For one event loop.

    `count_refused` runs when a request is refused the place of a follower.
    """

    __slots__ = ("count_refused", "followers", "held_bytes", "taken")

    def __init__(self, count_refused: Callable[[], None] = lambda: None) -> None:
        self.count_refused = count_refused
        self.taken = 0
        self.followers = 0
        self.held_bytes = 0

    def check(self, settings: ServeSettings) -> None:
        """Raise `Busy` if all places are taken."""
        if self.taken >= settings.max_requests:
            raise Busy(RETRY_AFTER_S)


class Place:
    """The place of one request, as a context manager. A probe is not `limited`, and takes none."""

    def __init__(self, places: Places, settings: ServeSettings, *, limited: bool) -> None:
        self._places = places
        self._settings = settings
        self._limited = limited
        self._is_taken = False
        self._is_follower = False
        self._body_bytes = 0
        self._held_bytes = 0

    def __enter__(self) -> Place:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self._places.taken -= self._is_taken
        self._places.followers -= self._is_follower
        self._places.held_bytes -= self._held_bytes

    def enter(self, scope: MutableMapping[str, Any]) -> None:
        """Put the place into the ASGI scope of its request, for `become_follower`."""
        scope[_PLACE] = self

    def take(self) -> None:
        """Take the place, unless the request has it. Raises `Busy` if all are taken."""
        if self._limited and not self._is_taken and not self._is_follower:
            self._places.check(self._settings)
            self._places.taken += 1
            self._is_taken = True

    def follow(self) -> None:
        """Change into the place of a follower, for the rest of the request (ROOM-4). Raises `Busy` if all are taken."""
        if self._is_follower:
            return
        if self._places.followers >= self._settings.max_followers:
            self._places.count_refused()
            raise Busy(RETRY_AFTER_S)
        self._places.followers += 1
        self._is_follower = True
        if self._is_taken:
            self._places.taken -= 1
            self._is_taken = False

    def hold(self, size_bytes: int) -> None:
        """Add bytes of the body that came. Raises `Busy` if they need more room than there is (ROOM-2)."""
        self._body_bytes += size_bytes
        held = max(0, self._body_bytes - _FREE_BYTES)
        others = self._places.held_bytes - self._held_bytes
        if others and others + held > self._settings.max_bodies_bytes:
            raise Busy(RETRY_AFTER_S)
        self._places.held_bytes = others + held
        self._held_bytes = held


def become_follower(scope: Mapping[str, Any]) -> None:
    """Make the request of this ASGI scope a follower. Raises `Busy`. Without a guard in front, nothing is limited."""
    place = scope.get(_PLACE)
    if isinstance(place, Place):
        place.follow()
