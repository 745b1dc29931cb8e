"""The data directory is copied, moved, linked, removed, or shared."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import seglog
from seglog import DirectoryInUse, NotADataDirectory, WriterPoisoned
from tests.promises.mistakes.scene import filled, numbered, tree, values
from tests.worlds.command import command


def test_a_directory_is_opened_twice_by_one_process(tmp_path: Path) -> None:
    """A program opens the data directory a second time.

    Outcome: the second opening is refused with `DirectoryInUse`; the first one still works.
    """
    filled(tmp_path / "data")
    with seglog.open(tmp_path / "data") as log:
        with pytest.raises(DirectoryInUse):
            seglog.open(tmp_path / "data")
        log.topic("orders").append([b"after"])
    assert values(tmp_path / "data") == [*numbered(10), b"after"]


def test_a_directory_is_opened_by_a_second_process(tmp_path: Path) -> None:
    """Somebody runs `seglog append` while a program has the directory open.

    Outcome: the command is refused with exit code 4 and names the process that has the directory.
    """
    filled(tmp_path / "data")
    with seglog.open(tmp_path / "data") as log:
        done = command("append", "orders", directory=tmp_path / "data", given=b"theirs\n")
        assert (done.returncode, done.stdout) == (4, b"")
        assert b"in use" in done.stderr
        log.topic("orders").append([b"mine"])
    assert values(tmp_path / "data") == [*numbered(10), b"mine"]


def test_the_lock_file_is_removed_to_get_in(tmp_path: Path) -> None:
    """An operator removes LOCK because a program still has the directory open, and opens it again.

    Outcome: the second opening is refused with `DirectoryInUse`: the directory itself is locked too.
    """
    filled(tmp_path / "data")
    with seglog.open(tmp_path / "data") as log:
        (tmp_path / "data" / "LOCK").unlink()
        with pytest.raises(DirectoryInUse):
            seglog.open(tmp_path / "data")
        log.topic("orders").append([b"after"])
    assert values(tmp_path / "data") == [*numbered(10), b"after"]


def test_a_directory_is_opened_by_two_paths(tmp_path: Path) -> None:
    """A program opens the directory by its path, another one by a symbolic link to it.

    Outcome: the second opening is refused with `DirectoryInUse`.
    """
    filled(tmp_path / "data")
    (tmp_path / "link").symlink_to(tmp_path / "data", target_is_directory=True)
    with seglog.open(tmp_path / "data"), pytest.raises(DirectoryInUse):
        seglog.open(tmp_path / "link")
    assert values(tmp_path / "link") == numbered(10)


def test_a_link_to_the_directory_is_turned_while_it_is_open(tmp_path: Path) -> None:
    """The path of an open directory is a link, and somebody points the link at another data directory.

    Outcome: nothing is lost. The log keeps the directory that it opened, and leaves the other one alone.
    """
    filled(tmp_path / "first")
    filled(tmp_path / "second", 3, seal=True)
    (tmp_path / "data").symlink_to(tmp_path / "first", target_is_directory=True)
    with seglog.open(tmp_path / "data") as log:
        before = tree(tmp_path / "second")
        (tmp_path / "data").unlink()
        (tmp_path / "data").symlink_to(tmp_path / "second", target_is_directory=True)
        log.topic("orders").append([b"after"])
        log.topic("orders").seal()
    assert tree(tmp_path / "second") == before
    assert values(tmp_path / "first") == [*numbered(10), b"after"]


def test_a_directory_is_moved_while_it_is_open(tmp_path: Path) -> None:
    """Somebody renames the data directory while a program has it open.

    Outcome: nothing is lost. The log continues in the directory under its new name.
    """
    filled(tmp_path / "data")
    with seglog.open(tmp_path / "data") as log:
        (tmp_path / "data").rename(tmp_path / "moved")
        log.topic("orders").append([b"after"])
        log.topic("orders").seal()
        with pytest.raises(DirectoryInUse):
            seglog.open(tmp_path / "moved")
    assert not (tmp_path / "data").exists()
    assert values(tmp_path / "moved") == [*numbered(10), b"after"]


def test_another_directory_takes_the_place_of_an_open_one(tmp_path: Path) -> None:
    """Somebody moves an open data directory away and puts a backup in its place, which a second program opens.

    Outcome: nothing is lost. Each log writes to the directory that it opened.
    """
    filled(tmp_path / "data")
    shutil.copytree(tmp_path / "data", tmp_path / "backup")
    with seglog.open(tmp_path / "data") as log:
        (tmp_path / "data").rename(tmp_path / "moved")
        (tmp_path / "backup").rename(tmp_path / "data")
        with seglog.open(tmp_path / "data") as second:
            for number in range(3):
                log.topic("orders").append([b"first %d" % number])
                second.topic("orders").append([b"second %d" % number])
                log.topic("orders").seal()
                second.topic("orders").seal()
    assert values(tmp_path / "moved") == [*numbered(10), *(b"first %d" % number for number in range(3))]
    assert values(tmp_path / "data") == [*numbered(10), *(b"second %d" % number for number in range(3))]


def test_a_directory_is_removed_while_it_is_open(tmp_path: Path) -> None:
    """Somebody removes the data directory while a program has it open.

    Outcome: the log stops with `WriterPoisoned` at its next file, and makes nothing at the old path.
    """
    filled(tmp_path / "data")
    log = seglog.open(tmp_path / "data")
    shutil.rmtree(tmp_path / "data")
    with pytest.raises(WriterPoisoned, match="No such file"):
        log.topic("orders").seal()
    with pytest.raises(WriterPoisoned):
        log.topic("orders").append([b"after"])
    log.close()
    assert not (tmp_path / "data").exists()


def test_a_file_stands_where_the_directory_should(tmp_path: Path) -> None:
    """The path of the data directory is a file.

    Outcome: refused with `NotADataDirectory`; the file keeps its bytes.
    """
    (tmp_path / "data").write_bytes(b"precious")
    for create in (True, False):
        with pytest.raises(NotADataDirectory):
            seglog.open(tmp_path / "data", create=create)
    assert (tmp_path / "data").read_bytes() == b"precious"


def test_a_directory_with_other_files_becomes_a_data_directory(tmp_path: Path) -> None:
    """A program opens a log in a folder that holds other files, one of them in a folder named wal.

    Outcome: nothing is lost. The log makes its files beside them.
    """
    (tmp_path / "data" / "wal").mkdir(parents=True)
    (tmp_path / "data" / "wal" / "notes").write_bytes(b"theirs")
    (tmp_path / "data" / "letter").write_bytes(b"theirs too")
    assert filled(tmp_path / "data", seal=True) == values(tmp_path / "data")
    assert (tmp_path / "data" / "wal" / "notes").read_bytes() == b"theirs"
    assert (tmp_path / "data" / "letter").read_bytes() == b"theirs too"


def test_a_directory_lies_within_another_one(tmp_path: Path) -> None:
    """A program opens a second data directory inside the topics folder of the first.

    Outcome: nothing is lost in either.
    """
    with seglog.open(tmp_path / "data") as outer, seglog.open(tmp_path / "data" / "topics") as inner:
        for log in (outer, inner):
            log.topic("orders").append(numbered(10))
            log.topic("orders").seal()
    assert values(tmp_path / "data") == values(tmp_path / "data" / "topics") == numbered(10)


def test_a_relative_path_is_used_and_the_process_changes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program opens a relative path, and changes its working directory afterwards.

    Outcome: nothing is lost. The path is made absolute once, at the opening.
    """
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with seglog.open("data") as log:
        monkeypatch.chdir(tmp_path / "elsewhere")
        log.topic("orders").append(numbered(10))
        log.topic("orders").seal()
    assert values(tmp_path / "data") == numbered(10)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_mistyped_path_is_read(tmp_path: Path) -> None:
    """Somebody reads a data directory whose path has a typing error.

    Outcome: refused with exit code 3; no directory is made.
    """
    done = command("read", "orders", directory=tmp_path / "dta")
    assert done.returncode == 3
    assert b"is not a seglog data directory" in done.stderr
    assert not (tmp_path / "dta").exists()
