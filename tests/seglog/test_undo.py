"""The undo of a delete in a log without an archive: what comes back, what stays away, and what is refused."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog import DeleteNotUndone, Gap, Log, LogSettings, Record, SeqSet, Topic, TopicConfig, UpgradeNeeded
from seglog.engine.work_thread import InCaller
from seglog.maintenance import checkpoint
from seglog.tiers.segment_store import LocalSegmentStore
from seglog.values.deletes import DeleteOp, given_where
from seglog.values.last_deletes import OPS_MAX, RANGES_MAX, LastDeletes
from seglog.values.layout import Layout
from tests.faults.disk import SimulatedDisk
from tests.faults.files import CrashingFiles, SimulatedCrash, UnsyncedFiles
from tests.golden.directories import golden, on_disk
from tests.golden.make_seglog import DIRECTORY
from tests.seams.log import checkpoints_fail, engine_of, manifests_fail
from tests.seglog.totals import check_totals
from tests.worlds.clock import HandClock

_SMALL = LogSettings(segment_max_events=4, reclaim_bytes_per_s=0)
ALL = [*range(1, 11)]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A log with ten records in `t`: eight are sealed, one is in the active segment, one in the WAL only."""
    with seglog.open(tmp_path / "data", settings=_SMALL, upkeep=InCaller) as log:
        topic = log.topic("t")
        for seq in range(1, 10):
            topic.append([b"%d" % seq], tag=None if seq % 2 else "even")
        log.checkpoint()
        topic.append([b"10"], tag="even")
        yield log


def _seqs(topic: Topic) -> list[int]:
    return [item.seq for item in topic.read(gaps=True) if isinstance(item, Record)]


def _refusal(call: Callable[[], object]) -> str:
    with pytest.raises(DeleteNotUndone) as refused:
        call()
    return f"{refused.value} | {refused.value.hint}"


@pytest.mark.parametrize("is_flagged", [False, True])
@pytest.mark.parametrize(
    "conditions", [{"start": 3, "end": 10}, {"tag": "even"}, {"tag": "ev*", "start": 4}, {"seqs": [2, 9, 10]}]
)
def test_the_records_are_back_at_once_and_after_a_restart(
    log: Log, tmp_path: Path, conditions: Any, is_flagged: bool
) -> None:
    topic = log.topic("t")
    op = topic.delete(**conditions)
    gone = {seq for seq in ALL if seq not in _seqs(topic)}
    if is_flagged:
        log.checkpoint()
    assert topic.undo(op.number, preview=True).back == SeqSet.of_seqs(sorted(gone))
    assert _seqs(topic) == sorted({*ALL} - gone)
    undone = topic.undo()
    assert (undone.delete, undone.back, undone.gone, undone.stay) == (
        op.number, SeqSet.of_seqs(sorted(gone)), SeqSet.of(()), SeqSet.of(())
    )  # fmt: skip
    assert [record.value for record in topic.read() if isinstance(record, Record)] == [b"%d" % seq for seq in ALL]
    check_totals(log)
    log.close()
    assert not seglog.verify(tmp_path / "data").damages
    with seglog.open(tmp_path / "data", settings=_SMALL) as again:
        assert _seqs(again.topic("t")) == ALL
        assert "no delete can be undone" in _refusal(again.topic("t").undo)


def test_a_delete_in_front_is_undone_while_its_segments_are_there(log: Log) -> None:
    topic = log.topic("t")
    topic.delete(before=7)
    assert (topic.earliest_seq, topic.undo().delete, topic.earliest_seq) == (7, 1, 1)
    assert _seqs(topic) == ALL
    topic.delete(before=7)
    log.checkpoint()  # drops the first segment, which has no live record
    refusal = _refusal(topic.undo)
    assert "delete 3 took are gone: seq 1 to 4" in refusal
    assert "--partial" in refusal
    assert _seqs(topic) == [7, 8, 9, 10]
    assert topic.undo(partial=True).back == SeqSet.of([(5, 6)])
    assert (_seqs(topic), topic.earliest_seq) == ([5, 6, 7, 8, 9, 10], 5)


