"""Find the first record at or after a time, by binary search: times never decrease within a topic.

In this log, the search looks at segments, then at .idx entries, then at the index of the tail. Deleted and lost records
count. The time of a lost one lies between those of its neighbours. Ephemeral records are searched in memory besides. If
the segment of that time is relocated, its .idx comes from the warm store. Below the hot floor, each step asks the cold
tier for one record. That makes about twenty cold reads for a million records.
"""

from __future__ import annotations

from bisect import bisect_left

from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.errors import ColdTierRequired, FileCorrupt
from seglog.segments.segment import SegmentInfo

__all__ = ["cold_seq_at", "first_seq_at", "hot_seq_at"]


def first_seq_at(engine: Engine, state: TopicState, ts_ms: int) -> int:
    """Return the first seq at or after `ts_ms`, not below `earliest_seq`. If all is earlier, return `head_seq + 1`."""
    while True:
        engine.check_open()
        generation = state.generation
        try:
            found = hot_seq_at(engine, state, ts_ms)
        except (FileNotFoundError, FileCorrupt):
            if state.generation == generation:
                raise
            continue
        earliest, hot_floor = state.floors.earliest_seq, state.hot_floor
        if found > hot_floor or earliest >= hot_floor:
            return max(found, earliest)
        return cold_seq_at(engine, state, earliest, hot_floor, ts_ms)


def hot_seq_at(engine: Engine, state: TopicState, ts_ms: int, first: int | None = None) -> int:
    """Return the first seq at or after `ts_ms` among the records in this log.

    With `first`, the result is exact only for a reader from `first` on. Below `first`, the start of a segment may stand
    for it. The search reads no file if the times of the segments decide.

    Raises `FileNotFoundError` and `FileCorrupt`, also for a segment that changed meanwhile.
    """
    with engine.committer.lock:
        segments = state.segments
        buffered = state.ephemeral_buffer.first_seq_at(ts_ms)
        position = bisect_left(segments, ts_ms, key=lambda segment: segment.max_ts_ms)
        if position == len(segments):
            found = state.tail.first_seq_at(ts_ms)
            return found if buffered is None else min(found, buffered)
    info = segments[position]
    is_plain = first is not None and (info.min_ts_ms >= ts_ms or first > info.last_seq)
    found = info.first_seq if is_plain else _in_segment(engine, state, info, ts_ms)
    return found if buffered is None else min(found, buffered)


def _in_segment(engine: Engine, state: TopicState, info: SegmentInfo, ts_ms: int) -> int:
    segment = engine.segment(state.topic_id, info)
    seqs = range(info.first_seq, info.last_seq + 1)
    return seqs[bisect_left(seqs, ts_ms, key=lambda seq: int(segment.entries(seq, seq)["ts_ms"][0]))]


def cold_seq_at(engine: Engine, state: TopicState, first: int, end: int, ts_ms: int) -> int:
    """Search the live records from `first` on and below `end`. Return `end` if all are earlier than `ts_ms`.

    Otherwise, no live record from the returned seq on is earlier, and all live records below it are.
    """
    cold = engine.cold
    if cold is None:
        raise ColdTierRequired(state.name, first, end - 1)
    while first < end:
        middle = (first + end) // 2
        record = next(iter(cold.read(state.name, middle, end - 1)), None)
        if record is None or record.ts_ms >= ts_ms:
            end = middle
        else:
            first = record.seq + 1
    return first
