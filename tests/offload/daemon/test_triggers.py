from __future__ import annotations

import pytest

from offload.daemon.background.triggers import Backlog, Due, Policy, due, is_over, next_due_ms, policy_of
from offload.settings import Backoff, OffloadSettings
from seglog import InvalidSetting, SegmentInfo

NEVER = Policy(after_ms=None, hot_bytes=None, tail_interval_ms=None)
SEGMENTS = [
    SegmentInfo(1, 10, data_bytes=100, min_ts_ms=1_000, max_ts_ms=1_900, sealed=True),
    SegmentInfo(11, 20, data_bytes=100, min_ts_ms=2_000, max_ts_ms=2_900, sealed=True),
    SegmentInfo(21, 30, data_bytes=100, min_ts_ms=3_000, max_ts_ms=3_900, sealed=True),
]


def backlog(*, head_seq: int = 30, unsealed_since_ms: int | None = None, is_unfinished: bool = False) -> Backlog:
    return Backlog(SEGMENTS, 0, head_seq, unsealed_since_ms, is_unfinished)


def test_nothing_is_due_where_every_trigger_is_never() -> None:
    assert due(backlog(unsealed_since_ms=0), NEVER, 10**15) is None


@pytest.mark.parametrize(("now_ms", "up_to"), [(1_900, 0), (2_899, 0), (2_900, 10), (3_900, 20), (9_999, 30)])
def test_age_counts_from_the_newest_record_of_a_segment(now_ms: int, up_to: int) -> None:
    policy = Policy(after_ms=1_000, hot_bytes=None, tail_interval_ms=None)
    assert due(backlog(), policy, now_ms) == (Due(up_to, "age") if up_to else None)


@pytest.mark.parametrize(("hot_bytes", "up_to"), [(0, 30), (1, 20), (100, 20), (101, 10), (200, 10), (201, 0)])
def test_bytes_count_from_the_newest_and_the_oldest_go(hot_bytes: int, up_to: int) -> None:
    policy = Policy(after_ms=None, hot_bytes=hot_bytes, tail_interval_ms=None)
    assert due(backlog(), policy, 0) == (Due(up_to, "bytes") if up_to else None)


def test_of_two_triggers_the_one_that_takes_more_counts() -> None:
    policy = Policy(after_ms=1_000, hot_bytes=100, tail_interval_ms=None)
    assert due(backlog(), policy, 2_900) == Due(20, "bytes")
    assert due(backlog(), policy, 4_900) == Due(30, "age")


def test_the_tail_is_sealed_and_goes_when_its_interval_is_over() -> None:
    policy = Policy(after_ms=None, hot_bytes=None, tail_interval_ms=500)
    assert due(backlog(head_seq=33, unsealed_since_ms=1_000), policy, 1_499) is None
    assert due(backlog(head_seq=33, unsealed_since_ms=1_000), policy, 1_500) == Due(33, "tail", seal=True)


@pytest.mark.parametrize(
    ("now_ms", "is_so"), [(1_000, False), (1_499, False), (1_500, True), (9_999, True), (999, True), (0, True)]
)
def test_an_interval_is_over_in_time_and_when_the_clock_has_gone_back(now_ms: int, is_so: bool) -> None:
    assert is_over(1_000, 500, now_ms) is is_so
    policy = Policy(after_ms=None, hot_bytes=None, tail_interval_ms=500)
    found = due(backlog(head_seq=33, unsealed_since_ms=1_000), policy, now_ms)
    assert found == (Due(33, "tail", seal=True) if is_so else None)


@pytest.mark.parametrize("after_ms", [None, 1_000])
@pytest.mark.parametrize("interval_ms", [None, 500, 50_000])
@pytest.mark.parametrize("since_ms", [None, 1_000, 2_500])
def test_a_topic_is_due_next_at_the_time_that_was_said(
    after_ms: int | None, interval_ms: int | None, since_ms: int | None
) -> None:
    policy = Policy(after_ms, None, interval_ms)
    waits = backlog(head_seq=33, unsealed_since_ms=since_ms)
    at_ms = next_due_ms(waits, policy)
    if at_ms is None:
        assert due(waits, policy, 10**15) is None
    else:
        assert due(waits, policy, at_ms) is not None
        assert due(waits, policy, at_ms - 1) is None


def test_what_an_earlier_attempt_left_is_due_whatever_the_triggers_say() -> None:
    assert due(backlog(is_unfinished=True), NEVER, 0) == Due(0, "unfinished")


def test_a_topic_may_have_triggers_of_its_own() -> None:
    settings = OffloadSettings(offload_after_s=60, tail_interval_s=30)
    assert policy_of(settings, {}) == Policy(60_000, None, 30_000)
    own = {"offload_after_s": "never", "offload_hot_bytes": "5", "offload_paused": "yes"}
    assert policy_of(settings, own) == Policy(None, 5, 30_000)
    with pytest.raises(InvalidSetting, match="tail_interval_s"):
        policy_of(settings, {"tail_interval_s": "0"})


def test_a_topic_that_fails_waits_longer_each_time_up_to_a_bound() -> None:
    backoff = Backoff(1_000, 60_000)
    assert [backoff.delay_ms(failures, 0.0) for failures in (1, 2, 3, 7, 8, 1_000)] == [
        1_000, 2_000, 4_000, 60_000, 60_000, 60_000,
    ]  # fmt: skip
    assert backoff.delay_ms(3, 1.0) == 2_000
    assert backoff.delay_ms(1, 1.0) == 1_000
