"""Test that a directory drops its copies of commits that it does not need, and requests them again on demand."""

from __future__ import annotations

from pathlib import Path

from catalog import Vid
from catalog.objects.memory import MemoryStore
from offload.settings import CatalogSettings
from tests.faults.store import CountingStore
from tests.offload.replicas import opened, ship, values
from tests.seams.archive import context_of

SETTINGS = CatalogSettings(checkpoint_commits=4)


def test_what_lies_before_the_newest_checkpoint_goes_and_comes_back(tmp_path: Path) -> None:
    store = MemoryStore()
    counting = CountingStore(store)
    with opened(tmp_path / "one", counting, catalog=SETTINGS) as (log, archive):
        for number in range(10):
            ship(archive, log, "t", b"%d" % number)
        before = archive.history.snapshot("t")
        runs = archive.status.runs("t")
        assert archive.upkeep.drop_copies() == 7  # the commits before lsn 8
        assert archive.upkeep.drop_copies() == 0
        vid = Vid.parse(archive.status.topic("t").volume or "")
        assert sorted(context_of(archive).local.commit_bodies(vid, 1, 100)) == [8, 9, 10]
    with opened(tmp_path / "one", counting, catalog=SETTINGS) as (log, archive):
        counting.counts.clear()
        assert archive.history.snapshot("t") == before
        assert archive.status.runs("t") == runs
        assert counting.counts == {}
        assert len(list(archive.history.commits("t"))) == 10
        assert counting.counts["get"] >= 7
        assert values(archive, "t") == [b"%d" % number for number in range(10)]
        ship(archive, log, "t", b"10")
        assert len(list(archive.history.commits("t"))) == 11


def test_a_fork_keeps_what_it_stands_on_in_its_parents(tmp_path: Path) -> None:
    store = MemoryStore()
    with opened(tmp_path / "one", store, catalog=SETTINGS) as (log, archive):
        for number in range(6):
            ship(archive, log, "t", b"%d" % number)
        archive.restore("t", to="lsn:3", name="early")
        archive.restore("t", to="lsn:5", name="late")
        for name in ("t@early", "t@late"):
            ship(archive, log, name, b"x")
    counting = CountingStore(store)
    with opened(tmp_path / "two", counting) as (_, archive):
        for name in ("t@early", "t@late"):
            archive.replication.sync(name)
        shown = {name: archive.history.snapshot(name) for name in ("t@early", "t@late")}
        list(archive.history.commits("t@late"))
        archive.upkeep.drop_copies()
    with opened(tmp_path / "two", counting) as (_, archive):
        counting.counts.clear()
        assert {name: archive.history.snapshot(name) for name in shown} == shown
        assert counting.counts == {}
        assert archive.upkeep.drop_copies() == 0


def test_a_volume_that_no_handle_leads_to_is_forgotten(tmp_path: Path) -> None:
    store = MemoryStore()
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "t", b"a")
        ship(archive, log, "other", b"b")
    with opened(tmp_path / "two", store) as (_, archive):
        archive.replication.sync("t")
        assert values(archive, "other") == [b"b"]  # a read makes no handle
        assert len(context_of(archive).local.volumes()) == 2
        assert archive.upkeep.drop_copies() == 1
        assert len(context_of(archive).local.volumes()) == 1
        assert values(archive, "other") == [b"b"]
