"""Topics that another directory writes: the log refuses appends to them, and keeps what it knew of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import seglog
from seglog import Appended, Elsewhere, LogSettings, NoSuchTopic, ProducerBatch, TopicConfig, WrittenElsewhere
from seglog.engine.work_thread import InCaller
from tests.faults.disk import SimulatedDisk
from tests.worlds.clock import HandClock

KEEPING = TopicConfig(keep_history=True)


def opened(disk: SimulatedDisk, settings: LogSettings | None = None) -> seglog.Log:
    return seglog.open("/log", files=disk, settings=settings or LogSettings(), clock=HandClock(1_000), upkeep=InCaller)


def followed(disk: SimulatedDisk) -> None:
    """A topic with a producer and a key, which this directory then follows, as after a reset. The process is killed."""
    log = opened(disk)
    log.create_topic("t", KEEPING)
    topic = log.topic("t")
    topic.append([b"a", b"b"], key="order-1")
    topic.append([b"c"], producer=ProducerBatch("shop", 0, 0))
    log.mark_elsewhere("t", log.known_appends("t"))
    log.delete_topic("t", position=topic.inner.position)


def test_an_append_to_a_topic_that_the_directory_follows_is_refused_with_the_call_to_make() -> None:
    disk = SimulatedDisk()
    followed(disk)
    for _ in range(2):
        disk = SimulatedDisk(disk.after_power_cut())
        log = opened(disk)
        for key in (None, "k"):
            with pytest.raises(WrittenElsewhere, match=r"this directory follows t, .* nothing was appended") as caught:
                log.topic("t").append([b"d"], key=key, durability="memory")
            assert "archive.open_for_append('t')" in (caught.value.hint or "")
            assert (caught.value.topic, caught.value.is_fenced, caught.value.exit_code) == ("t", False, 4)
        with pytest.raises(WrittenElsewhere):
            log.create_topic("t")
        with pytest.raises(WrittenElsewhere, match="nothing was changed"):
            log.configure("t", KEEPING)
        with pytest.raises(NoSuchTopic):
            log.configure("nowhere", KEEPING)
        assert not log.has_topic("t")
        assert log.topic("other").append([b"x"])


@pytest.mark.parametrize("is_checkpointed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_takeover_ends_the_mark_and_gives_the_topic_its_producers_and_keys(is_checkpointed: bool) -> None:
    disk = SimulatedDisk()
    followed(disk)
    log = opened(disk := SimulatedDisk(disk.after_power_cut()))
    log.create_topic("t", KEEPING, first_seq=4, is_taken_over=True)
    assert dict(log.elsewhere) == {}
    if is_checkpointed:
        log.checkpoint()
    log = opened(disk := SimulatedDisk(disk.after_power_cut()))
    assert dict(log.elsewhere) == {}
    topic = log.topic("t")
    assert topic.append_once([b"a", b"b"], key="order-1") == Appended(range(1, 3), True)
    assert topic.append_once([b"c"], producer=ProducerBatch("shop", 0, 0)) == Appended(range(3, 4), True)
    assert topic.append([b"d"], producer=ProducerBatch("shop", 0, 1)) == range(4, 5)
    log.delete_topic("t", position=topic.inner.position)
    assert log.topic("t").append([b"e"], producer=ProducerBatch("shop", 0, 0)) == range(1, 2), "a deletion ends them"


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_fenced_topic_takes_appends_only_if_the_setting_says_so(goes_on: bool) -> None:
    disk = SimulatedDisk()
    log = opened(disk, LogSettings(append_when_fenced=goes_on))
    topic = log.topic("t")
    topic.append([b"a"], key="k")
    log.mark_elsewhere("t", Elsewhere(is_fenced=True))
    for again in (log, opened(SimulatedDisk(disk.after_power_cut()), LogSettings(append_when_fenced=goes_on))):
        topic = again.topic("t")
        assert topic.append([b"a"], key="k") == range(1, 2), "a repetition gets its seqs"
        if goes_on:
            assert topic.append([b"b"]) == range(2, 3)
        else:
            with pytest.raises(WrittenElsewhere, match="another directory has taken t over") as caught:
                topic.append([b"b"])
            assert caught.value.is_fenced
            assert "append_when_fenced" in (caught.value.hint or "")


def test_a_mark_is_in_the_manifest_on_return_and_costs_one_only_if_it_changes() -> None:
    disk = SimulatedDisk()
    log = opened(disk)

    def manifests() -> list[str]:
        return sorted(SimulatedDisk(disk.after_power_cut()).list_dir(Path("/log/meta")))

    before = manifests()
    log.mark_elsewhere("t@fix", Elsewhere())
    marked = manifests()
    log.mark_elsewhere("t@fix", Elsewhere())
    assert before != marked == manifests()
    log.mark_elsewhere("t@fix", None)
    assert manifests() != marked
    assert dict(opened(SimulatedDisk(disk.after_power_cut())).elsewhere) == {}
