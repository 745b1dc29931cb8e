"""Two versions of seglog use one remote: all works until `seglog upgrade`, and then the older one loses nothing.

The older version is the same code in a process of its own, which knows one form less (tests/worlds/older.py). So it
writes what an older release writes, and refuses what that release refuses.
"""

from __future__ import annotations

import errno
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import offload
import seglog
from catalog.errors import CatalogError, InvalidObject
from offload import Archive
from offload.cli.session import Output
from offload.operations.upgrade import UPGRADE, VolumeUpgraded
from offload.wiring import open_store
from seglog import DiskFull, FormatUnsupported, Log, LogSettings, UpgradeNeeded
from seglog.base import forms
from seglog.values.deletes import DeleteWhere
from tests.children import quiet_fork
from tests.faults.disk import Image, Moment, SimulatedDisk
from tests.faults.files import FailingFiles
from tests.faults.store import KillingStore
from tests.promises.mistakes.scene import numbered, tree
from tests.waiting import wait_until
from tests.worlds.command import command
from tests.worlds.older import older, served_by_older

REFUSED_DIRECTORY = b"format version 5 is not supported: this seglog reads 1 to 4"
REFUSED_COMMIT = b"format version 2 is not supported: this seglog reads 1"
SMALL = LogSettings(wal_file_bytes=4096)
LINES = b"0\n1\n2\n3\n4\n"


def works(*words: str, directory: Path, given: bytes = b"") -> bytes:
    done = older(*words, directory=directory, given=given)
    assert done.returncode == 0, done.stderr
    return done.stdout


def made(directory: Path, remote: str) -> Path:
    """A directory of the older version, with its remote in seglog.toml."""
    works("init", *(["--remote", remote] if remote else []), directory=directory)
    return directory


@pytest.fixture
def remote(tmp_path: Path) -> str:
    return (tmp_path / "remote").as_uri()


@pytest.fixture
def writer(tmp_path: Path, remote: str) -> Path:
    """A directory of the older version, with five records, which the remote has too."""
    path = made(tmp_path / "writer", remote)
    works("append", "orders", directory=path, given=LINES)
    works("seal", "orders", directory=path)
    works("offload", "orders", directory=path)
    return path


@contextmanager
def attached(path: Path, remote: str) -> Iterator[tuple[Log, Archive]]:
    with seglog.open(path) as log, offload.attach(log, remote) as archive:
        yield log, archive


def ship(path: Path, remote: str, *given: bytes) -> None:
    with attached(path, remote) as (log, archive):
        log.topic("orders").append(given)
        log.topic("orders").seal()
        archive.offload("orders")


@pytest.mark.long
def test_readers_are_first_and_the_writer_is_last(tmp_path: Path, remote: str, writer: Path) -> None:
    replica = made(tmp_path / "replica", remote)
    works("sync", "orders", directory=replica)
    with served_by_older(replica, remote) as daemon:
        assert daemon.values("orders") == ["0", "1", "2", "3", "4"]
        # A newer reader of what the older writer wrote, then a newer writer beside the older replica and its daemon.
        newer = tmp_path / "newer"
        assert command("init", "--remote", remote, directory=newer).returncode == 0
        assert command("sync", "orders", directory=newer).returncode == 0
        assert command("read", "orders", directory=newer).stdout == LINES
        ship(writer, remote, b"of the newer one")
        with attached(writer, remote) as (_, archive):
            archive.delete("orders", before=2)
            archive.offload("orders")
        expected = ["1", "2", "3", "4", "of the newer one"]
        assert daemon.call("sync", topic="orders")[-1]["role"] == "replica"
        assert daemon.values("orders") == expected
        assert works("read", "orders", directory=writer).splitlines()[-1] == b"of the newer one"

        assert command("upgrade", "--yes", directory=writer).returncode == 0
        ship(writer, remote, b"in the newer form")
        [refusal] = daemon.call("sync", topic="orders")
        assert REFUSED_COMMIT.decode() in refusal["title"] + str(refusal.get("detail"))
        assert daemon.values("orders") == expected, "what the replica has stays readable"
    done = older("sync", "orders", directory=replica)
    assert (done.returncode, REFUSED_COMMIT in done.stderr) == (1, True), done.stderr
    assert b"a newer one" in done.stderr
    # With the newer version it goes on.
    assert command("sync", "orders", directory=replica).returncode == 0
    assert command("read", "orders", directory=replica).stdout.endswith(b"in the newer form\n")


