"""An append logs a warning about a wrong clock, once for each time that the clock goes wrong."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import seglog
from seglog.files.clock import JUMP_MS, ClockWatch
from tests.worlds.clock import HandClock

DAY_MS = JUMP_MS
START_MS = 1_790_000_000_000


class Machine:
    """A log, its clock, and the machine's steady clock."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        self.steady_ms = 5_000
        self.clock = HandClock(START_MS)
        monkeypatch.setattr(ClockWatch.__init__, "__defaults__", (lambda: self.steady_ms,))
        self.log = seglog.open(path / "data", clock=self.clock)
        self._caplog = caplog

    def passes(self, ms: int) -> None:
        self.clock.ms += ms
        self.steady_ms += ms

    def told(self, topic: str, durability: str = "fsync") -> list[str]:
        self._caplog.clear()
        with self._caplog.at_level(logging.WARNING, "seglog.files.clock"):
            self.log.topic(topic).append([b"x"], durability=durability)
        return [record.getMessage() for record in self._caplog.records if record.name == "seglog.files.clock"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Machine:
    return Machine(tmp_path, monkeypatch, caplog)


def test_a_jump_of_more_than_a_day_is_told_once_with_what_it_means(machine: Machine) -> None:
    with machine.log:
        assert machine.told("a") == machine.told("b") == []
        machine.clock.ms += 30 * DAY_MS
        [told] = machine.told("a")
        assert "the clock went ahead by 30 days at once, to 2026-10-21T" in told
        assert "at an append to a" in told
        assert "seq:N can" in told
        assert machine.told("a") == machine.told("b") == machine.told("new") == []
        machine.passes(DAY_MS + 1)
        machine.clock.ms += 2 * DAY_MS
        assert len(machine.told("b")) == 1


@pytest.mark.parametrize("ms", [DAY_MS, 400 * DAY_MS])
def test_an_idle_topic_is_no_jump(machine: Machine, ms: int) -> None:
    with machine.log:
        machine.told("a")
        machine.passes(ms)
        assert machine.told("a") == machine.told("new") == []


def test_a_day_is_no_jump(machine: Machine) -> None:
    with machine.log:
        machine.told("a")
        machine.clock.ms += DAY_MS
        assert machine.told("a") == []


def test_a_clock_that_was_put_right_is_told_once_for_each_topic_with_records_ahead(machine: Machine) -> None:
    with machine.log:
        machine.told("a")
        machine.clock.ms += 30 * DAY_MS
        assert len(machine.told("a")) == 1
        machine.clock.ms -= 30 * DAY_MS
        [told] = machine.told("a")
        assert "the newest record of a has the time 2026-10-21T" in told
        assert "30 days ahead of the clock" in told
        assert machine.told("a") == machine.told("b") == []
        machine.passes(31 * DAY_MS)
        assert machine.told("a") == []
        machine.clock.ms += 30 * DAY_MS
        assert len(machine.told("b")) == 1  # the second jump has its own warning
        machine.clock.ms -= 30 * DAY_MS
        assert len(machine.told("b")) == 1


def test_records_ahead_are_told_again_by_the_next_opening(machine: Machine, tmp_path: Path) -> None:
    with machine.log:
        machine.clock.ms += 30 * DAY_MS
        machine.told("a")
    machine.clock.ms -= 30 * DAY_MS
    with seglog.open(tmp_path / "data", clock=machine.clock) as machine.log:
        assert len(machine.told("a", "disk")) == 1


def test_an_append_whose_time_is_near_the_last_asks_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with machine.log:
        machine.told("a")
        looks: list[str] = []
        monkeypatch.setattr(ClockWatch, "look", lambda _, topic, *__: looks.append(topic))
        for ms in (0, 5_000, -5_000, DAY_MS - 5_000):
            machine.clock.ms += ms
            machine.told("a")
        assert looks == []
