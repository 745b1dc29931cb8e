"""Test truncation of offloaded records: it makes a commit of its own, and earlier states stay readable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

import offload
import seglog
from catalog import CommitKind
from catalog.errors import CatalogError, Fenced
from catalog.gc.collector import Collector
from catalog.gc.policy import GcPolicy
from catalog.objects.memory import MemoryStore
from catalog.objects.wrapped import WrappedStore
from offload import ColdSettings, OffloadSettings
from offload.archive import Archive
from offload.errors import LocalChangesLost
from offload.write.publisher import divergence
from seglog import ConcurrentModification, Log, LogSettings, NotTruncatable, SeqOutOfRange
from tests.faults.files import UnsyncedFiles
from tests.faults.steps import Place, crashes
from tests.faults.store import CountingStore, Fault, FaultyStore, unreachable
from tests.faults.stride import every
from tests.offload.replicas import opened, ship, values
from tests.seams.archive import change_uploader, context_of, offloader_of
from tests.work import tell
from tests.worlds.clock import HandClock

_LOG = LogSettings(segment_max_events=6)
_OFFLOAD = OffloadSettings(codec="none", concurrency=1, deletion_lag_s=0)
_COLD = ColdSettings(cache_bytes=0, connections=1)
T = TypeVar("T")


pytestmark = pytest.mark.usefixtures("no_pauses")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def pair(tmp_path: Path, store: MemoryStore, clock: HandClock) -> Iterator[tuple[Log, Archive]]:
    """Make a topic t of segments of 6 records, with 12 records offloaded."""
    with (
        seglog.open(tmp_path / "data", settings=_LOG, clock=clock) as log,
        offload.attach(
            log, store=store, settings=offload.Settings().with_parts(_OFFLOAD, _COLD), clock=clock
        ) as archive,
    ):
        for _ in range(2):
            log.topic("t").append(old(6, log.topic("t").head_seq))
            log.topic("t").seal()
        archive.offload("t")
        yield log, archive


def old(count: int, after: int = 0) -> list[bytes]:
    return [b"old %d" % seq for seq in range(after + 1, after + count + 1)]


def new(count: int, after: int) -> list[bytes]:
    return [b"new %d" % seq for seq in range(after + 1, after + count + 1)]


def kinds(archive: Archive, name: str = "t") -> str:
    return "".join(past.commit.kind.name[0] for past in reversed(list(archive.history.commits(name))))


@pytest.mark.parametrize("cut", [1, 2, 6, 7, 10, 12])
@pytest.mark.parametrize("drop_hot", [False, True])
def test_every_state_before_and_after_it_is_exact(
    pair: tuple[Log, Archive], clock: HandClock, cut: int, drop_hot: bool
) -> None:
    log, archive = pair
    archive.offload("t", drop_hot=drop_hot)
    topic = log.topic("t")
    topic.append(old(3, 12))
    archive.delete("t", tag="none")
    before_ms = clock.ms
    clock.ms += 1000
    result = archive.truncate("t", cut)
    kept = old(15)[: cut - 1]
    assert (result.records, result.waits_for) == (16 - cut, None)
    assert topic.head_seq == archive.status.topic("t").offloaded_seq == cut - 1
    lsn = archive.status.topic("t").lsn
    assert result.lsn == lsn
    assert values(archive, "t") == values(archive, "t", "head") == kept
    clock.ms += 1000
    after_ms = clock.ms
    topic.append(new(14, cut - 1))
    topic.seal()
    archive.offload("t", drop_hot=drop_hot)
    now = kept + new(14, cut - 1)
    assert values(archive, "t") == values(archive, "t", "head") == now
    assert values(archive, "t", f"lsn:{lsn}") == kept
    assert values(archive, "t", f"lsn:{lsn - 1}") == old(15)
    for seq in (1, cut, 11, 15):
        assert values(archive, "t", f"seq:{seq}") == old(seq)
    if cut + 13 > 15:
        assert values(archive, "t", f"seq:{cut + 13}") == now
    assert values(archive, "t", iso(before_ms)) == old(15)
    assert values(archive, "t", iso(before_ms + 1000)) == kept
    assert values(archive, "t", iso(after_ms)) == now
    archive.restore("t", to=f"lsn:{lsn - 1}", name="before")
    archive.open_for_append("t@before").append([b"more"])
    assert values(archive, "t@before") == [*old(15), b"more"]
    topic.seal()
    archive.offload("t", drop_hot=True)
    assert topic.inner.hot_floor == topic.head_seq + 1
    assert values(archive, "t") == now


def iso(ms: int) -> str:
    from offload.moment import format_time

    return format_time(ms)


def test_what_only_the_log_has_goes_without_a_commit_and_without_a_request(tmp_path: Path, store: MemoryStore) -> None:
    counting = CountingStore(store)
    with opened(tmp_path, counting) as (log, archive):
        log.topic("t").append(old(3))
        assert archive.truncate("t", 3) == offload.archive.Removed(1, None)
        ship(archive, log, "t", b"new 3")
        log.topic("t").append(old(6, 3))
        log.topic("t").seal()
        before = counting.counts.total()
        assert archive.truncate("t", 4) == offload.archive.Removed(6, None)
        assert counting.counts.total() == before
        assert values(archive, "t") == [*old(2), b"new 3"]
        assert kinds(archive) == "O"


def test_at_the_end_there_is_nothing_to_do_and_above_it_nothing_to_cut(pair: tuple[Log, Archive]) -> None:
    log, archive = pair
    assert archive.truncate("t", 13).records == 0
    with pytest.raises(SeqOutOfRange):
        archive.truncate("t", 14)
    with pytest.raises(NotTruncatable):
        archive.truncate("t", 0)
    assert (log.topic("t").head_seq, kinds(archive)) == (12, "O")


def test_a_remote_that_is_out_of_reach_learns_of_it_later(pair: tuple[Log, Archive], store: MemoryStore) -> None:
    """The caller uses `Topic.truncate`, which sends no request."""
    log, archive = pair
    topic = log.topic("t")
    topic.truncate(10)
    assert archive.status.is_unfinished("t")
    assert str(archive.replication.sync_state("t")) == "9+1 r1"
    topic.append(new(3, 9))
    assert str(archive.replication.sync_state("t")) == "9+4 r1"
    topic.seal()
    assert archive.status.topic("t").offloaded_seq == 9
    assert archive.release("t", at_once=True) == 0  # only the log has the new records of this segment
    assert values(archive, "t") == old(9) + new(3, 9)
    assert archive.offload("t").offloaded_seq == 12
    assert kinds(archive) == "OTO"
    assert (topic.inner.truncate_ops(), archive.status.is_unfinished("t")) == ((), False)
    archive.offload("t", drop_hot=True)
    assert topic.inner.hot_floor == 13
    assert values(archive, "t") == old(9) + new(3, 9)


def test_of_several_that_wait_the_deepest_says_what_the_volume_has_in_common(pair: tuple[Log, Archive]) -> None:
    log, archive = pair
    topic = log.topic("t")
    for seq in (10, 5):
        topic.truncate(seq)
        topic.append(new(2, seq - 1))
    assert str(archive.replication.sync_state("t")) == "4+4 r1"  # two records, two truncations
    archive.offload("t")
    assert kinds(archive) == "OTT"


def test_the_hot_copy_of_what_it_put_in_the_place_of_others_stays_until_its_commit(
    tmp_path: Path, store: MemoryStore
) -> None:
    """The segment has the seqs of the attempt, and other records than the attempt's objects."""
    settings = OffloadSettings(codec="none", concurrency=1)
    with (
        seglog.open(tmp_path / "data", settings=_LOG, files=UnsyncedFiles()) as log,
        offload.attach(log, store=store, settings=offload.Settings().with_parts(settings)) as archive,
    ):
        topic = log.topic("t")
        topic.append(old(6))
        topic.seal()
        archive.offload("t")
        topic.truncate(4)
        topic.append(new(3, 3))
        topic.seal()
        assert archive.release("t", at_once=True) == 0
        assert topic.inner.hot_floor == 1
        archive.offload("t", drop_hot=True)
        assert topic.inner.hot_floor == 7
        assert values(archive, "t") == old(3) + new(3, 3)