@pytest.mark.long
def test_an_upgraded_directory_is_refused_until_the_newer_version_is_back(writer: Path, remote: str) -> None:
    assert command("upgrade", "--yes", directory=writer).returncode == 0
    before = tree(writer)
    for words in (("read", "orders"), ("append", "orders"), ("offload", "orders"), ("upgrade", "--yes"), ("verify",)):
        done = older(*words, directory=writer, given=b"late\n")
        assert (done.returncode, REFUSED_DIRECTORY in done.stdout + done.stderr) in {(1, True), (5, True)}, words
        assert b"a newer one" in done.stdout + done.stderr, words
    after = tree(writer)
    assert {name: body for name, body in after.items() if name in before} == before
    with attached(writer, remote) as (log, archive):
        assert log.form == forms.NEWEST
        assert log.topic("orders").inner.delete(DeleteWhere(start=2, end=2)).seqs is not None
        archive.offload("orders")
    assert command("read", "orders", directory=writer).stdout == b"0\n2\n3\n4\n"


@pytest.mark.long
def test_records_go_back_to_an_older_version_as_lines(tmp_path: Path, remote: str, writer: Path) -> None:
    """The way of docs/operate/upgrades.md for a downgrade."""
    assert command("upgrade", "--yes", directory=writer).returncode == 0
    moved = command("--json", "read", "orders", directory=writer).stdout
    works("append", "orders", "--format", "jsonl", "--keep-times", directory=made(tmp_path / "old", ""), given=moved)
    assert older("--json", "read", "orders", directory=tmp_path / "old").stdout == moved


@pytest.mark.long
def test_an_older_daemon_whose_topic_was_taken_over_and_upgraded_keeps_what_it_acked(
    tmp_path: Path, remote: str, writer: Path
) -> None:
    with served_by_older(writer, remote) as daemon:
        assert command("init", "--remote", remote, directory=tmp_path / "new").returncode == 0
        with attached(tmp_path / "new", remote) as (_, archive):
            archive.replication.sync("orders")
            archive.replication.take_over("orders")
        assert command("upgrade", "--yes", directory=tmp_path / "new").returncode == 0
        daemon.append("orders", b"acked by the older daemon")
        daemon.call("seal", topic="orders")
        wait_until(lambda: any(REFUSED_COMMIT.decode() in line for line in daemon.lines))
        assert daemon.values("orders")[-1] == "acked by the older daemon"
    with attached(writer, remote) as (log, archive):
        assert [record.value for record in log.topic("orders").read()][-1] == b"acked by the older daemon"
        with pytest.raises(CatalogError):
            archive.offload("orders")
        archive.replication.reset("orders", as_branch="kept")
    read = command("read", "orders@kept", directory=writer)
    assert read.stdout == LINES + b"acked by the older daemon\n"


def test_what_needs_the_newest_form_is_refused_before_anything_changes(
    tmp_path: Path, remote: str, writer: Path
) -> None:
    with attached(writer, remote) as (log, archive):
        archive.delete("orders", before=2)
        archive.offload("orders")
    before = tree(tmp_path)
    with attached(writer, remote) as (log, archive):
        for call in (
            lambda: log.topic("orders").delete(start=3, end=4),
            lambda: archive.delete("orders", seqs=[3]),
            lambda: archive.history.undo_removal("orders", archive.status.topic("orders").lsn),
        ):
            with pytest.raises(UpgradeNeeded) as caught:
                call()
            assert (caught.value.form, caught.value.needed) == (1, forms.NEWEST)
    after = tree(tmp_path)
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert all("catalog.db" in name or "LOCK" in name for name in changed), changed
    done = command("delete", "orders", "--from", "3", "--yes", directory=writer)
    assert done.returncode == 2
    assert b"`seglog upgrade --dry-run`" in done.stderr


