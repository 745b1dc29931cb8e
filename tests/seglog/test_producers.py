"""Idempotent and conditional appends, as a caller sees them, and as the files have them."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import seglog
from seglog import (
    Appended,
    BatchForgotten,
    BatchReused,
    DiskFull,
    FileCorrupt,
    HeadMoved,
    InvalidArgument,
    InvalidSetting,
    Log,
    LogSettings,
    NoSuchTopic,
    OtherLoop,
    ProducerBatch,
    ProducerFenced,
    ProducerGap,
    ReadOnly,
    TopicConfig,
    TopicFull,
    aio,
)
from seglog.engine.work_thread import InCaller
from seglog.format.batch_frame import encode_batch
from seglog.format.frame import FrameType, encode, encode_sync_mark
from seglog.values.producer import AppendedBatch, Batch
from tests.faults.disk import Image, SimulatedDisk
from tests.seams.limits import Limit, set_limit
from tests.seams.log import mark_secret_of, producers_of
from tests.seglog.frames import append_frames
from tests.trees import tree
from tests.worlds.clock import HandClock
from tests.worlds.producing import SETTINGS, WAL, frames_in, killed, of, reopened, values_in, while_in_flight


def test_the_same_batch_again_returns_its_seqs_and_appends_nothing(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        topic = log.topic("t")
        assert topic.append([b"a", b"b"], producer=of(0)) == range(1, 3)
        topic.append([b"between"])
        assert topic.append([b"c"], producer=of(1), tag="x") == range(4, 5)
        position = topic.inner.position
        for _ in range(3):
            assert topic.append([b"a", b"b"], producer=of(0)) == range(1, 3)
            assert topic.append([b"c"], producer=of(1)) == range(4, 5)
        assert topic.inner.position == position
        assert values_in(log) == [b"a", b"b", b"between", b"c"]


def test_an_append_says_whether_the_topic_had_the_batch_already(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        topic = log.topic("t")
        assert topic.append_once([b"a", b"b"], producer=of(0), if_head=0) == Appended(range(1, 3), False)
        assert topic.append_once([b"plain"], tag="x") == Appended(range(3, 4), False)
        assert topic.append_once([]) == Appended(range(4, 4), False)
        assert topic.append_once([b"a", b"b"], producer=of(0), if_head=0) == Appended(range(1, 3), True)
        with pytest.raises(ProducerGap):
            topic.append_once([b"x"], producer=of(2))
        assert topic.append_once([b"c"], producer=of(1)) == Appended(range(4, 5), False)
        assert [record.tag for record in topic.read(3)] == ["x", None]
    with reopened(tmp_path / "log") as log:
        assert log.topic("t").append_once([b"c"], producer=of(1)) == Appended(range(4, 5), True)
        assert values_in(log) == [b"a", b"b", b"plain", b"c"]


def test_a_refused_batch_takes_no_seq_and_no_number(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        topic = log.topic("t")
        for number in range(7):
            topic.append([b"%d" % number], producer=of(number, 1))
        before = topic.inner.known_producer("p"), topic.inner.position
        refusals: list[tuple[ProducerBatch, type[Exception]]] = [
            (of(0, 0), ProducerFenced),
            (of(8, 1), ProducerGap),
            (of(1, 2), ProducerGap),
            (of(1, 1), BatchForgotten),
        ]
        for given, error in refusals:
            with pytest.raises(error):
                topic.append([b"x"], producer=given)
        with pytest.raises(BatchReused, match="batch 6 of epoch 1 of producer p already, with 1 records") as reused:
            topic.append([b"x", b"y"], producer=of(6, 1))
        assert "epoch 2" in str(reused.value.hint)
        with pytest.raises(HeadMoved):
            topic.append([b"x"], producer=of(7, 1), if_head=6)
        assert (topic.inner.known_producer("p"), topic.inner.position) == before
        assert topic.append([b"7"], producer=of(7, 1), if_head=7) == range(8, 9)


def test_a_missing_topic_is_made_by_a_batch_that_may_begin_and_by_no_other(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        before = tree(tmp_path)
        with pytest.raises(ProducerGap):
            log.topic("t").append([b"x"], producer=of(1))
        with pytest.raises(HeadMoved):
            log.topic("t").append([b"x"], if_head=1)
        with pytest.raises(NoSuchTopic):
            log.topic("t@branch").append([b"x"], producer=of(0))
        assert log.topics() == []
        assert tree(tmp_path) == before
        assert log.topic("t").append([b"x"], producer=of(0), if_head=0) == range(1, 2)
        assert log.topic("t").inner.topic_id == 1


def test_an_append_at_another_head_is_refused(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        topic = log.topic("t")
        assert topic.append([b"a"], if_head=0) == range(1, 2)
        with pytest.raises(HeadMoved, match="ends with seq 1, not 0") as caught:
            topic.append([b"b"], if_head=0)
        assert (caught.value.topic, caught.value.if_head, caught.value.head) == ("t", 0, 1)
        with pytest.raises(HeadMoved):
            topic.append([], if_head=0)
        assert topic.append([], if_head=1) == range(2, 2)
        assert topic.append([b"b", b"c"], if_head=1, durability="ephemeral") == range(2, 4)
        assert topic.append([b"d"], if_head=3) == range(4, 5)


def test_a_repetition_of_a_conditional_append_is_answered_although_the_head_has_moved(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        for _ in range(2):
            assert log.topic("t").append([b"a"], producer=of(0), if_head=0) == range(1, 2)


def test_wrong_arguments_are_refused_before_anything_is_durable(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        before = tree(tmp_path)
        wrong: tuple[object, ...] = ("p", ("p", 0, 0), 7, True, object())
        for given in wrong:
            with pytest.raises(InvalidArgument, match="producer"):
                log.topic("t").append([b"x"], producer=given)  # type: ignore[arg-type]
        for head in ("1", -1, 1.0, True, 2**63):
            with pytest.raises(InvalidArgument, match="if_head"):
                log.topic("t").append([b"x"], if_head=head)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="values"):
            log.topic("t").append([], producer=of(0))
        assert tree(tmp_path) == before
        assert not log.has_topic("t")


def test_ephemeral_records_have_no_producer(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        log.create_topic("passing", TopicConfig("ephemeral"))
        with pytest.raises(InvalidSetting, match="ephemeral"):
            log.topic("passing").append([b"x"], producer=of(0))
        with pytest.raises(InvalidSetting, match="ephemeral"):
            log.topic("t").append([b"x"], producer=of(0), durability="ephemeral")
        assert log.topics() == ["passing"]
        assert log.topic("passing").append([b"x"], producer=of(0), durability="fsync") == range(1, 2)


def test_a_topic_that_is_full_refuses_a_batch_and_keeps_its_number_free(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        topic = log.create_topic("t", TopicConfig(cap_records=2, discard="reject"))
        topic.append([b"a", b"b"], producer=of(0))
        with pytest.raises(TopicFull):
            topic.append([b"c"], producer=of(1))
        assert topic.append([b"a", b"b"], producer=of(0)) == range(1, 3)
        log.configure("t", TopicConfig())
        assert topic.append([b"c"], producer=of(1)) == range(3, 4)


def test_producers_are_known_after_a_restart_a_kill_and_another_number_of_shards(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for round_number in range(3):
        settings = replace(SETTINGS, wal_shards=round_number + 1)
        with reopened(path, settings) as log:
            topic = log.topic("t")
            if round_number:
                assert topic.append([b"x"] * 2, producer=of(round_number - 1)) == range(
                    3 * round_number - 2, 3 * round_number
                )
            topic.append([b"x"] * 2, producer=of(round_number))
            if round_number == 1:
                log.checkpoint()
            topic.append([b"y"], producer=of(round_number, producer="q"))
            copy = killed(tmp_path / f"killed {round_number}", log)
            known = topic.inner.known_producer("p"), topic.inner.known_producer("q")
        for place in (path, copy):
            with reopened(place, settings) as log:
                assert (log.topic("t").inner.known_producer("p"), log.topic("t").inner.known_producer("q")) == known
            with seglog.open(place, settings=settings, read_only=True) as view:
                assert view.topic("t").inner.known_producer("p") == known[0]
                with pytest.raises(ReadOnly):
                    view.topic("t").append([b"x"] * 2, producer=of(0))
    with reopened(path, SETTINGS) as log:
        assert values_in(log) == [b"x", b"x", b"y"] * 3


def test_a_truncation_keeps_producers_and_a_deletion_of_the_topic_ends_them(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        topic = log.topic("t")
        for number in range(6):
            topic.append([b"%d" % number] * 2, producer=of(number))
        log.checkpoint()
        topic.truncate(4)
        known = topic.inner.known_producer("p")
        assert known is not None
        assert topic.append([b"5"] * 2, producer=of(5)) == range(11, 13)
        assert topic.append([b"6"], producer=of(6)) == range(4, 5)
        copy = killed(tmp_path / "copy", log)
        log.delete_topic("t")
        assert topic.append([b"new"], producer=of(0)) == range(1, 2)
        assert log.topic("t").inner.known_producer("p") != known
    with reopened(copy) as log:
        assert [batch.number for _, each in producers_of(log, "t") for batch in each.batches] == [2, 3, 4, 5, 6]
        assert values_in(log) == [b"0", b"0", b"1", b"6"]
    with reopened(tmp_path / "log") as log:
        assert [batch for _, each in producers_of(log, "t") for batch in each.batches] == [Batch(0, 1, 1)]


def test_the_incarnation_is_that_of_the_directory_and_the_topic(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        with pytest.raises(NoSuchTopic):
            log.topic("t").incarnation()
        log.topic("t").append([b"x"])
        first = log.topic("t").incarnation()
        assert log.topic("t").incarnation() == first
        log.topic("u").append([b"x"])
        assert log.topic("u").incarnation() != first
    with reopened(tmp_path / "log") as log:
        assert log.topic("t").incarnation() == first
        log.delete_topic("t")
        log.topic("t").append([b"x"])
        assert log.topic("t").incarnation() != first
    with reopened(tmp_path / "other") as log:
        log.topic("t").append([b"x"])
        assert log.topic("t").incarnation() != first
    with seglog.open(tmp_path / "other", read_only=True) as view, pytest.raises(ReadOnly):
        view.topic("t").incarnation()


def test_the_producer_that_appended_longest_ago_is_forgotten_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limit(monkeypatch, Limit.PRODUCERS, 2)
    with reopened(tmp_path / "log") as log:
        topic = log.topic("t")
        for name in ("a", "b", "a", "c"):
            known = topic.inner.known_producer(name) if topic.exists else None
            topic.append([b"x"], producer=of(0 if known is None else known.number + 1, producer=name))
        assert [name for name, _ in producers_of(log, "t")] == ["a", "c"]
        assert (topic.inner.forgotten_producers, log.topic("u").inner.forgotten_producers) == (1, 0)
        with pytest.raises(ProducerGap):
            topic.append([b"x"], producer=of(1, producer="b"))
        copy = killed(tmp_path / "copy", log)
    for place in (tmp_path / "log", copy):
        with reopened(place) as log:
            assert [name for name, _ in producers_of(log, "t")] == ["a", "c"]


def test_a_producer_that_is_silent_for_long_is_forgotten(tmp_path: Path) -> None:
    clock, settings = HandClock(1_000), replace(SETTINGS, producer_keep_s=10)

    def opened() -> Log:
        return seglog.open(tmp_path / "log", settings=settings, clock=clock, upkeep=InCaller)

    with opened() as log:
        log.topic("t").append([b"x"], producer=of(0))
        clock.ms += 10_000
        log.topic("t").append([b"x"], producer=of(0, producer="q"))
        assert [name for name, _ in producers_of(log, "t")] == ["p", "q"]
        clock.ms += 1
        log.topic("t").append([b"x"], producer=of(1, producer="q"))
        assert [name for name, _ in producers_of(log, "t")] == ["q"]
        assert log.topic("t").append([b"x"], producer=of(0)) == range(4, 5)
        copy = killed(tmp_path / "copy", log)
    with seglog.open(copy, settings=settings, clock=clock, upkeep=InCaller) as log:
        assert log.topic("t").inner.known_producer("p").number == 0  # type: ignore[union-attr]
    clock.ms += 20_000
    with opened() as log:
        assert producers_of(log, "t") == ()
        log.topic("u").append([b"x"])
    newest = sorted((tmp_path / "log/meta").glob("snapshot.*"))[-1].read_bytes()
    assert b"producers" not in newest


# ---------------------------------------------------------------- several callers at once


def _again(log: Log) -> range:
    return log.topic("t").append([b"a", b"b"], producer=of(0))


def test_a_repetition_of_a_batch_in_flight_waits_until_the_batch_is_durable() -> None:
    results, values, after_cut = while_in_flight(False, _again)
    assert results == [range(2, 4), range(2, 4)]
    assert values == [b"first", b"a", b"b"]
    with seglog.open("/parent/log", files=after_cut, settings=SETTINGS) as log:
        assert values_in(log) == values


def test_a_repetition_of_a_batch_in_flight_fails_with_it_and_may_then_be_repeated() -> None:
    results, values, _ = while_in_flight(True, _again)
    assert [type(result) for result in results] == [DiskFull, DiskFull]
    assert values == [b"first"]
    results, values, _ = while_in_flight(True, lambda log: (_refused(_again, log), _again(log)))
    assert results[1] == (DiskFull, range(2, 4))
    assert values == [b"first", b"a", b"b"]


def test_a_repetition_of_a_batch_in_flight_is_a_duplicate_unless_it_appends_the_batch_itself() -> None:
    def once(log: Log) -> Appended:
        return log.topic("t").append_once([b"a", b"b"], producer=of(0))

    results, _, _ = while_in_flight(False, once, once, first=once)
    assert results == [Appended(range(2, 4), False), *[Appended(range(2, 4), True)] * 2]
    results, values, _ = while_in_flight(True, lambda log: (_refused(once, log), once(log)), first=once)
    assert results[1] == (DiskFull, Appended(range(2, 4), False))
    assert values == [b"first", b"a", b"b"]


def _refused(call: Callable[[Log], object], log: Log) -> type[Exception] | None:
    try:
        call(log)
    except Exception as error:
        return type(error)
    return None


def test_batches_in_flight_count_for_the_next_number_the_epoch_and_the_head() -> None:
    for given, error in ((of(2), ProducerGap), (of(5, 1), ProducerGap)):
        results, _, _ = while_in_flight(False, lambda log, given=given: log.topic("t").append([b"c"], producer=given))  # type: ignore[misc]
        assert type(results[1]) is error
    results, _, _ = while_in_flight(False, lambda log: log.topic("t").append([b"c"], if_head=1))
    assert isinstance(results[1], HeadMoved)
    results, values, _ = while_in_flight(False, lambda log: log.topic("t").append([b"c"], producer=of(1), if_head=3))
    assert results == [range(2, 4), range(4, 5)]
    assert values == [b"first", b"a", b"b", b"c"]


def test_a_batch_behind_a_truncation_in_flight_counts_too() -> None:
    def truncate(log: Log) -> None:
        log.topic("t").truncate(1)

    results, values, after_cut = while_in_flight(False, _again, _again, first=truncate)
    assert results == [None, range(1, 3), range(1, 3)]
    assert values == [b"a", b"b"]
    with seglog.open("/parent/log", files=after_cut, settings=SETTINGS) as log:
        assert values_in(log) == values


def test_a_deletion_in_flight_that_fails_is_no_reason_to_refuse_a_batch() -> None:
    def delete(log: Log) -> None:
        log.delete_topic("t")

    def conditional(log: Log) -> range:
        return log.topic("t").append([b"c"], producer=of(1), if_head=1)

    def gap(log: Log) -> range:
        return log.topic("t").append([b"c"], producer=of(1))

    results, values, _ = while_in_flight(True, conditional, gap, first=delete)
    assert [type(result) for result in results] == [DiskFull] * 3
    assert values == [b"first"]


def test_tasks_that_append_the_same_batch_get_the_same_seqs(tmp_path: Path) -> None:
    async def run() -> None:
        async with aio.open(tmp_path / "log") as log:
            topic = log.topic("t")
            same = [topic.append([b"a", b"b"], producer=of(0)) for _ in range(3)]
            plain = [topic.append([b"%d" % number]) for number in range(3)]
            done = await asyncio.gather(*same, *plain, topic.append([b"c"], producer=of(1)))
            assert done == [*[range(1, 3)] * 3, range(3, 4), range(4, 5), range(5, 6), range(6, 7)]
            heads = await asyncio.gather(*[topic.append([b"h"], if_head=6) for _ in range(3)], return_exceptions=True)
            assert heads[0] == range(7, 8)
            assert [type(head) for head in heads[1:]] == [HeadMoved, HeadMoved]
            with pytest.raises(ProducerGap):
                await topic.append([b"x"], producer=of(3))
            with pytest.raises(InvalidArgument, match="producer"):
                await topic.append([b"x"], producer="p")  # type: ignore[arg-type]
            with pytest.raises(HeadMoved):
                await topic.append([], if_head=3)
            assert await topic.incarnation() == topic.sync.incarnation()
            assert values_in(log.sync) == [b"a", b"b", b"0", b"1", b"2", b"c", b"h"]

    asyncio.run(run())


def test_of_tasks_that_append_the_same_batch_one_has_no_duplicate(tmp_path: Path) -> None:
    async def run() -> None:
        async with aio.open(tmp_path / "log") as log:
            topic = log.topic("t")
            same = [topic.append_once([b"a", b"b"], producer=of(0)) for _ in range(4)]
            plain = [topic.append_once([b"%d" % number]) for number in range(2)]
            done = await asyncio.gather(*same, *plain)
            assert done[:4] == [Appended(range(1, 3), False), *[Appended(range(1, 3), True)] * 3]
            assert done[4:] == [Appended(range(3, 4), False), Appended(range(4, 5), False)]
            assert await topic.append_once([b"a", b"b"], producer=of(0)) == Appended(range(1, 3), True)
            assert await topic.append_once([b"c"], producer=of(1), tag="x") == Appended(range(5, 6), False)
            assert await topic.append_once([], if_head=5) == Appended(range(6, 6), False)
            with pytest.raises(HeadMoved):
                await topic.append_once([b"x"], if_head=1)
            assert values_in(log.sync) == [b"a", b"b", b"0", b"1", b"c"]

    asyncio.run(run())

    async def elsewhere() -> None:
        async with aio.open(tmp_path / "log") as log:
            with pytest.raises(OtherLoop):
                await asyncio.to_thread(lambda: asyncio.run(log.topic("t").append_once([b"x"])))  # type: ignore[arg-type]

    asyncio.run(elsewhere())


# ---------------------------------------------------------------- the files


def test_a_batch_is_one_write_with_its_frame_in_front(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        log.topic("t").append([b"e"], durability="ephemeral")
        log.topic("t").append([b"a", b"b"], producer=of(0))
        frames = frames_in((tmp_path / "log" / WAL).read_bytes())
    assert [kind for kind, *_ in frames] == [
        FrameType.TOPIC_CREATE,
        FrameType.HEAD_WATERMARK,
        FrameType.BATCH,
        FrameType.APPEND,
        FrameType.APPEND,
    ]
    assert all(end == begin for (_, _, end), (_, begin, _) in pairwise(frames[1:]))


def test_segments_are_the_same_bytes_with_and_without_a_producer(tmp_path: Path) -> None:
    segments = []
    for place, producer in (("with", True), ("without", False)):
        with seglog.open(tmp_path / place, settings=SETTINGS, clock=HandClock(1_000), upkeep=InCaller) as log:
            for number in range(5):
                log.topic("t").append([b"x", b"y"], tag="eu", producer=of(number) if producer else None)
            log.topic("t").seal()
        segments.append(tree(tmp_path / place / "topics"))
    assert segments[0] == segments[1]
    assert len(segments[0]) > 3


def _whole(tmp_path: Path) -> tuple[Path, bytes, list[tuple[int, int, int]]]:
    """A killed directory with a durable record and a batch of 3 at `memory` behind it."""
    with reopened(tmp_path / "log") as log:
        log.topic("t").append([b"first"])
        log.topic("t").append([b"a" * 40, b"b" * 40, b"c" * 40], producer=of(0), durability="memory")
        copy = killed(tmp_path / "crashed", log)
    body = (copy / WAL).read_bytes()
    return copy, body, frames_in(body)


def test_a_torn_batch_is_cut_with_its_frame_wherever_it_is_torn(tmp_path: Path) -> None:
    copy, body, frames = _whole(tmp_path)
    begin, end = next(offset for kind, offset, _ in frames if kind == FrameType.BATCH), frames[-1][2]
    directory = tmp_path / "torn"
    last = len(body[:end].rstrip(b"\0")) - 1  # a tear behind it would change nothing: a checksum may end with zeros
    for cut in [*range(begin + 1, last, 41), *[offset for _, offset, _ in frames if offset > begin], last]:
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(copy, directory)
        (directory / WAL).write_bytes(body[:cut] + bytes(len(body) - cut))
        report = seglog.verify(directory, settings=SETTINGS)
        assert report.is_sound, (cut, report.damages)
        assert any(f"a torn write begins at offset {begin}" in note for note in report.notes), cut
        with seglog.open(directory, settings=SETTINGS, read_only=True) as view:
            assert (values_in(view), view.topic("t").inner.known_producer("p")) == ([b"first"], None)
        with reopened(directory) as log:
            assert (values_in(log), log.topic("t").inner.known_producer("p")) == ([b"first"], None)
            assert log.topic("t").append([b"a", b"b"], producer=of(0)) == range(2, 4)
        with reopened(directory) as log:
            assert values_in(log) == [b"first", b"a", b"b"]


def test_the_records_of_a_torn_batch_do_not_come_back_when_the_power_fails_after_that() -> None:
    """The batch is repeated with fewer records of the same size. Then the old ones would fit right behind it."""
    disk = SimulatedDisk()
    log = seglog.open("/log", files=disk, settings=SETTINGS, clock=HandClock(1_000), upkeep=InCaller)
    log.topic("t").append([b"first"])
    log.topic("t").append([b"a" * 40, b"b" * 40, b"c" * 40], producer=of(0), durability="memory")
    tree_now = dict(disk.after_kill().tree)
    log.close()
    body = tree_now[f"/log/{WAL}"] or b""
    last = frames_in(body)[-1][1]
    tree_now[f"/log/{WAL}"] = body[:last] + bytes(len(body) - last)
    disk = SimulatedDisk(Image(tree_now))
    log = seglog.open("/log", files=disk, settings=SETTINGS, clock=HandClock(1_000), upkeep=InCaller)
    assert log.topic("t").append([b"a" * 40], producer=of(0), durability="memory") == range(2, 3)
    images = list(disk.moment().images(random.Random(3), 24))
    log.close()
    for image in images:
        with seglog.open("/log", files=SimulatedDisk(image), settings=SETTINGS, clock=HandClock(1_000)) as log:
            assert values_in(log) in ([b"first"], [b"first", b"a" * 40])
            assert (log.topic("t").head_seq == 2) == (log.topic("t").inner.known_producer("p") is not None)


def test_a_batch_that_is_not_whole_is_damage_anywhere_else(tmp_path: Path) -> None:
    copy, body, frames = _whole(tmp_path)
    at = {kind: offset for kind, offset, _ in reversed(frames)}
    (_, third, end), begin = frames[-1], at[FrameType.BATCH]
    mark = encode(FrameType.SYNC_MARK, topic_id=1, seq=third, ts_ms=0)
    other = append_frames(1, 2, 1_000, [b"x"])[0]
    again = encode_batch(1, 1_000, AppendedBatch("p", 0, Batch(1, 4, 1)))
    foreign = encode_batch(1, 1_000, AppendedBatch("p", 0, Batch(0, 9, 1)))
    bad_body = encode(FrameType.BATCH, topic_id=1, seq=2, ts_ms=1_000, data=b"short")
    no_topic = encode_batch(5, 1_000, AppendedBatch("p", 0, Batch(0, 1, 1)))
    damages = {
        "a sync mark inside": (body[:third] + mark, third),
        "a record of another seq inside": (body[:third] + other, third),
        "a second batch inside": (body[:third] + again, third),
        "a batch from another seq": (body[:begin] + foreign, begin),
        "a body that does not fit": (body[:begin] + bad_body, begin),
        "a batch of no topic": (body[:begin] + no_topic, begin),
        "a durable mark behind the hole": (
            body[:third] + bytes(end - third) + encode_sync_mark(1, end, mark_secret_of(copy)),
            third,
        ),
    }
    directory = tmp_path / "damaged"
    for name, (front, offset) in damages.items():
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(copy, directory)
        (directory / WAL).write_bytes(front + bytes(len(body) - len(front)))
        before = tree(directory)
        with pytest.raises(FileCorrupt) as caught:
            reopened(directory)
        assert caught.value.offset == offset, name
        assert not seglog.verify(directory, settings=SETTINGS).is_sound, name
        assert {key: value for key, value in tree(directory).items() if key != "LOCK"} == {
            key: value for key, value in before.items() if key != "LOCK"
        }, name
    for size in (third, third + 20, end - 1):
        (directory / WAL).write_bytes(body[:size])
        with pytest.raises(FileCorrupt, match="was cut"):
            reopened(directory)
        assert not seglog.verify(directory, settings=SETTINGS).is_sound


@pytest.mark.parametrize("records", [40, 3_000])
def test_batches_of_many_records_are_replayed_or_cut_as_one(tmp_path: Path, records: int) -> None:
    """Recovery takes many records at once. A batch goes over several reads of the file."""
    settings = LogSettings(wal_file_bytes=8 * 1024 * 1024)
    with seglog.open(tmp_path / "log", settings=settings, clock=HandClock(1_000)) as log:
        for number in range(3):
            log.topic("u").append([b"plain"] * 50)
            log.topic("t").append([b"%d" % number * 500] * records, producer=of(number), durability="memory")
        known = log.topic("t").inner.known_producer("p")
        whole, torn = killed(tmp_path / "whole", log), killed(tmp_path / "torn", log)
    body = (torn / WAL).read_bytes()
    end = len(body.rstrip(b"\0"))
    (torn / WAL).write_bytes(body[: end - 9] + bytes(len(body) - end + 9))
    with seglog.open(whole, settings=settings, clock=HandClock(1_000)) as log:
        assert (log.topic("t").inner.known_producer("p"), log.topic("t").head_seq) == (known, 3 * records)
        assert values_in(log)[-1] == b"2" * 500
    with seglog.open(torn, settings=settings, clock=HandClock(1_000)) as log:
        assert known is not None
        assert log.topic("t").inner.known_producer("p") == known._replace(batches=known.batches[:-1])
        assert log.topic("t").head_seq == 2 * records
        assert log.topic("u").head_seq == 150
        assert log.topic("t").append([b"2" * 500] * records, producer=of(2)) == known.batches[-1].seqs
