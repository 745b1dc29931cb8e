"""Cut the power at each effect of a checkpoint, a truncation, a removal and a change of shards.

The cut loses all changes that are not durable, one of them, or none. The log then opens with all acked records.
`tests/promises/test_crash_images.py` draws more sets of lost changes, over longer lives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

import seglog
from seglog import Log, LogSettings
from seglog.engine.work_thread import InCaller
from tests.faults.disk import Image, Moment, SimulatedDisk
from tests.seams.log import engine_of
from tests.worlds.clock import HandClock

SETTINGS = LogSettings(segment_max_events=4, wal_file_bytes=4096, reclaim_bytes_per_s=0)
DIRECTORY = Path("/log")
State: TypeAlias = dict[str, list[tuple[int, bytes]]]


class Idle(InCaller):
    def wake(self) -> None:
        pass


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "seglog")


def _opened(disk: SimulatedDisk, settings: LogSettings = SETTINGS) -> Log:
    return seglog.open(DIRECTORY, files=disk, settings=settings, clock=HandClock(1_000), upkeep=Idle)


def _shown(log: Log) -> State:
    return {
        name: [(record.seq, record.value) for record in log.topic(name).read(log.topic(name).earliest_seq)]
        for name in log.topics()
    }


def _images(moment: Moment) -> Iterator[Image]:
    pending = moment.pending
    yield moment.image(())
    yield moment.image(pending)
    for index in range(len(pending)):
        yield moment.image((*pending[:index], *pending[index + 1 :]))


def _check(disk: SimulatedDisk, log: Log, steps: list[Callable[[], object]], settings: LogSettings = SETTINGS) -> None:
    """Run each of `steps`. Check that a power cut within a step leaves the state before or after the step."""
    for step in steps:
        before, moments = _shown(log), list[Moment]()
        disk.note = lambda disk, moments=moments: moments.append(disk.moment())  # type: ignore[misc]
        step()
        disk.note = None
        after = _shown(log)
        images = {image.digest: image for moment in moments for image in _images(moment)}
        assert images
        for image in images.values():
            with _opened(SimulatedDisk(image), settings) as again:
                assert _shown(again) in (before, after)
        with _opened(SimulatedDisk(disk.after_power_cut()), settings) as again:
            assert _shown(again) == after


def _filled() -> tuple[SimulatedDisk, Log]:
    """Return a disk and a log with two topics.

    Topic `a` has a sealed segment, an active one, and records in the WAL. Topic `b` has records in the WAL only.
    """
    disk = SimulatedDisk()
    log = _opened(disk)
    for tag in ("x", "y", "x", None, "x", None):
        log.topic("a").append([b"old"], tag=tag)
    log.checkpoint()
    for name in ("a", "b"):
        log.topic(name).append([b"new" * 200, b"more" * 200], tag="x")
        log.topic(name).append([b"last"])
    return disk, log


def test_a_checkpoint() -> None:
    disk, log = _filled()
    log.topic("a").delete(tag="x")
    assert engine_of(log).wals.older_files
    _check(disk, log, [log.checkpoint, log.topic("a").seal])
    assert not engine_of(log).wals.older_files


@pytest.mark.parametrize("seq", [2, 6])
def test_a_truncation(seq: int) -> None:
    """Truncate a topic that has a delete without flags yet."""
    disk, log = _filled()
    topic = log.topic("a")
    topic.delete(tag="x")
    _check(disk, log, [lambda: topic.truncate(seq), lambda: topic.append([b"next"] * 4, tag="x"), log.checkpoint])


def test_the_removal_of_a_topic() -> None:
    disk, log = _filled()
    log.checkpoint()
    again = lambda: log.topic("a").append([b"again"])  # noqa: E731
    _check(disk, log, [lambda: log.delete_topic("a"), again, log.checkpoint, again, log.checkpoint])


@pytest.mark.long
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_a_change_of_shards(before: int, after: int) -> None:
    settings = replace(SETTINGS, wal_shards=after)
    disk = SimulatedDisk()
    log = _opened(disk, replace(SETTINGS, wal_shards=before))
    for name in ("a", "b", "c"):
        log.topic(name).append([name.encode()] * 3)
    shown = _shown(log)
    disk = SimulatedDisk(disk.after_kill())
    moments: list[Moment] = []
    disk.note = lambda disk: moments.append(disk.moment())
    log = _opened(disk, settings)
    disk.note = None
    for image in {image.digest: image for moment in moments for image in _images(moment)}.values():
        with _opened(SimulatedDisk(image), settings) as again:
            assert _shown(again) == shown
            again.topic("a").append([b"next"])
