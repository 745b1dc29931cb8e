"""Files of the data directory are removed, cut, swapped, or edited by hand."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import seglog
from seglog import FileCorrupt, NotADataDirectory
from tests.promises.mistakes.scene import numbered, tree, values

WAL = "wal/wal-0000000000000001.log"


def killed(path: Path, *, seal: bool = False) -> list[bytes]:
    """The directory as a killed process leaves it, with ten acked records; ten more behind them after a seal."""
    live = path.with_name("live")
    with seglog.open(live) as log:
        log.topic("orders").append(numbered(10))
        if seal:
            log.topic("orders").seal()
            log.topic("orders").append(numbered(10, first=11))
        shutil.copytree(live, path)
    return numbered(20 if seal else 10)


def refused(path: Path, place: Path) -> None:
    """Each way to open the directory, and `verify`, tells of damage at `place` and changes nothing."""
    before = tree(path)
    for read_only in (False, True):
        with pytest.raises(FileCorrupt) as caught:
            seglog.open(path, read_only=read_only)
        assert caught.value.path == place
    assert place in {damage.path for damage in seglog.verify(path).damages}
    assert tree(path) == before


def comes_back(path: Path, place: Path, wanted: list[bytes]) -> None:
    """`place` is moved away, which is refused, and put back, which heals the directory."""
    aside = path.with_name("aside")
    place.rename(aside)
    refused(path, place)
    aside.rename(place)
    assert values(path) == wanted


def test_the_wal_folder_is_removed(tmp_path: Path) -> None:
    """Somebody removes the folder wal/ of a log whose process was killed.

    Outcome: refused with `FileCorrupt`, which names the folder. Once it is back, all records are.
    """
    comes_back(tmp_path / "data", tmp_path / "data/wal", killed(tmp_path / "data"))


def test_the_meta_folder_is_removed(tmp_path: Path) -> None:
    """Somebody removes the folder meta/.

    Outcome: refused with `FileCorrupt`, which names the folder. Once it is back, all records are.
    """
    comes_back(tmp_path / "data", tmp_path / "data/meta", killed(tmp_path / "data", seal=True))


def test_the_topics_folder_is_removed(tmp_path: Path) -> None:
    """Somebody removes the folder topics/.

    Outcome: refused with `FileCorrupt`, which names the folder. Once it is back, all records are.
    """
    comes_back(tmp_path / "data", tmp_path / "data/topics", killed(tmp_path / "data", seal=True))


def test_the_content_of_the_wal_folder_is_removed(tmp_path: Path) -> None:
    """Somebody empties the folder wal/ of a log that no checkpoint has seen yet.

    Outcome: refused with `FileCorrupt`; no empty log is made in its place.
    """
    killed(tmp_path / "data")
    for path in (tmp_path / "data/wal").iterdir():
        path.unlink()
    refused(tmp_path / "data", tmp_path / "data/wal/CURRENT")


def test_a_wal_file_is_removed(tmp_path: Path) -> None:
    """Somebody removes the active WAL file to free space.

    Outcome: refused with `FileCorrupt`, which names CURRENT. Once the file is back, all records are.
    """
    wanted = killed(tmp_path / "data")
    (tmp_path / "data" / WAL).rename(tmp_path / "aside")
    refused(tmp_path / "data", tmp_path / "data/wal/CURRENT")
    (tmp_path / "aside").rename(tmp_path / "data" / WAL)
    assert values(tmp_path / "data") == wanted


def test_current_is_removed(tmp_path: Path) -> None:
    """Somebody removes wal/CURRENT.

    Outcome: refused with `FileCorrupt`, which names it; it is not taken for a new directory.
    """
    comes_back(tmp_path / "data", tmp_path / "data/wal/CURRENT", killed(tmp_path / "data"))


def test_current_is_emptied(tmp_path: Path) -> None:
    """Somebody empties wal/CURRENT.

    Outcome: refused with `FileCorrupt`, which names it.
    """
    killed(tmp_path / "data")
    (tmp_path / "data/wal/CURRENT").write_bytes(b"")
    refused(tmp_path / "data", tmp_path / "data/wal/CURRENT")


def test_current_is_edited(tmp_path: Path) -> None:
    """Somebody lets wal/CURRENT name a WAL file that is not there.

    Outcome: refused with `FileCorrupt`, which names CURRENT.
    """
    killed(tmp_path / "data")
    (tmp_path / "data/wal/CURRENT").write_bytes(b"wal-0000000000000009.log\n")
    refused(tmp_path / "data", tmp_path / "data/wal/CURRENT")


def test_a_file_stands_where_a_folder_should(tmp_path: Path) -> None:
    """A program opens a log in a folder that has a file named wal.

    Outcome: refused with `NotADataDirectory`; the file keeps its bytes.
    """
    (tmp_path / "data").mkdir()
    (tmp_path / "data/wal").write_bytes(b"precious")
    with pytest.raises(NotADataDirectory):
        seglog.open(tmp_path / "data")
    assert (tmp_path / "data/wal").read_bytes() == b"precious"


def test_the_newest_snapshot_is_removed(tmp_path: Path) -> None:
    """Somebody removes the newest snapshot, and leaves the older one.

    Outcome: nothing is lost. The WAL still has what came after the older snapshot.
    """
    wanted = killed(tmp_path / "data", seal=True)
    sorted((tmp_path / "data/meta").glob("snapshot.*"))[-1].unlink()
    assert values(tmp_path / "data") == wanted


def test_all_snapshots_are_removed(tmp_path: Path) -> None:
    """Somebody removes all files in meta/.

    Outcome: refused with `FileCorrupt`, which names the folder.
    """
    killed(tmp_path / "data", seal=True)
    for path in (tmp_path / "data/meta").glob("snapshot.*"):
        path.unlink()
    refused(tmp_path / "data", tmp_path / "data/meta")
