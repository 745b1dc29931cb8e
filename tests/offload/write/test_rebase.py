"""Test that a writer rebases if a maintenance commit took its LSN.

Any other commit at that LSN stops the writer.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from catalog import (
    Bounds,
    Commit,
    CommitKind,
    Snapshot,
    Vid,
    Volumes,
    encode_commit,
    make_checkpoint,
)
from catalog.errors import CatalogError, Diverged, Fenced, InvalidObject
from catalog.format.control import Boundary
from catalog.format.encoding import decode_commit_at
from catalog.format.ids import Sid
from catalog.format.keys import boundary_key, commit_key, data_key
from catalog.format.small_objects import encode_boundary
from catalog.gc.collector import Collector
from catalog.gc.policy import GcPolicy
from catalog.objects.memory import MemoryStore
from catalog.objects.wrapped import WrappedStore
from catalog.snapshot import empty
from offload import OffloadSettings
from offload.archive import Archive
from offload.write.publisher import rebased
from seglog.files.clock import SystemClock
from tests.catalog.samples import START_MS, HistoryMaker, segment, vid
from tests.faults.steps import Place, crashes
from tests.faults.store import CountingStore, Fault, FaultyStore, lost
from tests.faults.stride import every
from tests.offload.replicas import opened, ship, values
from tests.seams.archive import context_of, forget_snapshots
from tests.work import tell
from tests.worlds.clock import HandClock


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


pytestmark = pytest.mark.usefixtures("no_pauses")


def volume_of(archive: Archive) -> Vid:
    return Vid.parse(archive.status.topic("t").volume or "")


def maintain(store: MemoryStore, volume: Vid, **fields: object) -> Commit:
    """Publish another process's commit after the newest one, of kind config like GC's unless `fields` say otherwise."""
    volumes = Volumes(store)
    newest = volumes.snapshot(volume)
    [last] = volumes.commits(volume, newest.lsn, newest.lsn)
    commit = replace(
        last.commit,
        lsn=newest.lsn + 1,
        kind=CommitKind.CONFIG,
        parent_hash=newest.head_hash,
        nonce=os.urandom(16),
        writer_id="maintenance",
        segments=(),
        removed_sids=(),
        deletions=replace(last.commit.deletions, before_seq=0, bitmaps={}),
        config="",
        collected_before_ms=1,
    )
    commit = replace(commit, **fields)  # type: ignore[arg-type]
    body, _ = encode_commit(commit)
    volumes.publish(volume, commit.lsn, body)
    return commit


class Interposed(WrappedStore):
    """Call `acts` one by one, each before a `put_new` of a commit."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.acts: list[Callable[[], object]] = []

    def _call(self, method, key, act):  # type: ignore[no-untyped-def]
        if method == "put_new" and "/log/" in key and self.acts:
            self.acts.pop(0)()
        return act()


def test_an_offload_goes_on_behind_maintenance_with_the_objects_it_has_sent(tmp_path: Path, store: MemoryStore) -> None:
    between = Interposed(store)
    counting = CountingStore(between)
    with opened(tmp_path, counting) as (log, archive):
        ship(archive, log, "t", b"a")
        volume = volume_of(archive)
        between.acts = [lambda: maintain(store, volume), lambda: maintain(store, volume)]
        counting.counts.clear()
        ship(archive, log, "t", b"b")
        assert counting.counts["put"] == 2  # one data and one index object
        commits = [past.commit for past in archive.history.commits("t")]
        assert [(each.lsn, each.kind) for each in commits] == [
            (4, CommitKind.OFFLOAD), (3, CommitKind.CONFIG), (2, CommitKind.CONFIG), (1, CommitKind.OFFLOAD),
        ]  # fmt: skip
        assert values(archive, "t") == [b"a", b"b"]
        status = archive.status.topic("t")
        assert (status.pending_lsn, status.unfinished_attempts, status.diverged_lsn) == (None, 0, None)
        archive.offload("t", drop_hot=True)
        assert log.topic("t").inner.hot_floor == 3
    with opened(tmp_path / "other", store) as (_, archive):
        archive.replication.sync("t")
        assert values(archive, "t") == [b"a", b"b"]


