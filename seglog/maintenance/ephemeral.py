"""Free memory of ephemeral records: when the memory is full, or when a ttl or a cap wants them gone.

EPH-1  All ephemeral records fit into `ephemeral_max_bytes`. If an append does not fit, the log evicts chunks until it
    does. It takes the oldest chunk of the topic that holds most, among the topics whose `discard` is "old". If none of
    them has a chunk left, the append is refused. A topic with "reject" loses no chunk to other topics, and its own
    appends are refused.
EPH-2  A ttl and caps evict chunks as they evict segments (seglog.maintenance.retention). They wait until no record of
    the topic lies before the chunk. Caps leave the newest chunk alone, because appends still fill it. A ttl evicts it
    too.
EPH-3  Nothing is written for an evicted chunk: a restart loses its records anyway.
"""

from __future__ import annotations

from seglog.engine.engine import Engine
from seglog.engine.ephemeral_buffer import Chunk, held_bytes
from seglog.engine.state import TopicState
from seglog.errors import TopicFull

__all__ = ["make_room", "trim"]


def make_room(engine: Engine, state: TopicState, frame_bytes: int, records: int) -> None:
    """Evict chunks until an append to `state` fits. Raises `TopicFull`. The caller holds the committer's lock."""
    memory = engine.memory
    wanted = held_bytes(frame_bytes, records)
    if wanted > memory.max_bytes:
        raise TopicFull(state.name, "ephemeral_max_bytes", memory.max_bytes)
    while memory.used_bytes + wanted > memory.max_bytes:
        victim = None if state.config.discard == "reject" else _largest(engine)
        if victim is None:
            raise TopicFull(state.name, "ephemeral_max_bytes", memory.max_bytes)
        victim.drop_oldest_ephemeral()


def trim(engine: Engine, state: TopicState) -> int:
    """Evict the chunks that are due (EPH-2). Return the last evicted seq, or 0 if there is none."""
    now_ms = engine.clock.now_ms()
    last_seq = 0
    with engine.committer.lock:
        while _is_in_front(state) and _is_due(state, state.ephemeral_buffer.chunks[0], now_ms):
            last_seq = state.ephemeral_buffer.chunks[0].last_seq
            state.drop_oldest_ephemeral()
    return last_seq


def _largest(engine: Engine) -> TopicState | None:
    """Return the topic that holds most, among the topics that may lose a chunk."""
    candidates = [
        state
        for state in engine.states()
        if state.ephemeral_buffer.chunks and state.config.discard == "old" and not state.is_being_truncated
    ]
    return max(candidates, key=lambda state: state.ephemeral_buffer.held_bytes, default=None)


def _is_in_front(state: TopicState) -> bool:
    """Return whether the topic has chunks, and all its other records lie behind the oldest chunk."""
    if not state.ephemeral_buffer.chunks or state.is_being_truncated or state.has_segments:
        return False
    return (
        state.ephemeral_buffer.chunks[0].first_seq < state.tail.first_seq
        and state.floors.earliest_seq >= state.hot_floor
    )


def _is_due(state: TopicState, chunk: Chunk, now_ms: int) -> bool:
    config = state.config
    if config.ttl_ms is not None and chunk.max_ts_ms < now_ms - config.ttl_ms:
        return True
    if config.discard != "old" or chunk is state.ephemeral_buffer.chunks[-1]:
        return False
    records = state.assigned_seq - max(chunk.last_seq, state.retained_from - 1)
    size_bytes = state.retained_bytes - len(chunk.frames)
    return (config.cap_records is not None and records >= config.cap_records) or (
        config.cap_bytes is not None and size_bytes >= config.cap_bytes
    )
