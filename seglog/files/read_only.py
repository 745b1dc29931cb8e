"""A view of a file system. A change through the view shows in the view only, and never reaches the disk.

Recovery cuts and removes files that are derivable. Over this view it can run without a trace. A call that would write
or create something raises EROFS. Another process may change the files meanwhile. Files that were cut or unlinked
through the view stay so in the view.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from seglog.files.port import Files

__all__ = ["ReadOnlyFiles"]

_WRITES = os.O_CREAT | os.O_TRUNC


class ReadOnlyFiles:
    """A view over another port.

    While one thread cuts, unlinks or renames, no other thread may use the view. Later, many threads may read.
    """

    def __init__(self, inner: Files) -> None:
        self.inner = inner
        self._paths: dict[int, Path] = {}
        self._lengths: dict[Path, int] = {}
        self._unlinked: set[Path] = set()
        self._moved: dict[Path, Path] = {}

    def hide_behind(self, path: Path, length: int) -> None:
        """Show the file as if it ended at `length`."""
        self._lengths[path] = length

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        if flags & _WRITES:
            _refuse()
        if path in self._unlinked:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        try:
            fd = self.inner.open(self._place(path), os.O_RDONLY, mode)
        except FileNotFoundError:
            # The writer may have made the same rename by now.
            fd = self.inner.open(path, os.O_RDONLY, mode)
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        self._paths.pop(fd, None)
        self.inner.close(fd)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        limit = self._lengths.get(self._paths[fd])
        if limit is not None:
            length = max(0, min(length, limit - offset))
        return self.inner.pread(fd, length, offset)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:  # noqa: ARG002 - refused, whatever it is
        _refuse()

    def pwritev(self, fd: int, pieces: Sequence[bytes], offset: int) -> None:  # noqa: ARG002 - refused, whatever it is
        _refuse()

    def allocate(self, fd: int, length: int) -> None:  # noqa: ARG002 - refused, whatever it is
        _refuse()

    def truncate(self, fd: int, length: int) -> None:
        self.hide_behind(self._paths[fd], length)

    def size(self, fd: int) -> int:
        size = self.inner.size(fd)
        return min(size, self._lengths.get(self._paths[fd], size))

    def datasync(self, fd: int) -> None:
        """Do nothing: there is nothing to sync."""

    def rename(self, source: Path, target: Path) -> None:
        place = self._place(source)
        self._moved.pop(source, None)
        self._moved[target] = place
        self._unlinked.add(source)
        self._unlinked.discard(target)
        self._lengths.pop(target, None)
        if source in self._lengths:
            self._lengths[target] = self._lengths.pop(source)

    def unlink(self, path: Path) -> None:
        self._moved.pop(path, None)
        self._unlinked.add(path)

    def make_dir(self, path: Path) -> None:  # noqa: ARG002 - refused, whatever it is
        _refuse()

    def sync_dir(self, path: Path) -> None:
        """Do nothing: there is nothing to sync."""

    def list_dir(self, path: Path) -> list[str]:
        gone = {unlinked.name for unlinked in self._unlinked if unlinked.parent == path}
        moved = {target.name for target in self._moved if target.parent == path}
        names = self.inner.list_dir(self._place(path))
        return sorted({*names} - gone | moved) if gone or moved else names

    def remove_dir(self, path: Path) -> None:
        self._unlinked.add(path)
        self._moved.pop(path, None)

    def is_dir(self, path: Path) -> bool:
        return self.inner.is_dir(self._place(path))

    def identity(self, path: Path) -> tuple[int, int] | None:
        return None if path in self._unlinked else self.inner.identity(self._place(path))

    def lock(self, fd: int) -> None:  # noqa: ARG002 - refused, whatever it is
        _refuse()

    def lock_shared(self, fd: int) -> None:
        self.inner.lock_shared(fd)

    def _place(self, path: Path) -> Path:
        """Return the place on the disk of a path in the view."""
        for target, source in self._moved.items():
            if path == target or target in path.parents:
                return source / path.relative_to(target)
        return path


def _refuse() -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))
