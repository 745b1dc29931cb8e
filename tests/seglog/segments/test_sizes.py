"""Totals of a topic's segments: their sums, and that an append does not compute the sums again."""

from __future__ import annotations

from pathlib import Path

import pytest

import seglog
from benchmarks.calls import count_calls
from seglog import LogSettings, TopicConfig
from seglog.engine.work_thread import InCaller
from seglog.segments.segment import SegmentInfo, Sizes
from tests.seglog.totals import check_totals

SEGMENTS = tuple(SegmentInfo(first, first + 9, first * 100, 0, 0, True) for first in (1, 11, 21))


def test_bytes_are_those_from_a_seq_on() -> None:
    sizes = Sizes(SEGMENTS)
    assert [sizes.bytes_from(seq) for seq in (1, 10, 11, 20, 30, 31)] == [3300, 3300, 3200, 3200, 2100, 0]
    assert [sizes.index_of(seq) for seq in (1, 10, 11, 30, 31)] == [0, 0, 1, 2, 3]
    assert (Sizes().hot_bytes, Sizes().bytes_from(1)) == (0, 0)


def test_relocated_ones_are_counted_apart() -> None:
    sizes = Sizes(SEGMENTS, SEGMENTS[:2])
    assert (sizes.hot_bytes, sizes.warm_bytes) == (2100, 1200)


@pytest.mark.parametrize(
    "config",
    [
        TopicConfig(cap_bytes=1 << 30, cap_records=1_000_000),
        TopicConfig(cap_bytes=1 << 30, cap_records=1_000_000, discard="reject"),
    ],
    ids=["old", "reject"],
)
def test_an_append_to_a_capped_topic_costs_the_same_whatever_its_segments(tmp_path: Path, config: TopicConfig) -> None:
    counts = []
    for segments in (10, 200):
        place = tmp_path / str(segments)
        with seglog.open(place, settings=LogSettings(segment_max_events=1), upkeep=InCaller) as log:
            topic = log.create_topic("t", config)
            topic.append([b"x"] * segments)
            log.checkpoint()
            assert len(topic.inner.segments()) == segments
            topic.append([b"x"])
            counts.append(count_calls(lambda topic=topic: topic.append([b"x"])))  # type: ignore[misc]
            check_totals(log)
    assert counts[1] <= counts[0] + 10, "a binary search takes a few steps more"
