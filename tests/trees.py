"""The files below a directory, for a comparison before and after."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["fingerprint", "tree", "unchanged"]

_PAGE_BYTES = 4096
_EMPTY = bytes(_PAGE_BYTES)


def tree(directory: Path) -> dict[str, bytes]:
    """Return the content of each file below `directory`, by its path from there.

    A file above 4 KiB is given as its length and the digest of its pages that are not empty. When two trees differ,
    pytest compares the contents line by line, and a WAL file of 64 MiB has four million lines.
    """
    return {str(path.relative_to(directory)): _content(path) for path in sorted(directory.rglob("*")) if path.is_file()}


def _content(path: Path) -> bytes:
    size = path.stat().st_size
    if size <= _PAGE_BYTES:
        return path.read_bytes()
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for start, end in _written(file.fileno(), size):
            file.seek(start)
            while (at := file.tell()) < end and (page := file.read(_PAGE_BYTES)):
                if page != _EMPTY[: len(page)]:
                    digest.update(b"%d " % at + page)
    return f"{size} bytes, {digest.hexdigest()}".encode()


def _written(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts that may have other bytes than 0, in whole pages: most of a WAL file is a hole."""
    start = 0
    while start < size:
        try:
            start = os.lseek(fd, start, os.SEEK_DATA) // _PAGE_BYTES * _PAGE_BYTES
        except OSError:  # nothing but a hole up to the end
            return
        end = -(-os.lseek(fd, start, os.SEEK_HOLE) // _PAGE_BYTES) * _PAGE_BYTES
        yield start, end
        start = end


def fingerprint(directory: Path) -> str:
    """Return a hash over the names, bytes, modes, inodes, and modification and change times of all files."""
    found = hashlib.blake2b()
    for path in sorted([directory, *directory.rglob("*")]):
        known = path.stat()
        body = b"" if path.is_dir() else path.read_bytes()
        found.update(
            repr((str(path), known.st_mode, known.st_mtime_ns, known.st_ctime_ns, known.st_ino, body)).encode()
        )
    return found.hexdigest()


@contextmanager
def unchanged(directory: Path) -> Iterator[None]:
    before = fingerprint(directory)
    yield
    assert fingerprint(directory) == before
