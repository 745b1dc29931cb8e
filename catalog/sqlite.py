"""How the local catalog opens SQLite: a connection that a fork leaves alone, and a private copy for a reader.

**Forks.** A connection to SQLite belongs to the process that opened it. A fork must neither use it nor close it.

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

**A copy.** Its reader changes nothing beside the original, even while another process writes there.

SQLite makes files beside a database in WAL mode, even for a reader. So this module reads the database and its WAL until
two reads in a row find the same. It writes them to a private directory, and the reader opens that copy. SQLite recovers
the copy from its WAL.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sqlite3
import tempfile
import threading
import weakref
from pathlib import Path
from weakref import WeakSet

import xxhash

from catalog.errors import LocalCatalogUnavailable
from seglog.base.ownership import Owned, is_foreign

__all__ = ["Connected", "copy_aside"]

_PATIENCE_S = 1
_TRIES = 100
_PIECE_BYTES = 1 << 20


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


class Copy:
    """The directory `name`. Only the process that made it removes it, by `cleanup` or at the end of this object."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp(prefix="seglog-")
        self.cleanup = weakref.finalize(self, _remove, self.name, os.getpid())


def copy_aside(path: Path) -> Copy:
    """Return a directory with a copy of the database at `path` under its name, or an empty one if there is no database.

    Raise `LocalCatalogUnavailable` if the database cannot be read, or never stays the same long enough.
    """
    try:
        made = Copy()
        before = _read(path, None)
        for _ in range(_TRIES):
            after = _read(path, Path(made.name))
            if after == before:
                return made
            before = after
    except OSError as cause:
        raise LocalCatalogUnavailable(str(path), str(cause)) from cause
    raise LocalCatalogUnavailable(str(path), "it changes all the time")


def _read(path: Path, into: Path | None) -> dict[str, bytes]:
    """Return the digests of the database and its WAL, and copy both into the directory `into`, if it is given.

    The WAL comes first: a checkpoint moves content from the WAL to the database.
    """
    found: dict[str, bytes] = {}
    for name in (f"{path.name}-wal", path.name):
        copy = None if into is None else into / name
        try:
            found[name] = _read_file(path.with_name(name), copy)
        except FileNotFoundError:
            if copy is not None:
                copy.unlink(missing_ok=True)
    return found


def _read_file(path: Path, copy: Path | None) -> bytes:
    """Return the digest of a file, and copy it, piece by piece: it may be large."""
    digest = xxhash.xxh3_128()
    with path.open("rb", buffering=0) as source, open(os.devnull if copy is None else copy, "wb") as target:
        while piece := source.read(_PIECE_BYTES):
            digest.update(piece)
            target.write(piece)
    return digest.digest()


def _remove(directory: str, maker: int) -> None:
    if os.getpid() == maker:
        shutil.rmtree(directory)
