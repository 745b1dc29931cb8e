"""SQLite with a write-ahead log, one transaction a batch: the durable store that comes with Python."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.stores import Append, Store

__all__ = ["opened"]


def opened(*, sync: bool = True) -> Store:
    """Return a store, synchronous=FULL or OFF.

    Threads share one connection under a lock, which is SQLite's best case.
    """

    @contextmanager
    def store(directory: Path) -> Iterator[Append]:
        connection = sqlite3.connect(directory / "db", isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={'FULL' if sync else 'OFF'}")
        connection.execute("CREATE TABLE records (seq INTEGER PRIMARY KEY, ts_ms INTEGER, value BLOB)")
        lock = threading.Lock()

        def append(values: Sequence[bytes]) -> None:
            now_ms = time.time_ns() // 1_000_000
            with lock:
                connection.execute("BEGIN")
                connection.executemany(
                    "INSERT INTO records (ts_ms, value) VALUES (?, ?)", [(now_ms, value) for value in values]
                )
                connection.execute("COMMIT")

        try:
            yield append
        finally:
            connection.close()

    return store
