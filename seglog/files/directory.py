"""A directory of a log: its lock, a warning if it is in memory, and its settings.

**The lock.** The process locks the directory and the file LOCK. The text of LOCK names the holder. The lock on the
directory holds even if somebody removes LOCK or moves the directory. Some file systems cannot lock a directory: NFS
requires a file that is open for writing. There, the lock on LOCK is the only one.

The kernel drops the locks when their holder ends. So a killed process leaves no lock behind.

**A directory in memory.** There an fsync returns, and nothing is durable. A log on tmpfs works as any other, but a
reboot or an unmount removes all of it. So the log warns when it is opened there for writing.

Linux lists the kind of each mount in /proc/self/mountinfo. On other systems, no directory is known to be in memory.

**The file seglog.toml** is read and checked here, and written with the defaults as comments.

`read_sections` returns all sections and checks none. Each section belongs to the package that reads it. A key that an
older release had in another section is returned in the section of today (`MOVED` of seglog.values.config).
"""

from __future__ import annotations

import errno
import json
import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seglog.base.arguments import checked
from seglog.base.lazy import pattern
from seglog.base.ownership import Owned
from seglog.errors import DirectoryInUse, DirectoryNotWritable, InvalidSetting
from seglog.files.file_system import Files, OsFiles, replace_atomically
from seglog.values.config import NO_VARIABLES, SETTINGS_FILE, LogSettings, from_section, moved, toml_lines

_TEXT_MAX_BYTES = 512
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_NOT_LOCKABLE = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP)
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
_MOUNTS = Path("/proc/self/mountinfo")
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_ESCAPED = pattern(rb"\\([0-7]{3})")


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

    def __exit__(self, *_: object) -> None:
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
        fields, separator, kind_fields = line.partition(b" - ")
        words = fields.split(b" ")
        if not separator or len(words) < 5:
            continue
        mount_point = _ESCAPED.sub(lambda escape: bytes([int(escape[1], 8) & 0xFF]), words[4])
        holds = path == mount_point or path.startswith(mount_point.rstrip(b"/") + b"/")
        if holds and len(mount_point) >= best:
            best, kind = len(mount_point), kind_fields.split(b" ", 1)[0].decode(errors="replace")
    return kind


@checked
def read_sections(path: Path) -> dict[str, Any]:
    """Return the sections of the TOML file at `path`; none if there is no file.

    Raise `InvalidSetting` if the file cannot be read or is not TOML.
    """
    try:
        return moved(tomllib.loads(path.read_bytes().decode()))
    except FileNotFoundError:
        return {}
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidSetting(path.name, f"the file is not TOML: {error}") from error
    except OSError as error:
        raise InvalidSetting(path.name, f"the file cannot be read: {error.strerror}") from error


@checked
def load_settings(path: Path, variables: Mapping[str, str] = NO_VARIABLES) -> LogSettings:
    """Return the settings in the seglog.toml at `path`; the defaults if there is no file.

    `variables` is the environment, which wins. Raise `InvalidSetting`, which names the key.
    """
    return from_section(LogSettings, read_sections(path).get(LogSettings.SECTION, {}), variables)


@checked
def default_toml(remote: str | None = None) -> str:
    """Return the text of a new seglog.toml. `remote` is the URL of the archive, if it is known already."""
    url = '# url = "s3://bucket/prefix"' if remote is None else f"url = {json.dumps(remote, ensure_ascii=False)}"
    return f"""\
# Settings of this seglog data directory. A line that is commented out shows the default.

{toml_lines(LogSettings)}
[remote]
# Where the history goes: s3://bucket/prefix or file:///path.
{url}
"""


@checked
def write_default(directory: Path, remote: str | None = None) -> None:
    """Write a new seglog.toml into `directory`, durably on return."""
    replace_atomically(OsFiles(), directory / SETTINGS_FILE, default_toml(remote).encode())
