"""Test `seglog verify --remote`: with a sound remote, with a damaged one, and without a data directory."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from catalog import LocalCatalog, Volumes
from catalog.format.control import DEAD, Boundary
from catalog.format.ids import Vid
from catalog.format.keys import boundary_key, commit_key
from catalog.format.small_objects import decode_ref, encode_boundary, encode_ref
from tests.worlds.command import Run


@pytest.fixture
def started(run: Run, tmp_path: Path) -> Run:
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    for value in (b"one\ntwo\n", b"three\n"):
        run("append", "orders", stdin=value)
        run("seal", "orders")
        assert run("offload", "orders").code == 0
    assert run("branch", "create", "orders", "fix", "--at", "lsn:1").code == 0
    return run


def test_what_is_whole_is_sound(started: Run) -> None:
    assert started("verify", "--remote").text.splitlines() == [
        "2 volumes, 2 commits, 2 segments, not read: that is --deep; 0 that no commit names",
        "sound",
    ]
    deep = json.loads(started("--json", "verify", "--remote", "--deep").out)
    assert (deep["segments"], deep["unreferenced_segments"], deep["read_bytes"] > 0) == (2, 0, True)


def test_a_changed_byte_is_told_by_its_key(started: Run, tmp_path: Path) -> None:
    [path, *_] = (each for each in (tmp_path / "remote").glob("5*/segments/*") if not each.suffix)
    body = path.read_bytes()
    path.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
    assert started("verify", "--remote").code == 0
    done = started("verify", "--remote", "--deep")
    assert (done.code, "1 damage in file://" in done.err) == (5, True)
    assert f"DAMAGED {path.relative_to(tmp_path / 'remote')}: its content is not what its commit says" in done.text


def test_a_short_object_is_told_without_a_look_at_its_bytes(started: Run, tmp_path: Path) -> None:
    for path in sorted((tmp_path / "remote").glob("5*/segments/*"))[:2]:
        body = path.read_bytes()
        path.write_bytes(body[:-1])
        done = started("verify", "--remote")
        said = f"{path.relative_to(tmp_path / 'remote')}: it has {len(body) - 1} bytes, its commit says {len(body)}"
        assert (done.code, done.text.splitlines()[-1]) == (5, f"DAMAGED {said}")
        path.write_bytes(body)


def test_a_missing_object_is_told_without_a_data_directory(started: Run, tmp_path: Path) -> None:
    [path, *_] = sorted((tmp_path / "remote").glob("5*/segments/*.index"))
    path.unlink()
    done = started("-C", str(tmp_path / "nowhere"), "--remote", (tmp_path / "remote").as_uri(), "verify", "--remote")
    assert (done.code, "it is not there" in done.text) == (5, True)


def test_deep_is_for_the_remote(started: Run) -> None:
    assert started("verify", "--deep").code == 2


def commits(root: Path) -> list[Path]:
    """Return the commits of main, newest first."""
    return sorted(root.glob("5*/log/*"))


@pytest.mark.parametrize("way", [["--remote"], ["--remote", "--deep"], ["--read-data-subset", "100%"]])
def test_a_directory_tells_the_newest_commits_that_the_remote_has_lost(
    started: Run, tmp_path: Path, way: list[str]
) -> None:
    remote = tmp_path / "remote"
    newest, oldest = commits(remote)
    newest.unlink()
    key = newest.relative_to(remote)
    told = f"{key}: topic orders, branch main: this data directory knows lsn 2, and "
    done = started("verify", *way)
    assert (done.code, "1 damage in file://" in done.err) == (5, True)
    assert f"{told}the newest in the remote is lsn 1\n" in done.text
    elsewhere = started("--remote", remote.as_uri(), "verify", *way, directory="nowhere")
    assert (elsewhere.code, elsewhere.text.splitlines()[-1]) == (0, "sound")
    assert started("branch", "delete", "orders", "fix", "--yes").code == 0
    oldest.unlink()
    done = started("verify", *way)
    assert (done.code, f"{told}the remote has no commit of it\n" in done.text) == (5, True)


def _taken_over(run: Run, remote: Path) -> None:
    for words in (["sync"], ["takeover"], ["append"], ["seal"], ["offload"]):
        assert run("--remote", remote.as_uri(), *words, "orders", stdin=b"four\n", directory="other").code == 0
    for _ in range(2):  # GC keeps the newest state only, and raises the boundary
        run("--remote", remote.as_uri(), "gc", "--grace", "0", "--retain", "0", directory="other")


def _promoted(run: Run, remote: Path) -> None:
    url, known = ("--remote", remote.as_uri()), commits(remote)[0]
    assert run(*url, "branch", "promote", "orders", "fix", "--leave", directory="other").code == 0
    for path in known.parent.iterdir():
        if path.name <= known.name:  # the commit of the promotion too
            path.unlink()


def _deleted(run: Run, remote: Path) -> None:
    before = commits(remote)
    for words in (["takeover"], ["append"], ["seal"], ["offload"]):
        assert run(*words, "orders@fix", stdin=b"mended\n").code == 0
    url = ("--remote", remote.as_uri())
    assert run(*url, "branch", "delete", "orders", "fix", "--yes", directory="other").code == 0
    [path] = {*commits(remote)} - {*before}
    path.unlink()
    vid = Vid.parse(path.parts[-3])  # as GC leaves it
    (remote / boundary_key(vid)).write_bytes(encode_boundary(Boundary(vid, DEAD)))


def _closed(run: Run, remote: Path) -> None:
    """The volume is dead, and its name is alive again: an undelete stopped before it looked at the volume."""
    _deleted(run, remote)
    [ref] = remote.glob("refs/orders/fix")
    ref.write_bytes(encode_ref(replace(decode_ref(ref.read_bytes(), "refs/orders/fix"), deleted_at_ms=None)))


@pytest.mark.parametrize("change", [_taken_over, _promoted, _deleted, _closed])
def test_what_other_writers_and_gc_may_do_is_no_loss(
    started: Run, tmp_path: Path, change: Callable[[Run, Path], None]
) -> None:
    assert started("init", directory="other").code == 0
    change(started, tmp_path / "remote")
    with LocalCatalog(tmp_path / "data" / "catalog.db", read_only=True) as local:
        known = [tmp_path / "remote" / commit_key(each.vid, each.lsn) for each in local.handles() if each.lsn]
    assert not all(path.exists() for path in known)
    done = started("verify", "--remote", "--deep")
    assert (done.code, done.text.splitlines()[-1]) == (0, "sound")


def test_gc_may_move_on_between_two_looks(started: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(Volumes):
        looks = 0

        def boundary(self, vid: Vid) -> int:
            self.looks += 1
            return 3 if self.looks == 1 else super().boundary(vid)

    assert started("init", directory="other").code == 0
    _taken_over(started, tmp_path / "remote")
    monkeypatch.setattr("offload.operations.verify.Volumes", Late)
    assert started("verify", "--remote").code == 0


def test_a_loss_that_another_writer_built_over_is_told(started: Run, tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    commits(remote)[0].unlink()
    assert started("init", directory="other").code == 0
    for words in (["sync"], ["takeover"], ["append"], ["seal"], ["offload"]):
        done = started("--remote", remote.as_uri(), *words, "orders", stdin=b"four\n", directory="other")
        assert done.code == 0
    done = started("verify", "--remote")
    assert (done.code, "knows lsn 2, and the remote has another commit there\n" in done.text) == (5, True)


@pytest.mark.parametrize("way", [["--remote"], ["--read-data-subset", "100%"]])
@pytest.mark.parametrize("is_newer", [True, False])
def test_a_directory_that_tells_nothing_is_a_note(
    started: Run, tmp_path: Path, way: list[str], *, is_newer: bool
) -> None:
    catalog = tmp_path / "data" / "catalog.db"
    if is_newer:
        with closing(sqlite3.connect(catalog)) as connection:
            connection.execute("PRAGMA user_version = 99")
    else:
        catalog.write_bytes(b"garbage" * 1000)
    note = "note: the remote is not compared with what this data directory knows of it: data/catalog.db: "
    done = started("verify", *way)
    assert (done.code, done.text.splitlines()[-1], note in done.text) == (0, "sound", True)
    next((tmp_path / "remote").glob("5*/segments/*.index")).unlink()
    done = started("verify", *way)
    assert (done.code, note in done.text) == (5, True)


def test_a_copy_of_the_remote_may_be_behind(started: Run, tmp_path: Path) -> None:
    commits(tmp_path / "remote")[0].unlink()
    (tmp_path / "remote").rename(tmp_path / "copy")
    assert started("--remote", (tmp_path / "copy").as_uri(), "verify", "--remote").code == 0