def test_one_whose_segment_may_have_been_collected_is_sent_anew(tmp_path: Path, store: MemoryStore) -> None:
    between = Interposed(store)
    with opened(tmp_path, between) as (log, archive):
        ship(archive, log, "t", b"a")
        volume = volume_of(archive)
        old: list[str] = []

        def collect() -> None:
            old.extend(str(each.sid) for each in context_of(archive).local.attempts("t") if each.state == "prepared")
            maintain(store, volume, collected_before_ms=context_of(archive).local.attempts("t")[-1].sid.created_ms + 1)

        between.acts = [collect]
        ship(archive, log, "t", b"b")
        [newest] = [past.commit for past in archive.history.commits("t") if past.commit.lsn == 3]
        assert [str(each.sid) for each in newest.segments] != old
        assert len(old) == 1
        assert not any(old[0] in key for key in store.list(""))
        assert values(archive, "t") == [b"a", b"b"]
        assert archive.status.topic("t").unfinished_attempts == 0


def test_a_clock_that_is_behind_makes_no_segment_that_counts_as_collected(tmp_path: Path, store: MemoryStore) -> None:
    """GC has published once that no segment so old may be added (GC-3).

    If the writer added one, GC would delete it without another commit.
    """
    between = Interposed(store)
    with opened(tmp_path, between) as (log, archive):
        ship(archive, log, "t", b"a")
        volume = volume_of(archive)
        ahead_ms = SystemClock().now_ms() + 10 * 24 * 3_600_000
        maintain(store, volume, collected_before_ms=ahead_ms)
        ship(archive, log, "t", b"b")  # the commit loses its LSN, so the segment is uploaded again
        archive.change_settings(OffloadSettings(merge_count=2))
    with opened(tmp_path, between) as (log, archive):
        ship(archive, log, "t", b"c")
        archive.change_settings(OffloadSettings(merge_count=3))
        archive.upkeep.compact("t")
        segments = {past.commit.lsn: past.commit.segments for past in archive.history.commits("t")}
        assert sorted(segments) == [1, 2, 3, 4, 5]
        assert all(each.sid.created_ms >= ahead_ms for lsn in (3, 4, 5) for each in segments[lsn])
        assert values(archive, "t") == [b"a", b"b", b"c"]


def test_a_delete_is_said_anew_of_what_a_merge_has_made(tmp_path: Path, store: MemoryStore) -> None:
    """The merge removes the segment that the delete names. The delete's commit then names the merged segment."""
    between = Interposed(store)
    with opened(tmp_path, between) as (log, archive):
        archive.change_settings(OffloadSettings(merge_count=2))
        for number in range(3):
            ship(archive, log, "t", b"%d" % number, tag="even" if number % 2 == 0 else "odd")
        volume = volume_of(archive)

        def merge() -> None:
            """Merge as another process of the same epoch. A copy of the store shows the writes of that process."""
            donor = MemoryStore()
            for key in store.list(""):
                donor.put(key, store.get(key), {})
            with opened(tmp_path.parent / f"{tmp_path.name}-donor", donor) as (other, helper):
                helper.replication.sync("t")
                topic = other.create_topic("t", first_seq=4, is_taken_over=True)
                handle = context_of(helper).local.handle("t")
                assert handle is not None
                context_of(helper).local.save(handle=replace(handle, epoch=1, topic_id=topic.inner.topic_id))
                helper.change_settings(OffloadSettings(merge_count=2))
                [merged] = helper.upkeep.compact("t")
                assert merged.segment is not None
                for key in donor.list(""):
                    if "/segments/" in key and str(merged.segment.sid) in key:
                        store.put(key, donor.get(key), {})
                store.put_new(commit_key(volume, 4), donor.get(commit_key(volume, 4)))

        between.acts = [merge]
        assert archive.delete("t", tag="even").lsn == 5
        assert values(archive, "t") == [b"1"]
        assert values(archive, "t", at="lsn:4") == [b"0", b"1", b"2"]
        deletion = next(iter(archive.history.commits("t"))).commit
        assert {view.ref.sid for view in archive.history.snapshot("t").segments} == set(deletion.deletions.bitmaps)
        assert log.topic("t").inner.delete_ops() == ()


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"kind": CommitKind.DELETE, "collected_before_ms": None}, Diverged),
        ({"bounds": Bounds(1, 7)}, Diverged),
        ({"epoch": 2}, Fenced),
    ],
)
def test_what_is_not_maintenance_stops_the_writer(
    fields: dict[str, object], error: type[Diverged], tmp_path: Path, store: MemoryStore
) -> None:
    between = Interposed(store)
    with opened(tmp_path, between) as (log, archive):
        ship(archive, log, "t", b"a")
        volume = volume_of(archive)
        between.acts = [lambda: maintain(store, volume)]
        maintain(store, volume, **fields)
        with pytest.raises(error) as caught:
            ship(archive, log, "t", b"b")
        assert type(caught.value) is error
        assert archive.status.is_diverged("t")


