"""Test the value that identifies sealed records, and the seq from which an epoch changed a topic."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import seglog
from seglog import Gap, Log, LogSettings, NoSuchTopic, Record, Topic, TopicConfig
from tests.faults.interrupts import interrupted, points
from tests.worlds.clock import HandClock

SETTINGS = LogSettings(segment_max_events=10)
_APPLIES = ("seglog.engine.state",)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with seglog.open(tmp_path / "data", settings=SETTINGS) as log:
        yield log


def filled(log: Log, config: TopicConfig | None = None) -> Topic:
    topic = log.create_topic("t", config or TopicConfig())
    topic.append([b"%d" % number for number in range(35)], tag="a")
    log.checkpoint()
    return topic


def shown(topic: Topic, last: int) -> list[Record | Gap]:
    return list(topic.read(1, last, gaps=True))


def test_only_sealed_records_have_a_version_which_appends_and_seals_do_not_change(log: Log) -> None:
    topic = filled(log)
    assert topic.inner.sealed_seq == 30
    version = topic.inner.sealed_version(30)
    assert version is not None
    assert topic.inner.sealed_version(31) is None
    topic.append([b"x"])
    topic.seal()
    assert topic.inner.sealed_version(30) == topic.inner.sealed_version(36) == version


@pytest.mark.parametrize(
    "change",
    [
        lambda topic: topic.delete(before=5),
        lambda topic: topic.delete(tag="a*"),
        lambda topic: topic.evict(5),
        lambda topic: topic.truncate(20),
        lambda topic: topic.truncate(35),
    ],
)
def test_each_change_of_what_readers_see_changes_the_version(log: Log, change: Callable[[Topic], object]) -> None:
    topic = filled(log)
    before = topic.inner.sealed_version(10), shown(topic, 10)
    change(topic)
    after = topic.inner.sealed_version(10), shown(topic, 10)
    assert before[0] is not None
    assert after[0] is not None
    assert before[0] != after[0]


def test_retention_changes_the_version_and_a_ttl_has_none(log: Log) -> None:
    topic = filled(log)
    before = topic.inner.sealed_version(30)
    log.configure("t", TopicConfig(cap_records=20))
    topic.enforce_retention()
    assert isinstance(shown(topic, 30)[0], Gap)
    assert topic.inner.sealed_version(30) not in (None, before)
    log.configure("t", TopicConfig(ttl_ms=1000))
    assert topic.inner.sealed_version(30) is None


def test_records_that_a_former_ttl_took_are_part_of_the_version(tmp_path: Path) -> None:
    clock = HandClock(1_000)
    with seglog.open(tmp_path / "data", settings=SETTINGS, clock=clock) as log:
        topic = filled(log)
        before = topic.inner.sealed_version(30)
        log.configure("t", TopicConfig(ttl_ms=1000))
        clock.ms += 5_000
        assert shown(topic, 30) == [Gap(1, 30)]
        log.configure("t", TopicConfig())
        assert shown(topic, 30) == [Gap(1, 30)]
        assert topic.inner.sealed_version(30) not in (None, before)


def test_the_version_is_the_same_after_a_restart_and_after_a_kill(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with seglog.open(directory, settings=SETTINGS) as log:
        topic = filled(log)
        topic.delete(before=3)
        topic.truncate(34)
        before = topic.inner.sealed_version(30)
    child = os.fork()
    if not child:
        killed = seglog.open(directory, settings=SETTINGS)
        killed.topic("t").delete(before=4)
        os._exit(0)
    os.waitpid(child, 0)
    with seglog.open(directory, settings=SETTINGS) as log:
        after = log.topic("t").inner.sealed_version(30)
        assert before is not None
        assert after is not None
        assert (after[:2], after[2]) == (before[:2], before[2] + 1)
    with seglog.open(directory, settings=SETTINGS) as log:
        assert log.topic("t").inner.sealed_version(30) == after


def test_ephemeral_records_in_memory_have_no_version(log: Log) -> None:
    topic = log.create_topic("t")
    topic.append([b"x"] * 5)
    topic.append([b"y"] * 5, durability="ephemeral")
    topic.append([b"z"] * 5)
    topic.seal()
    assert topic.inner.sealed_seq == 15
    assert topic.inner.sealed_version(5) is not None
    assert topic.inner.sealed_version(15) is None


def test_a_topic_that_was_made_again_has_another_version(log: Log) -> None:
    before = filled(log).inner.sealed_version(30)
    log.delete_topic("t")
    with pytest.raises(NoSuchTopic):
        log.topic("t").inner.sealed_version(30)
    assert filled(log).inner.sealed_version(30) not in (None, before)


def test_a_topic_tells_from_where_it_changed_since_an_epoch(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with seglog.open(directory, settings=SETTINGS) as log:
        topic = filled(log)
        first = topic.epoch
        assert topic.inner.changed_since(first) == (first, None)
        topic.truncate(20)
        topic.append([b"new"] * 10)
        topic.truncate(25)
        assert topic.inner.changed_since(first) == (first + 2, 20)
        assert topic.inner.changed_since(first + 1) == (first + 2, 25)
        assert topic.inner.changed_since(first + 7) == (first + 2, 1)
    with seglog.open(directory, settings=SETTINGS) as log:
        topic = log.topic("t")
        assert topic.inner.changed_since(first + 2) == (first + 2, None)
        assert topic.inner.changed_since(first) == (first + 2, 1)
        log.delete_topic("t")
        topic = log.create_topic("t")
        assert topic.inner.changed_since(first + 2) == (first + 3, 1)


def test_a_follower_names_the_epoch_in_which_it_began(log: Log) -> None:
    topic = filled(log)
    before = topic.inner.follower(10)
    topic.truncate(20)
    assert (before.epoch, topic.inner.follower(10).epoch) == (topic.epoch - 1, topic.epoch)


def _truncated_twice(path: Path) -> tuple[Log, Topic]:
    log = seglog.open(path, settings=SETTINGS)
    topic = filled(log)
    topic.truncate(5)
    topic.append([b"new"] * 20)
    return log, topic


def test_an_interrupted_truncation_counts_once_among_those_that_changed_a_topic(tmp_path: Path) -> None:
    log, topic = _truncated_twice(tmp_path / "count")
    first = topic.epoch - 1
    count = points(lambda: topic.truncate(15), _APPLIES)
    log.close()
    for at in range(1, count + 1):
        log, topic = _truncated_twice(tmp_path / f"{at}")
        assert interrupted(partial(topic.truncate, 15), _APPLIES, at)
        assert topic.inner.changed_since(first) == (first + 2, 5)
        log.close()
