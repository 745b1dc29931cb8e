"""A connection to SQLite belongs to the process that opened it. A fork must neither use it nor close it.

    1  The parent has a connection. Its threads take turns by a lock.
    2  Any thread of the parent forks. It first waits for the transaction that is under way, for a second at most.
       So SQLite's own locks and its state in the child are those of a connection at rest.
    3  In the child the object loses its attributes, and refuses every call (seglog.base.ownership). Nothing waits for
       a thread of the parent.
    4  The child keeps the connection until it ends, and never closes it.

FORK-1  The child never closes the connection, not even when Python ends. Otherwise SQLite would write the parent's WAL
        into the database, and delete the WAL by its name.
FORK-2  The child may open the same file later. SQLite then takes its own locks for those of the old connection. This
        does no harm, because one process at a time has the directory.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
from weakref import WeakSet

from seglog.base.ownership import Owned, is_foreign

__all__ = ["Connected"]

_PATIENCE_S = 1


class Connected(Owned):
    """A base class for an object that uses its `_connection` under its `_lock` only."""

    _connection: sqlite3.Connection

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _connected.add(self)

    def _leave_to_parent(self) -> None:
        """Keep the connection for ever, by a reference that nothing ever drops (FORK-1)."""
        if hasattr(self, "_connection"):  # the constructor may not have opened it yet
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))


class _Held(threading.local):
    """The locks that a thread holds while it forks."""

    def __init__(self) -> None:
        self.locks: list[threading.Lock] = []


_connected: WeakSet[Connected] = WeakSet()
_held = _Held()


def _before() -> None:
    # In one order, so that two threads that fork do not wait for each other.
    for each in sorted(_connected, key=id):
        if not is_foreign(each) and each._lock.acquire(timeout=_PATIENCE_S):  # noqa: SLF001 - the hook of this module
            _held.locks.append(each._lock)  # noqa: SLF001 - the same


def _in_parent() -> None:
    while _held.locks:
        _held.locks.pop().release()


def _in_child() -> None:
    _held.locks.clear()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
