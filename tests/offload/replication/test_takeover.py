"""Test which directory writes a topic: epochs, takeover, and a fenced writer."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import offload
import seglog
from catalog import Bounds, CommitKind
from catalog.errors import Diverged, Fenced
from catalog.objects.memory import MemoryStore
from catalog.objects.wrapped import WrappedStore
from offload import OffloadSettings
from offload.errors import OtherRemote
from seglog import DeleteOp, LogSettings, ProducerBatch, ProducerGap, SeqSet, TopicConfig, WrittenElsewhere
from seglog.inner_topic import InnerTopic
from seglog.values.deletes import DeleteWhere
from tests.offload.replicas import opened, ship, values
from tests.worlds.clock import HandClock


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def test_a_replica_that_writes_takes_over_with_a_commit_of_a_higher_epoch(tmp_path: Path, store: MemoryStore) -> None:
    clock = HandClock()
    with opened(tmp_path / "one", store, clock) as (log, archive):
        ship(archive, log, "t", b"a", b"b")
    behind = HandClock()
    behind.ms -= 60_000
    with opened(tmp_path / "two", store, behind) as (log, archive):
        archive.replication.sync("t")
        assert not log.has_topic("t")
        assert archive.open_for_append("t").append([b"c"]) == range(3, 4)
        log.topic("t").seal()
        archive.offload("t")
        history = [(past.commit.kind, past.commit.epoch) for past in archive.history.commits("t")]
        assert history == [(CommitKind.OFFLOAD, 2), (CommitKind.CONFIG, 2), (CommitKind.OFFLOAD, 1)]
        times = [record.ts_ms for record in archive.read("t")]
        assert times == sorted(times)
        assert values(archive, "t") == [b"a", b"b", b"c"]
        assert (archive.status.topic("t").writer_epoch, archive.replication.is_replica("t")) == (2, False)


def test_a_directory_that_takes_over_knows_no_producer_and_has_another_incarnation(
    tmp_path: Path, store: MemoryStore
) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        topic = archive.open_for_append("t")
        for number in range(3):
            topic.append([b"%d" % number], producer=ProducerBatch("p", 0, number))
        topic.seal()
        archive.offload("t")
        incarnation = topic.incarnation()
    with opened(tmp_path / "two", store) as (_, archive):
        archive.replication.sync("t")
        topic = archive.replication.take_over("t")
        assert topic.inner.known_producer("p") is None
        assert topic.incarnation() != incarnation
        with pytest.raises(ProducerGap):
            topic.append([b"2"], producer=ProducerBatch("p", 0, 2))
        assert topic.append([b"3"], producer=ProducerBatch("p", 1, 0)) == range(4, 5)
        assert values(archive, "t") == [b"0", b"1", b"2", b"3"]
        topic.seal()
        archive.offload("t")
    with opened(tmp_path / "one", store) as (log, archive):  # a producer that went on elsewhere would skip numbers
        archive.replication.reset("t")
        assert log.known_appends("t").producers == ()
        assert archive.replication.take_over("t").append([b"4"], producer=ProducerBatch("p", 2, 0)) == range(5, 6)
    remote = (tmp_path / "remote").as_uri()
    with seglog.open(tmp_path / "three") as log, offload.attach(log, remote) as archive:
        archive.open_for_append("t").append([b"x"], producer=ProducerBatch("p", 0, 0))
        log.topic("t").seal()
        archive.offload("t")
        incarnation = log.topic("t").incarnation()
    assert [*offload.recover(tmp_path / "four", remote)]
    with seglog.open(tmp_path / "four") as log, offload.attach(log, remote) as archive:
        topic = archive.open_for_append("t")
        assert topic.inner.known_producer("p") is None
        assert topic.incarnation() != incarnation


@pytest.mark.parametrize("goes_on", [False, True])
def test_the_old_writer_is_fenced_for_good_and_goes_on_only_locally_and_if_a_setting_says_so(
    tmp_path: Path, store: MemoryStore, goes_on: bool
) -> None:
    settings = LogSettings(append_when_fenced=goes_on)
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "t", b"a", b"x")
        log.topic("t").append([b"keyed"], key="k")
        ship(archive, log, "t", b"y")
    with opened(tmp_path / "two", store) as (log, archive):
        archive.replication.sync("t")
        ship(archive, log, "t", b"b")
    with opened(tmp_path / "one", store, settings=settings) as (log, archive):
        log.topic("t").append([b"mine"])
        log.topic("t").seal()
        for _ in range(2):
            with pytest.raises(Fenced) as caught:
                archive.offload("t")
            assert (caught.value.lsn, caught.value.epoch, caught.value.exit_code) == (3, 2, 4)
        with pytest.raises(Fenced):
            archive.replication.sync("t")
        with pytest.raises(Fenced):
            archive.replication.take_over("t")
        assert log.topic("t").append([b"keyed"], key="k") == range(3, 4), "a repetition is not refused"
        if goes_on:
            assert log.topic("t").append([b"more"]) == range(6, 7)
        assert (archive.status.topic("t").fenced_epoch, archive.status.is_diverged("t")) == (2, True)
    with seglog.open(tmp_path / "one", settings=settings) as log:
        if not goes_on:
            with pytest.raises(WrittenElsewhere, match="another directory has taken t over; nothing") as refused:
                log.topic("t").append([b"more"])
            assert refused.value.is_fenced
            assert "seglog reset t --as NAME" in (refused.value.hint or "")
    with opened(tmp_path / "one", store) as (log, archive):
        assert values(archive, "t") == [b"a", b"x", b"keyed", b"y", b"mine", *[b"more"] * goes_on]
        archive.replication.reset("t", as_branch="old")
        assert values(archive, "t") == [b"a", b"x", b"keyed", b"y", b"b"]
        assert values(archive, "t@old") == [b"a", b"x", b"keyed", b"y", b"mine", *[b"more"] * goes_on]
    with opened(tmp_path / "two", store) as (log, archive):
        ship(archive, log, "t", b"c")
        assert values(archive, "t") == [b"a", b"x", b"keyed", b"y", b"b", b"c"]


def test_a_topic_with_records_of_its_own_takes_no_volume_over(tmp_path: Path, store: MemoryStore) -> None:
    """The volume has other records at the topic's seqs. The refused takeover does not fence the writer."""
    with opened(tmp_path / "one", store) as (one_log, one), opened(tmp_path / "two", store) as (two_log, two):
        ship(one, one_log, "t", b"a", b"b")
        two_log.topic("t").append([b"mine"])
        with pytest.raises(Diverged):
            two.replication.take_over("t")
        ship(one, one_log, "t", b"c")
        assert values(one, "t") == [b"a", b"b", b"c"]
        assert values(two, "t") == [b"mine"]