class ActsOnce(WrappedStore):
    """Call `act` before the next request."""

    act: Callable[[], object] | None = None

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        mine, self.act = self.act, None
        if mine is not None:
            mine()
        return act()


def test_nothing_is_released_if_it_comes_while_the_objects_are_read_back(tmp_path: Path, store: MemoryStore) -> None:
    acting = ActsOnce(store)
    settings = OffloadSettings(codec="none", concurrency=1)
    with (
        seglog.open(tmp_path / "data", settings=_LOG, files=UnsyncedFiles()) as log,
        offload.attach(log, store=acting, settings=offload.Settings().with_parts(settings, _COLD)) as archive,
    ):
        topic = log.topic("t")
        topic.append(old(6))
        topic.seal()
        archive.offload("t")

        def truncate() -> None:
            topic.truncate(4)
            topic.append(new(3, 3))
            topic.seal()

        acting.act = truncate
        assert archive.release("t", at_once=True) == 0
        assert (topic.inner.hot_floor, topic.epoch, len(context_of(archive).local.attempts("t"))) == (1, 2, 1)
        archive.offload("t", drop_hot=True)
        assert topic.inner.hot_floor == 7
        assert values(archive, "t") == old(3) + new(3, 3)


def test_several_of_them_are_told_in_their_order_with_the_deletes_between(
    pair: tuple[Log, Archive], clock: HandClock
) -> None:
    log, archive = pair
    topic = log.topic("t")
    times, states = [], []

    def step(act: Callable[[], object]) -> None:
        clock.ms += 1000
        act()
        times.append(clock.ms)
        states.append([record.value for record in topic.read()])

    step(lambda: topic.delete(before=3))
    step(lambda: topic.truncate(11))
    step(lambda: topic.delete(before=4))
    step(lambda: topic.truncate(12) if topic.append([b"x", b"y"]) else None)
    step(lambda: topic.truncate(9))
    step(lambda: topic.delete(before=6))
    archive.offload("t")
    assert kinds(archive) == "ODTDTD"
    for ms, state in zip(times, states, strict=True):
        found = values(archive, "t", iso(ms))
        assert found == [value for value in state if value != b"x"], ms  # x was gone before any commit had it


