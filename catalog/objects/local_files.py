"""The file operations of `catalog.objects.local`: find, remove, write, make durable. The caller handles `OSError`."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from catalog.format.checksum import ChecksumKind

__all__ = ["ABSENT", "KIND", "remove", "sync_dir", "walk", "write_all"]

ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR})
KIND = ChecksumKind.CRC32C


def walk(directory: Path, above: str, beginning: str, start_after: str) -> Iterator[str]:
    """Yield the keys of files under `directory` whose names begin with `beginning`, in the byte order of whole keys.

    Skip keys up to `start_after`. `above` is the part of the keys before the names. A directory sorts by its name with
    a slash: `a-b` comes before `a/b`.
    """
    try:
        with os.scandir(directory) as found:
            names = [entry.name + "/" * entry.is_dir() for entry in found if entry.name[0] != "."]
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in sorted(name for name in names if name.startswith(beginning)):
        key = above + name
        if not name.endswith("/"):
            if key > start_after:
                yield key
        elif key > start_after or start_after.startswith(key):  # else every key below comes too early
            yield from walk(directory / name, key, "", start_after)


def remove(path: Path) -> Path | None:
    """Remove the file. Return its directory; None if there was no file."""
    try:
        path.unlink()
    except OSError as cause:
        if cause.errno not in ABSENT:
            raise
        return None
    return path.parent


def write_all(fd: int, body: bytes | bytearray, offset: int | None = None) -> None:
    """Write `body` at `offset`, or where the descriptor stands."""
    view = memoryview(body)
    while view:
        written = os.write(fd, view) if offset is None else os.pwrite(fd, view, offset + len(body) - len(view))
        view = view[written:]


def sync_dir(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
