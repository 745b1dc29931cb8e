"""A `SeqSet` is what a plain set of numbers is."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.calls import count_calls
from seglog.values.seq_set import SeqSet

SEQS = st.sets(st.integers(1, 30))
RANGES = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), max_size=8)


def _of(seqs: set[int]) -> SeqSet:
    return SeqSet.of_seqs(sorted(seqs))


@given(SEQS)
def test_it_has_its_seqs_and_no_others(seqs: set[int]) -> None:
    made = _of(seqs)
    assert {seq for seq in range(40) if seq in made} == seqs
    assert (len(made), bool(made)) == (len(seqs), bool(seqs))
    assert (made.first, made.end) == (min(seqs, default=0), max(seqs, default=-1) + 1)
    pairs = [*made.ranges()]
    assert len(pairs) == made.range_count
    assert {seq for first, last in pairs for seq in range(first, last + 1)} == seqs
    assert all(before[1] + 1 < after[0] for before, after in pairwise(pairs)), "two ranges touch"


@given(RANGES)
def test_ranges_in_any_order_are_joined(ranges: list[tuple[int, int]]) -> None:
    seqs = {seq for first, last in ranges for seq in range(first, last + 1)}
    assert SeqSet.of(ranges) == _of(seqs)


@given(st.lists(SEQS, min_size=1, max_size=5))
def test_a_union_has_the_seqs_of_all(sets: list[set[int]]) -> None:
    assert SeqSet.union(map(_of, sets)) == _of(set().union(*sets))
    assert _of(sets[0]) | _of(sets[-1]) == _of(sets[0] | sets[-1])


def test_a_union_of_large_sets_is_the_same() -> None:
    even, odd = SeqSet.of_seqs(range(2, 2_000, 2)), SeqSet.of_seqs(range(1, 2_000, 2))
    assert [*(even | odd).ranges()] == [(1, 1_999)]


@given(SEQS, st.integers(0, 32), st.integers(0, 32))
def test_a_part_has_the_seqs_within(seqs: set[int], first: int, last: int) -> None:
    assert _of(seqs).within(first, last) == _of({seq for seq in seqs if first <= seq <= last})


@given(SEQS, st.sets(st.integers(1, 32), min_size=1))
def test_many_seqs_are_looked_up_together(seqs: set[int], asked: set[int]) -> None:
    listed = sorted(asked)
    expected = [seq in seqs for seq in listed]
    assert (_of(seqs).holds(listed) or [False] * len(listed)) == expected
    assert any(expected) or not any(_of(seqs).holds(listed) or ())


@given(SEQS)
def test_its_json_gives_it_again(seqs: set[int]) -> None:
    made = _of(seqs)
    again = SeqSet.from_json(json.loads(json.dumps(made.to_json())))
    assert (again, hash(again)) == (made, hash(made))


@pytest.mark.parametrize("distances", [[1], [0, 1], [5, 0], [5, 1, 0, 1], [2**63, 1], [1, 1, 1]])
def test_a_list_that_is_no_set_is_refused(distances: list[int]) -> None:
    with pytest.raises(ValueError, match="no ranges"):
        SeqSet.from_json(distances)


def test_it_shows_its_first_ranges() -> None:
    assert repr(SeqSet.of([(1, 3), (5, 5)])) == "SeqSet(1-3, 5)"
    assert repr(SeqSet.of_seqs(range(1, 20, 2))) == "SeqSet(1, 3, 5, 7, 9, and 5 ranges)"
    assert repr(SeqSet.of([])) == "SeqSet()"


def test_a_look_costs_the_same_whatever_the_number_of_ranges() -> None:
    seqs = [*range(1, 1_001)]
    few, many = (SeqSet.of_seqs([17, *range(2_000, 2_000 + 2 * count, 2)]) for count in (10, 100_000))
    assert few.holds(seqs) == many.holds(seqs) == [seq == 17 for seq in seqs]
    assert count_calls(lambda: few.holds(seqs)) == count_calls(lambda: many.holds(seqs))
