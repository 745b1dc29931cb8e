"""A checkpoint looks only at the topics that changed."""

from __future__ import annotations

from pathlib import Path

import pytest

import seglog
from benchmarks.calls import count_calls
from seglog import DiskFull, Log, LogSettings, TopicConfig
from seglog.engine.work_thread import InCaller
from tests.seams.log import engine_of
from tests.seglog.totals import check_totals
from tests.worlds.clock import HandClock

# Both numbers are above the number of segments that stay open (64).
MANY = (70, 200)


def _many(directory: Path, topics: int, settings: LogSettings | None = None, clock: HandClock | None = None) -> Log:
    log = seglog.open(directory, settings=settings or LogSettings(), upkeep=InCaller, clock=clock or HandClock(1_000))
    log.topic_defaults = TopicConfig(durability="memory")
    for number in range(topics):
        log.topic(f"t-{number}").append([b"x"])
    log.checkpoint()
    return log


def test_a_checkpoint_costs_the_same_whatever_the_number_of_topics(tmp_path: Path) -> None:
    counts = []
    for topics in MANY:
        with _many(tmp_path / str(topics), topics) as log:
            log.topic("t-1").append([b"y"])
            counts.append(count_calls(log.checkpoint))
            counts.append(count_calls(log.checkpoint))
    assert counts[2:] == counts[:2]


def test_so_it_does_after_an_opening(tmp_path: Path) -> None:
    counts = []
    for topics in MANY:
        _many(tmp_path / str(topics), topics).close()
        with seglog.open(tmp_path / str(topics), upkeep=InCaller, clock=HandClock(1_000)) as log:
            counts.append(count_calls(log.checkpoint))
            log.topic("t-1").append([b"y"])
            log.checkpoint()
            log.topic("t-1").append([b"y"])
            counts.append(count_calls(log.checkpoint))
    assert counts[2:] == counts[:2]


def test_topics_that_nobody_touched_are_sealed_for_their_age(tmp_path: Path) -> None:
    clock = HandClock(1_000)
    settings = LogSettings(segment_max_age_ms=1000)
    with _many(tmp_path / "data", 3, settings, clock) as log:
        start_ms = clock.ms
        clock.ms = start_ms + 500
        log.topic("t-1").append([b"y"] * 2)
        log.topic("new").append([b"y"])
        log.checkpoint()
        clock.ms = start_ms + 1000
        log.checkpoint()
        assert [log.topic(name).inner.sealed_seq for name in log.topics()] == [0, 0, 0, 0]
        clock.ms = start_ms + 1001
        log.checkpoint()
        assert [log.topic(name).inner.sealed_seq for name in log.topics()] == [0, 1, 3, 1]
        log.delete_topic("new")
        check_totals(log)
        clock.ms = start_ms + 5000
        log.checkpoint()
        check_totals(log)
        assert not engine_of(log).aging


def test_what_is_due_when_the_segment_before_it_was_is_sealed_too(tmp_path: Path) -> None:
    """If the clock is set back, records of two segments may have the same time."""
    clock = HandClock(1_000)
    with _many(tmp_path / "data", 1, LogSettings(segment_max_age_ms=1000), clock) as log:
        topic, start_ms = log.topic("t-0"), clock.ms
        for sealed_seq in (1, 2, 3):
            clock.ms = start_ms + 1001
            log.checkpoint()
            assert topic.inner.sealed_seq == sealed_seq
            clock.ms = start_ms
            topic.append([b"y"])
            log.checkpoint()
            assert topic.inner.sealed_seq == sealed_seq


def test_each_change_is_in_the_next_snapshot(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    log = _many(directory, 4, LogSettings(segment_max_events=2, reclaim_bytes_per_s=0))
    changes = [
        lambda: log.topic("t-0").append([b"y"] * 5),
        lambda: log.configure("t-1", TopicConfig(cap_records=7, keep_history=True)),
        lambda: log.topic("t-2").append([b"e"], durability="ephemeral"),
        lambda: log.topic("t-0").delete(before=2),
        lambda: log.topic("t-0").delete(tag="none"),
        lambda: log.topic("t-1").delete(before=1),
        lambda: log.topic("t-0").evict(before=4),
        lambda: log.topic("t-0").truncate(5),
        lambda: log.delete_topic("t-3"),
        lambda: log.topic("t-3").append([b"again"]),
        lambda: log.topic("t-1").truncate(1),
        lambda: log.topic("t-1").append([b"y"]),
        lambda: log.topic("t-1").seal(),
        lambda: log.topic("t-1").inner.release(1),
        lambda: log.create_topic("empty"),
    ]
    for change in changes:
        change()
        check_totals(log)
        log.checkpoint()
        check_totals(log)
        with seglog.open(directory, read_only=True) as view:
            assert view.topics() == log.topics()
            for name in log.topics():
                assert engine_of(view).state(name).to_meta() == engine_of(log).state(name).to_meta()
    log.close()


def test_what_a_failed_checkpoint_had_planned_is_in_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "no space")

    directory = tmp_path / "data"
    with _many(directory, 3) as log:
        log.topic("t-1").append([b"y"])
        log.configure("t-2", TopicConfig(cap_records=7))
        with monkeypatch.context() as patch:
            patch.setattr("seglog.maintenance.checkpoint.store_encoded", full)
            with pytest.raises(DiskFull):
                log.checkpoint()
        check_totals(log)
        log.checkpoint()
        assert not engine_of(log).changed
    with seglog.open(directory, read_only=True) as view:
        assert (view.topic("t-1").head_seq, view.topic("t-2").config.cap_records) == (2, 7)
