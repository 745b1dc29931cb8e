"""Test that a merge of small remote segments changes nothing that a reader sees, now or in the past."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyroaring import BitMap

import offload
import seglog
from catalog import Codec, CommitKind, SegmentRef, SegmentView, Sid, Vid
from catalog.errors import CatalogError, InvalidObject
from catalog.format.keys import data_key
from catalog.objects.memory import MemoryStore
from offload.archive import Archive
from offload.settings import OffloadSettings
from offload.write.merging import MergeLimits, ranges_to_merge
from seglog import Log, ReadOnly, Record
from tests.faults.store import CountingStore, Fault, FaultyStore, WrappedStore, lost, unreachable
from tests.seams.archive import context_of

SETTINGS = OffloadSettings(block_size=32 * 1024 * 1024, merge_count=4, merge_below_bytes=10_000)
OURS, OTHER = Vid.new(1), Vid.new(2)


def view(first: int, last: int, *, frame_bytes: int = 10, vid: Vid = OURS, sid: Sid | None = None) -> SegmentView:
    ref = SegmentRef(
        sid=sid or Sid.new(first),
        first_seq=first,
        last_seq=last,
        min_ts_ms=0,
        max_ts_ms=0,
        data_length=frame_bytes,
        data_hash=bytes(32),
        index_head_length=1,
        index_trailer_length=1,
        index_head_hash=bytes(32),
        codec=Codec.NONE,
        frame_bytes=frame_bytes,
        live_records=last - first + 1,
    )
    return SegmentView(ref, vid, lsn=1, first=first, last=last)


def runs(*views: SegmentView, least: int = 2) -> list[list[int]]:
    found = ranges_to_merge(views, OURS, MergeLimits(below_bytes=100, max_bytes=150, least=least))
    return [[each.first for each in run] for run in found]


def test_adjacent_small_segments_are_a_run() -> None:
    assert runs(view(1, 2), view(3, 4), view(5, 6)) == [[1, 3, 5]]


@pytest.mark.parametrize(
    "between",
    [view(3, 4, frame_bytes=100), view(3, 4, vid=OTHER), view(4, 4)],
    ids=["a large one", "a parent's", "a gap before it"],
)
def test_what_does_not_belong_ends_a_run(between: SegmentView) -> None:
    assert runs(view(1, 2), between, view(5, 6), view(7, 8), least=2) in ([[5, 7]], [[4, 5, 7]])


def test_a_run_ends_where_the_object_would_be_too_large() -> None:
    assert runs(*(view(seq, seq, frame_bytes=60) for seq in range(1, 6))) == [[1, 2], [3, 4]]
    assert runs(*(view(seq, seq, frame_bytes=75) for seq in range(1, 5))) == [[1, 2], [3, 4]]  # two fill it


def test_too_few_are_left_alone() -> None:
    assert runs(view(1, 2), view(3, 4), least=3) == []


def test_a_segment_that_is_shown_in_two_pieces_is_left_alone() -> None:
    sid = Sid.new(9)
    assert runs(view(1, 2, sid=sid), view(3, 4), view(5, 6, sid=sid)) == []


def fill(log: Log, archive: Archive, count: int, *, start: int = 0) -> None:
    """Append and offload `count` records, an object each."""
    topic = log.topic("t")
    for number in range(start, start + count):
        topic.append([b"%d" % number], tag="even" if number % 2 == 0 else "odd")
        topic.seal()
        archive.offload("t", drop_hot=True)


def values(found: list[Record]) -> list[tuple[int, bytes, str | None, int]]:
    return [(record.seq, record.value, record.tag, record.ts_ms) for record in found]


def test_records_deletes_and_every_past_state_are_as_before(tmp_path: Path) -> None:
    store = CountingStore(MemoryStore())
    with (
        seglog.open(tmp_path / "d") as log,
        offload.attach(log, store=store, settings=offload.Settings().with_parts(SETTINGS)) as archive,
    ):
        fill(log, archive, 5)
        log.topic("t").delete(before=2)
        log.topic("t").delete(tag="odd")
        archive.offload("t")
        fill(log, archive, 3, start=5)
        targets = [f"lsn:{lsn}" for lsn in range(1, 10)] + [f"seq:{seq}" for seq in range(1, 9)]
        before = {target: values(list(archive.read("t", at=target))) for target in targets}
        now = values(list(log.topic("t").read()))
        read: list[int] = []
        expected_bytes = archive.upkeep.bytes_to_rewrite("t")

        published = archive.upkeep.compact("t", on_bytes=read.append)

        assert 0 < sum(read) <= expected_bytes
        assert archive.upkeep.bytes_to_rewrite("t") == 0
        assert [each.kind for each in published] == [CommitKind.COMPACT]
        assert len(archive.history.snapshot("t").segments) == 1
        assert values(list(log.topic("t").read())) == now
        for target, expected in before.items():
            assert values(list(archive.read("t", at=target))) == expected, target
        assert archive.upkeep.compact("t") == ()
        assert archive.status.topic("t").unfinished_attempts == 0

        fill(log, archive, 1, start=8)
        log.topic("t").delete(tag="even")
        archive.offload("t")
        assert [record.value for record in log.topic("t").read()] == [b"5", b"7"]
    with (
        seglog.open(tmp_path / "d") as log,
        offload.attach(log, store=store, settings=offload.Settings().with_parts(SETTINGS)) as archive,
    ):
        assert values(list(archive.read("t", at="lsn:10"))) == now


def test_bytes_of_deleted_records_are_not_in_the_merged_object(tmp_path: Path) -> None:
    store = MemoryStore()
    settings = OffloadSettings(block_size=32 * 1024 * 1024, codec="none", merge_count=2)
    with (
        seglog.open(tmp_path / "d") as log,
        offload.attach(log, store=store, settings=offload.Settings().with_parts(settings)) as archive,
    ):
        topic = log.topic("t")
        for value in (b"keep this", b"forget this"):
            topic.append([value], tag=value.split()[0].decode())
            topic.seal()
            archive.offload("t", drop_hot=True)
        topic.delete(tag="forget")
        archive.offload("t")
        [published] = archive.upkeep.compact("t")
        assert published.segment is not None
        [segment] = archive.history.snapshot("t").segments
        body = store.get(data_key(segment.vid, segment.ref.sid))
        assert b"keep this" in body
        assert b"forget this" not in body
        assert BitMap.deserialize(context_of(archive).reader.index(segment).live) == BitMap([0])


def test_what_a_branch_has_from_its_parent_is_not_copied_into_it(tmp_path: Path) -> None:
    with (
        seglog.open(tmp_path / "d") as log,
        offload.attach(log, store=MemoryStore(), settings=offload.Settings().with_parts(SETTINGS)) as archive,
    ):
        fill(log, archive, 6)
        archive.restore("t", to="head", name="b")
        archive.open_for_append("t@b")
        assert archive.upkeep.compact("t@b") == ()
        assert len(archive.upkeep.compact("t")) == 1
        assert [record.value for record in archive.read("t@b")] == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [lost, unreachable])
def test_a_merge_that_fails_anywhere_is_repeated_and_done_once(tmp_path: Path, when: str, error: object) -> None:
    for nth in range(1, 20):
        inner = MemoryStore()
        path = tmp_path / f"{nth}"
        with (
            seglog.open(path) as log,
            offload.attach(log, store=inner, settings=offload.Settings().with_parts(SETTINGS)) as archive,
        ):
            fill(log, archive, 5)
        faulty = FaultyStore(inner, [Fault(nth, when, error)])  # type: ignore[arg-type]
        with seglog.open(path) as log:
            with offload.attach(log, store=faulty, settings=offload.Settings().with_parts(SETTINGS)) as archive:
                try:
                    archive.upkeep.compact("t")
                    failed = False
                except CatalogError:
                    failed = True
            with offload.attach(log, store=inner, settings=offload.Settings().with_parts(SETTINGS)) as archive:
                archive.upkeep.compact("t")
                assert len(archive.history.snapshot("t").segments) == 1
                assert [past.commit.kind for past in archive.history.commits("t")].count(CommitKind.COMPACT) == 1
                assert [record.value for record in archive.read("t")] == [b"%d" % number for number in range(5)]
                assert archive.status.topic("t").unfinished_attempts == 0
        if not failed and faulty.effects < nth:
            assert nth > 3
            return
    raise AssertionError("the plan never ran out of effects")


def test_a_log_that_is_open_for_reading_only_merges_nothing(tmp_path: Path) -> None:
    store = CountingStore(MemoryStore())
    with (
        seglog.open(tmp_path / "d") as log,
        offload.attach(log, store=store, settings=offload.Settings().with_parts(SETTINGS)) as archive,
    ):
        fill(log, archive, 4)
    before = dict(store.counts)
    with (
        seglog.open(tmp_path / "d", read_only=True) as log,
        offload.attach(log, store=store, settings=offload.Settings().with_parts(SETTINGS)) as archive,
        pytest.raises(ReadOnly),
    ):
        archive.upkeep.compact("t")
    assert store.counts == before


class SpoilsNewData(WrappedStore):
    """Change the bytes of each read of a data object that is not in `known`."""

    known: set[str] | None = None

    def _call(self, method, key, act):  # type: ignore[no-untyped-def]
        answer = act()
        is_data = "/segments/" in key and not key.endswith(".index")
        if method == "get_range" and is_data and self.known is not None and key not in self.known:
            return bytes([answer[0] ^ 1]) + answer[1:]
        return answer


def test_a_merged_object_is_read_back_before_it_takes_the_place_of_others(tmp_path: Path) -> None:
    store = SpoilsNewData(MemoryStore())
    with (
        seglog.open(tmp_path / "d") as log,
        offload.attach(log, store=store, settings=offload.Settings().with_parts(SETTINGS)) as archive,
    ):
        fill(log, archive, 4)
        before = archive.history.snapshot("t")
        expected = values(list(log.topic("t").read()))
        store.known = set(store.inner.list(""))
        with pytest.raises(InvalidObject, match="not what the commit says"):
            archive.upkeep.compact("t")
        assert archive.history.snapshot("t") == before
        assert values(list(log.topic("t").read())) == expected
        store.known = None
        assert len(archive.upkeep.compact("t")) == 1
        assert values(list(log.topic("t").read())) == expected


def test_a_merge_can_be_stopped_between_segments_and_goes_on_later(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def enough(count: int) -> None:
        taken.append(count)
        if len(taken) == 3:
            raise Enough

    taken: list[int] = []
    with (
        seglog.open(tmp_path / "d") as log,
        offload.attach(log, store=MemoryStore(), settings=offload.Settings().with_parts(SETTINGS)) as archive,
    ):
        fill(log, archive, 4)
        with pytest.raises(Enough):
            archive.upkeep.compact("t", on_bytes=enough)
        assert archive.status.topic("t").unfinished_attempts == 1
        assert len(archive.upkeep.compact("t")) == 1
        assert archive.status.topic("t").unfinished_attempts == 0
