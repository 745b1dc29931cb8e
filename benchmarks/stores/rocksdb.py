"""RocksDB (`rocksdict`), one write batch an append, keys ascending, with its default options."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.slices import Unavailable
from benchmarks.stores import Append, Store

__all__ = ["library", "opened"]


def library() -> Any:
    """Return the module `rocksdict`. Raises `Unavailable`."""
    try:
        import rocksdict
    except ImportError as error:
        raise Unavailable("rocksdict is not installed") from error
    return rocksdict


def opened(*, sync: bool = True) -> Store:
    """Return a store, with `sync` writes or without. Threads write concurrently: RocksDB groups commits itself."""

    @contextmanager
    def store(directory: Path) -> Iterator[Append]:
        rocksdict = library()
        database = rocksdict.Rdict(str(directory / "db"), rocksdict.Options(raw_mode=True))
        options = rocksdict.WriteOptions()
        options.sync = sync
        numbers = threading.Lock()
        next_seq = 1

        def append(values: Sequence[bytes]) -> None:
            nonlocal next_seq
            with numbers:
                first = next_seq
                next_seq += len(values)
            if len(values) == 1:
                database.put(first.to_bytes(8, "big"), values[0], options)
                return
            batch = rocksdict.WriteBatch(raw_mode=True)
            for seq, value in enumerate(values, first):
                batch.put(seq.to_bytes(8, "big"), value)
            database.write(batch, options)

        try:
            yield append
        finally:
            database.close()

    return store
