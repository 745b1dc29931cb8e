"""The port to the file system: every file operation of the log goes through here.

So a test can record them, fail the nth, or kill the process between two. An implementation is a plain forwarder;
what is durable when is decided by the callers, and said there.

D1  A new file or a rename is durable after `sync_dir` of its directory; data after `datasync` of the file.
D2  `replace_atomically` is the one way to write a small file: write, datasync, rename, sync_dir.
D3  `EMFILE` and `ENFILE` come from opening a file, also from `sync_dir` and `list_dir`, which open a directory. What
    was to be done with the file was not begun then. After any other error of a sync the data may be lost.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from seglog.arguments import checked
from seglog.errors import TooManyOpenFiles

__all__ = ["NO_DESCRIPTOR", "Files", "OsFiles", "replace_atomically"]

NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


class Files(Protocol):
    """File descriptors are plain ints, as the kernel gives them. Every method may raise `OSError`."""

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int: ...
    def close(self, fd: int) -> None: ...
    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        ...

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        """All of `data`, or `OSError`."""
        ...

    def pwritev(self, fd: int, pieces: Sequence[bytes], offset: int) -> None:
        """All of `pieces`, one after the other, or `OSError`."""
        ...

    def allocate(self, fd: int, length: int) -> None:
        """Reserve blocks for `length` bytes from 0; the size grows to that, and new bytes read as zeros."""
        ...

    def truncate(self, fd: int, length: int) -> None: ...
    def size(self, fd: int) -> int: ...
    def datasync(self, fd: int) -> None: ...
    def rename(self, source: Path, target: Path) -> None: ...
    def unlink(self, path: Path) -> None: ...
    def make_dir(self, path: Path) -> None:
        """One level, mode 0700; one that exists is fine."""
        ...

    def remove_dir(self, path: Path) -> None:
        """An empty one."""
        ...

    def sync_dir(self, path: Path) -> None: ...
    def list_dir(self, path: Path) -> list[str]:
        """Names, ascending."""
        ...

    def is_dir(self, path: Path) -> bool: ...
    def identity(self, path: Path) -> tuple[int, int] | None:
        """Device and inode of what is at `path`, links followed. None: nothing is there."""
        ...

    def lock(self, fd: int) -> None:
        """Nobody else locks that file until `fd` is closed, or its process ends. `BlockingIOError`: somebody has it."""
        ...

    def lock_shared(self, fd: int) -> None:
        """As `lock`, but others may have a shared lock at the same time."""
        ...


_IOV_MAX = 1024
_TRIES = 20
_PAUSE_S = 0.05


class OsFiles:
    """The real one."""

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        data = os.pread(fd, length, offset)
        if len(data) == length or not data:
            return data
        pieces = [data]
        have = len(data)
        while have < length:
            piece = os.pread(fd, length - have, offset + have)
            if not piece:
                break
            pieces.append(piece)
            have += len(piece)
        return b"".join(pieces)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        done = os.pwrite(fd, data, offset)
        if done < len(data):
            view = memoryview(data)
            while done < len(view):
                done += os.pwrite(fd, view[done:], offset + done)

    def pwritev(self, fd: int, pieces: Sequence[bytes], offset: int) -> None:
        if len(pieces) == 1:
            self.pwrite(fd, pieces[0], offset)
            return
        for start in range(0, len(pieces), _IOV_MAX):
            group = pieces[start : start + _IOV_MAX]
            length = sum(map(len, group))
            done = os.pwritev(fd, group, offset)
            if done < length:
                self.pwrite(fd, memoryview(b"".join(group))[done:], offset + done)
            offset += length

    def allocate(self, fd: int, length: int) -> None:
        os.posix_fallocate(fd, 0, length)

    def truncate(self, fd: int, length: int) -> None:
        os.ftruncate(fd, length)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def datasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def make_dir(self, path: Path) -> None:
        path.mkdir(mode=0o700, exist_ok=True)

    def remove_dir(self, path: Path) -> None:
        os.rmdir(path)

    def sync_dir(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def list_dir(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def is_dir(self, path: Path) -> bool:
        return path.is_dir()

    def identity(self, path: Path) -> tuple[int, int] | None:
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino

    def lock(self, fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def lock_shared(self, fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)


@checked
def replace_atomically(files: Files, path: Path, body: bytes) -> None:
    """After this `path` holds `body`, or what it held before; whatever happens. Durable on return.

    Raises `TooManyOpenFiles` with nothing done.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        fd = files.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    except OSError as error:
        if error.errno in NO_DESCRIPTOR:
            raise TooManyOpenFiles(path) from error
        raise
    try:
        files.pwrite(fd, body, 0)
        files.datasync(fd)
    finally:
        files.close(fd)
    files.rename(temporary, path)
    _sync_renamed(files, path.parent)


def _sync_renamed(files: Files, directory: Path) -> None:
    """`sync_dir`, with patience: the caller has just closed a descriptor, which another thread may have taken.

    Nobody can say that nothing was done once the file has its name.
    """
    for _ in range(_TRIES):
        try:
            files.sync_dir(directory)
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR:
                raise
            time.sleep(_PAUSE_S)
        else:
            return
    files.sync_dir(directory)
