"""The SQLite catalog: it saves rows durably, all or nothing, and refuses to open some files."""

from __future__ import annotations

import dataclasses
import errno
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from catalog.errors import FormatUnsupported, InvalidArgument, InvalidObject, LocalCatalogUnavailable
from catalog.format.keys import Key
from catalog.local_catalog import Attempt, LocalCatalog
from catalog.local_copy import Copy
from tests.catalog.samples import sid, vid
from tests.seams.catalog import connection_of
from tests.worlds.local_rows import FULL, HANDLE, PENDING

ATTEMPT = Attempt(sid(1), "orders@main", vid(1), 1, 20, "PLANNED", created_at_ms=5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


@pytest.fixture
def local(path: Path) -> Iterator[LocalCatalog]:
    with LocalCatalog(path) as opened:
        yield opened


def test_a_new_catalog_is_empty(local: LocalCatalog) -> None:
    assert local.handles() == ()
    assert local.attempts() == ()
    assert local.handle("orders@main") is None
    assert local.control(vid(1)) is None
    assert local.commit_bodies(vid(1), 1, 9) == {}
    assert local.newest_lsn(vid(1)) == 0


def test_handles_are_kept_whole_and_replaced_by_name(local: LocalCatalog) -> None:
    diverged = dataclasses.replace(PENDING, name="audit@main", diverged_lsn=4)
    for handle in (dataclasses.replace(HANDLE, lsn=2), HANDLE, diverged):
        local.save(handle=handle)
    assert local.handle("orders@main") == HANDLE
    assert local.handles() == (diverged, HANDLE)


def test_attempts_are_kept_whole_and_replaced_by_sid(local: LocalCatalog) -> None:
    local.save(attempt=FULL)
    local.save(attempt=ATTEMPT)
    assert local.attempts() == (ATTEMPT, FULL)
    assert local.attempts("orders@half") == (FULL,)
    moved = dataclasses.replace(ATTEMPT, state="UPLOADED", upload_id="u")
    local.save(attempt=moved)
    assert local.attempts("orders@main") == (moved,)
    local.delete_attempt(ATTEMPT.sid)
    local.delete_attempt(ATTEMPT.sid)
    assert local.attempts() == (FULL,)


def test_a_change_wakes_each_waiter_once_also_a_deletion_of_a_name_that_never_changed(
    local: LocalCatalog, path: Path
) -> None:
    local.save(handle=HANDLE)
    woken: list[int] = []

    def wake() -> None:
        woken.append(1)

    with LocalCatalog(path) as fresh:
        before = fresh.versions.of(HANDLE.name)
        fresh.delete_handle(HANDLE.name)
        assert HANDLE.name not in fresh.versions.all
        assert not fresh.versions.wait(HANDLE.name, before, wake)
    version = local.versions.all[HANDLE.name]
    assert all(local.versions.wait(HANDLE.name, version, wake) for _ in range(3))
    local.save(handle=HANDLE)
    assert woken == [1]
    version = local.versions.all[HANDLE.name]
    assert all(local.versions.wait(HANDLE.name, version, wake) for _ in range(3))
    local.versions.forget(HANDLE.name, wake)
    local.delete_handle(HANDLE.name)
    assert woken == [1]


def test_waiters_come_and_go_while_a_transaction_runs(local: LocalCatalog) -> None:
    is_inside, may_end = threading.Event(), threading.Event()

    def stay() -> None:
        is_inside.set()
        may_end.wait(1)

    assert local.versions.wait(HANDLE.name, 0, stay)
    with ThreadPoolExecutor() as pool:
        saved = pool.submit(local.save, handle=HANDLE)
        assert is_inside.wait(5)
        assert local.versions.wait("other", 0, stay)
        local.versions.forget("other", stay)
        assert not saved.done()
        may_end.set()


def test_the_cache_of_commits_is_by_volume_and_lsn(local: LocalCatalog) -> None:
    local.put_commits(vid(1), [(1, b"one"), (2, b"two"), (4, b"four")])
    local.put_commits(vid(2), [(9, b"nine")])
    assert local.commit_bodies(vid(1), 2, 4) == {2: b"two", 4: b"four"}
    assert (local.newest_lsn(vid(1)), local.newest_lsn(vid(2)), local.newest_lsn(vid(3))) == (4, 9, 0)
    for first, last, has in ((1, 2, True), (1, 3, False), (2, 4, False), (4, 4, True), (3, 3, False), (4, 5, False)):
        assert local.has_commits(vid(1), first, last) == has


def test_controls_are_kept(local: LocalCatalog) -> None:
    local.put_control(vid(1), b"control")
    assert local.control(vid(1)) == b"control"
    assert local.control(vid(2)) is None


def test_objects_below_a_prefix_are_replaced_together(local: LocalCatalog) -> None:
    for key in ("tags/a/1", "tags/a/2", "tags/ab/1"):
        local.put_object(Key(key), key.encode())
    local.replace_objects("tags/a/", {"tags/a/2": b"new", "tags/a/3": b"three"})
    kept = {key: local.object(Key(key)) for key in ("tags/a/1", "tags/a/2", "tags/a/3", "tags/ab/1")}
    assert kept == {"tags/a/1": None, "tags/a/2": b"new", "tags/a/3": b"three", "tags/ab/1": b"tags/ab/1"}
    local.drop_object(Key("tags/a/2"))
    local.drop_object(Key("tags/a/2"))
    assert local.object(Key("tags/a/2")) is None


def test_everything_is_there_after_reopening(path: Path) -> None:
    with LocalCatalog(path) as local:
        local.put_control(vid(1), b"control")
        local.save(handle=PENDING, attempt=FULL, commit=(vid(2), 3, b"three"))
    with LocalCatalog(path) as local:
        assert local.attempts() == (FULL,)
        assert local.handles() == (PENDING,)
        assert local.commit_bodies(vid(2), 1, 9) == {3: b"three"}
        assert local.control(vid(1)) == b"control"


def test_saving_is_all_or_nothing(local: LocalCatalog) -> None:
    local.save(attempt=FULL)
    done = dataclasses.replace(FULL, state="PUBLISHED")
    with pytest.raises(InvalidArgument, match="commit"):
        local.save(handle=HANDLE, attempt=done, commit=(vid(2), 3, None))  # type: ignore[arg-type]
    unfit = dataclasses.replace(done, sid=sid(9), first_seq=None)  # type: ignore[arg-type]
    with pytest.raises(InvalidObject, match="NOT NULL"):
        local.save(handle=HANDLE, attempt=unfit, commit=(vid(2), 3, b"three"))
    assert local.commit_bodies(vid(2), 1, 9) == {}
    assert local.attempts() == (FULL,)
    assert local.handles() == ()
    local.save(handle=HANDLE, attempt=done, commit=(vid(2), 3, b"three"))
    assert (local.attempts(), local.handles()) == ((done,), (HANDLE,))


def test_what_was_saved_survives_a_kill_and_what_was_not_is_gone(path: Path) -> None:
    child = """
import os, signal, sys
from pathlib import Path
from catalog.local_catalog import LocalCatalog
from tests.seams.catalog import connection_of
from tests.worlds.local_rows import FULL, PENDING
local = LocalCatalog(Path(sys.argv[1]))
local.save(handle=PENDING, attempt=FULL)
connection_of(local).execute("BEGIN IMMEDIATE")
connection_of(local).execute("DELETE FROM handles")
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", child, str(path)], cwd=Path(__file__).parents[2], check=False)
    assert killed.returncode == -9
    with LocalCatalog(path) as local:
        assert local.attempts() == (FULL,)
        assert local.handles() == (PENDING,)


def test_it_is_in_wal_mode_and_syncs_every_transaction(path: Path, real_syncs: None) -> None:
    with LocalCatalog(path) as local:
        run = connection_of(local).execute
        assert run("PRAGMA journal_mode").fetchone() == ("wal",)
        assert run("PRAGMA synchronous").fetchone() == (2,)


def test_its_files_are_the_owners_alone(path: Path, local: LocalCatalog) -> None:
    local.save(handle=HANDLE)
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_threads_take_turns(local: LocalCatalog) -> None:
    def work(thread: int) -> None:
        for lsn in range(1, 11):
            local.put_commits(vid(thread), [(lsn, b"%d" % lsn)])
            assert local.newest_lsn(vid(thread)) == lsn

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert [local.newest_lsn(vid(thread)) for thread in range(8)] == [10] * 8


def test_two_processes_may_have_it_open(path: Path) -> None:
    with LocalCatalog(path) as one, LocalCatalog(path) as other:
        one.save(handle=HANDLE)
        assert other.handles() == (HANDLE,)
        other.save(attempt=ATTEMPT)
        assert one.attempts() == (ATTEMPT,)


def test_another_format_version_is_refused_and_left_alone(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(FormatUnsupported, match=r"version 1 .*this seglog reads 2"):
        LocalCatalog(path)
    assert path.read_bytes() == before


def test_another_programs_database_is_refused_and_left_alone(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    with pytest.raises(InvalidObject, match="another program"):
        LocalCatalog(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]
    connection.close()


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"this is not a database, whatever its name says" * 20)
    with pytest.raises(InvalidObject, match=r"catalog\.db"):
        LocalCatalog(path)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(LocalCatalogUnavailable, match="missing"):
        LocalCatalog(tmp_path / "missing" / "catalog.db")
    (tmp_path / "directory").mkdir()
    with pytest.raises(LocalCatalogUnavailable, match="directory"):
        LocalCatalog(tmp_path / "directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_file_is_named(path: Path) -> None:
    LocalCatalog(path).close()
    path.chmod(0o400)
    with pytest.raises(LocalCatalogUnavailable, match=r"catalog\.db"):
        LocalCatalog(path)


def test_a_closed_catalog_says_so(path: Path) -> None:
    local = LocalCatalog(path)
    local.close()
    with pytest.raises(LocalCatalogUnavailable, match="closed"):
        local.handles()


def test_a_truncation_cuts_the_attempts_of_its_state_and_takes_those_from_its_seq_on(tmp_path: Path) -> None:
    with LocalCatalog(tmp_path / "catalog.db") as catalog:
        for number, first in enumerate((1, 11, 21), start=1):
            catalog.save(attempt=Attempt(sid(number), "t", vid(1), first, first + 9, "published", number))
        catalog.save(attempt=Attempt(sid(4), "t", vid(1), 31, 40, "planned", 4))
        for seq, left in ((21, [(1, 10), (11, 20)]), (15, [(1, 10), (11, 14)]), (11, [(1, 10)]), (10, [(1, 9)])):
            catalog.save(truncated=("t", "published", seq))
            found = [(each.first_seq, each.last_seq) for each in catalog.attempts("t") if each.state == "published"]
            assert found == left
        assert [each.first_seq for each in catalog.attempts("t")] == [1, 31]


def test_a_copy_goes_to_the_next_place_if_one_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, tried = os.mkdir, list[str]()

    def full(name: str, mode: int = 0o777) -> None:
        tried.append(os.path.dirname(name))
        if len(tried) <= fails:
            raise OSError(errno.ENOSPC, f"no room {len(tried)}")
        make(name, mode)

    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("os.mkdir", full)
    places = [str(tmp_path), "/tmp", "/var/tmp", str(tmp_path / "here")]
    for fails in (0, 1, 3):
        tried.clear()
        copy = Copy()
        assert tried == places[: fails + 1]
        assert stat.S_IMODE(os.stat(copy.name).st_mode) == 0o700
        copy.cleanup()
    tried.clear()
    fails = 4
    with pytest.raises(OSError, match="no room 4"):
        Copy()