def test_a_merge_and_an_erasure_leave_out_what_was_cut(pair: tuple[Log, Archive], clock: HandClock) -> None:
    log, archive = pair
    archive.truncate("t", 10)
    log.topic("t").append(new(3, 9))
    log.topic("t").seal()
    archive.offload("t", drop_hot=True)
    assert archive.upkeep.erase("t")
    assert values(archive, "t") == old(9) + new(3, 9)
    assert values(archive, "t", "seq:12") == old(12)
    assert archive.status.runs("t")[-1].last_seq == 12


def test_a_merge_leaves_out_a_chunk_of_which_a_truncation_took_all(tmp_path: Path) -> None:
    """The object still has the chunk, but no reader sees a record of it."""
    with (
        seglog.open(tmp_path / "data", settings=LogSettings(max_record_bytes=2 << 20)) as log,
        offload.attach(
            log,
            store=MemoryStore(),
            settings=offload.Settings().with_parts(OffloadSettings(codec="none", merge_count=2, block_size=5 << 20)),
        ) as archive,
    ):
        for first in (1, 4):
            log.topic("t").append([b"%d" % seq + bytes(1 << 20) for seq in range(first, first + 3)])
            log.topic("t").seal()
            archive.offload("t", drop_hot=True)
        archive.truncate("t", 5)
        log.topic("t").append([b"5"])
        log.topic("t").seal()
        archive.offload("t", drop_hot=True)
        shown = [record.value for record in archive.read("t")]
        assert archive.upkeep.erase("t")
        assert archive.upkeep.compact("t")
        assert [record.value for record in archive.read("t")] == shown


