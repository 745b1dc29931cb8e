"""The streams in use, by path.

KEPT-1  All requests that use a stream at one time use one object, so they have one order.
KEPT-2  The objects of the 10,000 streams used last stay. The mark of another one is read again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from weakref import WeakValueDictionary

from offload.daemon.service import Service
from offload.daemon.streams.entries import Entry
from offload.daemon.streams.live import Live

__all__ = ["Kept"]

_KEPT = 10_000


class Kept:
    """The streams in use of one service. For one event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._all: WeakValueDictionary[str, Live] = WeakValueDictionary()
        self._newest: OrderedDict[str, Live] = OrderedDict()
        self._listens = False

    def get(self, entry: Entry) -> Live:
        """Return the object of a stream, for this entry."""
        live = self._all.get(entry.path)
        if live is None or live.entry != entry:
            live = self._all[entry.path] = Live(self._service, entry)
        self._newest[entry.path] = live
        self._newest.move_to_end(entry.path)
        if len(self._newest) > _KEPT:
            self._newest.popitem(last=False)
        return live

    def drop(self, path: str) -> None:
        self._all.pop(path, None)
        self._newest.pop(path, None)

    def listen(self) -> None:
        """Wake the readers that wait when the daemon stops."""
        if self._listens:
            return
        self._listens = True
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._wake_all)

        self._service.stopping.listen(wake)

    def _wake_all(self) -> None:
        for live in list(self._all.values()):
            live.wake()
