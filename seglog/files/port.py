"""The port to the file system: every file operation of the log goes through here.

So a test can record them, fail the nth, or kill the process between two. An implementation only forwards the calls.
Each caller decides what is durable when, and documents it.

FILE-1  A new file or a rename is durable after `sync_dir` of its directory; data after `datasync` of the file.
FILE-2  `replace_atomically` is the one way to write a small file: write, datasync, rename, sync_dir.
FILE-3  `EMFILE` and `ENFILE` come from opening a file. `sync_dir` and `list_dir` raise them too, because they open a
    directory. After them, the operation on the file has not begun. After any other error of a sync, the data may be
    lost.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from seglog.base.arguments import checked
from seglog.base.ownership import Owned
from seglog.errors import TooManyOpenFiles

__all__ = ["NO_DESCRIPTOR", "Files", "OsFiles", "enter", "leave", "replace_atomically"]

NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


class Files(Protocol):
    """File descriptors are plain ints, as the kernel gives them. Every method may raise `OSError`."""

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int: ...
    def close(self, fd: int) -> None: ...
    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """Return up to `length` bytes; fewer only at the end of the file."""
        ...

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all of `data`, or raise `OSError`."""
        ...

    def pwritev(self, fd: int, pieces: Sequence[bytes], offset: int) -> None:
        """Write all of `pieces`, one after the other, or raise `OSError`."""
        ...

    def allocate(self, fd: int, length: int) -> None:
        """Reserve blocks for `length` bytes from 0. The size grows to `length`, and new bytes read as zeros."""
        ...

    def truncate(self, fd: int, length: int) -> None: ...
    def size(self, fd: int) -> int: ...
    def datasync(self, fd: int) -> None: ...
    def rename(self, source: Path, target: Path) -> None: ...
    def unlink(self, path: Path) -> None: ...
    def make_dir(self, path: Path) -> None:
        """Make one directory, with mode 0700. Do nothing if it exists."""
        ...

    def remove_dir(self, path: Path) -> None:
        """Remove an empty directory."""
        ...

    def sync_dir(self, path: Path) -> None: ...
    def list_dir(self, path: Path) -> list[str]:
        """Return the names in the directory, ascending."""
        ...

    def is_dir(self, path: Path) -> bool: ...
    def identity(self, path: Path) -> tuple[int, int] | None:
        """Return device and inode of the file at `path`, with links followed; None if nothing is there."""
        ...

    def lock(self, fd: int) -> None:
        """Lock the file until `fd` is closed or the process ends.

        Raise `BlockingIOError` if another holder has locked it.
        """
        ...

    def lock_shared(self, fd: int) -> None:
        """Lock the file as `lock` does, but allow other shared locks at the same time."""
        ...


_IOV_MAX = 1024
_TRIES = 20
_PAUSE_S = 0.05
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class OsFiles(Owned):
    """The port to the real file system.

    After `enter`, a path in that directory is looked up from an open descriptor of the directory, as `openat` does. So
    the log keeps its own files if somebody moves the directory. It touches no file of a directory that takes its place.
    """

    _entered: dict[str, tuple[int, int]]

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        """Set the state here and not in `__init__`, which a subclass may leave uncalled."""
        self = super().__new__(cls, *arguments, **named)
        self._entered = {}
        return self

    def enter(self, root: Path) -> None:
        """Keep `root` open until `leave`. Several calls for the same path are allowed, each with its own `leave`."""
        prefix = os.path.join(root, "")
        fd, times = self._entered.get(prefix) or (os.open(root, _DIRECTORY), 0)
        self._entered[prefix] = (fd, times + 1)

    def leave(self, root: Path) -> None:
        prefix = os.path.join(root, "")
        fd, times = self._entered[prefix]
        if times > 1:
            self._entered[prefix] = (fd, times - 1)
            return
        del self._entered[prefix]
        os.close(fd)

    def _leave_to_parent(self) -> None:
        for fd, _ in self._entered.values():
            os.close(fd)

    def _at(self, path: Path) -> tuple[str, int | None]:
        """Return the path as the kernel takes it, and the descriptor of the directory that the path starts from."""
        text = os.fspath(path)
        for prefix, (fd, _) in self._entered.items():
            if text.startswith(prefix):
                return text[len(prefix) :], fd
            if text == prefix[:-1]:
                return ".", fd
        return text, None

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        name, start = self._at(path)
        return os.open(name, flags | os.O_CLOEXEC, mode, dir_fd=start)

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
            # `pwrite`, inlined, because a lone append runs this.
            done = os.pwrite(fd, pieces[0], offset)
            if done < len(pieces[0]):
                self.pwrite(fd, memoryview(pieces[0])[done:], offset + done)
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
        old_name, old_start = self._at(source)
        new_name, new_start = self._at(target)
        os.rename(old_name, new_name, src_dir_fd=old_start, dst_dir_fd=new_start)

    def unlink(self, path: Path) -> None:
        name, start = self._at(path)
        os.unlink(name, dir_fd=start)

    def make_dir(self, path: Path) -> None:
        name, start = self._at(path)
        try:
            os.mkdir(name, 0o700, dir_fd=start)
        except FileExistsError:
            if not self.is_dir(path):
                raise

    def remove_dir(self, path: Path) -> None:
        name, start = self._at(path)
        os.rmdir(name, dir_fd=start)

    def sync_dir(self, path: Path) -> None:
        fd = self._open_folder(path)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def list_dir(self, path: Path) -> list[str]:
        fd = self._open_folder(path)
        try:
            return sorted(os.listdir(fd))
        finally:
            os.close(fd)

    def is_dir(self, path: Path) -> bool:
        found = self._stat(path)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def identity(self, path: Path) -> tuple[int, int] | None:
        found = self._stat(path)
        return None if found is None else (found.st_dev, found.st_ino)

    def _stat(self, path: Path) -> os.stat_result | None:
        name, start = self._at(path)
        try:
            return os.stat(name, dir_fd=start)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _open_folder(self, path: Path) -> int:
        name, start = self._at(path)
        return os.open(name, _DIRECTORY, dir_fd=start)

    def lock(self, fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def lock_shared(self, fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)


def enter(files: Files, root: Path) -> None:
    """Make the log use this very directory from now on, wherever somebody moves it. Only `OsFiles` needs this call."""
    if isinstance(files, OsFiles):
        files.enter(root)


def leave(files: Files, root: Path) -> None:
    if isinstance(files, OsFiles):
        files.leave(root)


@checked
def replace_atomically(files: Files, path: Path, body: bytes) -> None:
    """Write `body` as the new content of `path`, durably on return.

    After a crash or an error, `path` has either the old content or the new one. Raise `TooManyOpenFiles` with nothing
    done.
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
    """Call `sync_dir`, and try again while no file descriptor is free.

    The caller has just closed a descriptor, which another thread may have taken. `TooManyOpenFiles` would be wrong
    here: it says that nothing was done, but the file has its new name.
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