@pytest.mark.parametrize("is_opened_again", [False, True])
def test_an_idle_writer_that_gc_has_passed_goes_on(tmp_path: Path, store: MemoryStore, is_opened_again: bool) -> None:
    """The writer's next LSN is free again and below the boundary, so a commit there does not count."""
    with opened(tmp_path, store) as (log, archive):
        ship(archive, log, "t", b"a")
        volume = volume_of(archive)
        for _ in range(3):
            maintain(store, volume)
        make_checkpoint(Volumes(store), volume, 4, now_ms=0)
        store.put(boundary_key(volume), encode_boundary(Boundary(volume, 4)), {})
        for lsn in (1, 2, 3):
            store.delete(commit_key(volume, lsn))
        if not is_opened_again:
            ship(archive, log, "t", b"b")
    with opened(tmp_path, store) as (log, archive):
        if is_opened_again:
            ship(archive, log, "t", b"b")
        assert archive.status.topic("t").lsn == 5
        assert values(archive, "t") == [b"a", b"b"]
    with opened(tmp_path / "other", store) as (_, other):
        other.replication.sync("t")
        assert values(other, "t") == [b"a", b"b"]


@pytest.mark.parametrize("act", ["read", "delete", "offload"])
def test_an_idle_writer_that_gc_has_passed_has_its_newest_state(tmp_path: Path, store: MemoryStore, act: str) -> None:
    """The directory has no copies of these commits, as if its own checkpoint replaced them."""
    with opened(tmp_path, store) as (log, archive):
        ship(archive, log, "t", b"a", b"b")
        ship(archive, log, "t", b"c")
        archive.offload("t", drop_hot=True)
        volume = volume_of(archive)
        maintain(store, volume)
        make_checkpoint(Volumes(store), volume, 3, now_ms=0)
        store.put(boundary_key(volume), encode_boundary(Boundary(volume, 3)), {})
        for lsn in (1, 2):
            store.delete(commit_key(volume, lsn))
        context_of(archive).local.drop_commits(volume, 2)
        forget_snapshots(context_of(archive).volumes)
        if act == "read":
            assert values(archive, "t") == [b"a", b"b", b"c"]
            return
        if act == "delete":
            assert archive.delete("t", before=2).lsn == 4
        else:
            log.topic("t").delete(before=2)
            assert [each.lsn for each in archive.offload("t").published] == [4]
        assert values(archive, "t") == [b"b", b"c"]


