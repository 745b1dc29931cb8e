"""OsFiles keeps the directory that a log opened, whatever the path leads to later."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import stat
from pathlib import Path

import pytest

import seglog
from seglog import DirectoryInUse
from seglog.files.file_system import OsFiles
from tests.seglog.workload import SETTINGS

pytestmark = pytest.mark.usefixtures("real_syncs")


def test_after_enter_a_path_is_looked_up_in_the_directory_that_was_there(tmp_path: Path) -> None:
    root, moved = tmp_path / "root", tmp_path / "moved"
    root.mkdir()
    files = OsFiles()
    files.enter(root)
    root.rename(moved)
    root.mkdir()
    (root / "theirs").touch()

    files.make_dir(root / "folder")
    files.make_dir(root / "folder")
    files.close(files.open(root / "folder" / "file", os.O_RDWR | os.O_CREAT))
    files.rename(root / "folder" / "file", root / "renamed")
    files.remove_dir(root / "folder")
    files.sync_dir(root)
    assert files.list_dir(root) == ["renamed"] == sorted(path.name for path in moved.iterdir())
    assert (files.is_dir(root), files.is_dir(root / "renamed"), files.is_dir(root / "theirs")) == (True, False, False)
    assert files.identity(root) == (moved.stat().st_dev, moved.stat().st_ino)
    assert files.identity(root / "theirs") is None
    files.unlink(root / "renamed")
    (moved / "taken").touch()
    with pytest.raises(FileExistsError):
        files.make_dir(root / "taken")

    assert files.list_dir(tmp_path) == ["moved", "root"]
    files.leave(root)
    assert files.list_dir(root) == ["theirs"]


def test_a_directory_is_kept_until_all_that_entered_it_have_left(tmp_path: Path) -> None:
    files, inode = OsFiles(), tmp_path.stat().st_ino
    files.enter(tmp_path)
    files.enter(tmp_path)
    files.leave(tmp_path)
    tmp_path.rename(tmp_path.with_name("moved"))
    assert files.list_dir(tmp_path) == []
    assert _descriptors_of(inode) == 1
    files.leave(tmp_path)
    assert _descriptors_of(inode) == 0


def _descriptors_of(inode: int) -> int:
    """Count them, and not all that there are, because the collector may close one of an earlier test meanwhile."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # such as the descriptor of this listing
            found += os.fstat(int(name)).st_ino == inode
    return found


@pytest.mark.parametrize("read_only", [False, True])
def test_a_closed_log_keeps_no_descriptor(tmp_path: Path, read_only: bool) -> None:
    seglog.open(tmp_path / "log").close()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    seglog.open(tmp_path / "log", read_only=read_only, settings=SETTINGS).close()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before  # the collector may close one of an earlier test


class _NoFolderLocks(OsFiles):
    """A file system on which a directory cannot be locked."""

    def lock(self, fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        super().lock(fd)


def test_one_log_at_a_time_where_only_files_can_be_locked(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data", files=_NoFolderLocks()), pytest.raises(DirectoryInUse):
        seglog.open(tmp_path / "data", files=_NoFolderLocks())
    seglog.open(tmp_path / "data", files=_NoFolderLocks()).close()


def test_a_write_that_comes_short_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, pwritev = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, bytes(data)[:3], offset))
    monkeypatch.setattr(os, "pwritev", lambda fd, pieces, offset: pwritev(fd, [b"".join(pieces)[:5]], offset))
    files = OsFiles()
    fd = files.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    files.pwrite(fd, b"0123456789", 2)
    files.pwritev(fd, [b"abcd", b"efgh", b"ij"], 12)
    files.close(fd)
    assert (tmp_path / "file").read_bytes() == b"\0\0" + b"0123456789" + b"abcdefghij"