def test_a_record_that_two_deletes_took_stays_deleted_until_both_are_undone(log: Log, tmp_path: Path) -> None:
    topic = log.topic("t")
    first = topic.delete(tag="even")
    second = topic.delete(start=4, end=7)
    log.checkpoint()
    assert topic.undo(first.number).stay == SeqSet.of_seqs([4, 6])
    assert _seqs(topic) == [1, 2, 3, 8, 9, 10]
    log.close()
    with seglog.open(tmp_path / "data", settings=_SMALL) as again:
        assert topic.name in again.topics()
        assert again.topic("t").undo(second.number).back == SeqSet.of([(4, 7)])
        assert _seqs(again.topic("t")) == ALL


def test_a_delete_whose_records_another_one_took_waits_for_the_undo_of_that_one(log: Log) -> None:
    topic = log.topic("t")
    first, second = topic.delete(start=3, end=4), topic.delete(start=2, end=5)
    refusal = _refusal(lambda: topic.undo(first.number))
    assert "other deletes took the records of delete 1 as well" in refusal
    assert "first undo delete:2" in refusal
    topic.undo(second.number)
    assert _seqs(topic) == [1, 2, 5, 6, 7, 8, 9, 10]
    topic.undo(first.number)
    assert _seqs(topic) == ALL


def test_a_delete_that_comes_later_takes_records_that_came_back(log: Log) -> None:
    topic = log.topic("t")
    topic.delete(tag="even")
    topic.undo()
    topic.delete(start=2, end=3)
    log.checkpoint()
    assert _seqs(topic) == [1, *range(4, 11)]
    assert topic.undo().delete == 3
    assert _seqs(topic) == ALL


def test_deletes_of_the_front_are_undone_from_the_last_one_on(log: Log) -> None:
    topic = log.topic("t")
    first = topic.delete(before=3)
    topic.delete(before=6)
    assert "first undo delete:2" in _refusal(lambda: topic.undo(first.number))
    topic.undo()
    assert (_seqs(topic), topic.earliest_seq) == ([*range(3, 11)], 3)
    topic.undo()
    assert (_seqs(topic), topic.earliest_seq) == (ALL, 1)


def test_records_behind_those_in_front_that_are_back_stay_dead(log: Log) -> None:
    topic = log.topic("t")
    topic.delete(before=7)
    log.checkpoint()
    topic.inner.undelete(SeqSet.of_seqs([5]))
    assert (_seqs(topic), topic.earliest_seq) == ([5, 7, 8, 9, 10], 5)
    topic.delete(before=6)
    assert topic.earliest_seq == 7


def test_an_eviction_and_a_wrong_number_are_refused(log: Log) -> None:
    topic = log.topic("t")
    assert "no delete can be undone here" in _refusal(topic.undo)
    op = topic.delete(seqs=[5])
    topic.evict(3)
    assert "delete 2 is none that can be undone here" in _refusal(lambda: topic.undo(2))
    assert f"these can be: delete:{op.number}" in _refusal(lambda: topic.undo(99))
    topic.undo()
    assert next(iter(topic.read(1, gaps=True))) == Gap(1, 2)
    assert _seqs(topic) == [*range(3, 11)]
    assert "delete 1 is none" in _refusal(lambda: topic.undo(op.number))
    with pytest.raises(seglog.InvalidArgument):
        topic.undo("1")  # type: ignore[arg-type]


def test_evictions_and_deletes_of_nothing_leave_the_others_known(log: Log) -> None:
    topic = log.topic("t")
    op = topic.delete(start=5, end=6)
    for _ in range(OPS_MAX + 2):
        topic.evict(2)
    topic.delete(tag="nobody")
    assert topic.undo(preview=True).delete == op.number, "the newest one that took a record"
    topic.undo()
    assert _seqs(topic) == [*range(2, 11)]


def test_evicted_records_of_a_delete_are_gone(log: Log) -> None:
    topic = log.topic("t")
    op = topic.delete(seqs=[2, 5])
    topic.evict(3)
    assert "are gone: seq 2 | `--partial` brings the others back" in _refusal(lambda: topic.undo(op.number))
    assert topic.undo(op.number, partial=True).back == SeqSet.of_seqs([5])


