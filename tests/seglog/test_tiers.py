"""A log that relocates older sealed segments to a warm store. Every operation works over both stores."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import seglog
from catalog.errors import StoreUnreachable
from seglog import (
    DiskFull,
    FileCorrupt,
    Gap,
    Log,
    LogSettings,
    NoSuchTopic,
    Topic,
    TopicConfig,
    ViewOutdated,
    WarmStoreFailed,
    WarmStoreRequired,
)
from seglog.engine.work_thread import InCaller
from seglog.files.file_system import OsFiles
from seglog.format.frame import DELETED, read_header
from seglog.format.index import ENTRY
from seglog.tiers.segment_store import MemorySegmentStore, Part, SegmentId
from seglog.tiers.warm_stores import WarmStores
from seglog.values.deletes import DeleteWhere
from seglog.values.layout import Layout
from seglog.wal.manifest import load
from tests.faults.files import UnsyncedFiles
from tests.faults.stride import every
from tests.seams.log import engine_of, reclaim_at_once
from tests.worlds.clock import HandClock

SETTINGS = LogSettings(segment_max_events=10, cold_dir="../cold", hot_retain_segments=2)


class Counting(MemorySegmentStore):
    """A store that lists its calls. If `trouble` is set, every call raises it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.trouble: Exception | None = None

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.trouble is not None:
            raise self.trouble

    def put(self, segment: SegmentId, data: bytes, idx: bytes) -> None:
        self._call(f"put {segment}")
        super().put(segment, data, idx)

    def read_range(self, segment: SegmentId, part: Part, offset: int, length: int) -> bytes:
        self._call(f"read {part.value} {segment}")
        return super().read_range(segment, part, offset, length)

    def delete(self, segment: SegmentId) -> None:
        self._call(f"delete {segment}")
        super().delete(segment)


@pytest.fixture
def clock() -> HandClock:
    return HandClock(1_000)


@pytest.fixture
def store() -> Counting:
    return Counting()


@pytest.fixture
def log(tmp_path: Path, clock: HandClock, store: Counting) -> Iterator[Log]:
    with opened(tmp_path, store, clock) as log:
        yield log


def opened(
    tmp_path: Path, store: MemorySegmentStore, clock: HandClock | None = None, settings: LogSettings = SETTINGS
) -> Log:
    return seglog.open(
        tmp_path / "data",
        settings=settings,
        clock=HandClock(1_000) if clock is None else clock,
        files=UnsyncedFiles(),
        upkeep=InCaller,
        warm_stores=lambda _: store,
    )


def filled(log: Log, records: int = 55, tags: tuple[str | None, ...] = (None,)) -> Topic:
    """Append `records` records at the times 1000, 1001 and so on, then run a checkpoint. Full segments are sealed."""
    topic = log.topic("t")
    clock = engine_of(log).clock
    for number in range(records):
        assert isinstance(clock, HandClock)
        clock.ms = 1_000 + number
        topic.append([b"%d" % (number + 1)], tag=tags[number % len(tags)], durability="memory")
    log.checkpoint()
    return topic


def warm(topic: Topic) -> list[int]:
    return [segment.first_seq for segment in topic.inner.segments() if not segment.is_hot]


def seqs(topic: Topic, start: int | None = None, end: int | None = None) -> list[int]:
    return [record.seq for record in topic.read(start, end)]


# ---------------------------------------------------------------- reading


