"""The append of one large record that comes in chunks: `Topic.append_stream`.

    1  The chunks go to a spool. Up to 1 MiB it is memory, and beyond that a file without a name in the data directory.
    2  The value is the mapped file. Its frame goes to the WAL as any other frame does, from the page cache.

Memory holds 1 MiB and a chunk, whatever the size of the record. Only a program that gave away the right to read the
files of Python, from which the first map is imported, holds the record.

The record is there whole or not at all, because it is one frame: if the chunks end with an error, or a crash comes
before the frame is written, the log has nothing of it, and the kernel frees the file.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from seglog.engine.engine import Engine
from seglog.errors import DiskFull, RecordTooLarge, TooManyOpenFiles
from seglog.files.file_system import NO_DESCRIPTOR
from seglog.format.appends import LargeValue
from seglog.values.byte_strings import byte_string, check_in_order
from seglog.wal.wal import NO_SPACE
from seglog.writing.append import AppendOptions, append, check_append, open_branch

_IN_MEMORY_BYTES = 1024 * 1024


class Spool:
    """A context manager that takes the chunks of one value, and refuses what the log would refuse of it."""

    def __init__(self, engine: Engine, options: AppendOptions) -> None:
        """Raises what `check_append` does."""
        check_append(engine, [b""], options)
        self._most_bytes = engine.settings.max_record_bytes
        self._root = engine.layout.root
        self._file: IO[bytes] = io.BytesIO()
        self._size_bytes = 0

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # bytes in its buffer find no room, and nobody wants them any more
            self._file.close()

    def add(self, chunk: bytes | bytearray | memoryview) -> None:
        """Take the next bytes. Raises `RecordTooLarge`, `InvalidArgument`, `DiskFull` and `TooManyOpenFiles`."""
        self._size_bytes += len(piece := byte_string(chunk, "chunks"))
        if self._size_bytes > self._most_bytes:
            raise RecordTooLarge(self._size_bytes, self._most_bytes)
        with self._named_errors():
            if self._size_bytes > _IN_MEMORY_BYTES and isinstance(self._file, io.BytesIO):
                start, self._file = self._file.getbuffer(), _file_without_name(self._root)
                self._file.write(start)
            self._file.write(piece)

    def values(self) -> Sequence[bytes]:
        """Return the value, for one append. A large one is a map of the file, which lasts as long as the value.

        Raises `DiskFull` and `TooManyOpenFiles`.
        """
        if self._size_bytes <= _IN_MEMORY_BYTES:
            self._file.seek(0)
            return (self._file.read(),)
        with self._named_errors():
            self._file.flush()
            try:
                import mmap
            except ImportError:
                self._file.seek(0)
                return (self._file.read(),)
            mapped = mmap.mmap(self._file.fileno(), self._size_bytes, access=mmap.ACCESS_READ)
        return LargeValue([memoryview(mapped)])  # type: ignore[list-item]  # whoever writes bytes also writes a view

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in NO_SPACE:
                raise DiskFull(self._root) from error
            if error.errno in NO_DESCRIPTOR:
                raise TooManyOpenFiles(self._root) from error
            raise


def _file_without_name(directory: Path) -> IO[bytes]:
    """Open a new file in the directory. It ends with the process."""
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        file = os.open(directory, flags | os.O_TMPFILE, 0o600)
    except OSError:  # the file system has no such files, as some over a network
        path = directory / f"tmp{os.urandom(8).hex()}"
        file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        path.unlink()
    return open(file, "r+b")


def append_stream(engine: Engine, name: str, chunks: Iterable[bytes], options: AppendOptions) -> tuple[range, bool]:
    """Append the chunks as one record. Return its seq as `append` does. Raises what `append` and `chunks` raise."""
    check_in_order("chunks", chunks, "an iterable of byte strings")
    with Spool(engine, options) as spool:
        open_branch(engine, name)
        for chunk in chunks:
            spool.add(chunk)
        return append(engine, name, spool.values(), options)
