"""One process at a time uses a data directory: it locks the directory, and LOCK, whose text names the holder.

The lock on the directory holds if somebody removes LOCK, or moves the directory. A file system that cannot lock a
directory (NFS wants a file that is open for writing) leaves the lock on LOCK alone.

The kernel drops the lock with its holder, so what is left of a killed process is in nobody's way.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from types import TracebackType

from seglog.errors import DirectoryInUse, DirectoryNotWritable
from seglog.files.port import Files
from seglog.process.ownership import Owned

__all__ = ["DirectoryLock", "SharedLock"]

_TEXT_MAX_BYTES = 512
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_NOT_LOCKABLE = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP)
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


class DirectoryLock(Owned):
    """Held from construction to `release`. Raises `DirectoryInUse` or `DirectoryNotWritable`."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._folder_fd = -1
        try:
            self._fd = files.open(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            if error.errno in _READ_ONLY:
                raise DirectoryNotWritable(path.parent, os.strerror(error.errno)) from error
            raise
        try:
            self._take(path)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        # First, so that a fork in between closes no other file of this number.
        fds, self._fd, self._folder_fd = (self._folder_fd, self._fd), -1, -1
        for fd in fds:
            if fd >= 0:
                self._files.close(fd)

    def _leave_to_parent(self) -> None:
        for fd in (self._folder_fd, self._fd):
            if fd >= 0:
                self._files.close(fd)

    def _take(self, path: Path) -> None:
        try:
            self._files.lock(self._fd)
            self._folder_fd = self._files.open(path.parent, _DIRECTORY)
            self._lock_folder()
        except BlockingIOError as error:
            raise DirectoryInUse(path.parent, _holder(self._files, self._fd)) from error
        # The text is a courtesy to whoever is turned away: a full disk is no reason to stay out.
        try:
            self._files.truncate(self._fd, 0)
            self._files.pwrite(self._fd, _who().encode(errors="replace")[:_TEXT_MAX_BYTES], 0)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def _lock_folder(self) -> None:
        try:
            self._files.lock(self._folder_fd)
        except OSError as error:
            if error.errno not in _NOT_LOCKABLE:
                raise


class SharedLock(Owned):
    """For those who only read, any number of them, and no `DirectoryLock` meanwhile. A context manager.

    Nothing is written. Where there is no LOCK there is nobody to keep out. Raises `DirectoryInUse`.
    """

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._fd = -1
        try:
            self._fd = files.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            files.lock_shared(self._fd)
        except BlockingIOError as error:
            holder = _holder(files, self._fd)
            files.close(self._fd)
            raise DirectoryInUse(path.parent, holder) from error

    def __enter__(self) -> SharedLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._files.close(fd)

    def _leave_to_parent(self) -> None:
        if self._fd >= 0:
            self._files.close(self._fd)


def _holder(files: Files, fd: int) -> str:
    return files.pread(fd, _TEXT_MAX_BYTES, 0).decode(errors="replace").strip() or "another process"


def _who() -> str:
    return f"pid {os.getpid()} ({Path(sys.argv[0]).name or 'python'})\n"