def test_older_sealed_segments_leave_and_all_is_read_as_before(log: Log, store: Counting) -> None:
    topic = filled(log)
    assert warm(topic) == [1, 11, 21]
    assert store.list() == [1, 11, 21]
    directory = log.path / "topics" / "00000001"
    assert [path.name for path in sorted(directory.glob("*.data"))] == [f"seg-{n:016d}.data" for n in (31, 41, 51)]
    assert [(record.seq, record.value) for record in topic.read()] == [(seq, b"%d" % seq) for seq in range(1, 56)]
    assert seqs(topic, 18, 33) == list(range(18, 34))
    assert (topic.inner.hot_floor, topic.head_seq, topic.inner.sealed_seq, topic.inner.record_count_hot) == (
        1,
        55,
        50,
        55,
    )
    assert topic.inner.bytes_hot + topic.inner.bytes_relocated == sum(len(frame) for frame in topic.inner.frames(1, 55))
    assert topic.inner.bytes_relocated == sum(store.length(segment, Part.DATA) for segment in store.list())


def test_frames_are_the_same_bytes_whether_relocated_or_not(tmp_path: Path, log: Log) -> None:
    topic = filled(log)
    with seglog.open(tmp_path / "other", settings=replace(SETTINGS, cold_dir=""), clock=HandClock(1_000)) as other:
        wanted = list(filled(other).inner.frames(1, 55))
        assert warm(other.topic("t")) == []
    assert list(topic.inner.frames(1, 55)) == wanted


def test_times_are_found_in_relocated_segments(log: Log, store: Counting) -> None:
    topic = filled(log)
    store.calls.clear()
    assert [topic.seq_at(1_000 + number) for number in (40, 54)] == [41, 55]
    assert store.calls == []
    assert [topic.seq_at(1_000 + number) for number in range(30)] == list(range(1, 31))
    assert store.calls == ["read idx 1", "read idx 11", "read idx 21"]
    assert [record.seq for record in topic.read(since_ms=1_014, until_ms=1_016)] == [15, 16, 17]


def test_an_idx_is_read_once_and_reads_of_hot_segments_ask_nobody(log: Log, store: Counting) -> None:
    topic = filled(log)
    store.calls.clear()
    for _ in range(3):
        assert seqs(topic, 1, 10) == list(range(1, 11))
    assert store.calls == ["read idx 1", *["read data 1"] * 3]
    store.calls.clear()
    topic.append([b"hot"])
    assert seqs(topic, 31) == list(range(31, 57))
    assert list(topic.inner.frames(31, 56))
    assert store.calls == []


def test_what_is_kept_of_idx_files_is_bounded_in_bytes(tmp_path: Path) -> None:
    store = Counting()
    with opened(tmp_path, store) as log:
        topic = filled(log)
        infos = [segment for segment in topic.inner.segments() if not segment.is_hot]
        stores = WarmStores(lambda _: store, Path("cold"), kept_bytes=2 * 10 * ENTRY.size)
        store.calls.clear()
        for number in (0, 1, 0, 2, 0, 1):
            stores.segment(topic.inner.topic_id, infos[number])
        assert store.calls == ["read idx 1", "read idx 11", "read idx 21", "read idx 11"]


