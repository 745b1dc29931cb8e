"""The oracle of the crash tests detects the states that its docstring names."""

from __future__ import annotations

from pathlib import Path

import seglog
from seglog import TopicConfig
from seglog.engine.work_thread import InCaller
from tests.faults.disk import Image, SimulatedDisk
from tests.seglog.workload import SETTINGS, Journal, look
from tests.worlds.clock import HandClock


def test_a_delete_below_the_hot_floor_raises_the_front_over_a_reopening() -> None:
    journal, disk = Journal(keepers=frozenset({"t"})), SimulatedDisk(Image({"/parent": None}))
    with seglog.open(
        Path("/parent/log"), files=disk, settings=SETTINGS, clock=HandClock(1_000), upkeep=InCaller
    ) as log:
        log.attach_cold(journal.archive)
        log.create_topic("t", TopicConfig(keep_history=True))
        journal.append(log, "t", 8)
        log.topic("t").seal()
        journal.release(log, "t", 8)
        journal.append(log, "t", 1)
        journal.delete(log, "t", before=4)
    with seglog.open(
        Path("/parent/log"), files=disk, settings=SETTINGS, clock=HandClock(1_000), upkeep=InCaller
    ) as log:
        log.attach_cold(journal.archive)
        found = look(log)
    assert (journal.lost(found, journal.bounds()), journal.phantom(found, journal.bounds())) == (None, None)
    assert found["t"].earliest_seq == 4