def test_gc_takes_what_was_cut_when_the_window_has_passed_it(
    pair: tuple[Log, Archive], store: MemoryStore, clock: HandClock
) -> None:
    log, archive = pair
    ship(archive, log, "t", *old(6, 12))
    archive.truncate("t", 12)
    before = len([key for key in store.list("") if "/segments/" in key])
    for _ in range(3):
        clock.ms += 3_600_000
        Collector(store, GcPolicy(window_s=60, grace_s=60), clock=clock.now_ms, writer_id="gc").run()
    assert len([key for key in store.list("") if "/segments/" in key]) == before - 2
    assert values(archive, "t") == old(11)
    ship(archive, log, "t", b"new 12")
    assert values(archive, "t", "head") == [*old(11), b"new 12"]


class Meanwhile:
    """An uploader that calls `act` after the first send."""

    def __init__(self, inner: object, act: Callable[[], object]) -> None:
        self.inner, self.act = inner, act

    def upload(self, *arguments: object, **named: object) -> object:
        found = self.inner.upload(*arguments, **named)  # type: ignore[attr-defined]
        act, self.act = self.act, lambda: None
        act()
        return found


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("cut", [10, 14, 16, 19])
def test_what_was_being_sent_when_it_came_is_not_published(
    pair: tuple[Log, Archive], store: MemoryStore, cut: int, fails: bool
) -> None:
    log, archive = pair
    topic = log.topic("t")
    topic.append(old(6, 12))
    topic.seal()

    def truncate() -> None:
        topic.truncate(cut)
        topic.append(new(9, cut - 1))
        topic.seal()
        if fails:
            raise RuntimeError("the file ends here")

    change_uploader(archive, lambda uploader: Meanwhile(uploader, truncate))
    now = old(18)[: cut - 1] + new(9, cut - 1)
    if fails and cut == 19:  # if the truncation cut nothing, the offload raises the error as usual
        with pytest.raises(RuntimeError):
            archive.offload("t")
    archive.offload("t", drop_hot=True)
    assert values(archive, "t") == values(archive, "t", "head") == now
    assert kinds(archive) == {10: "OTO"}.get(cut, "OO")
    if cut == 19 and not fails:  # the next run takes the segments that were sealed during the run
        archive.offload("t")
        assert kinds(archive) == "OOO"
    named = {str(ref.sid) for past in archive.history.commits("t") for ref in past.commit.segments}
    assert {key.rpartition("/")[2].removesuffix(".index") for key in store.list("") if "/segments/" in key} == named


