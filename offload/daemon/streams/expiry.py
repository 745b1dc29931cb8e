"""When streams expire: the last use of each one with a time to live, and the times at which to look.

STREAMEND-1  A time to live counts from the last use, and after a restart from the start of the daemon: it never ends
    too early. So a use is kept as long as its stream, however many streams there are.
STREAMEND-2  The work of a look is in proportion to the streams whose time may be over, and not to all. A use moves no
    time: the look finds the stream used meanwhile, and looks again at its new time.

No I/O.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from offload.daemon.streams.entries import Entry

__all__ = ["Expiry"]

_STALE_MAX = 1_000


class Expiry:
    """The streams of one service that expire, by path. `begin_ms` is the start of the daemon."""

    def __init__(self, begin_ms: int) -> None:
        self._begin_ms = begin_ms
        self._used_ms: dict[str, int] = {}
        self._looks: dict[str, int] = {}  # the time of the next look at each path
        self._queue: list[tuple[int, str]] = []  # the same in order, with times that do not count any more

    def add(self, entry: Entry) -> None:
        """Look at a stream once its time may be over. A stream without an expiry needs no look."""
        end_ms = self._end_ms(entry)
        if end_ms is None:
            self.drop(entry.path)
            return
        self._looks[entry.path] = end_ms
        heappush(self._queue, (end_ms, entry.path))
        if len(self._queue) > 2 * len(self._looks) + _STALE_MAX:
            self._queue = [(at_ms, path) for path, at_ms in self._looks.items()]
            heapify(self._queue)

    def use(self, entry: Entry, now_ms: int) -> None:
        """Take note of a read or an append."""
        if entry.ttl_s is not None:
            self._used_ms[entry.path] = now_ms

    def drop(self, path: str) -> None:
        """Forget a stream that is gone, with its last use."""
        self._used_ms.pop(path, None)
        self._looks.pop(path, None)

    def is_over(self, entry: Entry, now_ms: int) -> bool:
        """Return whether the stream has expired."""
        end_ms = self._end_ms(entry)
        return end_ms is not None and now_ms >= end_ms

    def due(self, now_ms: int) -> str | None:
        """Return a stream to look at now, and forget the look; None if no time has come."""
        while self._queue and self._queue[0][0] <= now_ms:
            at_ms, path = heappop(self._queue)
            if self._looks.get(path) == at_ms:
                del self._looks[path]
                return path
        return None

    def _end_ms(self, entry: Entry) -> int | None:
        return entry.end_ms(self._used_ms.get(entry.path, self._begin_ms))
