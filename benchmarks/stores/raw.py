"""The limit of the disk: `pwrite` of as many bytes as the frames take, on a preallocated file, and `fdatasync`."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.stores import Append, Store
from seglog.format.frame import MIN_FRAME_BYTES

__all__ = ["opened"]

_FILE_BYTES = 64 << 20


def opened(*, sync: bool = True) -> Store:
    """Return a store that writes one file. At its end the store starts again at offset 0. Threads take turns."""

    @contextmanager
    def store(directory: Path) -> Iterator[Append]:
        fd = os.open(directory / "file", os.O_RDWR | os.O_CREAT, 0o600)
        os.posix_fallocate(fd, 0, _FILE_BYTES)
        os.fsync(fd)
        lock = threading.Lock()
        offset = 0

        def append(values: Sequence[bytes]) -> None:
            nonlocal offset
            body = b"".join(values) + bytes(MIN_FRAME_BYTES * len(values))
            with lock:
                if offset + len(body) > _FILE_BYTES:
                    offset = 0
                os.pwrite(fd, body, offset)
                offset += len(body)
                if sync:
                    os.fdatasync(fd)

        try:
            yield append
        finally:
            os.close(fd)

    return store
