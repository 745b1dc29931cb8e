"""What `catalog.objects.local` does with files: finds, joins, removes, makes durable. `OSError` is the caller's."""

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
    """Keys of the files under `directory` whose names there begin so, in the byte order of whole keys.

    `above` is what keys have before those names. A name stands for its keys with the slash: `a-b` comes before `a/b`.
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
        elif key > start_after or start_after.startswith(key):  # else all below come before
            yield from walk(directory / name, key, "", start_after)


def join(parts: Sequence[tuple[int, Path]], target: Path, key: Key) -> Checksum:
    """The parts, one after the other, as `target`; and the checksum of what they hold."""
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
    """The directory that lost the file; None if there was none."""
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
