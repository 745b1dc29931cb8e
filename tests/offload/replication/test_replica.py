"""Test a directory that follows a topic, and its behaviour when both sides have changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from catalog import CommitKind, LocalCatalog, Vid, Volumes, make_checkpoint
from catalog.errors import Diverged, NoSuchTopic, OutOfWindow, StoreUnreachable
from catalog.format.control import Boundary
from catalog.format.keys import boundary_key, commit_key
from catalog.format.small_objects import encode_boundary
from catalog.objects.memory import MemoryStore
from offload.archive import Archive
from offload.errors import LocalChangesLost
from offload.settings import CatalogSettings
from tests.faults.store import CountingStore, Fault, FaultyStore, WrappedStore, unreachable
from tests.offload.replicas import opened, ship, values
from tests.seams.archive import context_of
from tests.seams.catalog import lock_of_local
from tests.worlds.clock import HandClock
from tests.worlds.proxies import Via, http_is_long, over_http_too, via

__all__ = ["via"]


def _volume(archive: Archive) -> Vid:
    return Vid.parse(archive.status.topic("t").volume or "")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@over_http_too
def test_pull_changes_nothing_for_readers_and_sync_moves_them_on(tmp_path: Path, store: MemoryStore, via: Via) -> None:
    with opened(tmp_path / "writer", store) as (log, writer), opened(tmp_path / "reader", via(store)) as (_, reader):
        ship(writer, log, "t", b"a", b"b")
        assert str(reader.replication.sync_state("t") if reader.replication.sync("t") else "") == "2 r1"
        ship(writer, log, "t", b"c")
        ship(writer, log, "t", b"d")
        assert values(reader, "t") == [b"a", b"b"]
        assert str(reader.replication.pull("t")) == "2 r1+2"
        assert values(reader, "t") == [b"a", b"b"]
        synced = reader.replication.sync("t")
        assert (synced.lsn, synced.commits, synced.is_replica) == (3, 2, True)
        assert str(reader.replication.sync_state("t")) == "4 r3"
        assert values(reader, "t") == [b"a", b"b", b"c", b"d"]
        assert values(reader, "t", at="lsn:2") == [b"a", b"b", b"c"]


def test_a_poll_without_news_asks_for_the_name_the_next_commit_and_the_boundary(
    tmp_path: Path, store: MemoryStore
) -> None:
    counting = CountingStore(store)
    with opened(tmp_path / "writer", store) as (log, writer), opened(tmp_path / "reader", counting) as (_, reader):
        ship(writer, log, "t", b"a")
        reader.replication.sync("t")
        counting.counts.clear()
        reader.replication.sync("t")
        assert counting.counts == {"get_with_etag": 1, "get": 2}
        ship(writer, log, "t", b"b")
        counting.counts.clear()
        reader.replication.sync("t")
        assert set(counting.counts) == {"get_with_etag", "get"}
        assert counting.counts["get_with_etag"] == 1
        assert counting.counts["get"] in {3, 4}  # lsn 2; lsn 3 and perhaps 4, which do not exist; the boundary


def test_a_checkpoint_is_made_with_the_commit_that_it_is_due_at(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path, store, catalog=CatalogSettings(checkpoint_commits=2)) as (log, writer):
        for number in range(2):
            ship(writer, log, "t", b"%d" % number)
        vid = writer.history.snapshot("t").vid
        assert [mark.lsn for mark in Volumes(store).checkpoints(vid).marks] == [2]


def test_a_replica_that_is_far_behind_goes_on_from_the_newest_checkpoint(tmp_path: Path, store: MemoryStore) -> None:
    counting, settings, expected = CountingStore(store), CatalogSettings(checkpoint_commits=8), [b"first"]
    with opened(tmp_path / "writer", store, catalog=settings) as (log, writer):
        ship(writer, log, "t", b"first")
        with opened(tmp_path / "reader", counting) as (_, reader):
            reader.replication.sync("t")
            for number in range(80):
                ship(writer, log, "t", b"%d" % number)
                expected.append(b"%d" % number)
            counting.counts.clear()
            assert reader.replication.sync("t").commits == 80
            assert counting.counts.total() <= 15 + 8 + 8
            assert values(reader, "t") == expected
    with opened(tmp_path / "reader", store) as (log, reader):  # with the local copies, which are not of every commit
        assert values(reader, "t") == expected
        assert len(reader.history.commits("t")) == 81
        assert str(reader.replication.sync_state("t")) == "81 r81"
        reader.replication.take_over("t")
        assert [run.last_seq for run in reader.status.runs("t")] == [*range(1, 82)]
        ship(reader, log, "t", b"mine")
        assert values(reader, "t") == [*expected, b"mine"]


def test_a_replica_without_a_checkpoint_to_go_on_from_asks_for_each_commit(tmp_path: Path, store: MemoryStore) -> None:
    counting = CountingStore(store)
    with opened(tmp_path / "writer", store) as (log, writer), opened(tmp_path / "reader", counting) as (_, reader):
        ship(writer, log, "t", b"0")
        reader.replication.sync("t")
        for number in range(1, 41):
            ship(writer, log, "t", b"%d" % number)
        counting.counts.clear()
        assert reader.replication.sync("t").commits == 40
        assert counting.counts["get"] <= 40 + 16 + 2
        assert values(reader, "t") == [b"%d" % number for number in range(41)]


def test_what_was_fetched_is_shown_without_a_remote(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "writer", store) as (log, writer):
        ship(writer, log, "t", b"a")
        ship(writer, log, "t", b"b")
        writer.restore("t", to="seq:1", name="half")
        ship(writer, log, "t@half", b"c")
    with opened(tmp_path / "reader", store) as (_, reader):
        reader.replication.fetch("t@half")
        expected = reader.history.snapshot("t@half")
    counting = CountingStore(FaultyStore(store, [Fault(error=unreachable, method="get")]))
    with opened(tmp_path / "reader", counting) as (_, reader):
        assert reader.history.snapshot("t@half") == expected
        assert str(reader.replication.sync_state("t@half")) == "2 r1"
        assert counting.counts == {}
        kinds = [past.commit.kind for past in reader.history.commits("t@half")]
        assert kinds == [CommitKind.OFFLOAD, CommitKind.OFFLOAD]
        with pytest.raises(StoreUnreachable):
            reader.replication.sync("t@half")


def test_the_state_of_a_writer_counts_records_and_deletes_that_only_it_has(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path, store) as (log, archive):
        log.topic("t").append([b"a", b"b"])
        assert str(archive.replication.sync_state("t")) == "0+2 r0"
        log.topic("t").seal()
        archive.offload("t")
        assert str(archive.replication.sync_state("t")) == "2 r1"
        log.topic("t").append([b"c"])
        archive.delete("t", before=2)
        assert str(archive.replication.sync_state("t")) == "2+2 r1"
        status = archive.status.topic("t")
        assert (status.state, status.is_replica, status.writer_epoch) == ("2+2 r1", False, 1)


def test_sync_of_a_writer_with_changes_pushes_what_is_sealed(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path, store) as (log, archive):
        log.topic("t").append([b"a", b"b"])
        log.topic("t").seal()
        log.topic("t").append([b"c"])
        synced = archive.replication.sync("t")
        assert [each.lsn for each in synced.published] == [1]
        assert str(archive.replication.sync_state("t")) == "2+1 r1"
        assert archive.replication.sync("t").published == ()


def test_a_name_that_is_nowhere_is_no_replica(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path, store) as (_, archive):
        for act in (
            archive.replication.pull,
            archive.replication.fetch,
            archive.replication.sync,
            archive.replication.reset,
        ):
            with pytest.raises(NoSuchTopic):
                act("nowhere")
        assert archive.replication.replicas() == []


def test_a_copy_of_a_directory_that_both_write_diverges_and_is_saved_as_a_branch(
    tmp_path: Path, store: MemoryStore
) -> None:
    """The losing directory keeps seqs, tags, nodes and deletes on the branch, and follows the other directory."""
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "t", b"a", b"b")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "t", b"ours")
    with opened(tmp_path / "two", store) as (log, archive):
        topic = log.topic("t")
        topic.append([b"c", b"d"], tag="eu", node="n1")
        topic.append([b"e"])
        archive.delete("t", tag="eu")
        topic.append([b"f"], tag="eu")
        topic.seal()
        with pytest.raises(Diverged) as caught:
            archive.replication.sync("t")
        assert "--as NAME" in (caught.value.hint or "")
        assert archive.status.topic("t").diverged_lsn == 2
        assert str(archive.replication.pull("t")) == "2+5 r1+1"
        with pytest.raises(LocalChangesLost, match="4 records and 1 delete "):
            archive.replication.reset("t")
        assert values(archive, "t") == [b"a", b"b", b"e", b"f"]
        result = archive.replication.reset("t", as_branch="mine")
        assert (result.changes.records, result.changes.deletes, result.lsn) == (4, 1, 2)
        assert values(archive, "t") == [b"a", b"b", b"ours"]
        assert archive.replication.is_replica("t")
        saved = list(archive.read("t@mine"))
        assert [(each.seq, each.value, each.tag) for each in saved] == [
            (1, b"a", None), (2, b"b", None), (5, b"e", None), (6, b"f", "eu"),
        ]  # fmt: skip
        log.topic("t@mine").seal()
        archive.offload("t@mine")
        before = list(archive.read("t@mine", at="seq:5"))
        assert [(each.seq, each.value, each.tag, each.node) for each in before][2:4] == [
            (3, b"c", "eu", "n1"), (4, b"d", "eu", "n1"),
        ]  # fmt: skip
    with opened(tmp_path / "third", store) as (_, archive):
        archive.replication.sync("t@mine")
        assert values(archive, "t@mine") == [b"a", b"b", b"e", b"f"]


def test_reset_with_discard_drops_what_is_only_here(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path, store) as (log, archive):
        ship(archive, log, "t", b"a")
        log.topic("t").append([b"gone"])
        archive.replication.reset("t", discard=True)
        assert values(archive, "t") == [b"a"]
        assert archive.replication.replicas() == ["t"]
        assert archive.open_for_append("t").append([b"b"]) == range(2, 3)
        assert archive.status.topic("t").writer_epoch == 2
        assert values(archive, "t") == [b"a", b"b"]


@http_is_long
def test_a_replica_that_gc_has_passed_goes_on_from_the_newest_commit(
    tmp_path: Path, store: MemoryStore, via: Via
) -> None:
    with opened(tmp_path / "writer", store) as (log, writer), opened(tmp_path / "reader", via(store)) as (_, reader):
        ship(writer, log, "t", b"a")
        reader.replication.sync("t")
        for value in (b"b", b"c", b"d"):
            ship(writer, log, "t", value)
        vid = Vid.parse(writer.status.topic("t").volume or "")
        make_checkpoint(Volumes(store), vid, 3, now_ms=0)
        store.put(boundary_key(vid), encode_boundary(Boundary(vid, 3)), {})
        for lsn in (1, 2):
            store.delete(commit_key(vid, lsn))
        assert reader.replication.sync("t").lsn == 4
        assert values(reader, "t") == [b"a", b"b", b"c", b"d"]
        assert str(reader.replication.sync_state("t")) == "4 r4"


def test_a_name_for_the_head_of_a_replica_that_gc_passed_is_of_the_newest_state(
    tmp_path: Path, store: MemoryStore
) -> None:
    clock = HandClock()
    with (
        opened(tmp_path / "writer", store, clock) as (log, writer),
        opened(tmp_path / "reader", store, clock) as (_, reader),
    ):
        ship(writer, log, "t", b"a")
        reader.replication.sync("t")
        for value in (b"b", b"c"):
            ship(writer, log, "t", value)
            clock.ms += 8 * 24 * 3_600_000
        while writer.upkeep.collect().deleted_bytes or not Volumes(store).boundary(_volume(writer)):
            clock.ms += 2 * 24 * 3_600_000
        assert Volumes(store).boundary(_volume(writer)) > 1
        reader.tags.tag("t", "v")
        reader.restore("t", to="head", name="fix")
        assert values(reader, "t", at="tag:v") == values(reader, "t@fix") == [b"a", b"b", b"c"]
        with pytest.raises(OutOfWindow):
            reader.restore("t", to="lsn:1", name="gone")


def test_no_lock_of_the_local_catalog_is_held_over_a_request(tmp_path: Path, store: MemoryStore) -> None:
    class Watched(WrappedStore):
        requests = 0
        held: list[str]
        local: LocalCatalog | None = None

        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            self.requests += 1
            if self.local is not None and lock_of_local(self.local).locked():
                self.held.append(f"{method} {key}")
            return act()

    watched = Watched(store)
    watched.held = []
    with opened(tmp_path / "writer", store) as (log, writer), opened(tmp_path / "reader", watched) as (other, reader):
        watched.local = context_of(reader).local
        ship(writer, log, "t", b"a")
        reader.replication.fetch("t")
        reader.replication.sync("t")
        ship(reader, other, "t", b"b")
        reader.delete("t", before=2)
        reader.open_for_append("t").append([b"c"])
        reader.replication.reset("t", as_branch="b")
        ship(reader, other, "t@b", b"d")
        assert watched.requests > 40
        assert watched.held == []
