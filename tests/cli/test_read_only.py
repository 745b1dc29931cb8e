"""Commands that only read change nothing, and work beside a running writer."""

from __future__ import annotations

from pathlib import Path

import pytest

import offload
import seglog
from seglog import ReadOnly
from tests.cli.conftest import Run
from tests.seglog.test_view import unchanged

READING = (
    ("read", "t"),
    ("--json", "read", "t", "--from", "2"),
    ("topic", "list"),
    ("topic", "show", "t"),
    ("status",),
    ("status", "t"),
)


@pytest.fixture
def filled(run: Run, remote: str) -> Path:
    """Some is in the remote only, some sealed, some in the WAL."""
    run("init", "--remote", remote)
    run("append", "t", stdin=b"a\nb\n")
    run("seal", "t")
    run("offload", "t", "--drop-hot")
    run("append", "t", stdin=b"c\n")
    return Path("data")


def test_nothing_is_changed(run: Run, filled: Path) -> None:
    for arguments in (*READING, ("log", "t")):
        with unchanged(filled.absolute()):
            assert run(*arguments).code == 0
    assert run("read", "t").out == b"a\nb\nc\n"


def test_a_running_writer_is_not_in_the_way(run: Run, filled: Path) -> None:
    with seglog.open(filled) as log, offload.attach(log):
        log.topic("t").append([b"d"])
        for arguments in (*READING, ("log", "t")):
            assert run(*arguments).code == 0
        assert run("read", "t").out == b"a\nb\nc\nd\n"
        assert run("append", "t", stdin=b"e\n").code == 4
        assert run("read", "t", "--follow", "--wait", "0").code == 4


def test_a_topic_or_directory_that_is_not_there_is_told_as_ever(run: Run, filled: Path) -> None:
    assert run("topic", "show", "none").code == 3
    assert run("status", directory="none").code == 3
    assert not Path("none").exists()
    assert filled.is_dir()


def test_an_archive_over_a_log_that_only_reads_changes_nothing(run: Run, filled: Path) -> None:
    run("seal", "t")
    with (
        unchanged(filled.absolute()),
        seglog.open(filled, read_only=True) as log,
        offload.attach(log) as archive,
    ):
        assert [record.value for record in archive.read("t")] == [b"a", b"b", b"c"]
        for change in (
            lambda: archive.offload("t"),
            lambda: archive.delete("t", before=2),
            lambda: archive.delete_topic("t"),
            lambda: archive.restore("t", to="head", name="b"),
            lambda: archive.writable("t@b"),
        ):
            with pytest.raises(ReadOnly):
                change()
        assert len(archive.branches("t")) == 1
