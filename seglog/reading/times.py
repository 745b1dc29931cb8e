"""The seqs of times: the first record at or after a time, and the expiry floor, below which records are past the ttl.

Times never decrease within a topic, so each of them is one seq, and a binary search finds it.

In this log, the search looks at segments, then at .idx entries, then at the index of the tail. Deleted and lost records
count. The time of a lost one lies between those of its neighbours. Ephemeral records are searched in memory besides. If
the segment of that time is relocated, its .idx comes from the warm store. Below the hot floor, each step asks the cold
tier for one record. That makes about twenty cold reads for a million records.

EXPIRY-1  A record whose time is before now - ttl_ms is not shown. A reader gets a `Gap` or `Evicted` in its place, as
    after an eviction. `now` is the log's clock when the read is called. A follower reads the clock again each time it
    looks for news. So a long read shows a record that expires meanwhile, unless retention evicts it.
EXPIRY-2  While the log is open, only a truncation lowers the floor. A clock that is set back, and a ttl that is raised
    or lifted, do not lower it. Without `keep_history`, a checkpoint stores it. After a crash, the clock gives it again.
EXPIRY-3  The floor is exact as far as the reader needs it. A reader above a segment reads neither the segment's files,
    nor a warm store, nor the cold tier. If the index of a segment cannot be read, the floor is the start of that
    segment.
EXPIRY-4  `Topic.inner.frames` shows expired records, because the offload takes them. So does every past state in the
    archive.
EXPIRY-5  A branch begins with its parent's records, which are of another time. So its ttl counts from the first record
    of its own: until that one has expired, the branch shows all that it has from its parent. Only the cold tier knows
    which records are the branch's own, because a takeover begins a topic after them. After a truncation, the branch may
    have none, so the search begins again.

Without a ttl, a read costs one more comparison.
"""

from __future__ import annotations

from bisect import bisect_left

from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.errors import ColdTierRequired, FileCorrupt, SeglogError, is_own
from seglog.segments.segment import SegmentInfo
from seglog.tiers.cold_tier import BranchesTier
from seglog.values.deletes import Floors
from seglog.values.names import BRANCH_MARK


def first_seq_at(engine: Engine, state: TopicState, ts_ms: int) -> int:
    """Return the first seq at or after `ts_ms`, not below `earliest_seq`. If all is earlier, return `head_seq + 1`."""
    while True:
        engine.check_open()
        generation = state.generation
        try:
            seq = _hot_seq_at(engine, state, ts_ms)
        except (FileNotFoundError, FileCorrupt):
            if state.generation == generation:
                raise
            continue
        earliest, hot_floor = state.floors.earliest_seq, state.hot_floor
        if seq > hot_floor or earliest >= hot_floor:
            return max(seq, earliest)
        return _cold_seq_at(engine, state, earliest, hot_floor, ts_ms)


def _hot_seq_at(engine: Engine, state: TopicState, ts_ms: int, first: int | None = None) -> int:
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
            seq = state.tail.first_seq_at(ts_ms)
            return seq if buffered is None else min(seq, buffered)
    info = segments[position]
    is_plain = first is not None and (info.min_ts_ms >= ts_ms or first > info.last_seq)
    seq = info.first_seq if is_plain else _in_segment(engine, state, info, ts_ms)
    return seq if buffered is None else min(seq, buffered)


def _in_segment(engine: Engine, state: TopicState, info: SegmentInfo, ts_ms: int) -> int:
    segment = engine.segment(state.topic_id, info)
    seqs = range(info.first_seq, info.last_seq + 1)
    return seqs[bisect_left(seqs, ts_ms, key=lambda seq: int(segment.entries(seq, seq)["ts_ms"][0]))]


def _cold_seq_at(engine: Engine, state: TopicState, first: int, end: int, ts_ms: int) -> int:
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


def expired_seq(engine: Engine, state: TopicState, first: int) -> int:
    """Return the seq below which a reader from `first` on sees nothing; 1 if there is none."""
    ttl_ms = state.config.ttl_ms
    if ttl_ms is None:
        return state.expired_seq
    oldest_ms = engine.clock.now_ms() - ttl_ms
    if oldest_ms <= state.oldest_live_ms:
        return state.expired_seq
    truncations = len(state.truncations)
    try:
        seq, seq_ms = _search(engine, state, first, oldest_ms)
    except (SeglogError, FileNotFoundError) as error:
        if isinstance(error, SeglogError) and not is_own(error):
            raise  # of the cold tier, which has the older records: without it, nobody knows which of them have expired
        engine.check_open()
        seq, seq_ms = _whole_segments(state, oldest_ms), 0
    with engine.committer.lock:
        if len(state.truncations) == truncations:
            if seq > state.expired_seq:
                state.touch()
            state.expired_seq = max(state.expired_seq, seq)
            state.oldest_live_ms = max(state.oldest_live_ms, seq_ms)
        return state.expired_seq


def known_floors(engine: Engine, state: TopicState) -> Floors:
    """Return the floors, raised by the expired seqs that are known without a lock and without I/O.

    The expired seqs cover at least the sealed segments that have expired as a whole.
    """
    floors = state.floors
    if state.config.ttl_ms is None:
        return floors.expired(state.expired_seq)
    seq = _whole_segments(state, engine.clock.now_ms() - state.config.ttl_ms)
    return floors.expired(max(seq, state.expired_seq))


def _whole_segments(state: TopicState, oldest_ms: int) -> int:
    """Return the seq after the sealed segments whose newest record is older than `oldest_ms`; 1 if there are none."""
    sealed = state.sealed
    count = bisect_left(sealed, oldest_ms, key=lambda segment: segment.max_ts_ms)
    return sealed[count - 1].last_seq + 1 if count else 1


def _search(engine: Engine, state: TopicState, first: int, oldest_ms: int) -> tuple[int, int]:
    """Return the expiry floor, and the time of the record there. The time is 0 if the search did not read it."""
    hot_floor, earliest = state.hot_floor, state.floors.earliest_seq
    seq = _hot_seq_at(engine, state, oldest_ms, first)
    if seq > hot_floor or first >= hot_floor or earliest >= hot_floor or engine.cold is None:
        return (seq, 0) if seq > hot_floor else (1, 0)
    if BRANCH_MARK in state.name and isinstance(engine.cold, BranchesTier):
        return engine.cold.expired_own(state.name, hot_floor, oldest_ms)
    seq = _cold_seq_at(engine, state, earliest, hot_floor, oldest_ms)
    record = next(iter(engine.cold.read(state.name, seq, hot_floor - 1)), None)
    return seq, 0 if record is None else record.ts_ms