def test_expired_records_of_a_delete_are_gone(tmp_path: Path) -> None:
    clock = HandClock()
    with seglog.open(tmp_path / "data", settings=_SMALL, upkeep=InCaller, clock=clock) as log:
        topic = log.create_topic("t", TopicConfig(ttl_ms=1_000))
        topic.append([b"1", b"2"])
        topic.delete(seqs=[1])
        clock.ms += 5_000
        topic.append([b"3"])
        assert "are gone: seq 1" in _refusal(topic.undo)


def test_a_time_with_an_archive_forgets_the_deletes_before_it(log: Log) -> None:
    """The archive may have settled one that took the same records, and its flags stay."""
    topic = log.topic("t")
    first = topic.delete(start=3, end=6)
    log.checkpoint()
    topic.delete(start=5, end=8)
    log.configure("t", replace(topic.config, keep_history=True))
    log.checkpoint()
    for op in topic.inner.delete_ops():
        topic.inner.settle_deletes(op.op)
    log.configure("t", replace(topic.config, keep_history=False))
    log.checkpoint()
    path = log.path
    log.close()
    with seglog.open(path, settings=_SMALL, upkeep=InCaller) as again:
        assert "none that can be undone" in _refusal(lambda: again.topic("t").undo(first.number))
        again.topic("t").delete(start=5, end=9)
        assert "are gone: seq 5 to 8" in _refusal(again.topic("t").undo)


def test_a_delete_that_forgets_the_others_while_a_manifest_is_stored(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, store = log.topic("t"), checkpoint.store_encoded
    first = topic.delete(start=3, end=6)

    def store_late(*given: Any) -> Any:
        monkeypatch.setattr(checkpoint, "store_encoded", store)
        log.configure("t", replace(topic.config, keep_history=True))
        topic.delete(start=5, end=8)
        log.configure("t", replace(topic.config, keep_history=False))
        return store(*given)

    monkeypatch.setattr(checkpoint, "store_encoded", store_late)
    log.checkpoint()
    log.checkpoint()
    assert "none that can be undone" in _refusal(lambda: topic.undo(first.number))
    assert _seqs(topic) == [1, 2, 9, 10]


def test_a_topic_with_an_archive_is_refused(log: Log) -> None:
    kept = log.create_topic("kept", TopicConfig(keep_history=True))
    kept.append([b"1"])
    op = kept.delete(seqs=[1])
    assert "its archive undoes the deletes" in _refusal(lambda: kept.undo(op.number))
    log.configure("kept", replace(kept.config, keep_history=False))
    assert "none that can be undone" in _refusal(lambda: kept.undo(op.number))
    kept.append([b"2"])
    kept.delete(start=1, end=2)
    log.checkpoint()  # now no flag says which of the two deletes took the first record
    assert "are gone: seq 1" in _refusal(kept.undo)
    assert kept.undo(partial=True).back == SeqSet.of_seqs([2])


def test_a_reclaim_takes_the_way_back(log: Log) -> None:
    topic = log.topic("t")
    topic.delete(seqs=[2, 3, 4, 10])
    log.reclaim()
    refusal = _refusal(topic.undo)
    assert "are gone: seq 2 to 4" in refusal
    assert _seqs(topic) == [1, 5, 6, 7, 8, 9]
    undone = topic.undo(partial=True)
    assert (undone.back, undone.gone) == (SeqSet.of_seqs([10]), SeqSet.of([(2, 4)]))
    assert _seqs(topic) == [1, 5, 6, 7, 8, 9, 10]
    check_totals(log)


def test_a_directory_of_the_old_form_is_refused(tmp_path: Path) -> None:
    with seglog.open("/log", files=on_disk(golden(DIRECTORY)), clock=HandClock(1_720_000_000_100)) as log:
        name = log.topics()[0]
        with pytest.raises(UpgradeNeeded):
            log.topic(name).undo()
        with pytest.raises(UpgradeNeeded):
            log.topic(name).undo(preview=True)


def test_more_deletes_than_the_log_remembers_keep_their_records(log: Log, tmp_path: Path) -> None:
    topic = log.topic("t")
    topic.append([b"%d" % seq for seq in range(11, 61)])
    for seq in range(11, 51):
        topic.delete(seqs=[seq, 51])
    log.close()
    with seglog.open(tmp_path / "data", settings=_SMALL, upkeep=InCaller) as again:
        topic = again.topic("t")
        for _ in range(OPS_MAX):
            topic.undo()
        assert _seqs(topic) == [*ALL, *range(51 - OPS_MAX, 51), *range(52, 61)]
        assert "no delete can be undone here" in _refusal(topic.undo)


def test_a_truncation_ends_what_deletes_reach(log: Log) -> None:
    topic = log.topic("t")
    topic.delete(start=3, end=8)
    topic.truncate(6)
    topic.append([b"%d" % seq for seq in range(6, 10)])
    assert topic.undo().back == SeqSet.of([(3, 5)])
    assert _seqs(topic) == [*range(1, 10)]


def test_relocated_records_are_hot_again(tmp_path: Path) -> None:
    disk, settings = SimulatedDisk(), replace(_SMALL, hot_retain_segments=0)
    disk.make_dir(Path("/cold"))
    with seglog.open(
        "/log", files=disk, settings=settings, upkeep=InCaller, clock=HandClock(1_000),
        warm_stores=lambda topic_id: LocalSegmentStore(disk, Layout(Path("/cold")), topic_id),
    ) as log:  # fmt: skip
        topic = log.topic("t")
        topic.append([b"%d" % seq for seq in range(4)], tag="x")
        topic.append([b"%d" % seq for seq in range(4)], tag="y")
        topic.seal()
        assert not any(info.is_hot for info in topic.inner.segments())
        first, second = topic.delete(tag="y"), topic.delete(start=4, end=6)
        assert _seqs(topic) == [1, 2, 3]
        assert topic.undo(first.number, preview=True).back == SeqSet.of([(7, 8)])
        assert not any(info.is_hot for info in topic.inner.segments())
        assert topic.undo(first.number).back == SeqSet.of([(7, 8)])
        assert _seqs(topic) == [1, 2, 3, 7, 8]
        topic.undo(second.number)
        assert _seqs(topic) == [*range(1, 9)]


def test_ephemeral_records_do_not_come_back(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"11"], durability="ephemeral")
    topic.append([b"12"])
    op = topic.delete(start=10, end=12)
    log.checkpoint()
    assert topic.undo(op.number).back == SeqSet.of_seqs([10, 12])
    assert _seqs(topic) == [*ALL, 12]


