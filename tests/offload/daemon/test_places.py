"""Test the time that a refused client waits, and appends that wait for room."""

from __future__ import annotations

import asyncio

import pytest

from offload.daemon.request_places import Place, Places, RecentRate
from offload.errors import Busy
from offload.settings import ServeSettings

MIB = 1024 * 1024


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = RecentRate(0.0)
    assert rate.per_s(5.0) == 0
    for second in range(1, 101):
        rate.note(100, float(second))
    assert rate.per_s(100.0) == pytest.approx(100, rel=0.1)
    for second in range(101, 161):
        rate.note(1_000, float(second))
    assert rate.per_s(160.0) == pytest.approx(1_000, rel=0.1)
    early = RecentRate(50.0)
    early.note(300, 51.0)
    assert early.per_s(51.0) == pytest.approx(300, rel=0.1)


def test_a_refused_client_waits_for_what_is_under_way() -> None:
    places, now_s = Places(), 0.0
    settings = ServeSettings(max_requests=3)

    def clock_s() -> float:
        return now_s

    places.clock_s = clock_s
    waits = []
    for took_s in (0.5, 2.0, 8.0, 100.0):
        held = [Place(places, settings, limited=True) for _ in range(3)]
        for each in held:
            each.take()
        with pytest.raises(Busy) as busy:
            Place(places, settings, limited=True).take()
        waits.append(busy.value.retry_after_s)
        for each in held:
            now_s += took_s
            each.__exit__(None, None, None)
        now_s += 3600.0  # a quiet hour changes nothing
    assert waits[0] == 1, "nothing has ended yet"
    assert waits[1] == 2, "3 requests of half a second each"
    assert 4 <= waits[2] <= 6
    assert waits[3] <= 30
    assert waits == sorted(waits)


def test_an_append_waits_for_room_only_once_a_part_is_in() -> None:
    async def run() -> None:
        places = Places()
        settings = ServeSettings(max_requests=1, max_bodies_bytes=MIB, body_timeout_s=1)
        first, second = (Place(places, settings, limited=True) for _ in range(2))
        for place in (first, second):
            place.by_parts()
        await first.came(MIB, is_whole=False)
        await first.begin_part()
        with pytest.raises(Busy):
            await second.came(MIB, is_whole=False)
        with pytest.raises(Busy):
            await second.begin_part()
        first.end_part(MIB)
        await second.came(MIB, is_whole=False)
        await second.begin_part()
        waiting = [asyncio.create_task(first.begin_part()), asyncio.create_task(first.came(MIB, is_whole=False))]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        second.end_part(MIB)
        await asyncio.gather(*waiting)
        with pytest.raises(Busy):
            await second.came(MIB, is_whole=False)  # after `body_timeout_s`
        for place in (first, second):
            place.__exit__(None, None, None)
        assert (places.taken, places.held_bytes, places.body_bytes) == (0, 0, 0)

    asyncio.run(run())
