"""The local catalog, in SQLite: the knowledge of one data directory about the remote, and its pending writes there.

    handles     name "topic@branch" -> volume, newest LSN that is part of it, the pending commit,
                the LSN at which it diverged, the epoch that it writes with, the configuration that the volume knows
    volumes     vid -> its Control, as stored remotely (immutable, so a cache that never is stale)
    log         vid, lsn -> its Commit, likewise
    objects     key -> a boundary or a set of checkpoints, as last read; a list of segments, which never changes; a tag
                that was made or read here, for the completion of names; the newest commit of a volume as a proxy gave
                it, apart from the bucket's own
    attempts    sid -> how far an offload has come

LOCAL-1  A call that changes something is one transaction, and durable when it returns (WAL, synchronous=FULL).
LOCAL-2  A pending commit is on record, whole, before the first try of its key. So a restart sends the identical bytes.
LOCAL-3  The file's user_version is the format version. Another version is `FormatUnsupported`, and the file stays
    untouched.

Integers of SQLite are signed: an LSN or seq from 2^63 on is an `OverflowError`.
All methods are safe to call from many threads. The threads share one connection, and take turns.

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
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self
from weakref import WeakSet

from catalog.errors import FormatUnsupported, InvalidObject, LocalCatalogUnavailable
from catalog.format.ids import LsnNumber, Sid, Vid
from catalog.format.keys import Key
from catalog.local_copy import copy_aside
from seglog.base.arguments import checked
from seglog.base.dataclasses import dataclass
from seglog.base.ownership import Owned, is_foreign

_PATIENCE_S = 1


class NameVersions:
    """The version of each name, a number that each change of the name replaces, and who waits for the next one.

    Safe for many threads. No thread waits for the file of the catalog while it has the lock of the versions. So the
    event loop of a daemon may ask for a version, and register or forget a waiter, while a transaction runs.
    """

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


class Connected(Owned):
    """A base class for an object that uses its `_connection` under its `_lock` only."""

    _connection: sqlite3.Connection

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _connected.add(self)

    def _leave_to_parent(self) -> None:
        """Keep the connection for ever, by a reference that nothing ever drops (FORK-1)."""
        import ctypes

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
    for connection in sorted(_connected, key=id):
        if not is_foreign(connection) and connection._lock.acquire(timeout=_PATIENCE_S):  # noqa: SLF001 - the hook of this module
            _held.locks.append(connection._lock)  # noqa: SLF001 - the same


def _in_parent() -> None:
    while _held.locks:
        _held.locks.pop().release()


def _in_child() -> None:
    _held.locks.clear()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)


_VERSION = 2
_BUSY_TIMEOUT_S = 10
_SCHEMA = (
    """CREATE TABLE handles (
        name TEXT PRIMARY KEY, vid TEXT NOT NULL, lsn INTEGER NOT NULL,
        pending_lsn INTEGER, pending_body BLOB, diverged_lsn INTEGER,
        epoch INTEGER NOT NULL, fenced_epoch INTEGER, config TEXT NOT NULL, topic_id INTEGER NOT NULL
    ) WITHOUT ROWID""",
    "CREATE TABLE volumes (vid TEXT PRIMARY KEY, control BLOB NOT NULL) WITHOUT ROWID",
    """CREATE TABLE log (
        vid TEXT NOT NULL, lsn INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (vid, lsn)
    ) WITHOUT ROWID""",
    "CREATE TABLE objects (key TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",
    """CREATE TABLE attempts (
        sid TEXT PRIMARY KEY, name TEXT NOT NULL, vid TEXT NOT NULL,
        first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, state TEXT NOT NULL,
        created_at_ms INTEGER NOT NULL, upload_id TEXT, lsn INTEGER, published_at_ms INTEGER
    ) WITHOUT ROWID""",
)


@dataclass(frozen=True, slots=True)
class Handle:
    """A local name for a remote volume. `lsn` is the newest commit known to be part of it; 0 is none.

    `pending_body` is a commit that was or will be sent to `pending_lsn`. It stays until the answer is definite. `epoch`
    is the epoch of the commits that are made here. A replica has epoch 0: it makes no commits and follows the volume.
    `fenced_epoch` is the epoch of another writer, which took the volume over. `config` is the topic's configuration at
    `lsn`. `diverged_lsn` is the LSN that another writer's commit took. It is 0 if GC collected the whole volume.
    `topic_id` is the log's id of the topic that a writer's commits describe. A later topic may have the same name.
    """

    name: str
    vid: Vid
    lsn: int
    pending_lsn: int | None = None
    pending_body: bytes | None = None
    diverged_lsn: int | None = None
    epoch: int = 0
    fenced_epoch: int | None = None
    config: str = ""
    topic_id: int = 0

    @property
    def is_collected(self) -> bool:
        return self.diverged_lsn == 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to bring records `first_seq` to `last_seq` of `name` into the volume. The offloader defines `state`.

    `lsn` is the LSN of the commit that names the segment, once there is one.
    """

    sid: Sid
    name: str
    vid: Vid
    first_seq: int
    last_seq: int
    state: str
    created_at_ms: int
    upload_id: str | None = None
    lsn: int | None = None
    published_at_ms: int | None = None