def test_upgrade_says_what_it_does_and_is_done_once(tmp_path: Path, remote: str, writer: Path) -> None:
    assert b"form 1" in command("status", directory=writer).stdout
    assert b"form 1" in command("doctor", directory=writer).stdout
    tried = command("upgrade", "--dry-run", directory=writer)
    assert tried.stdout.startswith(b"orders would go from form 1 to form 2\n")
    assert b"first give this version to all that read" in tried.stderr
    assert command("upgrade", directory=writer).returncode == 2
    # A replica raises no volume that another directory writes.
    assert command("init", "--remote", remote, directory=tmp_path / "replica").returncode == 0
    assert command("sync", "orders", directory=tmp_path / "replica").returncode == 0
    told = command("upgrade", "--yes", directory=tmp_path / "replica").stdout
    assert b"orders: form 1; another directory writes it" in told
    done = command("--json", "upgrade", "--yes", directory=writer)
    assert b'"topic": "orders", "form": 1, "to": 2, "lsn": 2' in done.stdout
    before = tree(tmp_path / "remote")
    again = command("upgrade", "--yes", directory=writer)
    assert again.stdout == f"{writer}: form 2, the newest\n".encode()
    tried = command("upgrade", "--dry-run", directory=writer)
    assert (tried.stdout, tried.stderr) == (again.stdout + b"nothing to upgrade here\n", b"")
    assert tree(tmp_path / "remote") == before
    assert b"form 1" not in command("status", directory=writer).stdout


def test_upgrade_shows_the_steps_that_it_found_before_it_failed(capsys: pytest.CaptureFixture[str]) -> None:
    def results() -> Iterator[VolumeUpgraded]:
        yield VolumeUpgraded("orders", 1, 2, None)
        raise InvalidObject("refs/t/main", "it is damaged")

    assert UPGRADE.show is not None
    with pytest.raises(InvalidObject):
        UPGRADE.show(Output(is_json=False), results(), {"dry_run": True})
    out, err = capsys.readouterr()
    assert (out, "first give this version" in err) == ("orders would go from form 1 to form 2\n", True)


@pytest.mark.long
def test_a_directory_that_was_taken_over_does_not_upgrade_the_volume_of_its_successor(
    tmp_path: Path, remote: str, writer: Path
) -> None:
    successor = made(tmp_path / "successor", remote)
    works("sync", "orders", directory=successor)
    works("takeover", "orders", directory=successor)
    with attached(writer, remote) as (_, archive):
        for is_dry in (True, False):
            form = archive.upkeep.upgrade("orders", dry_run=is_dry)
            assert (form.form, form.is_elsewhere, form.lsn) == (1, True, None)
    works("append", "orders", directory=successor, given=b"after\n")
    works("seal", "orders", directory=successor)
    works("offload", "orders", directory=successor)


@pytest.mark.long
def test_what_is_new_has_the_newest_form_and_a_branch_that_of_its_parent(
    tmp_path: Path, remote: str, writer: Path
) -> None:
    with attached(writer, remote) as (log, archive):
        archive.restore("orders", to="head", name="fix")
        log.topic("another").append([b"of the older directory"])
        log.topic("another").seal()
        archive.offload("another")
    assert command("append", "orders@fix", directory=writer, given=b"on the branch\n").returncode == 0
    assert command("seal", "orders@fix", directory=writer).returncode == 0
    assert command("offload", "orders@fix", directory=writer).returncode == 0
    with attached(tmp_path / "new", remote) as (log, archive):
        assert log.form == forms.NEWEST
        log.topic("fresh").append([b"x"])
        log.topic("fresh").seal()
        archive.offload("fresh")
        found = {name: archive.upkeep.upgrade(name, dry_run=True).form for name in archive.branches.remote_names()}
    assert found == {"another": 1, "fresh": 2, "orders": 1, "orders@fix": 1}
    replica = made(tmp_path / "replica", remote)
    for topic in ("another", "orders", "orders@fix"):
        works("sync", topic, directory=replica)
    assert REFUSED_COMMIT in older("sync", "fresh", directory=replica).stderr


