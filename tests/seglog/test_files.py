"""The real port keeps to the directory that a log opened, whatever comes to be at its path."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

import seglog
from seglog.files import OsFiles
from tests.seglog.workload import SETTINGS


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
    files = OsFiles()
    before = len(os.listdir("/proc/self/fd"))
    files.enter(tmp_path)
    files.enter(tmp_path)
    files.leave(tmp_path)
    tmp_path.rename(tmp_path.with_name("moved"))
    assert files.list_dir(tmp_path) == []
    files.leave(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("read_only", [False, True])
def test_a_closed_log_keeps_no_descriptor(tmp_path: Path, read_only: bool) -> None:
    seglog.open(tmp_path / "log").close()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    seglog.open(tmp_path / "log", read_only=read_only, settings=SETTINGS).close()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