_HANDLE_COLUMNS = tuple(field.name for field in fields(Handle))
_ATTEMPT_COLUMNS = tuple(field.name for field in fields(Attempt))


def _put(table: str, columns: tuple[str, ...]) -> str:
    values = ", ".join("?" * len(columns))
    return f"INSERT OR REPLACE INTO {table} ({', '.join(columns)}) VALUES ({values})"  # noqa: S608 - our own names


_PUT_HANDLE = _put("handles", _HANDLE_COLUMNS)
_PUT_ATTEMPT = _put("attempts", _ATTEMPT_COLUMNS)
_PUT_COMMIT = _put("log", ("vid", "lsn", "body"))
_SELECT_HANDLES = f"SELECT {', '.join(_HANDLE_COLUMNS)} FROM handles"  # noqa: S608 - the same
_SELECT_ATTEMPTS = f"SELECT {', '.join(_ATTEMPT_COLUMNS)} FROM attempts"  # noqa: S608 - the same


# SQLite's shared memory grows by half of this.
_PAGES_BYTES = 64 * 1024


class LocalCatalog(Connected):
    """The local catalog at `path`, which is made if it is absent. A context manager.

    With `read_only`, it opens a private copy, so that nothing changes at `path`. Everything saved in the copy is lost
    when it is closed. Raise `LocalCatalogUnavailable`, `FormatUnsupported`, and `InvalidObject` for a file that is no
    such database.
    """

    def __init__(self, path: Path, *, read_only: bool = False, make_room: Callable[[], None] = lambda: None) -> None:
        """Open it. `make_room` is called before each write, so that a caller with a reserve can give it up."""
        super().__init__()
        self._make_room: Callable[[], None] = make_room
        self._path = path
        self.versions = NameVersions()
        self._copy = copy_aside(path) if read_only else None
        if self._copy is not None:
            path = Path(self._copy.name, path.name)
        try:
            self._make_room()
            with self._errors():
                self._connection = _connect(path)
                try:
                    self._prepare()
                    if not read_only:
                        self._index()
                except BaseException:
                    self._connection.close()
                    raise
        except BaseException:
            self._drop_copy()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"the close after it failed too: {failure}")

    def close(self) -> None:
        """Close the connection. In a forked child, do nothing (FORK-1)."""
        if is_foreign(self):
            return
        with self._lock, self._errors():
            self._connection.close()
            self._drop_copy()

    # ------------------------------------------------------------ handles and attempts

    @checked
    def save(
        self,
        *,
        handle: Handle | None = None,
        attempt: Attempt | None = None,
        commit: tuple[Vid, int, bytes] | None = None,
        done: Sid | None = None,
        truncated: tuple[str, str, int] | None = None,
    ) -> None:
        """Save or replace a handle, an attempt and a commit (vid, lsn, body), all or nothing.

        `done` is an attempt to delete. `truncated` is a name, a state and a seq, for the attempts of that name in that
        state. The call deletes attempts that begin at or above the seq. It shortens the others to end before the seq.
        """
        with self._transaction() as run:
            if handle is not None:
                run.execute(_PUT_HANDLE, _row(handle, _HANDLE_COLUMNS))
                self.versions.change(handle.name)
            if attempt is not None:
                run.execute(_PUT_ATTEMPT, _row(attempt, _ATTEMPT_COLUMNS))
                self.versions.change(attempt.name)
            if commit is not None:
                run.execute(_PUT_COMMIT, (str(commit[0]), *commit[1:]))
            if done is not None:
                self._forget_attempt(run, done)
            if truncated is not None:
                run.execute("DELETE FROM attempts WHERE name = ? AND state = ? AND first_seq >= ?", truncated)
                name, state, seq = truncated
                query = "UPDATE attempts SET last_seq = ? WHERE name = ? AND state = ? AND last_seq >= ?"
                run.execute(query, (seq - 1, name, state, seq))
                self.versions.change(name)

    @checked
    def handle(self, name: str) -> Handle | None:
        rows = self._rows(f"{_SELECT_HANDLES} WHERE name = ?", name)
        return _handle(rows[0]) if rows else None

    def handles(self) -> tuple[Handle, ...]:
        """Return all handles, ascending by name."""
        return tuple(map(_handle, self._rows(f"{_SELECT_HANDLES} ORDER BY name")))

    def handle_names(self) -> list[str]:
        """Return the names of all handles, ascending."""
        return [name for (name,) in self._rows("SELECT name FROM handles ORDER BY name")]

    def fenced_names(self) -> list[str]:
        """Return the names of the handles that another writer has fenced."""
        return [name for (name,) in self._rows("SELECT name FROM handles WHERE fenced_epoch IS NOT NULL")]

    @checked
    def delete_handle(self, name: str) -> None:
        with self._transaction() as run:
            run.execute("DELETE FROM handles WHERE name = ?", (name,))
            self.versions.change(name, is_gone=True)

    @checked
    def attempts(self, name: str | None = None) -> tuple[Attempt, ...]:
        """Return the attempts of one name, or all; oldest first."""
        order = "ORDER BY created_at_ms, first_seq, sid"
        if name is None:
            rows = self._rows(f"{_SELECT_ATTEMPTS} {order}")
        else:
            rows = self._rows(f"{_SELECT_ATTEMPTS} WHERE name = ? {order}", name)
        return tuple(map(_attempt, rows))

    @checked
    def delete_attempt(self, sid: Sid) -> None:
        with self._transaction() as run:
            self._forget_attempt(run, sid)

    @checked
    def names_published(self, state: str, until_ms: int) -> set[str]:
        """Return the names that have an attempt in that state, published at `until_ms` or before."""
        query = "SELECT DISTINCT name FROM attempts WHERE published_at_ms <= ? AND state = ?"
        return {name for (name,) in self._rows(query, until_ms, state)}

    def _forget_attempt(self, run: sqlite3.Connection, sid: Sid) -> None:
        for (name,) in run.execute("DELETE FROM attempts WHERE sid = ? RETURNING name", (str(sid),)).fetchall():
            self.versions.change(name)

    # ------------------------------------------------------------ cache of remote objects

    @checked
    def put_control(self, vid: Vid, body: bytes) -> None:
        with self._transaction() as run:
            run.execute("INSERT OR REPLACE INTO volumes (vid, control) VALUES (?, ?)", (str(vid), body))

    @checked
    def control(self, vid: Vid) -> bytes | None:
        rows = self._rows("SELECT control FROM volumes WHERE vid = ?", str(vid))
        return rows[0][0] if rows else None

    @checked
    def put_commits(self, vid: Vid, commits: Iterable[tuple[int, bytes]]) -> None:
        """Save commits, each as (lsn, body)."""
        with self._transaction() as run:
            run.executemany(_PUT_COMMIT, [(str(vid), lsn, body) for lsn, body in commits])

    @checked
    def commit_bodies(self, vid: Vid, first_lsn: LsnNumber, last_lsn: LsnNumber) -> dict[int, bytes]:
        """Return the saved commits from `first_lsn` to `last_lsn`, both included, by LSN."""
        query = "SELECT lsn, body FROM log WHERE vid = ? AND lsn BETWEEN ? AND ? ORDER BY lsn"
        return dict(self._rows(query, str(vid), first_lsn, last_lsn))

    @checked
    def newest_lsn(self, vid: Vid) -> int:
        """Return the newest LSN of the saved commits; 0 if there is none."""
        ((newest,),) = self._rows("SELECT coalesce(max(lsn), 0) FROM log WHERE vid = ?", str(vid))
        return int(newest)

    @checked
    def has_commits(self, vid: Vid, first_lsn: LsnNumber, last_lsn: LsnNumber) -> bool:
        """Tell whether all commits from `first_lsn` to `last_lsn` are saved."""
        query = "SELECT count(*) FROM log WHERE vid = ? AND lsn BETWEEN ? AND ?"
        ((count,),) = self._rows(query, str(vid), first_lsn, last_lsn)
        return int(count) == last_lsn - first_lsn + 1

    @checked
    def put_object(self, key: Key, body: bytes) -> None:
        with self._transaction() as run:
            run.execute("INSERT OR REPLACE INTO objects (key, body) VALUES (?, ?)", (key, body))

    @checked
    def object(self, key: Key) -> bytes | None:
        rows = self._rows("SELECT body FROM objects WHERE key = ?", key)
        return rows[0][0] if rows else None

    @checked
    def drop_object(self, key: Key) -> None:
        with self._transaction() as run:
            run.execute("DELETE FROM objects WHERE key = ?", (key,))

    @checked
    def replace_objects(self, prefix: str, bodies: Mapping[str, bytes]) -> None:
        """Let `bodies` take the place of all saved objects whose key begins with `prefix`, which ends with a slash.

        If nothing changes, nothing is written.
        """
        query = "SELECT key, body FROM objects WHERE key >= ? AND key < ?"
        bounds = (prefix, f"{prefix[:-1]}0")  # "0" follows "/"
        if dict(self._rows(query, *bounds)) == bodies:
            return
        with self._transaction() as run:
            run.execute("DELETE FROM objects WHERE key >= ? AND key < ?", bounds)
            run.executemany("INSERT INTO objects (key, body) VALUES (?, ?)", list(bodies.items()))

    def volumes(self) -> tuple[Vid, ...]:
        """Return the volumes of which a control or a commit is saved."""
        rows = self._rows("SELECT vid FROM volumes UNION SELECT vid FROM log")
        return tuple(Vid.parse(vid) for (vid,) in rows)

    @checked
    def drop_commits(self, vid: Vid, below_lsn: LsnNumber, first_lsn: LsnNumber = 1) -> int:
        """Delete the saved commits from `first_lsn` on and below `below_lsn`. Return how many there were."""
        query = "DELETE FROM log WHERE vid = ? AND lsn >= ? AND lsn < ?"
        with self._transaction() as run:
            return run.execute(query, (str(vid), first_lsn, below_lsn)).rowcount

    @checked
    def drop_volume(self, vid: Vid) -> int:
        """Delete all that is saved of the volume, except handles and attempts. Return how many commits were deleted."""
        with self._transaction() as run:
            run.execute("DELETE FROM volumes WHERE vid = ?", (str(vid),))
            run.execute("DELETE FROM objects WHERE key >= ? AND key < ?", (f"{vid}/", f"{vid}0"))
            return run.execute("DELETE FROM log WHERE vid = ?", (str(vid),)).rowcount

    # ------------------------------------------------------------ SQLite

    def _prepare(self) -> None:
        run = self._connection
        ((version,),) = run.execute("PRAGMA user_version").fetchall()
        if version not in {0, _VERSION}:
            raise FormatUnsupported(str(self._path), str(version), _VERSION)
        run.execute("PRAGMA journal_mode = WAL")
        run.execute(f"PRAGMA synchronous = {'FULL' if self._copy is None else 'OFF'}")
        if version == _VERSION:
            return
        with self._transaction() as run:
            ((version,),) = run.execute("PRAGMA user_version").fetchall()
            if version == _VERSION:  # another process made it meanwhile
                return
            if run.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall():
                raise InvalidObject(str(self._path), "it is another program's database")
            for statement in _SCHEMA:
                run.execute(statement)
            run.execute(f"PRAGMA user_version = {_VERSION}")

    def _index(self) -> None:
        """Make the index of attempts by name, which an older release did not have. It ignores the index."""
        self._connection.execute("CREATE INDEX IF NOT EXISTS attempts_by_name ON attempts (name)")

    def _drop_copy(self) -> None:
        if self._copy is not None:
            self._copy.cleanup()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._make_room()
        with self._lock, self._errors():
            run = self._connection
            run.execute("BEGIN IMMEDIATE")
            try:
                yield run
                run.execute("COMMIT")
            except BaseException:
                if run.in_transaction:
                    run.execute("ROLLBACK")
                raise

    def _rows(self, query: str, *values: str | int) -> list[Any]:
        with self._lock, self._errors():
            return self._connection.execute(query, values).fetchall()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.OperationalError, sqlite3.ProgrammingError) as cause:
            raise LocalCatalogUnavailable(str(self._path), str(cause), is_full=_is_full(self._path, cause)) from cause
        except sqlite3.DatabaseError as cause:
            raise InvalidObject(str(self._path), str(cause)) from cause


