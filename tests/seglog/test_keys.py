"""Appends under a key, as a caller sees them, and as the files have them."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog import (
    Appended,
    AppendsHeld,
    DiskFull,
    FileCorrupt,
    HeadMoved,
    InvalidArgument,
    InvalidSetting,
    KeyReused,
    Log,
    LogSettings,
    NoSuchTopic,
    OtherIncarnation,
    ProducerBatch,
    TooManyKeys,
    TopicConfig,
    TopicFull,
    aio,
)
from seglog.engine.work_thread import InCaller
from seglog.format.batch_frame import encode_key
from seglog.format.frame import FrameType, encode
from seglog.values.append_key import KeyedAppend
from tests.faults.disk import Image, SimulatedDisk
from tests.seams.limits import Limit, set_limit
from tests.seams.log import keys_of
from tests.trees import tree
from tests.worlds.clock import HandClock
from tests.worlds.producing import WAL, frames_in, killed, of, reopened, values_in, while_in_flight

SETTINGS = LogSettings(segment_max_events=4, wal_file_bytes=4096)
BOTH = [b"a", b"b"]


def names_in(log: Log, name: str = "t") -> list[str]:
    return [key for key, _ in keys_of(log, name)]


def test_the_same_key_again_returns_its_seqs_and_appends_nothing(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        topic = log.topic("t")
        assert topic.append_once(BOTH, key="one") == Appended(range(1, 3), False)
        topic.append([b"between"])
        assert topic.append([b"c"], key="two", tag="x", durability="memory") == range(4, 5)
        position = topic.inner.position
        for _ in range(3):
            assert topic.append(BOTH, key="one") == range(1, 3)
            assert topic.append_once([b"c"], key="two") == Appended(range(4, 5), True)
        assert topic.inner.position == position
        assert values_in(log) == [b"a", b"b", b"between", b"c"]
        assert log.topic("u").append_once([b"c"], key="two") == Appended(range(1, 2), False)


def test_a_key_with_other_values_is_refused_and_takes_no_seq(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        topic = log.topic("t")
        topic.append(BOTH, key="one")
        before = topic.inner.position, keys_of(log, "t")
        for values in ([b"a"], [b"a", b"B"], [b"ab", b""], [b"", b"ab"], [b"a", b"b", b""], [b"b", b"a"]):
            with pytest.raises(KeyReused):
                topic.append(values, key="one")
        with pytest.raises(HeadMoved):
            topic.append([b"x"], key="two", if_head=1)
        assert (topic.inner.position, keys_of(log, "t")) == before
        assert topic.append(BOTH, key="one", if_head=0) == range(1, 3)
        assert topic.append([b"x"], key="two", if_head=2) == range(3, 4)


def test_wrong_arguments_are_refused_before_anything_is_durable(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        before = tree(tmp_path)
        wrong: tuple[Any, ...] = ("", "x" * 257, "\u00fc" * 129, "\ud800", 7, b"k", True, object())
        for key in wrong:
            with pytest.raises(InvalidArgument, match="key"):
                log.topic("t").append([b"x"], key=key)
        with pytest.raises(InvalidArgument, match="key"):
            log.topic("t").append([b"x"], key="k", producer=of(0))
        with pytest.raises(InvalidArgument, match="values"):
            log.topic("t").append([], key="k")
        with pytest.raises(NoSuchTopic):
            log.topic("t@branch").append([b"x"], key="k")
        assert tree(tmp_path) == before
        assert not log.has_topic("t")


def test_ephemeral_records_have_no_key(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        log.create_topic("passing", TopicConfig("ephemeral"))
        for name, durability in (("passing", None), ("t", "ephemeral")):
            with pytest.raises(InvalidSetting, match="ephemeral"):
                log.topic(name).append([b"x"], key="k", durability=durability)
        assert log.topics() == ["passing"]
        assert log.topic("passing").append([b"x"], key="k", durability="fsync") == range(1, 2)


def test_a_topic_that_is_full_refuses_a_key_and_leaves_it_free(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        topic = log.create_topic("t", TopicConfig(cap_records=2, discard="reject"))
        topic.append(BOTH, key="one")
        with pytest.raises(TopicFull):
            topic.append([b"c"], key="two")
        assert topic.append(BOTH, key="one") == range(1, 3)
        log.configure("t", TopicConfig())
        assert topic.append([b"other"], key="two") == range(3, 4)


def test_keys_are_known_after_a_restart_a_kill_and_another_number_of_shards(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for number in range(3):
        settings = replace(SETTINGS, wal_shards=number + 1)
        with reopened(path, settings) as log:
            topic = log.topic("t")
            for before in range(number):
                assert topic.append_once(BOTH, key=f"{before}") == Appended(range(3 * before + 1, 3 * before + 3), True)
            topic.append(BOTH, key=f"{number}")
            if number == 1:
                log.checkpoint()
            topic.append([b"y"], key=f"y{number}", producer=None)
            copy = killed(tmp_path / f"killed {number}", log)
            known = keys_of(log, "t")
        for place in (path, copy):
            with reopened(place, settings) as log:
                assert keys_of(log, "t") == known
            with seglog.open(place, settings=settings, read_only=True) as view:
                assert keys_of(view, "t") == known
    with reopened(path, SETTINGS) as log:
        assert values_in(log) == [b"a", b"b", b"y"] * 3


def test_a_truncation_keeps_keys_and_a_deletion_of_the_topic_ends_them(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        topic = log.topic("t")
        for number in range(6):
            topic.append([b"%d" % number] * 2, key=f"{number}")
        log.checkpoint()
        topic.truncate(4)
        assert topic.append([b"5"] * 2, key="5") == range(11, 13)
        assert topic.append([b"6"], key="6") == range(4, 5)
        copy = killed(tmp_path / "copy", log)
        log.delete_topic("t")
        assert topic.append([b"new"], key="0") == range(1, 2)
    with reopened(copy) as log:
        assert names_in(log) == ["0", "1", "2", "3", "4", "5", "6"]
        assert values_in(log) == [b"0", b"0", b"1", b"6"]
    with reopened(tmp_path / "log") as log:
        assert names_in(log) == ["0"]


def _opened(path: Path, clock: HandClock, keep_s: int = 10) -> Log:
    settings = replace(SETTINGS, idempotency_keep_s=keep_s)
    return seglog.open(path, settings=settings, clock=clock, upkeep=InCaller)


def test_a_key_is_kept_for_its_time_and_no_longer(tmp_path: Path) -> None:
    clock = HandClock(1_000)
    with _opened(tmp_path / "log", clock) as log:
        topic = log.topic("t")
        topic.append([b"x"], key="k")
        clock.ms += 10_000
        assert topic.append([b"x"], key="k") == range(1, 2)
        with pytest.raises(KeyReused):
            topic.append([b"y"], key="k")
        clock.ms += 1
        assert topic.append_once([b"y"], key="k") == Appended(range(2, 3), False)
        assert topic.append_once([b"y"], key="k") == Appended(range(2, 3), True)
        copy = killed(tmp_path / "copy", log)
    with _opened(copy, clock) as log:
        assert log.topic("t").append([b"y"], key="k") == range(2, 3)
    clock.ms += 10_001
    for place in (tmp_path / "log", copy):
        with _opened(place, clock) as log:
            assert names_in(log) == []
            log.topic("u").append([b"x"])
        newest = sorted((place / "meta").glob("snapshot.*"))[-1].read_bytes()
        assert b'"keys"' not in newest


def test_recovery_takes_a_key_that_was_given_again_for_the_newest(tmp_path: Path) -> None:
    clock = HandClock(1_000)
    with _opened(tmp_path / "log", clock) as log:
        log.topic("t").append([b"x"], key="k")
        clock.ms += 1
        log.topic("t").append([b"x"], key="l")
        clock.ms += 10_000
        assert log.topic("t").append([b"y"], key="k") == range(3, 4)
        assert names_in(log) == ["l", "k"]
        copy = killed(tmp_path / "copy", log)
    clock.ms += 1
    with _opened(copy, clock) as log:
        assert names_in(log) == ["k"]
        assert log.topic("t").append_once([b"x"], key="l") == Appended(range(4, 5), False)


def test_a_clock_that_goes_back_ends_no_key_earlier(tmp_path: Path) -> None:
    clock = HandClock(1_000)
    with _opened(tmp_path / "log", clock) as log:
        log.topic("t").append([b"x"], key="k")
        clock.ms -= 3_600_000
        assert log.topic("t").append([b"x"], key="k") == range(1, 2)
        assert log.topic("t").append([b"y"], key="l") == range(2, 3)
        assert names_in(log) == ["k", "l"]


def test_a_topic_with_as_many_keys_as_it_takes_refuses_a_new_one_and_forgets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limit(monkeypatch, Limit.KEYS, 3)
    clock = HandClock(1_000)
    with _opened(tmp_path / "log", clock) as log:
        topic = log.topic("t")
        for number in range(3):
            topic.append([b"x"], key=f"{number}")
            clock.ms += 1_000
        before = topic.inner.position
        with pytest.raises(TooManyKeys, match="keeps 3 keys, and the oldest one ends in 7001 ms") as caught:
            topic.append([b"x"], key="new")
        assert (caught.value.topic, caught.value.limit, caught.value.free_ms) == ("t", 3, 7_001)
        assert topic.inner.position == before
        assert [topic.append([b"x"], key=f"{number}").start for number in range(3)] == [1, 2, 3]
        assert topic.append([b"x"], producer=of(0)) == range(4, 5)
        assert topic.append([b"x"]) == range(5, 6)
        clock.ms += caught.value.free_ms - 1
        with pytest.raises(TooManyKeys):
            topic.append([b"x"], key="new")
        clock.ms += 1
        assert topic.append([b"x"], key="new") == range(6, 7)
        assert names_in(log) == ["1", "2", "new"]
        assert topic.inner.known_keys == 3
    with _opened(tmp_path / "log", clock) as log:
        with pytest.raises(TooManyKeys):
            log.topic("t").append([b"x"], key="newer")
        assert (log.topic("t").inner.known_keys, log.topic("u").inner.known_keys) == (3, 0)


def test_keys_and_producers_take_no_place_from_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limit(monkeypatch, Limit.KEYS, 2)
    set_limit(monkeypatch, Limit.PRODUCERS, 2)
    with reopened(tmp_path / "log") as log:
        topic = log.topic("t")
        for name in ("p", "q", "r", "s"):
            topic.append([b"x"], producer=ProducerBatch(name, 0, 0))
            if name in "pq":
                topic.append([b"x"], key=name)
        with pytest.raises(TooManyKeys):
            topic.append([b"x"], key="r")
        assert topic.inner.forgotten_producers == 2
        copy = killed(tmp_path / "copy", log)
    for place in (tmp_path / "log", copy):
        with reopened(place) as log:
            topic = log.topic("t")
            assert [topic.append([b"x"], key=name).start for name in "pq"] == [2, 4]
            assert [topic.append([b"x"], producer=ProducerBatch(name, 0, 0)).start for name in "rs"] == [5, 6]


# ---------------------------------------------------------------- several callers at once


def _once(log: Log) -> Appended:
    return log.topic("t").append_once(BOTH, key="k")


def _outcome(call: Callable[[Log], object], log: Log) -> object:
    try:
        return call(log)
    except Exception as error:
        return type(error)


def test_a_repetition_of_an_append_in_flight_waits_until_that_is_durable() -> None:
    results, values, after_cut = while_in_flight(False, _once, first=_once)
    assert results == [Appended(range(2, 4), False), Appended(range(2, 4), True)]
    assert values == [b"first", *BOTH]
    with seglog.open("/parent/log", files=after_cut, settings=SETTINGS) as log:
        assert values_in(log) == values


def test_a_repetition_of_an_append_in_flight_fails_with_it_and_may_then_be_repeated() -> None:
    results, values, _ = while_in_flight(True, lambda log: (_outcome(_once, log), _once(log)), first=_once)
    assert isinstance(results[0], DiskFull)
    assert results[1] == (DiskFull, Appended(range(2, 4), False))
    assert values == [b"first", *BOTH]


def test_keys_in_flight_count(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limit(monkeypatch, Limit.KEYS, 1)

    def other(log: Log) -> range:
        return log.topic("t").append([b"c"], key="k")

    def new(log: Log) -> range:
        return log.topic("t").append([b"c"], key="new")

    results, values, _ = while_in_flight(False, other, new, first=_once)
    assert [type(result) for result in results[1:]] == [KeyReused, TooManyKeys]

    def plain(log: Log) -> range:
        return log.topic("t").append([b"plain"])

    calls = (new, plain, new)
    results, values, _ = while_in_flight(True, lambda log: [_outcome(call, log) for call in calls], first=_once)
    assert results[1] == [TooManyKeys, DiskFull, range(2, 3)]
    assert values == [b"first", b"c"]


def test_tasks_with_one_key_append_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with aio.open(tmp_path / "log") as log:
            topic = log.topic("t")
            same = [topic.append_once(BOTH, key="k") for _ in range(3)]
            plain = [topic.append([b"%d" % number]) for number in range(2)]
            done = await asyncio.gather(*same, *plain, topic.append([b"c"], key="l"))
            assert done[:3] == [Appended(range(1, 3), False), *[Appended(range(1, 3), True)] * 2]
            assert done[3:] == [range(3, 4), range(4, 5), range(5, 6)]
            assert await topic.append(BOTH, key="k") == range(1, 3)
            for values, error in (([b"c"], KeyReused), ([], InvalidArgument)):
                with pytest.raises(error):
                    await topic.append(values, key="k")
            with pytest.raises(InvalidArgument, match="key"):
                await topic.append_once([b"c"], key="m", producer=of(0))
            assert values_in(log.sync) == [b"a", b"b", b"0", b"1", b"c"]

    asyncio.run(run())


# ---------------------------------------------------------------- the files


def test_an_append_under_a_key_is_one_write_with_its_frame_in_front(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        log.topic("t").append([b"e"], durability="ephemeral")
        log.topic("t").append(BOTH, key="k")
        frames = frames_in((tmp_path / "log" / WAL).read_bytes())
    kinds = [FrameType.TOPIC_CREATE, FrameType.HEAD_WATERMARK, FrameType.KEY, FrameType.APPEND, FrameType.APPEND]
    assert [kind for kind, *_ in frames] == kinds


def test_segments_are_the_same_bytes_with_and_without_a_key(tmp_path: Path) -> None:
    segments = []
    for place in ("with", "without"):
        with seglog.open(tmp_path / place, settings=SETTINGS, clock=HandClock(1_000), upkeep=InCaller) as log:
            for number in range(5):
                log.topic("t").append(BOTH, tag="eu", key=f"{number}" if place == "with" else None)
            log.topic("t").seal()
        segments.append(tree(tmp_path / place / "topics"))
    assert segments[0] == segments[1]
    assert len(segments[0]) > 3


def _whole(tmp_path: Path) -> tuple[Path, bytes, list[tuple[int, int, int]]]:
    """A killed directory with a durable record, and 3 records under a key at `memory` behind it."""
    with reopened(tmp_path / "log") as log:
        log.topic("t").append([b"first"])
        log.topic("t").append([b"a" * 40, b"b" * 40, b"c" * 40], key="k", durability="memory")
        copy = killed(tmp_path / "crashed", log)
    body = (copy / WAL).read_bytes()
    return copy, body, frames_in(body)


def test_a_torn_append_under_a_key_is_cut_with_its_frame_wherever_it_is_torn(tmp_path: Path) -> None:
    copy, body, frames = _whole(tmp_path)
    begin, end = next(offset for kind, offset, _ in frames if kind == FrameType.KEY), frames[-1][2]
    directory = tmp_path / "torn"
    last = len(body[:end].rstrip(b"\0")) - 1  # a tear behind it would change nothing: a checksum may end with zeros
    for cut in [*range(begin + 1, last, 41), *[offset for _, offset, _ in frames if offset > begin], last]:
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(copy, directory)
        (directory / WAL).write_bytes(body[:cut] + bytes(len(body) - cut))
        report = seglog.verify(directory, settings=SETTINGS)
        assert report.is_sound, (cut, report.damages)
        assert any(f"a torn write begins at offset {begin}" in note for note in report.notes), cut
        with reopened(directory) as log:
            assert (values_in(log), names_in(log)) == ([b"first"], [])
            assert log.topic("t").append(BOTH, key="k") == range(2, 4)
        with reopened(directory) as log:
            assert (values_in(log), names_in(log)) == ([b"first", *BOTH], ["k"])


def test_an_append_under_a_key_that_is_not_whole_is_damage_anywhere_else(tmp_path: Path) -> None:
    copy, body, frames = _whole(tmp_path)
    begin, third = next(offset for kind, offset, _ in frames if kind == FrameType.KEY), frames[-1][1]
    damages = {
        "a second key inside": (body[:third] + encode_key(1, 1_000, KeyedAppend("l", 4, 1, 0)), third),
        "from another seq": (body[:begin] + encode_key(1, 1_000, KeyedAppend("k", 9, 1, 0)), begin),
        "no records": (body[:begin] + encode_key(1, 1_000, KeyedAppend("k", 2, 0, 0)), begin),
        "a body that does not fit": (
            body[:begin] + encode(FrameType.KEY, topic_id=1, seq=2, ts_ms=1_000, data=b"short"),
            begin,
        ),
        "no topic": (body[:begin] + encode_key(5, 1_000, KeyedAppend("k", 1, 1, 0)), begin),
    }
    directory = tmp_path / "damaged"
    for name, (front, offset) in damages.items():
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(copy, directory)
        (directory / WAL).write_bytes(front + bytes(len(body) - len(front)))
        with pytest.raises(FileCorrupt) as caught:
            reopened(directory)
        assert caught.value.offset == offset, name
        assert not seglog.verify(directory, settings=SETTINGS).is_sound, name


def test_the_records_of_a_torn_append_do_not_come_back_when_the_power_fails_after_that() -> None:
    """The caller appends one of the same records under another key. Then the old ones would fit right behind it."""
    disk = SimulatedDisk()
    log = seglog.open("/log", files=disk, settings=SETTINGS, clock=HandClock(1_000), upkeep=InCaller)
    log.topic("t").append([b"first"])
    log.topic("t").append([b"a" * 40, b"b" * 40, b"c" * 40], key="k", durability="memory")
    tree_now = dict(disk.after_kill().tree)
    log.close()
    body = tree_now[f"/log/{WAL}"] or b""
    last = frames_in(body)[-1][1]
    tree_now[f"/log/{WAL}"] = body[:last] + bytes(len(body) - last)
    disk = SimulatedDisk(Image(tree_now))
    log = seglog.open("/log", files=disk, settings=SETTINGS, clock=HandClock(1_000), upkeep=InCaller)
    assert log.topic("t").append([b"a" * 40], key="l", durability="memory") == range(2, 3)
    images = list(disk.moment().images(random.Random(3), 24))
    log.close()
    for image in images:
        with seglog.open("/log", files=SimulatedDisk(image), settings=SETTINGS, clock=HandClock(1_000)) as log:
            assert (values_in(log), names_in(log)) in (([b"first"], []), ([b"first", b"a" * 40], ["l"]))


def test_a_clock_that_was_wrong_for_a_moment_ends_no_key_earlier(tmp_path: Path) -> None:
    clock = HandClock(1_000)
    with _opened(tmp_path / "log", clock) as log:
        topic = log.topic("t")
        topic.append([b"x"], key="k")
        clock.ms += 3_600_000
        topic.append([b"plain"])
        clock.ms -= 3_600_000
        topic.append([b"y"], key="l")
        assert topic.append_once([b"x"], key="k") == Appended(range(1, 2), True)


def test_a_text_that_compares_in_its_own_way_is_the_key_that_it_reads_as(tmp_path: Path) -> None:
    class Odd(str):
        __slots__ = ()

        def __eq__(self, _other: object) -> bool:
            return False

        def __hash__(self) -> int:
            return 7

    with reopened(tmp_path / "log") as log:
        log.topic("t").append([b"x"], key=Odd("k"))
        assert log.topic("t").append_once([b"x"], key="k") == Appended(range(1, 2), True)
        assert log.topic("t").append_once([b"x"], key=Odd("k")) == Appended(range(1, 2), True)
        log.checkpoint()
    with reopened(tmp_path / "log") as log:
        assert names_in(log) == ["k"]


def test_a_repetition_passes_while_appends_are_held(tmp_path: Path) -> None:
    batch = ProducerBatch("p", 0, 0)

    async def later() -> Appended:
        async with aio.open(tmp_path / "other") as other:
            await other.topic("t").append(BOTH, key="one")
            other.sync.hold_appends("the test holds them")
            with pytest.raises(AppendsHeld):
                await other.topic("t").append(BOTH, key="two")
            return await other.topic("t").append_once(BOTH, key="one")

    with reopened(tmp_path / "log") as log:
        topic = log.topic("t")
        topic.append(BOTH, key="one")
        topic.append(BOTH, producer=batch)
        incarnation = topic.incarnation()
        log.hold_appends("the test holds them")
        for again in (topic.append_once(BOTH, key="one", if_incarnation=incarnation), asyncio.run(later())):
            assert again == Appended(range(1, 3), True)
        assert topic.append_once(BOTH, producer=batch) == Appended(range(3, 5), True)
        refused: tuple[Callable[[], object], ...] = (
            lambda: topic.append(BOTH, key="two"),
            lambda: topic.append(BOTH, producer=ProducerBatch("p", 0, 1)),
            lambda: topic.append(BOTH, if_head=4),
            lambda: topic.append(BOTH),
            lambda: topic.append([], if_incarnation=incarnation),
        )
        for call in refused:
            with pytest.raises(AppendsHeld):
                call()
        with pytest.raises(OtherIncarnation):
            topic.append([], if_incarnation="another")
        assert topic.head_seq == 4
