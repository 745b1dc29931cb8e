"""The file operations of `catalog.objects.local`: find, join, remove, make durable. The caller handles `OSError`."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from catalog.errors import InvalidObject
from catalog.format.checksum import Checksum, ChecksumKind
from catalog.format.keys import Key

__all__ = ["ABSENT", "KIND", "join", "remove", "sync_dir", "walk", "write_all"]

ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR})
KIND = ChecksumKind.CRC32C
_CHECK_BYTES = 1 << 20


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


def join(parts: Sequence[tuple[int, Path]], target: Path, key: Key) -> Checksum:
    """Write the parts to `target`, one after the other. Return the checksum of their bytes."""
    checksum = Checksum.of(KIND, b"")
    with target.open("wb", buffering=0) as joined:
        for number, path in parts:
            try:
                part = path.open("rb", buffering=0)
            except FileNotFoundError:
                raise InvalidObject(key, f"part {number} of its upload is not the one that was sent") from None
            with part:
                size = left = os.fstat(part.fileno()).st_size
                while left:
                    left -= os.sendfile(joined.fileno(), part.fileno(), size - left, left)
                while body := part.read(_CHECK_BYTES):
                    checksum = Checksum.of(KIND, body, checksum.value)
        os.fsync(joined.fileno())
    return checksum


def remove(path: Path) -> Path | None:
    """Remove the file. Return its directory; None if there was no file."""
    try:
        path.unlink()
    except OSError as cause:
        if cause.errno not in ABSENT:
            raise
        return None
    return path.parent


def write_all(fd: int, body: bytes | bytearray) -> None:
    view = memoryview(body)
    while view:
        view = view[os.write(fd, view) :]


def sync_dir(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