def test_flags_of_a_checkpoint_that_failed_before_the_undo_are_no_damage(log: Log, tmp_path: Path) -> None:
    """A checkpoint has set flags, and its manifest is not there. The undo takes the delete off the list."""
    topic, left = log.topic("t"), [1, 2, 3, 4, 6, 7, 8, 9, 10]
    topic.delete(seqs=[5])
    log.checkpoint()
    topic.delete(start=2, end=7)
    with manifests_fail(), pytest.raises(seglog.DiskFull):
        log.checkpoint()
    with checkpoints_fail():
        topic.undo()
        assert _seqs(topic) == left
        shutil.copytree(tmp_path / "data", tmp_path / "left", ignore=shutil.ignore_patterns("LOCK"))
    assert not seglog.verify(tmp_path / "left").damages
    with seglog.open(tmp_path / "left", settings=_SMALL) as again:
        assert _seqs(again.topic("t")) == left
        check_totals(again)


def test_a_view_shows_what_came_back(log: Log, tmp_path: Path) -> None:
    topic = log.topic("t")
    topic.delete(start=2, end=10)
    log.checkpoint()
    with checkpoints_fail():
        topic.undo()
    with seglog.open(tmp_path / "data", settings=_SMALL, read_only=True) as view:
        assert _seqs(view.topic("t")) == ALL
        with pytest.raises(seglog.ReadOnly):
            view.topic("t").undo()


def test_a_million_ranges_are_not_remembered_for_long() -> None:
    every_second = SeqSet.of((seq, seq) for seq in range(1, 2 * RANGES_MAX, 2))
    op = DeleteOp(1, 2 * RANGES_MAX, 0, seqs=every_second)
    known = LastDeletes().added([(op, 1)])
    assert known.ops == (op,)
    later = known.added([(DeleteOp(2, 2 * RANGES_MAX, 0, tag="x"), 1)])
    assert [listed.op for listed in later.ops] == [2]
    assert (later.former, later.unknown_below) == ((), every_second.end)
    assert LastDeletes.from_json(later.to_json()) == later