def _connect(path: Path) -> sqlite3.Connection:
    # SQLite gives its other files the mode of this one.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    return sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)


def _is_full(path: Path, cause: Exception) -> bool:
    """Return whether the disk is full. SQLite says so, or reports a failed read or write of its shared memory."""
    if isinstance(cause, OSError):
        return cause.errno in (errno.ENOSPC, errno.EDQUOT)
    code = getattr(cause, "sqlite_errorcode", 0)
    if code & 0xFF != sqlite3.SQLITE_IOERR:
        return bool(code == sqlite3.SQLITE_FULL)
    with contextlib.suppress(OSError):
        disk = os.statvfs(path.parent)
        return disk.f_bavail * disk.f_frsize < _PAGES_BYTES
    return False


def _row(value: Handle | Attempt, columns: tuple[str, ...]) -> tuple[object, ...]:
    values = (getattr(value, column) for column in columns)
    return tuple(str(value) if isinstance(value, Sid | Vid) else value for value in values)


def _handle(row: tuple[Any, ...]) -> Handle:
    values = dict(zip(_HANDLE_COLUMNS, row, strict=True))
    values["vid"] = Vid.parse(values["vid"])
    return Handle(**values)


def _attempt(row: tuple[Any, ...]) -> Attempt:
    values = dict(zip(_ATTEMPT_COLUMNS, row, strict=True))
    values["sid"] = Sid.parse(values["sid"])
    values["vid"] = Vid.parse(values["vid"])
    return Attempt(**values)