@pytest.mark.parametrize("first_seq", [1, 2, 4])
def test_a_topic_that_does_not_begin_where_the_branch_does_is_not_joined(
    tmp_path: Path, store: MemoryStore, first_seq: int
) -> None:
    """The topic was made without the archive.

    The branch has no commit yet, so its first writer need not take it over.
    """
    with opened(tmp_path, store) as (log, archive):
        ship(archive, log, "t", b"a", b"b")
        archive.restore("t", to="head", name="b")
        log.create_topic("t@b", first_seq=first_seq)
        with pytest.raises(Diverged):
            archive.offload("t@b")
        assert values(archive, "t") == [b"a", b"b"]


def test_a_topic_that_was_made_anew_past_the_archive_does_not_write_the_old_volume(
    tmp_path: Path, store: MemoryStore
) -> None:
    with opened(tmp_path, store) as (log, archive):
        ship(archive, log, "t", b"a", b"b")
    with seglog.open(tmp_path) as log:
        log.configure("t", TopicConfig())
        log.delete_topic("t")
        log.topic("t").append([b"new"] * 3)
        log.topic("t").seal()
    with opened(tmp_path, store) as (_, archive), pytest.raises(Diverged):
        archive.offload("t")
    with opened(tmp_path / "other", store) as (_, other):
        other.replication.sync("t")
        assert values(other, "t") == [b"a", b"b"]


def test_a_takeover_that_was_cut_off_goes_on_only_if_the_topic_fits_by_now(tmp_path: Path, store: MemoryStore) -> None:
    """The crash came after the log made the topic and before the handle got its epoch.

    The writer has committed since.
    """
    with opened(tmp_path / "one", store) as (one_log, one), opened(tmp_path / "two", store) as (two_log, two):
        ship(one, one_log, "t", b"a", b"b")
        two.replication.sync("t")
        two_log.create_topic("t", first_seq=3, is_taken_over=True)
        ship(one, one_log, "t", b"c")
        with pytest.raises(Diverged):
            two.replication.take_over("t")
        ship(one, one_log, "t", b"d")
        assert values(one, "t") == [b"a", b"b", b"c", b"d"]