@pytest.mark.long
def test_a_writer_goes_on_after_an_upgrade_took_the_place_of_its_commit(
    tmp_path: Path, remote: str, writer: Path
) -> None:
    """Its pending commit of the older form is not there twice, and its replacement has the newer form."""
    with attached(writer, remote) as (log, archive):
        log.topic("orders").append([b"late"])
        log.topic("orders").seal()
        assert archive.upkeep.upgrade("orders").lsn == 2
        archive.offload("orders")
        history = [*archive.history.commits("orders")]
        assert [(past.commit.lsn, past.commit.form, past.commit.epoch) for past in history] == [
            (3, 2, 1),
            (2, 2, 1),
            (1, 1, 1),
        ]
        assert [record.value for record in archive.read("orders")] == [*LINES.split(), b"late"]


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_the_commit_of_an_upgrade_leaves_one_form_or_the_other(
    when: str, tmp_path: Path, remote: str, writer: Path
) -> None:
    pid = quiet_fork()
    if not pid:
        store = KillingStore(open_store(remote), effect=1, when=when)
        with seglog.open(writer) as log, offload.attach(log, remote, store=store) as archive:
            archive.upkeep.upgrade("orders")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    seen = older("sync", "orders", directory=made(tmp_path / "replica", remote))
    assert seen.returncode == (0 if when == "before" else 1)
    assert command("upgrade", "--yes", directory=writer).returncode == 0
    ship(writer, remote, b"later")
    assert command("read", "orders", directory=writer).stdout == LINES + b"later\n"


def test_a_power_cut_at_each_effect_of_an_upgrade_leaves_a_whole_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Path("/parent/log")
    with monkeypatch.context() as old:
        old.setattr(forms, "NEWEST", 1)
        disk = SimulatedDisk(Image({"/parent": None}))
        with seglog.open(place, files=disk, settings=SMALL) as log:
            log.topic("orders").append(numbered(5))
    moments: list[Moment] = []
    disk = SimulatedDisk(disk.after_power_cut(), lambda now: moments.append(now.moment()))
    with seglog.open(place, files=disk, settings=SMALL) as log:
        log.topic("orders").append([b"6"])
        moments.clear()
        log.upgrade()
        log.topic("orders").delete(seqs=[1])
        assert log.form == forms.NEWEST
    chance, found = random.Random(1), set()
    images = {image.digest: image for moment in moments for image in moment.images(chance, 2)}
    for image in images.values():
        disk = SimulatedDisk(image)
        with seglog.open(place, files=disk, settings=SMALL) as log:
            values = [record.value for record in log.topic("orders").read()]
            assert values in ([*numbered(5), b"6"], [*numbered(5)[1:], b"6"])
            assert log.form == forms.NEWEST or len(values) == 6, "a range needs the newest form"
            found.add(log.form)
            log.upgrade()
        with monkeypatch.context() as old:
            old.setattr(forms, "NEWEST", 1)
            with pytest.raises(FormatUnsupported):
                seglog.open(place, files=disk, settings=SMALL)
    assert found == {1, 2}


def test_an_upgrade_without_room_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Path("/parent/log")
    with monkeypatch.context() as old:
        old.setattr(forms, "NEWEST", 1)
        disk = SimulatedDisk(Image({"/parent": None}))
        seglog.open(place, files=disk, settings=SMALL).close()
    files = FailingFiles(disk, 0, errno.ENOSPC, for_good=True)
    with seglog.open(place, files=files, settings=SMALL) as log:
        files.at = files.counted + 1
        with pytest.raises(DiskFull):
            log.upgrade()
        files.at = 0
        log.checkpoint()
        assert log.form == 1
