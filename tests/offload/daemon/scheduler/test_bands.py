"""Test which feed comes next: bands, credits, age, and the boost by consumption."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from offload.daemon.scheduler.bands import BOOST_MOST, CREDITS, Bands, Consumption, Ready, age_of, band_of
from tests.seams.delivery import pages_of
from tests.work import seed_of


def ready(key: str, priority: int = 0, entered_s: float = 0.0) -> Ready:
    return Ready(key, priority, priority < 0, entered_s)


def keys(bands: Bands, count: int) -> list[object]:
    found = [bands.take() for _ in range(count)]
    return [None if each is None else each.key for each in found]


@pytest.mark.parametrize(
    ("priority", "band"),
    [(-250, 0), (-1, 0), (0, 1), (249, 1), (250, 2), (499, 2), (500, 3), (749, 3), (750, 4), (1000, 4), (2250, 4)],
)
def test_each_priority_has_its_band(priority: int, band: int) -> None:
    assert band_of(priority) == band


def test_age_is_100_a_second_and_1000_at_most() -> None:
    assert [age_of(each) for each in (-1, 0, 0.5, 2, 10, 11, 1e9)] == [0, 0, 50, 200, 1000, 1000, 1000]


def test_a_band_is_first_in_first_out() -> None:
    bands = Bands()
    for name in "abc":
        bands.enter(ready(name), 0.0)
    assert keys(bands, 4) == ["a", "b", "c", None]


def test_a_round_gives_8_4_2_1_and_1_pages() -> None:
    bands = Bands()
    for number in range(80):
        for band, priority in enumerate((-1, 0, 250, 500, 750)):
            bands.enter(ready(f"{band}.{number}", priority), 0.0)
    taken = [str(key)[0] for key in keys(bands, 48)]
    assert taken[:16] == list("4444444433332210")
    assert Counter(taken) == {str(band): 3 * pages for band, pages in enumerate(CREDITS)}


def test_a_feed_rises_with_its_age_and_goes_before_what_came_later() -> None:
    bands = Bands()
    bands.enter(ready("old", -250, entered_s=0.0), 0.0)
    found = []
    for at_s in (2.4, 2.5, 5.0, 7.5, 9.9):
        bands.age(at_s)
        found.append(bands.counts.index(1))
    assert found == [0, 1, 2, 3, 3]
    bands.enter(ready("new", 750, entered_s=9.95), 9.95)
    bands.age(10.0)
    assert bands.counts == [0, 0, 0, 0, 2]
    assert keys(bands, 2) == ["old", "new"]


def test_a_feed_that_comes_back_from_a_pause_is_as_old_as_it_is() -> None:
    bands = Bands()
    bands.enter(ready("t", -100, entered_s=0.0), 0.0)
    bands.enter(ready("u", 0, entered_s=1.0), 1.0)
    [low] = bands.take_low()
    assert len(bands) == 1
    assert "t" not in bands
    bands.enter(low, 4.0)
    assert bands.counts == [0, 1, 1, 0, 0]
    assert keys(bands, 3) == ["t", "u", None]


def test_a_feed_that_left_gets_no_slot() -> None:
    bands = Bands()
    for name in "abc":
        bands.enter(ready(name), 0.0)
    assert bands.leave("b") is not None
    assert bands.leave("b") is None
    bands.enter(ready("b", entered_s=1.0), 1.0)
    assert keys(bands, 4) == ["a", "c", "b", None]


def test_the_first_feed_of_a_band_waits_for_30_pages_of_others_at_most() -> None:
    draw = random.Random(seed_of("rounds of bands"))
    waited = Counter[int]()
    bands = Bands()
    for number in range(20_000):
        for band, priority in enumerate((-1, 0, 250, 500, 750)):
            if draw.random() < 0.4:
                bands.enter(ready(f"{band}.{number}", priority, float(number)), float(number))
        before = list(bands.counts)
        taken = bands.take()
        if taken is None:
            continue
        for band, count in enumerate(before):
            waited[band] = 0 if band == taken.band or not count else waited[band] + 1
        assert max(waited.values()) <= 30
        if len(bands) > 400:
            while bands.take():
                pass
            waited.clear()


def test_consumption_adds_up_to_250_and_is_forgotten() -> None:
    consumption = Consumption()
    assert consumption.boost("t", 0.0) == 0
    consumption.add("t", 50, 0.0)
    assert [consumption.boost("t", at_s) for at_s in (0.0, 10.0, 20.0, 1000.0)] == [125, 62, 31, 0]
    consumption.add("t", 50, 10.0)
    assert consumption.boost("t", 10.0) == 187
    consumption.add("t", 10_000, 10.0)
    assert consumption.boost("t", 10.0) == BOOST_MOST
    assert consumption.boost("u", 10.0) == 0


def test_consumption_of_many_topics_takes_little_room() -> None:
    consumption = Consumption()
    for number in range(10_000):
        consumption.add(f"t{number}", 1, number / 10)
    assert consumption.boost("t9999", 1000.0) == 2
    assert len(pages_of(consumption)) < 2000
