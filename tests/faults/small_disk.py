"""A small disk that is really full: a tmpfs of some MiB, and a file of another program that takes what is left."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["SmallDisk", "mounted", "small_disk"]

_PIECE_BYTES = 64 * 1024
_PAGE_BYTES = 4096


@contextmanager
def mounted(place: Path, *options: str) -> Iterator[None]:
    """Mount at `place`. The test is skipped if the process may not mount."""
    done = subprocess.run(["mount", *options, str(place)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"mount is refused: {done.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


class SmallDisk:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._theirs = path / "theirs"

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, leave_bytes: int = 0) -> None:
        """Let another program's file take all free space but `leave_bytes`, in whole pages."""
        with self._theirs.open("ab", buffering=0) as file:
            while (left := self.free_bytes - leave_bytes) >= _PAGE_BYTES:
                file.write(bytes(min(_PIECE_BYTES, left // _PAGE_BYTES * _PAGE_BYTES)))

    def free(self) -> None:
        """Remove the file of the other program."""
        self._theirs.unlink(missing_ok=True)


@contextmanager
def small_disk(place: Path, size_bytes: int) -> Iterator[SmallDisk]:
    place.mkdir(exist_ok=True)
    with mounted(place, "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs"):
        yield SmallDisk(place)