def test_appends_that_go_on_all_the_time_stop_it_before_anything_is_removed(
    pair: tuple[Log, Archive], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, archive = pair
    topic = log.topic("t")
    run = offloader_of(archive).run

    def busy(*arguments: object, **named: object) -> object:
        found = run(*arguments, **named)  # type: ignore[arg-type]
        topic.append([b"more"])
        return found

    monkeypatch.setattr(offloader_of(archive), "run", busy)
    with pytest.raises(ConcurrentModification):
        archive.truncate("t", 10)
    assert topic.head_seq > 12
    assert topic.inner.truncate_ops() == ()


def test_a_commit_whose_answer_is_lost_is_the_same_one_later(tmp_path: Path, store: MemoryStore) -> None:
    faulty = FaultyStore(store, [])
    with opened(tmp_path, faulty) as (log, archive):
        ship(archive, log, "t", *old(5))
        faulty.plan = (Fault(faulty.effects + 1, "after", unreachable), *(
            Fault(nth, "before", unreachable, "get") for nth in range(1, 40)
        ))  # fmt: skip
        result = archive.truncate("t", 3)
        assert result.lsn is None
        assert result.waits_for
        log.topic("t").append([b"new 3"])
        faulty.plan = ()
    with opened(tmp_path, store) as (log, archive):
        assert values(archive, "t") == [*old(2), b"new 3"]
        log.topic("t").seal()
        archive.offload("t")
        assert kinds(archive) == "OTO"
        assert values(archive, "t", "head") == [*old(2), b"new 3"]


@every(19, part=8)
def test_it_ends_anywhere_and_is_gone_on_from(every: int, tmp_path: Path) -> None:
    """Crash at each effect on the disk, each transaction of the local catalog, each request. Then append."""
    base = Place(tmp_path / "base")
    with base.opened() as (log, archive):
        ship(archive, log, "t", *old(4))
        ship(archive, log, "t", *old(3, 4))
        log.topic("t").append(old(2, 7))
    steps = 0
    for name, place in crashes(base, tmp_path, lambda _, archive: archive.truncate("t", 6), every):
        steps += 1
        with place.opened() as (log, archive):
            is_cut = log.topic("t").head_seq < 9
            assert log.topic("t").head_seq == (5 if is_cut else 9), name
            log.topic("t").append([b"next"])
            log.topic("t").seal()
            archive.offload("t", drop_hot=True)
            now = [*old(5), b"next"] if is_cut else [*old(9), b"next"]
            assert values(archive, "t") == values(archive, "t", "head") == now, name
            assert kinds(archive).count("T") == is_cut, name
            assert values(archive, "t", "seq:9") == old(9), name
            status = archive.status.topic("t")
            assert (status.pending_lsn, status.diverged_lsn, status.unfinished_attempts) == (None, None, 0), name
            assert log.topic("t").inner.hot_floor == log.topic("t").head_seq + 1, name
            named = {str(ref.sid) for past in archive.history.commits("t") for ref in past.commit.segments}
        objects = {key.rpartition("/")[2].removesuffix(".index") for key in place.store.list("") if "/segments/" in key}
        assert objects == named, name
    tell(f"truncate: {steps} crashes")
    assert steps > 50 / every


def test_who_follows_sees_it_whole_and_who_writes_it_next_goes_on_after_it(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive), opened(tmp_path / "two", store) as (two_log, two):
        ship(archive, log, "t", *old(6))
        two.replication.sync("t")
        assert values(two, "t") == old(6)
        archive.truncate("t", 4)
        assert values(two, "t") == old(6)
        two.replication.sync("t")
        assert (values(two, "t"), two.status.topic("t").head_seq) == (old(3), 3)
        ship(archive, log, "t", b"new 4", b"new 5")
        two.replication.sync("t")
        assert values(two, "t") == [*old(3), b"new 4", b"new 5"]
        two.replication.take_over("t")
        two.truncate("t", 2)
        ship(two, two_log, "t", b"two 2")
        assert values(two, "t") == [b"old 1", b"two 2"]
        result = archive.truncate("t", 5)
        assert (result.lsn, result.waits_for) == (None, str(divergence(context_of(archive).handles.find("t"))))
        with pytest.raises(Fenced):
            archive.replication.sync("t")
        archive.replication.reset("t", discard=True)
        assert values(archive, "t") == [b"old 1", b"two 2"]


def test_one_that_the_volume_was_never_told_of_is_a_change_that_a_reset_keeps(
    tmp_path: Path, store: MemoryStore
) -> None:
    with opened(tmp_path / "one", store) as (log, archive), opened(tmp_path / "two", store) as (_, two):
        ship(archive, log, "t", *old(6))
        two.replication.take_over("t")
        log.topic("t").truncate(4)
        with pytest.raises(LocalChangesLost, match="0 records and 0 deletes, and 1 truncation,"):
            archive.replication.reset("t")
        log.topic("t").append([b"new 4"])
        result = archive.replication.reset("t", as_branch="mine")
        assert (result.changes.records, result.changes.truncations) == (1, 1)
        assert values(archive, "t@mine") == [*old(3), b"new 4"]
        assert values(archive, "t") == old(6)


def test_a_branch_may_be_cut_below_where_it_began(pair: tuple[Log, Archive], tmp_path: Path) -> None:
    log, archive = pair
    archive.restore("t", to="seq:8", name="b")
    archive.open_for_append("t@b").append([b"b 9"])
    archive.truncate("t@b", 5)
    archive.open_for_append("t@b").append([b"b 5"])
    assert values(archive, "t@b") == [*old(4), b"b 5"]
    log.topic("t@b").seal()
    archive.offload("t@b", drop_hot=True)
    assert values(archive, "t@b") == [*old(4), b"b 5"]
    assert values(archive, "t") == old(12)
    diff = archive.history.diff("t", "t@b")
    assert (diff.shared_seq, diff.left.appended, diff.right.appended) == (4, 8, 1)


def test_the_past_that_a_branch_has_in_common_is_whole(pair: tuple[Log, Archive]) -> None:
    log, archive = pair
    archive.truncate("t", 5)
    log.topic("t").append(new(9, 4))
    log.topic("t").seal()
    archive.offload("t")
    archive.restore("t", to="head", name="whole")
    archive.restore("t", to=iso(log.topic("t").last_ts_ms), name="timed")
    for name in ("t@whole", "t@timed"):
        assert values(archive, name) == old(4) + new(9, 4), name
        assert values(archive, name, "lsn:1") == old(12), name
        assert values(archive, name, "seq:11") == old(11), name
        assert values(archive, name, "lsn:2") == old(4), name
        assert values(archive, name, "lsn:3") == old(4) + new(9, 4), name


def test_a_branch_that_begins_within_a_commit_shows_the_whole_state_before_a_truncation(
    pair: tuple[Log, Archive], clock: HandClock
) -> None:
    log, archive = pair
    topic = log.topic("t")
    before_ms = topic.last_ts_ms
    clock.ms += 1000
    archive.truncate("t", 5)
    topic.append(new(4, 4))
    within_ms = topic.last_ts_ms
    clock.ms += 1000
    topic.append(new(5, 8))
    topic.seal()
    archive.offload("t")
    archive.restore("t", to=iso(within_ms), name="within")
    ship(archive, log, "t@within", b"own 9", b"own 10")
    assert values(archive, "t@within") == [*old(4), *new(4, 4), b"own 9", b"own 10"]
    vid = archive.history.point("t", "lsn:1").vid
    for target in (f"lsn:1@{vid}", "head~3", iso(before_ms), iso(within_ms - 1)):
        assert values(archive, "t@within", target) == old(12), target
    for target in ("lsn:2", "head~2"):
        assert values(archive, "t@within", target) == old(4), target
    for target in ("lsn:3", "head~1", iso(within_ms)):
        assert values(archive, "t@within", target) == old(4) + new(4, 4), target
    assert values(archive, "t@within", "seq:8") == old(8)
    assert values(archive, "t@within", "seq:9")[-1] == b"own 9"
    archive.restore("t@within", to="head~3", name="again")
    assert values(archive, "t@again") == old(12)


def test_an_error_before_the_cut_leaves_all_as_it_was(tmp_path: Path, store: MemoryStore) -> None:
    faulty = FaultyStore(store, [])
    with opened(tmp_path, faulty) as (log, archive):
        ship(archive, log, "t", *old(5))
        log.topic("t").append([b"old 6"])
        faulty.plan = tuple(Fault(nth, "before", unreachable) for nth in range(faulty.effects + 1, 200))
        with pytest.raises(CatalogError):
            archive.truncate("t", 3)
        assert log.topic("t").head_seq == 6
        assert log.topic("t").inner.truncate_ops() == ()
        faulty.plan = ()
        assert archive.truncate("t", 3).records == 4
        assert kinds(archive) == "OOT"
        assert CommitKind.TRUNCATE in {past.commit.kind for past in archive.history.commits("t")}