def test_without_a_cold_store_nothing_leaves(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data", settings=replace(SETTINGS, cold_dir=""), clock=HandClock(1_000)) as log:
        topic = filled(log)
        assert (warm(topic), topic.inner.bytes_relocated, len(topic.inner.segments())) == ([], 0, 6)
    assert not (tmp_path / "cold").exists()


def test_a_cold_directory_has_the_layout_of_a_data_directory(tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    for _ in range(2):
        with seglog.open(tmp_path / "data", settings=SETTINGS, clock=HandClock(1_000), upkeep=InCaller) as log:
            topic = log.topic("t") if log.has_topic("t") else filled(log)
            assert seqs(topic) == list(range(1, 56))
            assert warm(topic) == [1, 11, 21]
    names = [path.name for path in sorted((tmp_path / "cold/topics/00000001").iterdir())]
    assert names == [f"seg-{number:016d}.{part}" for number in (1, 11, 21) for part in ("data", "idx")]


def test_the_thread_of_the_log_does_it_too(tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    with seglog.open(tmp_path / "data", settings=SETTINGS, clock=HandClock(1_000)) as log:
        filled(log)
    with seglog.open(tmp_path / "data", settings=SETTINGS, clock=HandClock(1_000)) as log:
        log.topic("t").seal()
        assert seqs(log.topic("t")) == list(range(1, 56))
    with seglog.open(tmp_path / "data", settings=SETTINGS, clock=HandClock(1_000), upkeep=InCaller) as log:
        assert warm(log.topic("t")) == [1, 11, 21, 31]
        assert seqs(log.topic("t")) == list(range(1, 56))


def test_hot_bytes_bound_what_stays(tmp_path: Path, store: Counting) -> None:
    settings = replace(SETTINGS, hot_retain_bytes=1)
    with seglog.open(
        tmp_path / "data", settings=settings, clock=HandClock(1_000), upkeep=InCaller, warm_stores=lambda _: store
    ) as log:
        assert warm(filled(log)) == [1, 11, 21, 31, 41]


def test_a_reader_on_its_way_goes_on_when_its_segment_leaves(tmp_path: Path, store: Counting) -> None:
    with opened(tmp_path, store) as log:
        topic = filled(log, 20)
        reader = topic.read()
        assert next(reader).seq == 1
        frames = topic.inner.frame_batches(1, 20)
        assert len(next(frames)) == 10
        filled(log, 50)
        assert warm(topic)[:2] == [1, 11]
        assert [record.seq for record in reader] == list(range(2, 21))
        assert [len(batch) for batch in frames] == [10]


# ---------------------------------------------------------------- deletes


def test_a_delete_by_tag_reaches_relocated_records_and_lasts(tmp_path: Path, store: Counting) -> None:
    with opened(tmp_path, store) as log:
        topic = filled(log, tags=("a", "b"))
        before = store.calls.count("put 1")
        topic.delete(tag="a")
        alive = [seq for seq in range(1, 56) if seq % 2 == 0]
        assert seqs(topic) == alive
        log.checkpoint()
        assert seqs(topic) == alive
        assert (topic.inner.delete_ops(), topic.earliest_seq) == ((), 2)
        topic.append([b"later"], tag="a")
    for _ in range(2):
        with opened(tmp_path, store) as log:
            assert seqs(log.topic("t")) == [*alive, 56]
            flags = [read_header(frame).flags & DELETED for frame in log.topic("t").inner.frames(1, 55)]
            assert flags == [DELETED, 0] * 27 + [DELETED]
    assert store.calls.count("put 1") == before


def test_what_is_listed_of_deletes_does_not_grow_with_their_number(log: Log) -> None:
    topic = filled(log, tags=("a", "b"))
    for _ in range(5):
        topic.delete(tag="a")
        topic.delete(tag="b", before=30)
        topic.delete(before=2)
        log.checkpoint()
    _, manifest = load(OsFiles(), Layout(log.path))
    assert [(op.op, op.tag) for op in manifest.topics[0].warm_ops] == [(13, "a"), (14, "b")]
    topic.inner.release(30)
    _, manifest = load(OsFiles(), Layout(log.path))
    assert (manifest.topics[0].warm_ops, manifest.topics[0].warm) == ((), ())


def test_a_delete_while_a_segment_is_on_its_way_is_not_lost(tmp_path: Path) -> None:
    class Deleting(Counting):
        """A store that deletes records between copy and flip, and runs a checkpoint that flags the hot copy."""

        log: Log | None = None

        def put(self, segment: SegmentId, data: bytes, idx: bytes) -> None:
            super().put(segment, data, idx)
            if self.log is not None and segment == 11:
                log, self.log = self.log, None
                log.topic("t").delete(tag="a")
                log.checkpoint()

    store = Deleting()
    with opened(tmp_path, store) as log:
        store.log = log
        topic = filled(log, tags=("a", "b"))
        assert store.calls.count("put 11") == 2  # the first copy was outdated
        assert 11 in warm(topic)
        alive = [record.seq for record in topic.read() if record.tag == "b"]
        assert seqs(topic, 1, 20) == list(range(2, 21, 2))
        assert set(alive) >= set(range(2, 56, 2))
    with opened(tmp_path, store) as log:
        assert seqs(log.topic("t"), 1, 20) == list(range(2, 21, 2))


def test_a_segment_is_not_put_under_a_name_that_waits_for_its_deletion(tmp_path: Path) -> None:
    class Keeping(Counting):
        keeps = True

        def delete(self, segment: SegmentId) -> None:
            if self.keeps:
                raise OSError(5, "cold trouble")
            super().delete(segment)

    store = Keeping()
    with opened(tmp_path, store) as log:
        topic = filled(log)
        topic.truncate(15)
        store.calls.clear()
        topic.append([b"new"] * 50)
        log.checkpoint()
        assert "put 11" not in store.calls
        store.keeps = False
        log.checkpoint()
        log.checkpoint()
        assert store.list() == warm(topic)
        assert [record.value for record in topic.read(13, 16)] == [b"13", b"14", b"new", b"new"]


@pytest.mark.parametrize("how", ["truncated", "cut", "deleted", "topic deleted"])
def test_the_copy_of_a_segment_that_went_on_its_way_leaves_the_store(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Meanwhile(Counting):
        act: Callable[[], object] | None = None

        def put(self, segment: SegmentId, data: bytes, idx: bytes) -> None:
            super().put(segment, data, idx)
            if self.act is not None and segment == 11:
                act, self.act = self.act, None
                act()

    def delete() -> None:
        topic.delete(before=55)
        log.checkpoint()

    store = Meanwhile()
    with opened(tmp_path, store) as log:
        topic = log.topic("t")
        acts = {"truncated": lambda: topic.truncate(5), "cut": lambda: topic.truncate(15), "deleted": delete}
        store.act = acts.get(how, lambda: log.delete_topic("t"))
        filled(log)
        assert store.act is None
        log.checkpoint()
        assert store.list() == ([1] if how == "cut" else [])
        assert "is not deleted" not in caplog.text


def test_a_segment_that_is_written_anew_on_its_way_is_sent_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Reclaim replaces the hot files of the segment after the copy. The warm store has the old files."""

    class Reclaiming(Counting):
        log: Log | None = None

        def put(self, segment: SegmentId, data: bytes, idx: bytes) -> None:
            super().put(segment, data, idx)
            if self.log is not None and segment == 11:
                log, self.log = self.log, None
                reclaim_at_once(log)

    store = Reclaiming()
    settings = replace(SETTINGS, reclaim_bytes_per_s=0)
    with opened(tmp_path, store, settings=settings) as log:
        topic = filled(log, 20, tags=("a", "b", "b"))
        topic.delete(tag="b")
        log.checkpoint()
        assert warm(topic) == []
        store.log = log
        filled(log, 40)
        assert store.log is None
        assert store.calls.count("put 11") == 2
        assert warm(topic) == [1, 11, 21, 31]
        assert seqs(topic, 11, 20) == [13, 16, 19]
        assert "is not deleted" not in caplog.text


def test_a_settled_delete_is_a_tombstone_in_relocated_segments_too(log: Log) -> None:
    log.create_topic("t", TopicConfig(keep_history=True))
    topic = filled(log, tags=("a", "b"))
    op = topic.inner.delete(DeleteWhere(tag="a"))
    log.checkpoint()
    assert warm(topic) == [1, 11, 21]
    assert [read_header(frame).flags & DELETED for frame in topic.inner.frames(1, 50)] == [0] * 50
    topic.inner.settle_deletes(op.op)
    assert [read_header(frame).flags & DELETED for frame in topic.inner.frames(1, 50)] == [DELETED, 0] * 25
    assert seqs(topic) == list(range(2, 56, 2))


def test_a_front_that_is_dead_as_a_whole_is_dropped_from_the_store(log: Log, store: Counting) -> None:
    topic = filled(log, tags=("a",))
    topic.append([b"alive"], tag="b")
    topic.delete(tag="a")
    assert topic.earliest_seq == 56  # the relocator has looked at the front
    log.checkpoint()
    assert (store.list(), warm(topic), topic.inner.hot_floor) == ([], [], 51)


# ---------------------------------------------------------------- retention, release, truncation, deletion


def test_deletes_and_releases_drop_whole_segments_in_both_tiers(log: Log, store: Counting) -> None:
    topic = filled(log)
    topic.delete(before=15)
    log.checkpoint()
    assert (store.list(), topic.inner.hot_floor) == ([11, 21], 11)
    assert seqs(topic) == list(range(15, 56))
    topic.inner.release(40)
    assert (store.list(), warm(topic), topic.inner.hot_floor) == ([], [], 41)
    assert seqs(topic, 41) == list(range(41, 56))


def test_retention_evicts_relocated_segments_without_asking_the_store(log: Log, store: Counting) -> None:
    topic = filled(log)
    log.configure("t", TopicConfig(cap_records=20))
    store.calls.clear()
    topic.append([b"more"])
    assert store.calls == ["delete 1", "delete 11", "delete 21"]
    assert next(topic.read(1, gaps=True)) == Gap(1, 30)
    assert (topic.earliest_seq, topic.inner.evict_floor, store.list()) == (31, 31, [])


@pytest.mark.parametrize("seq", [1, 2, 10, 11, 15, 20, 21, 25, 31, 35, 51, 55, 56])
def test_a_topic_is_truncated_in_either_tier(tmp_path: Path, store: Counting, seq: int) -> None:
    with opened(tmp_path, store) as log:
        topic = filled(log, tags=("a", "b"))
        topic.delete(tag="a")
        log.checkpoint()
        topic.truncate(seq)
        alive = list(range(2, seq, 2))
        assert (topic.head_seq, seqs(topic)) == (seq - 1, alive)
        assert not any(first >= seq for first in store.list())
        topic.append([b"new"] * 25, tag="a")
        log.checkpoint()
        log.checkpoint()
        assert [record.seq for record in topic.read(1)] == [*alive, *range(seq, seq + 25)]
        assert store.list() == warm(topic)
    with opened(tmp_path, store) as log:
        topic = log.topic("t")
        assert [record.seq for record in topic.read(1)] == [*alive, *range(seq, seq + 25)]
        assert [record.value for record in topic.read(seq)] == [b"new"] * 25


def test_a_truncation_that_the_store_does_not_allow_changes_nothing(log: Log, store: Counting) -> None:
    topic = filled(log)
    store.trouble = OSError(5, "cold trouble")
    with pytest.raises(WarmStoreFailed):
        topic.truncate(15)
    assert (topic.head_seq, topic.epoch) == (55, 1)
    topic.truncate(35)
    store.trouble = None
    assert seqs(topic) == list(range(1, 35))


def test_a_deleted_topic_leaves_the_store(tmp_path: Path, store: Counting) -> None:
    with opened(tmp_path, store) as log:
        filled(log)
        store.trouble = OSError(5, "cold trouble")
        log.delete_topic("t")
        log.checkpoint()
        assert store.list() == [1, 11, 21]
        store.trouble = None
        with pytest.raises(NoSuchTopic):
            log.topic("t").read()
    with opened(tmp_path, store) as log:  # the deletions that wait are on record
        assert store.list() == []
        log.topic("other").append([b"so that there is something new"])
    with opened(tmp_path, store):
        assert store.calls.count("delete 1") == 2


def test_a_recalled_segment_is_not_read_from_files_of_before(log: Log, store: Counting) -> None:
    """The hot copy still exists, and a late reader has opened it."""
    topic = filled(log)
    left = Layout(log.path).data(1, 11)
    left.write_bytes(store.read_range(SegmentId(11), Part.DATA, 0, store.length(SegmentId(11), Part.DATA)))
    idx = store.read_range(SegmentId(11), Part.IDX, 0, store.length(SegmentId(11), Part.IDX))
    left.with_suffix(".idx").write_bytes(idx)
    stale = topic.inner.segments()[1]._replace(warm_check=None)
    opened_late = engine_of(log).segments.get(1, stale)
    topic.truncate(15)
    active = engine_of(log).topics["t"].active
    assert active is not None
    now = engine_of(log).segments.get(1, active)
    assert now is not opened_late
    assert os.fstat(now.data.fd).st_ino == left.stat().st_ino
    assert seqs(topic) == list(range(1, 15))


def test_nothing_is_relocated_while_a_segment_is_recalled(log: Log, store: Counting) -> None:
    topic = filled(log)
    engine_of(log).topics["t"].relocation_holds += 1
    store.calls.clear()
    topic.append([b"x"] * 20)
    log.checkpoint()
    assert (warm(topic), store.calls) == ([1, 11, 21], [])
    engine_of(log).topics["t"].relocation_holds -= 1
    log.checkpoint()
    assert warm(topic) == [1, 11, 21, 31, 41]


# ---------------------------------------------------------------- trouble


def test_trouble_of_the_store_is_told_where_it_is_and_nothing_else_is_touched(
    log: Log, store: Counting, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    topic = filled(log)
    store.trouble = OSError(5, "cold trouble")
    with pytest.raises(WarmStoreFailed, match=r"00000001/seg-0000000000000001\.idx: .*cold trouble") as caught:
        seqs(topic)
    assert isinstance(caught.value, seglog.Unavailable)
    store.trouble = ValueError("a store's own")
    with pytest.raises(WarmStoreFailed, match="own"):
        list(topic.inner.frames(11, 12))
    store.trouble = StoreUnreachable("s3://bucket", "no route")
    with pytest.raises(WarmStoreFailed, match="no route"):
        list(topic.inner.frames(11, 12))
    store.trouble = DiskFull(Path("/warm"), "read")
    with pytest.raises(DiskFull):
        list(topic.inner.frames(11, 12))
    for _ in range(3):
        topic.append([b"x"] * 10)
        topic.seal()
    assert warm(topic) == [1, 11, 21]
    assert seqs(topic, 31) == list(range(31, 86))
    store.trouble = None
    log.checkpoint()
    assert len(warm(topic)) > 3
    assert seqs(topic) == list(range(1, 86))


def test_what_a_store_did_not_delete_is_deleted_by_the_next_checkpoint(log: Log, store: Counting) -> None:
    topic = filled(log)
    topic.delete(before=21)
    store.trouble = OSError(5, "cold trouble")
    log.checkpoint()
    assert store.list() == [1, 11, 21]
    store.trouble = None
    log.checkpoint()
    assert store.list() == [21]


def test_a_missing_segment_is_damage_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    with seglog.open(tmp_path / "data", settings=SETTINGS, clock=HandClock(1_000), upkeep=InCaller) as log:
        filled(log)
    missing = tmp_path / "cold/topics/00000001/seg-0000000000000011.data"
    missing.unlink()
    with seglog.open(tmp_path / "data", settings=SETTINGS, clock=HandClock(1_000), upkeep=InCaller) as log:
        topic = log.topic("t")
        assert seqs(topic, 1, 10) == list(range(1, 11))
        with pytest.raises(FileCorrupt, match="missing in the warm store") as caught:
            seqs(topic)
        assert (tmp_path / "data" / caught.value.path).resolve() == missing
        assert seqs(topic, 21) == list(range(21, 56))


def test_a_store_that_is_not_mounted_is_trouble_and_not_damage(tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    with seglog.open(tmp_path / "data", settings=SETTINGS, clock=HandClock(1_000), upkeep=InCaller) as log:
        filled(log)
    (tmp_path / "cold").rename(tmp_path / "elsewhere")
    with seglog.open(tmp_path / "data", settings=SETTINGS, clock=HandClock(1_000), upkeep=InCaller) as log:
        topic = log.topic("t")
        with pytest.raises(WarmStoreFailed):
            seqs(topic)
        topic.delete(before=25)
        log.checkpoint()
        assert seqs(topic, 31) == list(range(31, 56))
        (tmp_path / "elsewhere").rename(tmp_path / "cold")
        assert seqs(topic) == list(range(25, 56))
        log.checkpoint()
        assert sorted(path.name for path in (tmp_path / "cold/topics/00000001").glob("*.idx")) == [
            "seg-0000000000000021.idx"
        ]


@every(5, part=2)
def test_every_byte_of_a_relocated_segment_is_checked(tmp_path: Path, store: Counting, every: int) -> None:
    with opened(tmp_path, store) as log:
        filled(log, 35)
    one = SegmentId(1)
    bodies = {part: store.read_range(one, part, 0, store.length(one, part)) for part in Part}
    for part in Part:
        for at in range(0, len(bodies[part]), every):
            broken = bytearray(bodies[part])
            broken[at] ^= 0x10
            spoiled = {**bodies, part: bytes(broken)}
            store.put(one, spoiled[Part.DATA], spoiled[Part.IDX])
            with opened(tmp_path, store) as log, pytest.raises(FileCorrupt) as caught:
                seqs(log.topic("t"))
            suffix = f"topics/00000001/seg-{1:016d}.{part.value}"
            assert str(caught.value.path) == f"warm store/{suffix}"
            assert caught.value.offset <= at


def test_an_older_idx_does_not_bring_deleted_records_back(tmp_path: Path, store: Counting) -> None:
    with opened(tmp_path, store) as log:
        topic = filled(log, 20, tags=("a", "b"))
        older = (log.path / "topics/00000001" / f"seg-{1:016d}.idx").read_bytes()
        topic.delete(tag="a")
        filled(log, 15)
        assert warm(topic) == [1]
    data = store.read_range(SegmentId(1), Part.DATA, 0, store.length(SegmentId(1), Part.DATA))
    store.put(SegmentId(1), data, older)  # a delayed put arrives late
    with opened(tmp_path, store) as log, pytest.raises(FileCorrupt, match="differs from the file that was put there"):
        seqs(log.topic("t"))


def test_a_log_with_relocated_segments_is_not_opened_without_their_store(tmp_path: Path, store: Counting) -> None:
    with opened(tmp_path, store) as log:
        filled(log)
    with pytest.raises(WarmStoreRequired, match="records 1 to 30 of t") as caught:
        seglog.open(tmp_path / "data", settings=replace(SETTINGS, cold_dir=""))
    assert "cold_dir" in str(caught.value.hint)
    with opened(tmp_path, store) as log:
        assert seqs(log.topic("t")) == list(range(1, 56))


def test_a_read_only_log_reads_both_tiers_beside_the_writer(tmp_path: Path, store: Counting) -> None:
    with opened(tmp_path, store) as log:
        topic = filled(log, tags=("a", "b"))
        topic.delete(tag="a")
        log.checkpoint()
        calls = len(store.calls)
        view = seglog.open(tmp_path / "data", read_only=True, settings=SETTINGS, warm_stores=lambda _: store)
        assert len(store.calls) == calls
        with view:
            seen = view.topic("t")
            assert (warm(seen), seqs(seen)) == ([1, 11, 21], list(range(2, 56, 2)))
            assert [record.seq for batch in seen.read_batches(1) for record in batch] == list(range(2, 56, 2))
            topic.inner.release(20)
            with pytest.raises(ViewOutdated):
                list(seen.read(1))
            assert seqs(seen, 31) == list(range(32, 56, 2))
        with pytest.raises(WarmStoreRequired):
            seglog.open(tmp_path / "data", read_only=True, settings=replace(SETTINGS, cold_dir=""))
