"""The first record at or after a time: times never go back within a topic, so it is a binary search.

In this log it looks at segments, then at .idx entries, then at the index of the tail: deleted records count, and lost
ones, with a time between those of their neighbours. Ephemeral ones are looked up in memory beside that. Where the
segment that the time falls in is relocated, its .idx comes from the cold store. Below the hot floor it asks the cold
tier for one record a step: about twenty steps for a million records, each a cold read.
"""

from __future__ import annotations

from bisect import bisect_left

from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.errors import ColdTierRequired, FileCorrupt
from seglog.segments.segment import SegmentInfo

__all__ = ["cold_seq_at", "first_seq_at", "hot_seq_at"]


def first_seq_at(engine: Engine, state: TopicState, ts_ms: int) -> int:
    """`head_seq + 1` if all is earlier; not below `earliest_seq`."""
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
    """Of what is in this log. With `first`, exact for a reader from there on: the start of a segment below may stand
    for it, and no file is asked where the times of the segments tell it.

    Raises `FileNotFoundError` and `FileCorrupt` for a segment that changed meanwhile, too.
    """
    with engine.committer.lock:
        segments = state.segments
        resident = state.resident.first_seq_at(ts_ms)
        position = bisect_left(segments, ts_ms, key=lambda segment: segment.max_ts_ms)
        if position == len(segments):
            found = state.tail.first_seq_at(ts_ms)
            return found if resident is None else min(found, resident)
    info = segments[position]
    is_plain = first is not None and (info.min_ts_ms >= ts_ms or first > info.last_seq)
    found = info.first_seq if is_plain else _in_segment(engine, state, info, ts_ms)
    return found if resident is None else min(found, resident)


def _in_segment(engine: Engine, state: TopicState, info: SegmentInfo, ts_ms: int) -> int:
    segment = engine.segment(state.topic_id, info)
    seqs = range(info.first_seq, info.last_seq + 1)
    return seqs[bisect_left(seqs, ts_ms, key=lambda seq: int(segment.entries(seq, seq)["ts_ms"][0]))]


def cold_seq_at(engine: Engine, state: TopicState, first: int, end: int, ts_ms: int) -> int:
    """Among the live records from `first` on, below `end`."""
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
