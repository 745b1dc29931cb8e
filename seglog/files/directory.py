"""A directory of a log: one process at a time uses it, and a warning is due if it is in memory.

**The lock.** The process locks the directory and the file LOCK. The text of LOCK names the holder. The lock on the
directory holds even if somebody removes LOCK or moves the directory. Some file systems cannot lock a directory: NFS
requires a file that is open for writing. There, the lock on LOCK is the only one.

The kernel drops the locks when their holder ends. So a killed process leaves no lock behind.

**A directory in memory.** There an fsync returns, and nothing is durable. A log on tmpfs works as any other, but a
reboot or an unmount removes all of it. So the log warns when it is opened there for writing.

Linux lists the kind of each mount in /proc/self/mountinfo. On other systems, no directory is known to be in memory.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from pathlib import Path
from types import TracebackType

from seglog.base.ownership import Owned
from seglog.errors import DirectoryInUse, DirectoryNotWritable
from seglog.files.port import Files

__all__ = ["DirectoryLock", "SharedLock", "in_memory_kind", "kind_of_mount"]

_TEXT_MAX_BYTES = 512
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_NOT_LOCKABLE = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP)
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
_MOUNTS = Path("/proc/self/mountinfo")
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_ESCAPED = re.compile(rb"\\([0-7]{3})")


class DirectoryLock(Owned):
    """An exclusive lock, held from construction to `release`. Raise `DirectoryInUse` or `DirectoryNotWritable`."""

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
        # Forget the descriptors first, so that a fork in between closes no other file with the same number.
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
        # The text only informs a process that is refused, so a full disk does not prevent the lock.
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
    """A lock for readers: any number of readers, and no `DirectoryLock` at the same time. A context manager.

    The lock writes nothing. If there is no LOCK, no process uses the directory, and nothing is locked. Raise
    `DirectoryInUse`.
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


def in_memory_kind(directory: Path) -> str | None:
    """Return the kind of the directory's file system if it is in memory; None for any other or an unknown kind."""
    try:
        kind = kind_of_mount(_MOUNTS.read_bytes(), os.path.realpath(os.fsencode(directory)))
    except OSError:
        return None
    return kind if kind in _IN_MEMORY else None


def kind_of_mount(mounts: bytes, path: bytes) -> str | None:
    """Return the kind of the file system with that path. If several mounts are on one place, the last one counts."""
    best, kind = -1, None
    for line in mounts.splitlines():
        fields, separator, rest = line.partition(b" - ")
        words = fields.split(b" ")
        if not separator or len(words) < 5:
            continue
        place = _ESCAPED.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), words[4])
        holds = path == place or path.startswith(place.rstrip(b"/") + b"/")
        if holds and len(place) >= best:
            best, kind = len(place), rest.split(b" ", 1)[0].decode(errors="replace")
    return kind