class Overslept(WrappedStore):
    """Call `act` after the next PUT of a commit, before any other request."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.act: Callable[[], object] | None = None

    def _call(self, method, key, act):  # type: ignore[no-untyped-def]
        answer = act()
        if method == "put_new" and "/log/" in key and self.act is not None:
            once, self.act = self.act, None
            once()
        return answer


@pytest.mark.parametrize("is_there", [True, False])
def test_a_commit_that_gc_passed_before_its_writer_heard_of_it(
    is_there: bool, tmp_path: Path, store: MemoryStore
) -> None:
    """The writer sleeps for longer than the window after its commit.

    The later commits, up to the boundary, prove that its commit counts.
    """
    slow = Overslept(store)
    with opened(tmp_path, slow) as (log, archive):
        ship(archive, log, "t", b"a")
        volume = volume_of(archive)

        def gc_passes() -> None:
            maintain(store, volume)
            maintain(store, volume)
            make_checkpoint(Volumes(store), volume, 4, now_ms=0)
            store.put(boundary_key(volume), encode_boundary(Boundary(volume, 4)), {})
            if not is_there:
                store.delete(commit_key(volume, 3))

        slow.act = gc_passes
        if not is_there:
            with pytest.raises(Diverged):
                ship(archive, log, "t", b"b")
            return
        ship(archive, log, "t", b"b")
        ship(archive, log, "t", b"c")
        assert archive.status.topic("t").lsn == 5
        assert values(archive, "t") == [b"a", b"b", b"c"]


class Died(BaseException):
    pass


@pytest.mark.parametrize("is_passed", [False, True])
def test_a_writer_that_died_right_after_its_merge_reads_what_gc_left(
    is_passed: bool, tmp_path: Path, store: MemoryStore
) -> None:
    """GC deletes the merged segments. The directory knows the state before the merge, and its newest state is pending.

    With `is_passed`, GC deletes the commit of the merge too. Then nothing tells the writer that the commit landed.
    """
    clock, slow = HandClock(), Overslept(store)
    expected = [b"%d" % number for number in range(OffloadSettings().merge_count)]

    def die() -> None:
        raise Died

    with opened(tmp_path, slow, clock) as (log, archive):
        for value in expected:
            ship(archive, log, "t", value)
        archive.offload("t", drop_hot=True)
        slow.act = die
        with pytest.raises(Died):
            archive.upkeep.compact("t")
    with opened(tmp_path, store, clock) as (log, archive):
        merge_lsn = archive.status.topic("t").lsn + 1
        assert archive.status.topic("t").pending_lsn == merge_lsn
        if is_passed:
            for _ in range(2):
                maintain(store, volume_of(archive))
            make_checkpoint(Volumes(store), volume_of(archive), merge_lsn + 2, now_ms=clock.ms)
        collector = Collector(store, GcPolicy(window_s=0, grace_s=10), clock=clock.now_ms, writer_id="gc")
        for _ in range(3):
            clock.ms += 60_000
            collector.run()
        assert Volumes(store).has_commit(volume_of(archive), merge_lsn) != is_passed
        left = {key.removesuffix(".index") for key in store.list("") if "/segments/" in key}
        assert len(left) == 1
        assert values(archive, "t") == expected
        assert [record.value for record in log.topic("t").read(2)] == expected[1:]
        ship(archive, log, "t", b"more")
        assert values(archive, "t") == [*expected, b"more"]
        assert archive.status.topic("t").unfinished_attempts == 0
    with opened(tmp_path / "other", store, clock) as (_, archive):
        archive.replication.sync("t")
        assert values(archive, "t") == [*expected, b"more"]


@pytest.mark.parametrize("is_put_again", [False, True])
def test_a_reset_keeps_the_objects_of_a_commit_that_landed_before_gc_passed_it(
    is_put_again: bool, tmp_path: Path, store: MemoryStore
) -> None:
    """The writer dies right after its offload. Another directory takes over, and GC deletes the commit.

    With `is_put_again`, a third writer that lost the same LSN has put its own commit there since.
    """
    clock, slow = HandClock(), Overslept(store)

    def die() -> None:
        raise Died

    with opened(tmp_path / "first", slow, clock) as (log, archive):
        ship(archive, log, "t", b"a")
        volume = volume_of(archive)
        slow.act = die
        with pytest.raises(Died):
            ship(archive, log, "t", b"b")
    foreign = store.get(commit_key(volume, 2))
    with opened(tmp_path / "second", store, clock) as (log, archive):
        archive.replication.sync("t")
        archive.replication.take_over("t")
        ship(archive, log, "t", b"c")
        make_checkpoint(Volumes(store), volume, 4, now_ms=clock.ms)
        collector = Collector(store, GcPolicy(window_s=0, grace_s=10), clock=clock.now_ms, writer_id="gc")
        for _ in range(3):
            clock.ms += 60_000
            collector.run()
    assert not Volumes(store).has_commit(volume, 2)
    if is_put_again:
        lost_one = replace(decode_commit_at(foreign, volume, 2).commit, nonce=bytes(16), writer_id="third")
        store.put(commit_key(volume, 2), encode_commit(lost_one)[0], {})
    with opened(tmp_path / "first", store, clock) as (_, archive):
        archive.replication.reset("t", as_branch="mine")
        assert values(archive, "t") == [b"a", b"b", b"c"]
        assert context_of(archive).local.attempts("t") == ()


def test_a_hot_copy_that_a_kept_state_shows_stays_until_that_is_read_back(tmp_path: Path, store: MemoryStore) -> None:
    """GC has passed the commit of the upload, and the newest state shows no record of the segment any more."""
    with opened(tmp_path, store) as (log, archive):
        ship(archive, log, "t", b"a")
        ship(archive, log, "t", b"b")
        volume = volume_of(archive)
        sent = archive.history.snapshot("t").segments[0].ref.sid
        maintain(store, volume)
        make_checkpoint(Volumes(store), volume, 3, now_ms=0)
        store.put(boundary_key(volume), encode_boundary(Boundary(volume, 3)), {})
        for lsn in (1, 2):
            store.delete(commit_key(volume, lsn))
        archive.delete("t", before=2)
        whole = store.get(data_key(volume, sent))
        store.put(data_key(volume, sent), bytes(len(whole)), {})
        with pytest.raises(InvalidObject):
            archive.release("t", at_once=True)
        assert log.topic("t").inner.hot_floor == 1
        store.put(data_key(volume, sent), whole, {})
        assert archive.release("t", at_once=True) == 2


def test_an_idle_writer_that_gc_has_passed_names_its_newest_state(tmp_path: Path, store: MemoryStore) -> None:
    """The newest state has the writer's records, and the LSN of a GC commit that the writer has not read."""
    with opened(tmp_path, store) as (log, archive):
        ship(archive, log, "t", b"a")
        volume = volume_of(archive)
        maintain(store, volume)
        make_checkpoint(Volumes(store), volume, 2, now_ms=0)
        store.put(boundary_key(volume), encode_boundary(Boundary(volume, 2)), {})
        store.delete(commit_key(volume, 1))
        assert values(archive, "t", "lsn:1") == [b"a"]  # the directory has a copy of this commit
        assert archive.tags.tag("t", "v1").point.lsn == 2
        archive.restore("t", to="head", name="b")
        assert values(archive, "t@b") == values(archive, "t", "tag:v1") == [b"a"]
        ship(archive, log, "t", b"b")
        assert values(archive, "t") == [b"a", b"b"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_request_of_a_rebase_is_gone_on_from(when: str, tmp_path: Path) -> None:
    """Each effect on the store fails once. Then the test opens the directory again."""
    for nth in range(1, 30):
        store = MemoryStore()
        place = tmp_path / f"{when}-{nth}"
        between = Interposed(store)
        faulty = FaultyStore(between, [])
        with opened(place, faulty) as (log, archive):
            ship(archive, log, "t", b"a")
            volume = volume_of(archive)
            between.acts = [lambda volume=volume, store=store: maintain(store, volume)]
            faulty.plan = (Fault(faulty.effects + nth, when, lost),)  # type: ignore[arg-type]
            log.topic("t").append([b"b"])
            log.topic("t").seal()
            failed: CatalogError | None = None
            try:
                archive.offload("t")
            except CatalogError as error:
                failed = error
            assert not isinstance(failed, Diverged)
        with opened(place, store) as (log, archive):
            archive.offload("t")
            status = archive.status.topic("t")
            assert (status.offloaded_seq, status.pending_lsn, status.diverged_lsn) == (2, None, None)
            assert [past.commit.lsn for past in archive.history.commits("t")] in ([3, 2, 1], [2, 1])
            assert values(archive, "t") == [b"a", b"b"]
        if not faulty.struck:
            assert failed is None
            return
    pytest.fail("there was always one more effect")


# ---------------------------------------------------------------- the decision


def newest(**fields: object) -> Snapshot:
    return replace(empty(vid(1)), lsn=5, head_hash=bytes([7]) * 32, form=1, **fields)  # type: ignore[arg-type]


def test_what_takes_the_place_of_an_offload_says_the_same_somewhere_else() -> None:
    commit = HistoryMaker(vid(1)).offload((1, 3))
    moved = rebased(commit, newest(), nonce=bytes([9]) * 16, now_ms=START_MS)
    assert moved == replace(commit, lsn=6, parent_hash=bytes([7]) * 32, nonce=bytes([9]) * 16, created_at_ms=START_MS)


def test_what_is_given_up() -> None:
    maker = HistoryMaker(vid(1))
    commit = maker.offload((1, 3))
    collected = newest(collected_before_ms=segment(1, 3).sid.created_ms + 1)
    assert rebased(commit, collected, nonce=bytes(16), now_ms=START_MS) is None
    at_the_bound = newest(collected_before_ms=segment(1, 3).sid.created_ms)
    assert rebased(commit, at_the_bound, nonce=bytes(16), now_ms=START_MS) is not None
    for other in (maker.delete(3, before=2), maker.compact([segment(1, 3)], segment(1, 3, 77))):
        assert rebased(other, newest(), nonce=bytes(16), now_ms=START_MS) is None


def test_an_epoch_that_falls_is_damage(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "t", b"a")
        volume = volume_of(archive)
    maintain(store, volume, epoch=3)
    maintain(store, volume, epoch=2)
    with pytest.raises(InvalidObject, match="its epoch is 2, after a commit of epoch 3"):
        Volumes(store).commits(volume, 1, 3)
    with pytest.raises(InvalidObject, match="its epoch is 2"):
        Volumes(store).snapshot(volume)
    below = Volumes(store)
    assert below.snapshot(volume, 2).epoch == 3
    with pytest.raises(InvalidObject, match="its epoch is 2"):
        below.snapshot(volume, 3)
    assert decode_commit_at(store.get(commit_key(volume, 3)), volume, 3).commit.epoch == 2


def test_garbage_collection_of_a_crashed_writers_objects_does_not_stop_the_writer(
    tmp_path: Path, store: MemoryStore
) -> None:
    """GC itself publishes that no segment of the deleted objects' age may be added any more."""
    clock = HandClock()
    with opened(tmp_path, store, clock) as (log, archive):
        ship(archive, log, "t", b"a")
        volume = volume_of(archive)
        orphan = Sid.new(clock.ms)
        store.put(data_key(volume, orphan), b"of a writer that crashed", {})
        policy = GcPolicy(window_s=0, grace_s=10)
        collector = Collector(store, policy, clock=clock.now_ms, writer_id="gc")
        for _ in range(3):
            clock.ms += 60_000
            collector.run()
        assert data_key(volume, orphan) not in set(store.list(""))
        kinds = [stored.commit.kind for stored in Volumes(store).next_commits(volume, 1)]
        assert kinds == [CommitKind.CONFIG]
        ship(archive, log, "t", b"b")
        assert archive.status.topic("t").lsn == 3
        assert values(archive, "t") == [b"a", b"b"]


def test_maintenance_before_the_first_commit_is_of_no_epoch(tmp_path: Path, store: MemoryStore) -> None:
    """A directory that takes over must not get the epoch of a writer that has not committed yet."""
    with opened(tmp_path / "one", store) as (one_log, one), opened(tmp_path / "two", store) as (two_log, two):
        ship(one, one_log, "t", b"a")
        for name in ("x", "y"):
            one.restore("t", to="head", name=name)
            one.open_for_append(f"t@{name}").append([b"b"])
            one_log.topic(f"t@{name}").seal()
            fresh = Volumes(store).snapshot(one.history.snapshot(f"t@{name}").vid)
            commit = replace(
                HistoryMaker(fresh.vid).offload((1, 1)),
                kind=CommitKind.CONFIG, bounds=fresh.bounds, parent_hash=fresh.head_hash, epoch=0, segments=(),
                collected_before_ms=1, form=fresh.form,
            )  # fmt: skip
            Volumes(store).publish(fresh.vid, 1, encode_commit(commit)[0])
        one.offload("t@x")
        assert values(one, "t@x") == [b"a", b"b"]
        two.replication.take_over("t@y")
        with pytest.raises(Fenced):
            one.offload("t@y")
        ship(two, two_log, "t@y", b"c")
        assert values(two, "t@y") == [b"a", b"c"]


@every(9, part=8)
def test_a_rebase_ends_anywhere_and_is_gone_on_from(every: int, tmp_path: Path) -> None:
    """Crash at each effect on the disk, each transaction of the local catalog, each request."""
    base = Place(tmp_path / "base")
    with base.opened() as (log, archive):
        ship(archive, log, "t", b"a")
        maintain(base.store, volume_of(archive))
        log.topic("t").append([b"b"])
        log.topic("t").seal()
    steps = 0
    for name, place in crashes(base, tmp_path, lambda _, archive: archive.offload("t"), every):
        steps += 1
        with place.opened() as (_, archive):
            archive.offload("t")
            status = archive.status.topic("t")
            assert (status.offloaded_seq, status.pending_lsn, status.diverged_lsn) == (2, None, None), name
            commits = [past.commit for past in archive.history.commits("t")]
            assert [each.lsn for each in commits] == [3, 2, 1], name
            assert values(archive, "t") == [b"a", b"b"]
            named = {str(each.sid) for commit in commits for each in commit.segments}
            assert status.unfinished_attempts == 0
        objects = {key.rpartition("/")[2].removesuffix(".index") for key in place.store.list("") if "/segments/" in key}
        assert objects == named, name
    tell(f"rebase: {steps} crashes")
    assert steps >= 50 / every


class _Dying(WrappedStore):
    """The process dies when it has put a commit, or with `lands` False right before."""

    is_dying = False
    lands = True

    def _call(self, method, key, act):  # type: ignore[no-untyped-def]
        if not (self.is_dying and method == "put_new" and "/log/" in key):
            return act()
        if self.lands:
            act()
        raise SystemExit


@pytest.mark.parametrize("lands", [True, False])
def test_a_waiting_delete_stops_no_offload_if_gc_has_passed_its_commit(
    tmp_path: Path, store: MemoryStore, *, lands: bool
) -> None:
    dying, clock = _Dying(store), HandClock()
    dying.lands = lands
    with opened(tmp_path, dying, clock) as (log, archive):
        ship(archive, log, "t", b"a", b"b", b"c")
        volume = volume_of(archive)
        clock.ms += 1000
        dying.is_dying = True
        with pytest.raises(SystemExit):
            archive.delete("t", seqs=[2])
    commits = [maintain(store, volume, at_ts_ms=clock.ms).lsn for _ in range(2)]
    make_checkpoint(Volumes(store), volume, commits[-1], now_ms=clock.ms)
    store.put(boundary_key(volume), encode_boundary(Boundary(volume, commits[-1])), {})
    for lsn in range(1, commits[-1]):
        store.delete(commit_key(volume, lsn))
    with opened(tmp_path, store, clock) as (log, archive):
        archive.offload("t")
        assert log.topic("t").inner.delete_ops() == ()
        kinds = [past.commit.kind for past in archive.history.commits("t")]
        assert kinds.count(CommitKind.DELETE) == (0 if lands else 1), "a second commit would take nothing"
        ship(archive, log, "t", b"d")
        assert values(archive, "t") == [b"a", b"c", b"d"]
