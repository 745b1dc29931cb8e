from __future__ import annotations

import pytest

from offload.write.attempt import SegmentRange, is_due, plan_range
from seglog import SegmentInfo


def _segment(first: int, last: int, size: int = 10, *, sealed: bool = True) -> SegmentInfo:
    return SegmentInfo(first, last, size, 0, 0, sealed)


SEGMENTS = [_segment(1, 10), _segment(11, 20), _segment(21, 30), _segment(31, 33, sealed=False)]


@pytest.mark.parametrize(
    ("offloaded", "up_to", "max_bytes", "expected"),
    [
        (0, None, 100, SegmentRange(1, 30)),
        (0, None, 20, SegmentRange(1, 20)),
        (0, None, 1, SegmentRange(1, 10)),  # a range has at least one segment, whatever its size
        (10, None, 100, SegmentRange(11, 30)),
        (15, None, 100, SegmentRange(16, 30)),  # a part of the segment is offloaded already
        (30, None, 100, None),
        (0, 20, 100, SegmentRange(1, 20)),
        (0, 19, 100, SegmentRange(1, 10)),
        (0, 9, 100, None),
        (20, 20, 100, None),
    ],
)
def test_a_run_is_made_of_adjacent_sealed_segments(
    offloaded: int, up_to: int | None, max_bytes: int, expected: SegmentRange | None
) -> None:
    assert plan_range(SEGMENTS, offloaded, up_to, max_bytes) == expected


def test_records_further_apart_in_time_than_asked_for_are_in_different_runs() -> None:
    times = [(0, 400), (100, 900), (950, 1_400), (5_000, 9_000)]
    segments = [
        SegmentInfo(10 * number + 1, 10 * number + 10, 10, earliest, latest, sealed=True)
        for number, (earliest, latest) in enumerate(times)
    ]
    assert plan_range(segments, 0, None, 100, None) == SegmentRange(1, 40)
    assert plan_range(segments, 0, None, 100, 1_400) == SegmentRange(1, 30)
    assert plan_range(segments, 0, None, 100, 1_399) == SegmentRange(1, 20)
    assert plan_range(segments, 20, None, 100, 1_399) == SegmentRange(21, 30)
    assert plan_range(segments, 20, None, 10, 1_399) == SegmentRange(21, 30)
    assert plan_range(segments, 30, None, 100, 0) == SegmentRange(
        31, 40
    )  # a range has at least one segment, whatever its age


def test_the_earliest_record_counts_also_when_it_comes_late() -> None:
    segments = [SegmentInfo(1, 10, 10, 5_000, 6_000, sealed=True), SegmentInfo(11, 20, 10, 0, 100, sealed=True)]
    assert plan_range(segments, 0, None, 100, 5_999) == SegmentRange(1, 10)
    assert plan_range(segments, 0, None, 100, 6_000) == SegmentRange(1, 20)


def test_without_segments_there_is_nothing_to_do() -> None:
    assert plan_range([], 0, None, 100) is None


def test_the_lag_is_over_when_it_is_over_and_not_before() -> None:
    assert not is_due(1000, 2, 2999)
    assert is_due(1000, 2, 3000)
    assert is_due(1000, 0, 1000)
    assert not is_due(1000, 0, 999)
