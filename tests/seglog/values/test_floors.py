"""Floors as values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seglog.engine.entries import apply_evict, new_state
from seglog.format.control import TopicCreated
from seglog.values.config import TopicConfig
from seglog.values.deletes import Floors
from seglog.values.record import Gap


def test_a_delete_raises_the_front_and_tells_of_no_gap() -> None:
    floors = Floors().raised(11)
    assert floors == Floors(11, 1, 1)
    assert floors.gap(1, 100) is None
    assert floors.raised(5) == floors


def test_what_was_evicted_is_a_gap_from_the_first_live_record() -> None:
    floors = Floors().raised(11).evicted(21, Gap(11, 18))
    assert floors == Floors(21, 11, 19)
    assert floors.gap(1, 100) == Gap(11, 18)
    assert floors.gap(15, 16) == Gap(15, 16)
    assert floors.gap(1, 10) is None
    assert floors.gap(19, 100) is None
    assert floors.evicted(31, Gap(25, 30)) == Floors(31, 11, 31)
    assert floors.evicted(31, None) == Floors(31, 11, 19)


def test_a_cut_takes_the_front_along() -> None:
    assert Floors(21, 11, 19).cut(20) == Floors(20, 11, 19)
    assert Floors(21, 11, 19).cut(25) == Floors(21, 11, 19)


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 20), st.integers(0, 20)), max_size=20))
def test_floors_keep_their_order_and_forget_no_loss(steps: list[tuple[int, int, int]]) -> None:
    floors, lost = Floors(), set()
    for size, skip, live in steps:
        first = floors.earliest_seq
        if not live:
            floors = floors.raised(first + size)
            continue
        begin = first + min(skip, size - 1)
        end = min(begin + live - 1, first + size - 1)
        floors = floors.evicted(first + size, Gap(begin, end))
        lost |= set(range(begin, end + 1))
        assert 1 <= floors.evict_from <= floors.evict_floor <= floors.earliest_seq
    gap = floors.gap(1, 10_000)
    told = set() if gap is None else set(range(gap.gap_from, gap.gap_to + 1))
    assert lost <= told


def test_an_eviction_takes_back_nothing_that_a_delete_raised_meanwhile() -> None:
    state = new_state(TopicCreated(1, "t", 1, 1, TopicConfig(), 0), None)
    state.floors = Floors(8, 1, 1)
    apply_evict(state, Floors(5, 1, 5))
    assert state.floors == Floors(8, 1, 5)