def _model_delete(rng: random.Random, head: int) -> dict[str, Any]:
    start = rng.randint(1, head)
    return rng.choice(
        [
            {"start": start, "end": min(head, start + 4)},
            {"tag": rng.choice(["a", "b", "a*"])},
            {"seqs": sorted(rng.sample(range(1, head + 1), min(head, 3)))},
            {"tag": "a", "start": start},
        ]
    )


@pytest.mark.parametrize("seed", range(8))
def test_any_order_of_deletes_and_undos_shows_what_no_delete_took(tmp_path: Path, seed: int) -> None:
    rng, tags = random.Random(seed), dict[int, str | None]()
    deletes = dict[int, set[int]]()
    log = seglog.open(tmp_path / "data", settings=_SMALL, upkeep=InCaller)
    try:
        for _ in range(60):
            topic = log.topic("t")
            step = rng.random()
            if step < 0.4 or not tags:
                tag = rng.choice([None, "a", "b", "ab"])
                seqs = topic.append([b"x"] * rng.randint(1, 3), tag=tag)
                tags |= dict.fromkeys(seqs, tag)
            elif step < 0.6:
                where = _model_delete(rng, topic.head_seq)
                op = topic.inner.delete(given_where(where))
                if op.op in {known.op for known in engine_of(log).state("t").known_deletes.ops}:
                    deletes[op.op] = {seq for seq, tag in tags.items() if op.reaches(seq, tag)}
                else:
                    assert not any(op.reaches(seq, tag) for seq, tag in tags.items() if seq >= topic.earliest_seq)
            elif step < 0.8 and deletes:
                number = rng.choice([*deletes])
                taken = deletes.pop(number)
                others = set[int]().union(*deletes.values())
                try:
                    undone = topic.undo(number)
                except DeleteNotUndone:
                    assert not taken - others or engine_of(log).state("t").hot_floor > min(taken - others)
                    deletes[number] = taken
                else:
                    assert {*range(0)}.union(*(range(a, b + 1) for a, b in undone.back.ranges())) == taken - others
            elif step < 0.9:
                log.checkpoint()
            else:
                log.close()
                log = seglog.open(tmp_path / "data", settings=_SMALL, upkeep=InCaller)
            live = [seq for seq in tags if not any(seq in taken for taken in deletes.values())]
            assert _seqs(log.topic("t")) == live
            assert not live or log.topic("t").earliest_seq <= live[0]
        check_totals(log)
    finally:
        log.close()
    assert not seglog.verify(tmp_path / "data").damages


@pytest.mark.parametrize("is_flagged", [False, True])
def test_a_crash_at_any_step_leaves_the_delete_or_its_undo(tmp_path: Path, is_flagged: bool) -> None:
    settings = replace(_SMALL, wal_file_bytes=1 << 16, max_record_bytes=1 << 10)
    with seglog.open(tmp_path / "base", settings=settings, upkeep=InCaller) as log:
        topic = log.topic("t")
        topic.append([b"%d" % seq for seq in range(1, 11)], tag="x")
        log.checkpoint()
        topic.append([b"11"], tag="x")
        topic.delete(start=2, end=11, tag="x")
        topic.delete(seqs=[3])
        if is_flagged:
            log.checkpoint()
    states = list[list[int]]()
    for step in itertools.count(1):
        path = tmp_path / f"{step}"
        shutil.copytree(tmp_path / "base", path)
        files = CrashingFiles(UnsyncedFiles(), step)
        with suppress(SimulatedCrash), seglog.open(path, files=files, settings=settings, upkeep=InCaller) as log:
            log.topic("t").undo(1)
        assert not seglog.verify(path).damages, step
        with seglog.open(path, settings=settings, upkeep=InCaller) as log:
            states.append(_seqs(log.topic("t")))
            if states[-1] == [1]:
                log.topic("t").undo(1)
            assert _seqs(log.topic("t")) == [1, 2, *range(4, 12)], step
            log.topic("t").undo(2)
            assert _seqs(log.topic("t")) == [*range(1, 12)], step
            check_totals(log)
        shutil.rmtree(path)
        if not files.has_crashed:
            break
    assert (states[0], states[-1]) == ([1], [1, 2, *range(4, 12)])
