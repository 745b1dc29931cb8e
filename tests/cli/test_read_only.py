"""Test that commands that only read change nothing, and work beside a running writer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import offload
import seglog
from catalog.format.keys import Key
from offload import OffloadSettings
from offload.settings import ColdSettings
from offload.wiring import open_store
from seglog import ReadOnly
from tests.trees import unchanged
from tests.worlds.command import Run

READING = (
    ("read", "t"),
    ("--json", "read", "t", "--from", "2"),
    ("topic", "list"),
    ("topic", "show", "t"),
    ("status",),
    ("status", "t"),
)

# Commands that send requests to the remote too, with their exit codes.
ASKING = (
    (("log", "t"), 0),
    (("log", "t", "--branch", "b"), 0),
    (("read", "t", "--branch", "b"), 0),
    (("read", "t@b", "--at", "head"), 0),
    (("read", "t", "--at", "seq:1"), 0),
    (("read", "t", "--at", "seq:3"), 0),
    (("read", "t", "--at", "seq:4"), 0),
    (("read", "t", "--at", "seq:9"), 3),
    (("read", "t", "--at", "head"), 0),
    (("read", "t", "--at", "head~1"), 4),
    (("read", "t@b", "--at", "head~1"), 0),
    (("read", "t", "--at", "lsn:1"), 0),
    (("read", "t", "--at", "tag:first"), 0),
    (("read", "t", "--at", "0 seconds ago"), 0),
    (("read", "t", "--at", "1 week ago"), 3),
    (("read", "t", "--at", "2999-01-01T00:00:00Z"), 3),
    (("read", "new", "--at", "seq:1"), 0),
    (("read", "new", "--at", "head"), 0),
    (("read", "new", "--at", "lsn:1"), 4),
    (("status", "t", "--runs"), 0),
    (("branch", "list", "t"), 0),
    (("branch", "diff", "t", "t@b"), 0),
    (("tag", "list", "t"), 0),
    (("oplog",), 0),
    (("show", "t", "lsn:1"), 0),
    (("diff", "t:lsn:1", "t@b"), 0),
    (("points", "t"), 0),
    (("resolve", "t", "--to", "lsn:1"), 0),
    (("segments", "t"), 0),
    (("gc", "explain", "refs/t/main"), 0),
    (("uploads", "--older-than", "1s"), 0),
    (("offload", "t", "--dry-run"), 0),
    (("gc", "--dry-run"), 0),
    (("cost",), 0),
    (("verify", "--remote"), 0),
    (("verify", "--remote", "--deep"), 0),
    (("inspect", "data/meta/snapshot.1.json"), None),
)


# What has requests of its own on S3: lists, conditions, uploads, reads of ranges.
ASKING_S3 = {
    *("log t", "read t --at head", "uploads --older-than 1s", "offload t --dry-run", "gc --dry-run"),
    *("verify --remote --deep", "inspect data/meta/snapshot.1.json"),
}


@pytest.fixture
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return an empty directory, unless the test asks for a bucket."""
    is_s3 = getattr(request, "param", "file") == "s3"
    return str(request.getfixturevalue("s3_remote")) if is_s3 else (tmp_path / "remote").as_uri()


@pytest.fixture
def filled(run: Run, remote: str) -> Path:
    """Make a topic with two records in the remote only and one record that is not sealed."""
    run("init", "--remote", remote)
    run("append", "t", stdin=b"a\nb\n")
    run("seal", "t")
    run("offload", "t", "--drop-hot")
    run("append", "t", stdin=b"c\n")
    return Path("data")


@pytest.fixture
def told(run: Run, filled: Path) -> Path:
    """Add names, a delete that waits for its records, and a topic without any offloaded record."""
    run("tag", "create", "t", "first")
    run("branch", "create", "t", "b")
    run("append", "t", stdin=b"d\n")
    run("delete", "t", "--before", "4", "--yes")
    run("append", "t", stdin=b"e\n")
    run("append", "new", stdin=b"n\n")
    return filled


@pytest.mark.parametrize("remote", ["file", "s3"], indirect=True)
def test_a_command_that_asks_the_remote_changes_nothing_there_or_here(run: Run, told: Path, remote: str) -> None:
    """The commands also change nothing beside a writer that holds the lock.

    Records that are only hot come from the log.
    """
    with seglog.open(told) as log, offload.attach(log), unchanged_remote(remote):
        asking = [each for each in ASKING if remote.startswith("file") or " ".join(each[0]) in ASKING_S3]
        assert len(asking) >= len(ASKING_S3)
        for arguments, code in asking:
            with unchanged(told.absolute()):
                done = run(*arguments)
            assert code in (done.code, None), (arguments, done)
        assert run("read", "t", "--at", "seq:3").out == b"a\nb\nc\n"
        assert run("read", "t", "--at", "seq:4").out == b"a\nb\nc\nd\n"
        assert run("read", "t", "--at", "seq:5").out == b"d\ne\n"
        assert run("read", "t", "--at", "tag:first").out == b"a\nb\nc\n"
        assert run("read", "new", "--at", "seq:1").out == b"n\n"
        told_what_to_do = run("read", "new", "--at", "lsn:1").err
        assert "`seglog seal new`, then `seglog offload new`" in told_what_to_do.lower()


@contextmanager
def unchanged_remote(url: str) -> Iterator[None]:
    def bodies() -> dict[str, bytes]:
        with closing(open_store(url, ColdSettings(), OffloadSettings())) as store:
            return {key: store.get(Key(key)) for key in store.list("")}

    before = bodies()
    yield
    assert bodies() == before


def test_nothing_is_changed(run: Run, filled: Path) -> None:
    for arguments in READING:
        with unchanged(filled.absolute()):
            assert run(*arguments).code == 0
    assert run("read", "t").out == b"a\nb\nc\n"


def test_a_running_writer_is_not_in_the_way(run: Run, filled: Path) -> None:
    with seglog.open(filled) as log, offload.attach(log):
        log.topic("t").append([b"d"])
        for arguments in READING:
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
            lambda: archive.open_for_append("t@b"),
        ):
            with pytest.raises(ReadOnly):
                change()
        assert len(archive.branches.list("t")) == 1
