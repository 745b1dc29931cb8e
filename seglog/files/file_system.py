"""The port to the file system: every file operation of the log goes through here.

So a test can record them, fail the nth, or kill the process between two. An implementation only forwards the calls.
Each caller decides what is durable when, and documents it.

FILE-1  A new file or a rename is durable after `sync_dir` of its directory; data after `datasync` of the file.
FILE-2  `replace_atomically` is the one way to write a small file: write, datasync, rename, sync_dir.
FILE-3  `EMFILE` and `ENFILE` come from opening a file. `sync_dir` and `list_dir` raise them too, because they open a
    directory. After them, the operation on the file has not begun. After any other error of a sync, the data may be
    lost.

**An open file** is shared by threads, and by readers that may stop in the middle. The file is closed when its last
holder drops it. So no holder reads from a descriptor that by now means another file. A `ReadAheadBuffer` is for
sequential parsing. One read serves many small items, or one large item.

**A view of a file system.** A change through the view shows in the view only, and never reaches the disk. Recovery cuts
and removes files that are derivable. Over this view it can run without a trace. A call that would write or create
something raises EROFS. Another process may change the files meanwhile. Files that were cut or unlinked through the view
stay so in the view.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol, Self

from seglog.base.arguments import checked
from seglog.base.ownership import Owned
from seglog.errors import FileCorrupt, TooManyOpenFiles

NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


class Files(Protocol):
    """File descriptors are plain ints, as the kernel gives them. Every method may raise `OSError`."""

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int: ...
    def close(self, fd: int) -> None: ...
    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """Return up to `length` bytes; fewer only at the end of the file."""

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all of `data`, or raise `OSError`."""

    def pwritev(self, fd: int, pieces: Sequence[bytes], offset: int) -> None:
        """Write all of `pieces`, one after the other, or raise `OSError`."""

    def allocate(self, fd: int, length: int) -> None:
        """Reserve blocks for `length` bytes from 0. The size grows to `length`, and new bytes read as zeros."""

    def truncate(self, fd: int, length: int) -> None: ...
    def size(self, fd: int) -> int: ...
    def datasync(self, fd: int) -> None: ...
    def rename(self, source: Path, target: Path) -> None: ...
    def unlink(self, path: Path) -> None: ...
    def make_dir(self, path: Path) -> None:
        """Make one directory, with mode 0700. Do nothing if it exists."""

    def remove_dir(self, path: Path) -> None:
        """Remove an empty directory."""

    def sync_dir(self, path: Path) -> None: ...
    def list_dir(self, path: Path) -> list[str]:
        """Return the names in the directory, ascending."""

    def is_dir(self, path: Path) -> bool: ...
    def identity(self, path: Path) -> tuple[int, int] | None:
        """Return device and inode of the file at `path`, with links followed; None if nothing is there."""

    def lock(self, fd: int) -> None:
        """Lock the file until `fd` is closed or the process ends.

        Raise `BlockingIOError` if another holder has locked it.
        """

    def lock_shared(self, fd: int) -> None:
        """Lock the file as `lock` does, but allow other shared locks at the same time."""


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

    def __new__(cls, *arguments: Any, **keywords: Any) -> Self:
        """Set the state here and not in `__init__`, which a subclass may leave uncalled."""
        self = super().__new__(cls, *arguments, **keywords)
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
        status = self._stat(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def identity(self, path: Path) -> tuple[int, int] | None:
        status = self._stat(path)
        return None if status is None else (status.st_dev, status.st_ino)

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


READ_AHEAD_BYTES = 1024 * 1024


class Readable(Protocol):
    """A file to read from, wherever it lies. `path` is for errors."""

    @property
    def path(self) -> Path: ...
    def read_exactly(self, length: int, offset: int) -> bytes: ...
    def read(self, length: int, offset: int) -> bytes: ...
    def size(self) -> int: ...


class OpenFile:
    __slots__ = ("_files", "fd", "path")

    def __init__(self, files: Files, path: Path, flags: int = os.O_RDWR, *, descriptor: int | None = None) -> None:
        """Open the file, or take `descriptor` if the caller has opened it. Either is closed with this object."""
        self.fd = -1
        self.path = path
        self._files = files
        self.fd = files.open(path, flags) if descriptor is None else descriptor

    def __del__(self) -> None:
        if self.fd >= 0:
            self._files.close(self.fd)

    def read_exactly(self, length: int, offset: int) -> bytes:
        """Return `length` bytes at `offset`. Raise `FileCorrupt` if the file ends before."""
        data = self._files.pread(self.fd, length, offset)
        if len(data) < length:
            raise FileCorrupt(self.path, offset + len(data), "the file is cut short")
        return data

    def read(self, length: int, offset: int) -> bytes:
        """Return up to `length` bytes; fewer only at the end of the file."""
        return self._files.pread(self.fd, length, offset)

    def write(self, data: bytes | bytearray, offset: int) -> None:
        self._files.pwrite(self.fd, data, offset)

    def size(self) -> int:
        return self._files.size(self.fd)

    def truncate(self, length: int) -> None:
        self._files.truncate(self.fd, length)

    def datasync(self) -> None:
        self._files.datasync(self.fd)


class ReadAheadBuffer:
    """A buffer over a file. It never reads past `end`, whatever a length field says. Not thread-safe."""

    __slots__ = ("_base", "_end", "_file", "_read_bytes", "buffer")

    def __init__(self, file: Readable, end: int, read_bytes: int = READ_AHEAD_BYTES) -> None:
        self._file = file
        self._end = end
        self._read_bytes = read_bytes
        self._base = 0
        self.buffer = b""

    def index(self, position: int, length: int) -> int:
        """Return the index of `position` in `buffer`.

        From there on, `buffer` has `length` bytes, or as many as the file has up to `end`.
        """
        if position < self._base or position + length > self._base + len(self.buffer):
            size = min(max(length, self._read_bytes), self._end - position)
            self.buffer = self._file.read(max(size, 0), position)
            self._base = position
        return position - self._base


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
        origin = self._place(source)
        self._moved.pop(source, None)
        self._moved[target] = origin
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
