"""The expiry floor: below it the records of a topic are past its ttl, whatever segment they are in.

Times never go back within a topic, so the floor is one seq. A search of the index finds it (seglog.reading.search).

X1  A record whose time is before now - ttl_ms is not shown. A reader gets a `Gap` or `Evicted` in its place, as after
    an eviction. `now` is the log's clock when the read is called; a follower asks again each time it looks for news.
    So a read that takes long shows a record that expires meanwhile, unless retention takes it.
X2  The floor never goes back while the log is open, also if the clock is set back, or the ttl is raised or lifted.
    A checkpoint keeps it where no history is kept. After a crash it is found again by the clock.
X3  It is exact as far as the reader needs it: a reader above a segment asks neither its files, nor a cold store, nor
    the cold tier. Where the index cannot be read, the floor is the start of that segment.
X4  `Topic.frames` shows expired records: the offload takes them. So does every past state in the archive.
X5  A branch begins with records of another time: its ttl counts from the first record that is its own.

Without a ttl a read costs one comparison more.
"""

from __future__ import annotations

from bisect import bisect_left

from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.errors import SeglogError
from seglog.reading.search import cold_seq_at, hot_seq_at
from seglog.values.floors import Floors
from seglog.values.names import BRANCH_MARK

__all__ = ["expired_seq", "known_floors"]


def expired_seq(engine: Engine, state: TopicState, first: int) -> int:
    """The seq below which a reader from `first` on is shown nothing; 1 if there is none."""
    ttl_ms = state.config.ttl_ms
    if ttl_ms is None:
        return state.expired_seq
    oldest_ms = engine.clock.now_ms() - ttl_ms
    if oldest_ms <= state.oldest_live_ms:
        return state.expired_seq
    cuts = len(state.cuts)
    try:
        found, found_ms = _search(engine, state, first, oldest_ms)
    except (SeglogError, FileNotFoundError):
        engine.check_open()
        found, found_ms = _whole_segments(state, oldest_ms), 0
    with engine.committer.lock:
        if len(state.cuts) == cuts:
            if found > state.expired_seq:
                state.touch()
            state.expired_seq = max(state.expired_seq, found)
            state.oldest_live_ms = max(state.oldest_live_ms, found_ms)
        return state.expired_seq


def known_floors(engine: Engine, state: TopicState) -> Floors:
    """With as much of what has expired as is known without a lock and without I/O: whole sealed segments at least."""
    floors = state.floors
    if state.config.ttl_ms is None:
        return floors.expired(state.expired_seq)
    found = _whole_segments(state, engine.clock.now_ms() - state.config.ttl_ms)
    return floors.expired(max(found, state.expired_seq))


def _whole_segments(state: TopicState, oldest_ms: int) -> int:
    """The seq behind the sealed segments of which the newest record is older."""
    sealed = state.sealed
    count = bisect_left(sealed, oldest_ms, key=lambda segment: segment.max_ts_ms)
    return sealed[count - 1].last_seq + 1 if count else 1


def _search(engine: Engine, state: TopicState, first: int, oldest_ms: int) -> tuple[int, int]:
    """The seq, and the time of the record there as far as the search had to look at it; else 0."""
    hot_floor, earliest = state.hot_floor, state.floors.earliest_seq
    found = hot_seq_at(engine, state, oldest_ms, first)
    if found > hot_floor or first >= hot_floor or earliest >= hot_floor or engine.cold is None:
        return (found, 0) if found > hot_floor else (1, 0)
    if BRANCH_MARK in state.name and hot_floor <= state.first_seq:
        return 1, 0
    begin = max(earliest, state.first_seq) if BRANCH_MARK in state.name else earliest
    found = cold_seq_at(engine, state, begin, hot_floor, oldest_ms)
    record = next(iter(engine.cold.read(state.name, found, hot_floor - 1)), None)
    return found, 0 if record is None else record.ts_ms
