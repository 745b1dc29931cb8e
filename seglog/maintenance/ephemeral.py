"""Room for ephemeral records: what goes when memory is full, or when ttl and caps want it gone.

P1  All that is resident fits into `ephemeral_max_bytes`. An append that would pass it evicts: the oldest chunk of the
    topic that holds most, as long as there is one whose `discard` is "old". A topic with "reject" is not evicted for
    others, and its own appends are refused.
P2  ttl and caps take chunks as they take segments (seglog.maintenance.retention), once nothing of the topic lies before
    them. The
    chunk that is written stays, but for its ttl.
P3  Nothing is written for it: what went is lost after a restart anyway.
"""

from __future__ import annotations

from seglog.engine.engine import Engine
from seglog.engine.ephemeral_buffer import Chunk, held_bytes
from seglog.engine.state import TopicState
from seglog.errors import TopicFull

__all__ = ["make_room", "trim"]


def make_room(engine: Engine, state: TopicState, frame_bytes: int, records: int) -> None:
    """For an append to `state`. Raises `TopicFull`. The lock is held."""
    memory = engine.memory
    wanted = held_bytes(frame_bytes, records)
    if wanted > memory.max_bytes:
        raise TopicFull(state.name, "ephemeral_max_bytes", memory.max_bytes)
    while memory.used_bytes + wanted > memory.max_bytes:
        victim = None if state.config.discard == "reject" else _largest(engine)
        if victim is None:
            raise TopicFull(state.name, "ephemeral_max_bytes", memory.max_bytes)
        victim.drop_oldest_resident()


def trim(engine: Engine, state: TopicState) -> int:
    """P2. The last seq that went; 0 if none did."""
    now_ms = engine.clock.now_ms()
    last_seq = 0
    with engine.committer.lock:
        while _is_in_front(state) and _is_due(state, state.resident.chunks[0], now_ms):
            last_seq = state.resident.chunks[0].last_seq
            state.drop_oldest_resident()
    return last_seq


def _largest(engine: Engine) -> TopicState | None:
    """Of the topics that may be evicted, the one that holds most."""
    candidates = [
        state
        for state in engine.states()
        if state.resident.chunks and state.config.discard == "old" and not state.is_being_cut
    ]
    return max(candidates, key=lambda state: state.resident.held_bytes, default=None)


def _is_in_front(state: TopicState) -> bool:
    """Whether the oldest chunk is all that comes first."""
    if not state.resident.chunks or state.is_being_cut or state.has_segments:
        return False
    return state.resident.chunks[0].first_seq < state.tail.first_seq and state.floors.earliest_seq >= state.hot_floor


def _is_due(state: TopicState, chunk: Chunk, now_ms: int) -> bool:
    config = state.config
    if config.ttl_ms is not None and chunk.max_ts_ms < now_ms - config.ttl_ms:
        return True
    if config.discard != "old" or chunk is state.resident.chunks[-1]:
        return False
    records = state.assigned_seq - max(chunk.last_seq, state.retained_from - 1)
    size_bytes = state.retained_bytes - len(chunk.frames)
    return (config.cap_records is not None and records >= config.cap_records) or (
        config.cap_bytes is not None and size_bytes >= config.cap_bytes
    )
