"""An open file that is shared by threads, and by readers that may stop in the middle.

The file is closed when its last holder drops it. So no holder reads from a descriptor that by now means another file.

A `ReadAheadBuffer` is for sequential parsing. One read serves many small items, or one large item.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from seglog.errors import FileCorrupt
from seglog.files.port import Files

__all__ = ["READ_AHEAD_BYTES", "OpenFile", "ReadAheadBuffer", "Readable"]

READ_AHEAD_BYTES = 1024 * 1024


class Readable(Protocol):
    """A file to read from, wherever it lies. `path` is for errors."""

    @property
    def path(self) -> Path: ...
    def read_exactly(self, length: int, offset: int) -> bytes: ...
    def read(self, length: int, offset: int) -> bytes: ...
    def size(self) -> int: ...


class OpenFile:
    __slots__ = ("_files", "fd", "path")

    def __init__(self, files: Files, path: Path, flags: int = os.O_RDWR, *, descriptor: int | None = None) -> None:
        """Open the file, or take `descriptor` if the caller has opened it. Either is closed with this object."""
        self.fd = -1
        self.path = path
        self._files = files
        self.fd = files.open(path, flags) if descriptor is None else descriptor

    def __del__(self) -> None:
        if self.fd >= 0:
            self._files.close(self.fd)

    def read_exactly(self, length: int, offset: int) -> bytes:
        """Return `length` bytes at `offset`. Raise `FileCorrupt` if the file ends before."""
        data = self._files.pread(self.fd, length, offset)
        if len(data) < length:
            raise FileCorrupt(self.path, offset + len(data), "the file is cut short")
        return data

    def read(self, length: int, offset: int) -> bytes:
        """Return up to `length` bytes; fewer only at the end of the file."""
        return self._files.pread(self.fd, length, offset)

    def write(self, data: bytes | bytearray, offset: int) -> None:
        self._files.pwrite(self.fd, data, offset)

    def size(self) -> int:
        return self._files.size(self.fd)

    def truncate(self, length: int) -> None:
        self._files.truncate(self.fd, length)

    def datasync(self) -> None:
        self._files.datasync(self.fd)


class ReadAheadBuffer:
    """A buffer over a file. It never reads past `end`, whatever a length field says. Not thread-safe."""

    __slots__ = ("_base", "_end", "_file", "_read_bytes", "buffer")

    def __init__(self, file: Readable, end: int, read_bytes: int = READ_AHEAD_BYTES) -> None:
        self._file = file
        self._end = end
        self._read_bytes = read_bytes
        self._base = 0
        self.buffer = b""

    def index(self, position: int, length: int) -> int:
        """Return the index of `position` in `buffer`.

        From there on, `buffer` has `length` bytes, or as many as the file has up to `end`.
        """
        if position < self._base or position + length > self._base + len(self.buffer):
            wanted = min(max(length, self._read_bytes), self._end - position)
            self.buffer = self._file.read(max(wanted, 0), position)
            self._base = position
        return position - self._base
