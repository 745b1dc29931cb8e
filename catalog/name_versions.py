"""A number for each name of the local catalog, another one after each change of the name, and waits for the next.

VERSIONS-1  No thread waits for the file of the catalog while it has the lock of the versions. So the event loop of a
    daemon may ask for a version, and register or forget a waiter, while a transaction runs.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType

from seglog.base.arguments import checked


class NameVersions:
    """The versions of the names, and who waits for the next one. Safe for many threads."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self._last_deletion = 0  # the version of each name that has none
        self._waiters: dict[str, set[Callable[[], None]]] = {}
        self._lock = threading.Lock()

    @property
    def all(self) -> Mapping[str, int]:
        """The number of each name that has a handle or an attempt."""
        return MappingProxyType(self._versions)

    @checked
    def of(self, name: str) -> int:
        """Return the number of a name, for `wait`: that of `all`, or of the last deletion of a handle."""
        with self._lock:
            return self._versions.get(name, self._last_deletion)

    @checked
    def wait(self, name: str, version: int, waiter: Callable[[], None]) -> bool:
        """Register `waiter`, unless the name has another version by now. Return whether it was registered.

        The next change of the name calls it once, in any thread, however often it was registered. It must neither block
        nor raise.
        """
        with self._lock:
            if self._versions.get(name, self._last_deletion) != version:
                return False
            self._waiters.setdefault(name, set()).add(waiter)
            return True

    @checked
    def forget(self, name: str, waiter: Callable[[], None]) -> None:
        """Forget a waiter, if it is registered. Never waits for a transaction."""
        with self._lock:
            waiters = self._waiters.get(name, set())
            waiters.discard(waiter)
            if not waiters:
                self._waiters.pop(name, None)

    def change(self, name: str, *, is_gone: bool = False) -> None:
        """Take note of a change, or of the deletion of the name's handle. Call who waits for it."""
        with self._lock:
            self._versions[name] = number = next(self._numbers)
            if is_gone:
                self._last_deletion = number
                del self._versions[name]
            waiters = self._waiters.pop(name, ())
        # A waiter that looks at once waits for the catalog's lock, and so for the end of the transaction.
        for waiter in waiters:
            waiter()
