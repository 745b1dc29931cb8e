"""The local catalogs of simulated processes: SQLite in memory instead of `catalog.db` on a disk.

After a crash exactly the committed rows are there (LOCAL-1). The process may die before each commit and after it. The
simulation does not model SQLite's own files.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from catalog.local_catalog import Attempt, Handle
from tests.simulation.schedule import Crashed, Task

__all__ = ["Database", "Prepared", "database_of"]

Prepared = Callable[[dict[str, Any], dict[str, Any] | None], None]
"""Takes the row of a handle with a pending commit, and the row of the attempt that is saved with it, if any."""

_HANDLE = tuple(field.name for field in fields(Handle))
_ATTEMPT = tuple(field.name for field in fields(Attempt))


class Database(sqlite3.Connection):
    """A local catalog. It calls `on_prepared` after it has recorded a pending commit."""

    task: Task
    on_prepared: Prepared

    def close(self) -> None:
        """Do nothing: the content is as durable as a file. The collector closes the connection for real."""

    def __del__(self) -> None:
        super().close()

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        if sql == "ROLLBACK":
            return super().execute(sql)
        if self.task.is_dead:
            raise Crashed
        if sql == "BEGIN IMMEDIATE":
            self._handle: dict[str, Any] | None = None
            self._attempt: dict[str, Any] | None = None
        elif sql.startswith("INSERT OR REPLACE INTO handles"):
            self._handle = dict(zip(_HANDLE, values, strict=True))
        elif sql.startswith("INSERT OR REPLACE INTO attempts"):
            self._attempt = dict(zip(_ATTEMPT, values, strict=True))
        elif sql == "COMMIT":
            return self._commit()
        return super().execute(sql, values)

    def _commit(self) -> sqlite3.Cursor:
        self.task.schedule.perhaps_crash(self.task)
        done = super().execute("COMMIT")
        if self._handle is not None and self._handle["pending_body"] is not None:
            self.on_prepared(self._handle, self._attempt)
        self.task.schedule.perhaps_crash(self.task)
        return done

    def has_pending(self, body: bytes) -> bool:
        return bool(super().execute("SELECT 1 FROM handles WHERE pending_body = ?", (body,)).fetchall())


def database_of(task: Task, on_prepared: Prepared) -> Database:
    made = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=Database)
    made.task, made.on_prepared = task, on_prepared
    return made


def path_of(name: str) -> Path:
    """The data directory of a task, which is on no real disk."""
    return Path("/simulated", name)