def test_a_volume_is_taken_over_in_the_remote_where_it_was_found(tmp_path: Path, store: MemoryStore) -> None:
    other = MemoryStore()
    for name, each in (("one", store), ("other", other)):
        with opened(tmp_path / name, each) as (log, archive):
            ship(archive, log, "t", b"a")
    with opened(tmp_path / "two", store) as (_, two):
        two.replication.sync("t")
    with opened(tmp_path / "two", other) as (_, two), pytest.raises(OtherRemote):
        two.replication.take_over("t")
    with opened(tmp_path / "other", other) as (log, archive):
        ship(archive, log, "t", b"b")


def test_a_fenced_writer_without_changes_becomes_a_replica(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (one_log, one), opened(tmp_path / "two", store) as (two_log, two):
        ship(one, one_log, "t", b"a")
        two.replication.sync("t")
        ship(two, two_log, "t", b"b")
        assert one.replication.sync("t").is_replica
        assert not one_log.has_topic("t")
        assert values(one, "t") == [b"a", b"b"]
        one.replication.take_over("t")  # directory one takes the topic back, only because a caller asks
        with pytest.raises(Fenced):
            ship(two, two_log, "t", b"c")


class _Interposed(WrappedStore):
    """Call `act` before the next `put_new` of a commit."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.act: object = None

    def _call(self, method, key, act):  # type: ignore[no-untyped-def]
        if method == "put_new" and "/log/" in key and self.act is not None:
            act_first, self.act = self.act, None
            act_first()
        return act()


def test_a_takeover_that_loses_to_the_writers_own_commit_goes_behind_it(tmp_path: Path, store: MemoryStore) -> None:
    between = _Interposed(store)
    with opened(tmp_path / "one", store) as (one_log, one), opened(tmp_path / "two", between) as (two_log, two):
        ship(one, one_log, "t", b"a")
        two.replication.sync("t")
        between.act = lambda: ship(one, one_log, "t", b"b")
        ship(two, two_log, "t", b"c")
        assert values(two, "t") == [b"a", b"b", b"c"]
        assert [past.commit.epoch for past in two.history.commits("t")] == [2, 2, 1, 1]


def test_of_two_that_take_over_at_once_one_is_told(tmp_path: Path, store: MemoryStore) -> None:
    between = _Interposed(store)
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "t", b"a")
    with opened(tmp_path / "two", between) as (_, two), opened(tmp_path / "three", store) as (three_log, three):
        two.replication.sync("t")
        three.replication.sync("t")
        between.act = lambda: three.replication.take_over("t")
        with pytest.raises(Fenced):
            two.replication.take_over("t")
        assert two.replication.is_replica("t")
        ship(three, three_log, "t", b"b")
        two.replication.sync("t")
        assert values(two, "t") == [b"a", b"b"]


def test_a_fresh_branch_is_written_without_a_takeover_and_its_first_commit_decides(
    tmp_path: Path, store: MemoryStore
) -> None:
    with opened(tmp_path / "one", store) as (one_log, one), opened(tmp_path / "two", store) as (two_log, two):
        ship(one, one_log, "t", b"a", b"b")
        one.restore("t", to="seq:1", name="x")
        ship(one, one_log, "t@x", b"c")
        assert [past.commit.epoch for past in one.history.commits("t@x")] == [1, 1]
        ship(two, two_log, "t@x", b"d")
        assert [past.commit.epoch for past in two.history.commits("t@x")] == [2, 2, 1, 1]
        with pytest.raises(Fenced):
            ship(one, one_log, "t@x", b"e")


def test_a_topic_that_came_to_be_beside_a_replica_is_told(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "t", b"a")
    with opened(tmp_path / "two", store) as (log, archive):
        archive.replication.sync("t")
        log.mark_elsewhere("t", None)  # as an older release leaves it
        log.topic("t").append([b"not asked"])  # appended without the archive
        log.topic("t").seal()
        for ask in (archive.offload, archive.replication.take_over):
            with pytest.raises(Diverged):
                ask("t")
        archive.replication.reset("t", as_branch="lost")
        assert values(archive, "t") == [b"a"]


def test_the_configuration_travels_with_the_volume(tmp_path: Path, store: MemoryStore) -> None:
    config = TopicConfig(durability="disk", attributes={"codec": "none"}, ttl_ms=5_000)
    with opened(tmp_path / "one", store) as (log, archive):
        log.create_topic("t", config)
        ship(archive, log, "t", b"a")
        kinds = [past.commit.kind for past in archive.history.commits("t")]
        assert kinds == [CommitKind.CONFIG, CommitKind.OFFLOAD]
        archive.upkeep.pause("t")  # the pause holds for this directory alone
        assert archive.offload("t").published == ()
        archive.restore("t", to="lsn:1", name="early")
        archive.restore("t", to="head", name="late")
    with opened(tmp_path / "two", store) as (log, archive):
        found = archive.replication.take_over("t").config
        assert (found.durability, dict(found.attributes), found.ttl_ms) == ("disk", {"codec": "none"}, 5_000)
        assert found.keep_history
        assert archive.open_for_append("t@early").config.durability == "fsync"
        assert archive.open_for_append("t@late").config.durability == "disk"
        log.configure("t", TopicConfig(keep_history=True))
        ship(archive, log, "t", b"b")
        assert archive.history.snapshot("t").config != ""
    with opened(tmp_path / "three", store) as (log, archive):
        assert archive.replication.take_over("t").config == TopicConfig(keep_history=True)


def test_bounds_of_a_takeover_are_those_of_the_volume(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "t", b"a", b"b", b"c")
        archive.delete("t", before=3)
    with opened(tmp_path / "two", store) as (_, archive):
        archive.replication.take_over("t")
        assert archive.history.snapshot("t").bounds == Bounds(1, 3)
        assert values(archive, "t") == [b"c"]


def test_what_was_evicted_stays_so_after_a_takeover(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "t", b"a", b"b", b"c")
        log.topic("t").evict(3)
        archive.offload("t")
    with opened(tmp_path / "two", store) as (log, archive):
        archive.replication.take_over("t")
        assert log.topic("t").inner.evict_floor == 3
        assert archive.history.snapshot("t").bounds == Bounds(3, 3, 3)


def test_a_delete_beside_a_takeover_waits_for_its_commit(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The takeover repeats the eviction of the remote, and settles that alone."""
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "t", b"a", b"b", b"c", b"d")
        archive.evict("t", 2)
    with opened(tmp_path / "two", store) as (log, archive):
        delete = InnerTopic.delete

        def followed(topic: InnerTopic, where: DeleteWhere, *, evicts: bool = False) -> DeleteOp:
            op = delete(topic, where, evicts=evicts)
            delete(topic, DeleteWhere(seqs=SeqSet.of_seqs([3])))
            return op

        with monkeypatch.context() as patch:
            patch.setattr(InnerTopic, "delete", followed)
            archive.replication.take_over("t")
        assert len(log.topic("t").inner.delete_ops()) == 1
        archive.offload("t")
        assert [record.value for record in log.topic("t").read()] == values(archive, "t") == [b"b", b"d"]
    with opened(tmp_path / "three", store) as (_, archive):
        archive.replication.sync("t")
        assert values(archive, "t") == [b"b", b"d"]


def test_a_replica_reads_while_its_writer_offloads_and_merges(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, writer), opened(tmp_path / "two", store) as (_, reader):
        writer.change_settings(OffloadSettings(merge_count=4))
        ship(writer, log, "t", b"0")
        reader.replication.sync("t")
        done = threading.Event()
        failures: list[BaseException] = []

        def write() -> None:
            try:
                for number in range(1, 40):
                    ship(writer, log, "t", b"%d" % number)
                    writer.upkeep.compact("t")
            except BaseException as error:
                failures.append(error)
            finally:
                done.set()

        thread = threading.Thread(target=write)
        thread.start()
        reads, longest = 0, 0
        while not done.is_set() or longest < 40:
            reader.replication.sync("t")
            found = values(reader, "t")
            assert found == [b"%d" % number for number in range(len(found))]
            assert len(found) >= longest
            reads, longest = reads + 1, len(found)
            if failures:
                break
        thread.join(60)
        assert failures == []
        assert (longest, reads > 1) == (40, True)
        assert CommitKind.COMPACT in {past.commit.kind for past in reader.history.commits("t")}
