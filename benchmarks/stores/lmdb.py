"""LMDB, one transaction an append, keys ascending with its append mode."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.slices import Unavailable
from benchmarks.stores import Append, Store

__all__ = ["opened"]

_MAP_BYTES = 16 << 30


def opened(*, sync: bool = True) -> Store:
    """Return a store. LMDB has one writer at a time, so threads take turns."""

    @contextmanager
    def store(directory: Path) -> Iterator[Append]:
        try:
            import lmdb
        except ImportError as error:
            raise Unavailable("lmdb is not installed") from error
        environment = lmdb.open(str(directory / "db"), map_size=_MAP_BYTES, sync=sync)
        lock = threading.Lock()
        next_seq = 1

        def append(values: Sequence[bytes]) -> None:
            nonlocal next_seq
            with lock, environment.begin(write=True) as transaction:
                for seq, value in enumerate(values, next_seq):
                    transaction.put(seq.to_bytes(8, "big"), value, append=True)
                next_seq += len(values)

        try:
            yield append
        finally:
            environment.close()

    return store
