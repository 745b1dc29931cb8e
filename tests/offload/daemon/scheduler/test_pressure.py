"""Test the pressure: what it is made of, and what is put off at which."""

from __future__ import annotations

import pytest

from offload.daemon.scheduler.pressure import Pressure, collect_s, group_wait_s, pauses, pressure_of, smoothed
from offload.daemon.scheduler.slots import ReadyFeeds


@pytest.mark.parametrize(
    ("ready", "slots", "wait_s", "busy", "pressure"),
    [
        (0, 4, 0.0, 0.0, 0.0),
        (1, 4, 0.0, 0.0, 0.25),
        (9, 4, 0.0, 0.0, 1.0),
        (0, 4, 0.0025, 0.0, 0.5),
        (0, 4, 1.0, 0.0, 1.0),
        (1, 4, 0.001, 0.75, 0.75),
    ],
)
def test_the_pressure_is_the_largest_of_three_ratios(
    ready: int, slots: int, wait_s: float, busy: float, pressure: float
) -> None:
    assert pressure_of(ready, slots, wait_s, busy) == pytest.approx(pressure)


def test_news_are_collected_above_a_fifth() -> None:
    assert [collect_s(each) for each in (0.0, 0.1, 0.2)] == [0, 0, 0]
    assert [round(collect_s(each) * 1000, 3) for each in (0.21, 0.6, 1.0)] == [0.25, 10, 20]


def test_groups_of_appends_wait_above_two_fifths() -> None:
    assert [group_wait_s(each) for each in (0.0, 0.2, 0.4)] == [0, 0, 0]
    assert [round(group_wait_s(each) * 1000, 3) for each in (0.41, 0.7, 1.0)] == [0.658, 5.25, 10]


def test_a_pause_begins_above_four_fifths_and_ends_below_three() -> None:
    is_paused, found = False, []
    for pressure in (0.7, 0.8, 0.81, 0.7, 0.6, 0.59, 0.8, 1.0, 0.0):
        is_paused = pauses(pressure, is_paused=is_paused)
        found.append(is_paused)
    assert found == [False, False, True, True, True, False, False, True, False]


def test_a_wait_is_smoothed_by_half_each_100_ms() -> None:
    assert smoothed(0.008, 0.0, 0.1) == pytest.approx(0.004)
    assert smoothed(0.0, 0.008, 0.2) == pytest.approx(0.006)
    assert smoothed(5.0, 0.008, float("inf")) == 0.008


def test_without_a_feed_that_waits_the_pressure_is_0_after_100_ms() -> None:
    pressure = Pressure()
    assert pressure.at(0.0) == 0.0
    pressure.begin(1.0)
    pressure.sample(3, 4, 0.0, 0.0, 1.05)
    assert pressure.at(9.0) == 0.75
    pressure.end(9.0)
    assert (pressure.at(9.09), pressure.at(9.1)) == (0.75, 0.0)
    pressure.begin(9.05)
    assert pressure.at(9.5) == 0.75, "a feed came within 100 ms"
    pressure.end(9.5)
    pressure.begin(20.0)
    assert (pressure.at(20.0), pressure.is_pausing) == (0.0, False)


def test_the_pressure_is_measured_each_100_ms() -> None:
    pressure = Pressure()
    pressure.begin(0.0)
    assert pressure.is_due(0.05)
    pressure.sample(1, 4, 0.0, 0.0, 0.05)
    assert [pressure.is_due(at_s) for at_s in (0.1, 0.146, 0.15)] == [False, True, True]


def test_a_feed_that_nobody_serves_raises_the_pressure_by_its_wait() -> None:
    pressure = Pressure()
    pressure.begin(0.0)
    pressure.sample(1, 100, 0.003, 0.0, 0.05)
    assert pressure.value == pytest.approx(0.6)


def world() -> ReadyFeeds:
    """Return a ready set at pressure 1, in which the feed `low` is paused."""
    feeds = ReadyFeeds()
    feeds.enter("high", 500, 0, 0.0)
    feeds.enter("low", -1, 0, 0.0)
    assert feeds.look(1, 0.0, 0.05)
    assert list(feeds.paused) == ["low"]
    return feeds


def test_a_negative_priority_is_paused_until_the_pressure_is_below_three_fifths() -> None:
    feeds = world()
    assert (feeds.serve(0.06), feeds.serve(0.06)) == ("high", None)
    now_s = 0.06
    while feeds.paused:
        now_s += 0.05
        assert now_s < 2, "it is paused for ever"
        assert feeds.look(1, 0.0, now_s)
        assert feeds.pressure.value >= 0.6 or not feeds.paused
    assert feeds.serve(now_s) == "low"
    assert not feeds.look(1, 0.0, now_s + 0.05)


def test_neither_its_age_nor_its_boost_ends_a_pause() -> None:
    feeds = world()
    feeds.enter("boosted", -1, 250, 1.0)
    assert set(feeds.paused) == {"low", "boosted"}
    for tick in range(1, 400):
        feeds.look(1, 1.0, 1 + tick * 0.05)
    assert set(feeds.paused) == {"low", "boosted"}
    assert feeds.serve(30.0) == "high"
    assert feeds.serve(30.0) is None


def test_a_paused_feed_does_not_hold_the_pressure_up() -> None:
    feeds = world()
    feeds.serve(0.06)
    for number in range(10):
        feeds.enter(f"low{number}", -250, 0, 0.07)
    assert len(feeds.paused) == 11
    for tick in range(1, 40):
        feeds.look(1, 0.0, 0.07 + tick * 0.05)
        if not feeds.paused:
            break
    assert not feeds.paused


def test_a_paused_feed_may_leave() -> None:
    feeds = world()
    feeds.leave("low")
    feeds.leave("high")
    assert len(feeds) == 0
    assert not feeds.look(1, 0.0, 0.2)
    assert not feeds.is_paused(-1, 0.4)
