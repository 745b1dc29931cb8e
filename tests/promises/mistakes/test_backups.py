"""The data directory is copied, or restored from a backup, with a remote or without one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import offload
import seglog
from catalog.errors import Diverged, Fenced, InvalidObject
from offload import Archive
from offload.errors import Conflict, HistoryBehind, LocalChangesLost
from seglog import FileCorrupt, Log
from tests.promises.mistakes.scene import filled, numbered, tree, values
from tests.worlds.command import command


@contextmanager
def attached(path: Path, remote: str) -> Iterator[tuple[Log, Archive]]:
    with seglog.open(path) as log, offload.attach(log, remote) as archive:
        yield log, archive


def ship(path: Path, remote: str, given: Sequence[bytes], *, drop_hot: bool = False) -> None:
    """Append, seal and offload."""
    with attached(path, remote) as (log, archive):
        log.topic("orders").append(given)
        log.topic("orders").seal()
        archive.offload("orders", drop_hot=drop_hot)


def shown(path: Path, remote: str, name: str = "orders") -> list[bytes]:
    """Read the topic over both tiers, in a fresh opening."""
    with attached(path, remote) as (_, archive):
        return [record.value for record in archive.read(name)]


def objects(remote: str) -> dict[str, bytes]:
    """Every object of a remote that is a folder."""
    return tree(Path(remote.removeprefix("file://")))


def folder(tmp_path: Path) -> str:
    return (tmp_path / "remote").as_uri()


def in_place_of(path: Path, backup: Path) -> None:
    shutil.rmtree(path)
    shutil.copytree(backup, path)


def aged(tmp_path: Path, *, drop_hot: bool = False) -> tuple[Path, Path, str]:
    """A directory with ten offloaded records, its backup of when there were five, and the remote of both."""
    path, backup, remote = tmp_path / "data", tmp_path / "backup", folder(tmp_path)
    ship(path, remote, numbered(5), drop_hot=drop_hot)
    shutil.copytree(path, backup)
    ship(path, remote, numbered(5, first=6), drop_hot=drop_hot)
    return path, backup, remote


def test_a_copy_and_its_original_are_both_written(tmp_path: Path) -> None:
    """Somebody copies the data directory of a log without a remote, and programs append to both.

    Outcome: nothing is lost. The two are logs of their own from the copy on.
    """
    filled(tmp_path / "data", seal=True)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    for name in ("data", "copy"):
        with seglog.open(tmp_path / name) as log:
            log.topic("orders").append([name.encode()])
    assert values(tmp_path / "data") == [*numbered(10), b"data"]
    assert values(tmp_path / "copy") == [*numbered(10), b"copy"]


def test_a_copy_and_its_original_are_both_offloaded(tmp_path: Path, remote: str) -> None:
    """Somebody copies a data directory with a remote, and both append and offload.

    Outcome: the second offload is refused with `Diverged`, before it changes anything in the topic. `reset --as` keeps
    the records of the second one as a branch.
    """
    ship(tmp_path / "data", remote, numbered(5))
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    ship(tmp_path / "data", remote, [b"first"])
    with pytest.raises(Diverged):
        ship(tmp_path / "copy", remote, [b"second"])
    assert shown(tmp_path / "data", remote) == [*numbered(5), b"first"]
    assert shown(tmp_path / "copy", remote) == [*numbered(5), b"second"]
    with attached(tmp_path / "copy", remote) as (_, archive):
        archive.replication.reset("orders", as_branch="copy")
    assert shown(tmp_path / "copy", remote) == [*numbered(5), b"first"]
    assert shown(tmp_path / "copy", remote, "orders@copy") == [*numbered(5), b"second"]


def test_a_copy_offloads_by_the_command_line(tmp_path: Path) -> None:
    """Somebody copies a data directory and runs `seglog offload` in the copy, after the original did.

    Outcome: refused with exit code 4; the message names `seglog reset orders --as NAME`.
    """
    remote = folder(tmp_path)
    ship(tmp_path / "data", remote, numbered(5))
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    ship(tmp_path / "data", remote, [b"first"])
    with seglog.open(tmp_path / "copy") as log:
        log.topic("orders").append([b"second"])
        log.topic("orders").seal()
    done = command("--remote", remote, "offload", "orders", directory=tmp_path / "copy")
    assert done.returncode == 4
    assert b"diverged" in done.stderr
    assert b"seglog reset orders --as NAME" in done.stderr
    assert values(tmp_path / "copy") == [*numbered(5), b"second"]


def test_a_directory_is_copied_while_it_is_open(tmp_path: Path) -> None:
    """A backup program copies the data directory while a program has it open and appends nothing.

    Outcome: nothing is lost. The copy opens with every record that was acked.
    """
    with seglog.open(tmp_path / "data") as log:
        log.topic("orders").append(numbered(10))
        log.topic("orders").seal()
        log.topic("orders").append(numbered(10, first=11))
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
        assert values(tmp_path / "copy") == numbered(20)
    assert values(tmp_path / "data") == numbered(20)


def test_a_directory_is_copied_part_by_part_while_it_is_written(tmp_path: Path) -> None:
    """A backup program copies topics/ before a checkpoint, meta/ and wal/ after it.

    Outcome: refused with `FileCorrupt`, which names a file of topics/; the original has all records.
    """
    with seglog.open(tmp_path / "data") as log:
        log.topic("orders").append(numbered(10))
        log.topic("orders").seal()
        shutil.copytree(tmp_path / "data/topics", tmp_path / "copy/topics")
        log.topic("orders").append(numbered(10, first=11))
        log.topic("orders").seal()
        for name in ("meta", "wal"):
            shutil.copytree(tmp_path / "data" / name, tmp_path / "copy" / name)
    before = tree(tmp_path / "copy")
    with pytest.raises(FileCorrupt) as caught:
        seglog.open(tmp_path / "copy")
    assert caught.value.path.is_relative_to(tmp_path / "copy/topics")
    assert tree(tmp_path / "copy") == before
    assert values(tmp_path / "data") == numbered(20)


def test_an_older_backup_is_restored_and_offloads(tmp_path: Path) -> None:
    """An operator restores a data directory from an older backup, appends, and offloads; the remote is ahead.

    Outcome: refused with `Diverged`; no object of the remote changes. `reset --as` keeps the new records as a branch.
    """
    path, backup, remote = aged(tmp_path)
    in_place_of(path, backup)
    before = objects(remote)
    with pytest.raises(Diverged):
        ship(path, remote, [b"after"])
    assert {name: body for name, body in objects(remote).items() if name in before} == before
    assert shown(path, remote) == [*numbered(5), b"after"]
    with attached(path, remote) as (_, archive):
        archive.replication.reset("orders", as_branch="mine")
    assert shown(path, remote) == numbered(10)
    assert shown(path, remote, "orders@mine") == [*numbered(5), b"after"]


def test_an_older_backup_is_restored_and_reset_without_a_word(tmp_path: Path) -> None:
    """An operator restores an older backup, appends, and runs `reset` without --as and --discard.

    Outcome: refused with `LocalChangesLost`, which counts the records; they stay.
    """
    path, backup, remote = aged(tmp_path)
    in_place_of(path, backup)
    with attached(path, remote) as (log, archive):
        log.topic("orders").append([b"after"])
        with pytest.raises(LocalChangesLost, match="1 record "):
            archive.replication.reset("orders")
    assert shown(path, remote) == [*numbered(5), b"after"]


def test_an_older_backup_is_restored_and_synced(tmp_path: Path) -> None:
    """An operator restores an older backup, appends nothing, and runs `sync`.

    Outcome: nothing is lost. The directory follows the remote, and shows all that it has.
    """
    path, backup, remote = aged(tmp_path)
    in_place_of(path, backup)
    with attached(path, remote) as (_, archive):
        archive.replication.sync("orders")
    assert shown(path, remote) == numbered(10)


def test_a_backup_from_before_hot_copies_went_is_restored(tmp_path: Path) -> None:
    """An operator restores a backup that still has the hot copies that `--drop-hot` took later.

    Outcome: nothing is lost. The directory opens, and follows the remote after a `sync`.
    """
    path, backup, remote = tmp_path / "data", tmp_path / "backup", folder(tmp_path)
    ship(path, remote, numbered(5))
    shutil.copytree(path, backup)
    ship(path, remote, numbered(5, first=6), drop_hot=True)
    in_place_of(path, backup)
    assert shown(path, remote) == numbered(5)
    with attached(path, remote) as (_, archive):
        archive.replication.sync("orders")
    assert shown(path, remote) == numbered(10)


def test_catalog_db_is_older_than_the_log(tmp_path: Path) -> None:
    """An operator restores catalog.db from an older backup, and nothing else.

    Outcome: an offload is refused with `Diverged`. `reset --as` keeps what the old catalog.db does not know, and shows
    what the remote has.
    """
    path, backup, remote = aged(tmp_path)
    shutil.copy(backup / "catalog.db", path / "catalog.db")
    assert shown(path, remote) == numbered(10)
    with pytest.raises(Diverged):
        ship(path, remote, [b"after"])
    with attached(path, remote) as (_, archive):
        archive.replication.reset("orders", as_branch="mine")
    assert shown(path, remote) == numbered(10)
    assert shown(path, remote, "orders@mine") == [*numbered(10), b"after"]


def test_catalog_db_is_older_than_the_hot_copies(tmp_path: Path) -> None:
    """An operator restores an older catalog.db, and records that it knows no commit for left the disk since.

    Outcome: a read, an offload and `reset --as` are refused, and no branch is made. With the right catalog.db all
    records are there.
    """
    path, backup, remote = aged(tmp_path, drop_hot=True)
    shutil.copy(path / "catalog.db", tmp_path / "aside")
    shutil.copy(backup / "catalog.db", path / "catalog.db")
    with pytest.raises(HistoryBehind, match=r"up to seq 10, .* ends at seq 5"):
        shown(path, remote)
    with pytest.raises(Diverged):
        ship(path, remote, [b"after"])
    before = objects(remote)
    with attached(path, remote) as (_, archive), pytest.raises(HistoryBehind):
        archive.replication.reset("orders", as_branch="mine")
    assert objects(remote) == before
    shutil.copy(tmp_path / "aside", path / "catalog.db")
    assert shown(path, remote) == [*numbered(10), b"after"]


def test_catalog_db_is_lost(tmp_path: Path) -> None:
    """Somebody removes catalog.db.

    Outcome: an offload is refused with `Diverged`. `reset --as` keeps every record as a branch, and shows what the
    remote has.
    """
    path, _, remote = aged(tmp_path)
    (path / "catalog.db").unlink()
    with pytest.raises(Diverged):
        ship(path, remote, [b"after"])
    with attached(path, remote) as (_, archive):
        archive.replication.reset("orders", as_branch="mine")
    assert shown(path, remote) == numbered(10)
    assert shown(path, remote, "orders@mine") == [*numbered(10), b"after"]


def test_catalog_db_is_lost_after_hot_copies_went(tmp_path: Path) -> None:
    """Somebody removes catalog.db, and records left the disk before.

    Outcome: an offload and `reset --as` are refused, and no branch is made. Reads show all records. The hint says how
    to save what is only here, and to follow the remote again.
    """
    path, _, remote = aged(tmp_path, drop_hot=True)
    (path / "catalog.db").unlink()
    with pytest.raises(Diverged):
        ship(path, remote, [b"after"])
    before = objects(remote)
    with attached(path, remote) as (_, archive), pytest.raises(HistoryBehind) as caught:
        archive.replication.reset("orders", as_branch="mine")
    assert "seglog read orders --from 11" in str(caught.value.hint)
    assert objects(remote) == before
    assert shown(path, remote) == [*numbered(10), b"after"]
    with attached(path, remote) as (_, archive):
        assert [record.value for record in archive.read("orders", 11)] == [b"after"]
        archive.replication.reset("orders", discard=True)
    assert shown(path, remote) == numbered(10)


def test_catalog_db_is_emptied(tmp_path: Path) -> None:
    """Somebody leaves an empty file in the place of catalog.db.

    Outcome: as if it was removed: an offload is refused with `Diverged`, and every record is readable.
    """
    path, _, remote = aged(tmp_path)
    (path / "catalog.db").write_bytes(b"")
    with pytest.raises(Diverged):
        ship(path, remote, [b"after"])
    assert shown(path, remote) == [*numbered(10), b"after"]


def test_catalog_db_is_overwritten(tmp_path: Path) -> None:
    """Somebody puts another file in the place of catalog.db.

    Outcome: refused with `InvalidObject`, which names the file; the log opens without its remote.
    """
    path, _, remote = aged(tmp_path)
    (path / "catalog.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(InvalidObject, match=r"catalog\.db: file is not a database"):
        shown(path, remote)
    assert values(path) == numbered(10)


def test_topics_are_restored_from_an_older_backup(tmp_path: Path) -> None:
    """An operator restores topics/ from an older backup, and nothing else.

    Outcome: refused with `FileCorrupt`, which names the missing segment; nothing is changed.
    """
    path, backup, _ = aged(tmp_path)
    shutil.copytree(path, tmp_path / "aside")
    in_place_of(path / "topics", backup / "topics")
    before = tree(path)
    with pytest.raises(FileCorrupt, match="segment is missing") as caught:
        seglog.open(path)
    assert caught.value.path == path / "topics/00000001/seg-0000000000000006.data"
    assert tree(path) == before
    in_place_of(path / "topics", tmp_path / "aside/topics")
    assert values(path) == numbered(10)


def test_meta_is_restored_from_an_older_backup(tmp_path: Path) -> None:
    """An operator restores meta/ from an older backup, and nothing else.

    Outcome: nothing is lost as long as the WAL has what came since.
    """
    path, backup, _ = aged(tmp_path)
    in_place_of(path / "meta", backup / "meta")
    assert values(path) == numbered(10)


def test_meta_is_older_than_the_wal(tmp_path: Path) -> None:
    """An operator restores meta/ from a backup that is older than every WAL file.

    Outcome: refused with `FileCorrupt`, which names the WAL file that is missing; nothing is changed.
    """
    path = tmp_path / "data"
    settings = seglog.LogSettings(wal_file_bytes=4096)
    with seglog.open(path, settings=settings) as log:
        log.topic("orders").append(numbered(10))
    shutil.copytree(path, tmp_path / "backup")
    with seglog.open(path, settings=settings) as log:
        for number in range(11, 21):
            log.topic("orders").append([b"record %d" % number, bytes(2000)])
            log.checkpoint()
    shutil.copytree(path, tmp_path / "aside")
    in_place_of(path / "meta", tmp_path / "backup/meta")
    before = tree(path)
    with pytest.raises(FileCorrupt, match="missing"):
        seglog.open(path)
    assert tree(path) == before
    in_place_of(path / "meta", tmp_path / "aside/meta")
    assert len(values(path)) == 30


def test_a_remote_is_recovered_twice(tmp_path: Path) -> None:
    """Two operators recover the same remote, each into a directory of an own, and both write.

    Outcome: nothing is lost. The second takeover fences the first, whose records `reset --as` keeps as a branch.
    """
    remote = folder(tmp_path)
    ship(tmp_path / "data", remote, numbered(5))
    for name in ("one", "two"):
        assert [*offload.recover(tmp_path / name, remote)]
    for name in ("one", "two"):
        with attached(tmp_path / name, remote) as (log, archive):
            archive.replication.take_over("orders").append([name.encode()])
            log.topic("orders").seal()
            archive.offload("orders")
    with pytest.raises(Fenced):
        ship(tmp_path / "one", remote, [b"late"])
    assert shown(tmp_path / "two", remote) == [*numbered(5), b"one", b"two"]
    with attached(tmp_path / "one", remote) as (_, archive):
        archive.replication.reset("orders", as_branch="late")
    assert shown(tmp_path / "one", remote) == [*numbered(5), b"one", b"two"]
    assert shown(tmp_path / "one", remote, "orders@late") == [*numbered(5), b"one", b"late"]


def test_a_remote_is_recovered_into_a_directory_that_is_used(tmp_path: Path) -> None:
    """An operator recovers a remote into a data directory that has records.

    Outcome: refused with `Conflict`; nothing is changed.
    """
    remote = folder(tmp_path)
    ship(tmp_path / "data", remote, numbered(5))
    filled(tmp_path / "other")
    before = tree(tmp_path / "other", ())
    with pytest.raises(Conflict, match="other is not empty; nothing was changed"):
        assert [*offload.recover(tmp_path / "other", remote)]
    assert tree(tmp_path / "other", ()) == before
