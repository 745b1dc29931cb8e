"""Apply retention: evict the records that are due. The decisions are in seglog.maintenance.checkpoint_plan.

    1 checkpoint   Retention runs a checkpoint in three cases. A topic with limits has records or deletes in the WAL
                   only. Records are old enough to seal. Segments at the front are dead and no history is kept.
    2 look         `_evict` reads the .idx entries to find which of the due records are live.
    3 evict        `_evict` makes an EVICT_WATERMARK frame durable. From here on readers get a gap.
    4 checkpoint   A second checkpoint drops the segments below `earliest_seq` (CKPT-1).

EVICT-1  Files are deleted only after the frame is durable. After a crash in between, no reader reads the evicted
    segments, and the next checkpoint drops them. That checkpoint also drops segments whose records are all deleted.
EVICT-2  With `keep_history`, retention evicts nothing. Due records wait until the archive has them, has read them back,
    and releases them.

Retention also frees the memory of ephemeral records: when the memory is full, or when a ttl or a cap wants them gone.

EPH-1  All ephemeral records fit into `ephemeral_max_bytes`. If an append does not fit, the log evicts chunks until it
    does. It takes the oldest chunk of the topic that holds most, among the topics whose `discard` is "old". If none of
    them has a chunk left, the append is refused. A topic with "reject" loses no chunk to other topics, and its own
    appends are refused.
EPH-2  A ttl and caps evict chunks as they evict segments (seglog.maintenance.checkpoint_plan). They wait until no
    record of the topic lies before the chunk. Caps leave the newest chunk alone, because appends still fill it. A ttl
    evicts it too.
EPH-3  Nothing is written for an evicted chunk: a restart loses its records anyway.
"""

from __future__ import annotations

from seglog.base.lazy import logger
from seglog.engine.engine import Engine, change
from seglog.engine.entries import EvictEntry
from seglog.engine.state import TopicState
from seglog.engine.tail import Chunk, held_bytes
from seglog.errors import SeglogError, TopicFull
from seglog.format.arrays import np
from seglog.format.frame import DELETED, LOST
from seglog.maintenance.checkpoint import checkpoint
from seglog.maintenance.checkpoint_plan import Retained, Retention, due_seq, is_to_be_sealed, passed_cap
from seglog.maintenance.removal import advance_front
from seglog.values.record import Gap

_logger = logger("seglog.maintenance.eviction")
_LOOK_RECORDS = 8192
_TRIES = 5


def make_room(engine: Engine, state: TopicState, frame_bytes: int, records: int) -> None:
    """Evict chunks until an append to `state` fits. Raises `TopicFull`. The caller holds the committer's lock."""
    memory = engine.memory
    added_bytes = held_bytes(frame_bytes, records)
    if added_bytes > memory.max_bytes:
        raise TopicFull(state.name, "ephemeral_max_bytes", memory.max_bytes)
    while memory.used_bytes + added_bytes > memory.max_bytes:
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


def enforce(engine: Engine, states: list[TopicState]) -> list[Retention]:
    """Apply retention to `states`. Return a result for each topic that had something due.

    Raises what a checkpoint and a commit raise.
    """
    engine.check_writable()
    with engine.retention_lock:
        return _enforce(engine, states)


def enforce_all(engine: Engine) -> list[Retention]:
    """Apply retention to all topics. The work grows with the topics that have limits or news, not with all topics.

    For another topic there is at most a segment to seal for its age, and `Engine.aging` has the time of that.
    """
    engine.check_writable()
    with engine.retention_lock:
        now_ms = engine.clock.now_ms()
        with engine.committer.lock:
            is_aged = bool(engine.aging) and engine.aging[0][0] < now_ms
            changed = [state for state in engine.changed.values() if state.is_published and not state.is_gone]
        if is_aged:
            checkpoint(engine)
        limited = [state for state in list(engine.topics.values()) if state.is_published and state.config.has_limits]
        return _enforce(engine, list({state.topic_id: state for state in (*limited, *changed)}.values()))


def enforce_limits(engine: Engine, state: TopicState) -> None:
    """Apply retention to one topic after an append. A failure is only logged, and the next append tries again."""
    if not _is_over(engine, state) or not engine.takes_retention_lock():
        return
    try:
        _enforce(engine, [state])
    except (SeglogError, OSError) as error:
        _logger.warning("%s stays over its limits for now: %s", state.name, error)
    finally:
        engine.leave_retention()


def due(engine: Engine, state: TopicState) -> int:
    """Return the last seq, in sealed segments, that is due to leave this disk; 0 if none is."""
    now_ms = engine.clock.now_ms()
    with engine.committer.lock:
        seq = due_seq(state.config, state.sealed, _retained(state), now_ms)
        return seq if seq >= state.retained_from else 0


def _enforce(engine: Engine, states: list[TopicState]) -> list[Retention]:
    if any(_wants_checkpoint(engine, state) for state in states):
        checkpoint(engine)
    done = [_enforce_topic(engine, state) for state in states]
    if any(retention.evicted_seq for retention in done):
        checkpoint(engine)
    return [retention for retention in done if retention.evicted_seq or retention.waiting_seq]


def _wants_checkpoint(engine: Engine, state: TopicState) -> bool:
    config = state.config
    has_limits = config.is_capped or config.ttl_ms is not None
    with engine.committer.lock:
        is_behind = bool(len(state.tail) or state.pending)
        is_dead = not config.keep_history and state.dead_segments > 0
        return is_dead or (has_limits and is_behind) or is_to_be_sealed(engine, state)


def _enforce_topic(engine: Engine, state: TopicState) -> Retention:
    trimmed = trim(engine, state)
    seq = due(engine, state)
    if not seq:
        return Retention(state.name, evicted_seq=trimmed)
    if state.config.keep_history:
        _logger.warning("%s: records up to %d are due, and wait for the archive to have them", state.name, seq)
        return Retention(state.name, waiting_seq=seq)
    is_done = any(_evict(engine, state, seq) for _ in range(_TRIES))
    return Retention(state.name, evicted_seq=seq if is_done else 0)


@change
def _evict(engine: Engine, state: TopicState, seq: int) -> bool:
    """Run steps 2 and 3. Return False if records changed place meanwhile; the caller then tries again."""
    with engine.committer.lock:
        generation = state.generation
        first = state.retained_from
        segments = [info for info in state.sealed if first <= info.last_seq <= seq]
        has_cold = state.floors.earliest_seq < state.hot_floor
    try:
        live = [
            span for info in segments if (span := _live_range(engine, state, max(info.first_seq, first), info.last_seq))
        ]
    except FileNotFoundError:
        return False
    with engine.committer.lock:
        engine.committer.check_open()
        if state.generation != generation or engine.topics.get(state.name) is not state:
            return False
        floors = state.floors
        # Once this disk begins above them, records in the cold tier are out of reach too: the gap includes them.
        begin = floors.earliest_seq if has_cold else min((first for first, _ in live), default=0)
        end = max((last for _, last in live), default=state.hot_floor - 1 if has_cold else 0)
        lost = Gap(begin, end) if begin and begin <= end else None
        entry = EvictEntry(state, floors.evicted(seq + 1, lost))
        engine.committer.enqueue(entry)
    engine.committer.finish(entry)
    advance_front(engine, state)
    return True


def _live_range(engine: Engine, state: TopicState, first: int, last: int) -> tuple[int, int] | None:
    """Return the first and the last live seq among the records `first` to `last` of one segment, or None.

    The flags of the entries decide. Lost records count as live, because readers have to hear of them. All records of a
    relocated segment count as live (FLOOR-3): appends come here, and do not wait for a store.
    """
    info = state.segment_of(first)
    if info is None:
        return None
    if not info.is_hot:
        return first, last
    segment = engine.segments.get(state.topic_id, info)
    live: list[int] = []
    for begin in range(first, last + 1, _LOOK_RECORDS):
        entries = segment.entries(begin, min(last, begin + _LOOK_RECORDS - 1))
        is_live = (entries["flags"] & DELETED == 0) | (entries["flags"] & LOST != 0)
        live += (np.flatnonzero(is_live) + begin).tolist()
        live = [live[0], live[-1]] if live else []
    return (live[0], live[-1]) if live else None


def _is_over(engine: Engine, state: TopicState) -> bool:
    """Return whether a cap or the ttl can remove segments, now or after a checkpoint."""
    config, settings = state.config, engine.settings
    if config.ttl_ms is not None and _has_expired(engine, state, config.ttl_ms):
        return True
    if not config.is_capped or config.discard != "old" or config.keep_history or state.is_gone:
        return False
    with engine.committer.lock:
        retained = _retained(state)
        if passed_cap(config, retained) is None:
            return False
        is_segment = len(state.tail) >= settings.segment_max_events or state.tail.bytes >= settings.segment_max_bytes
        return is_segment or due_seq(config, state.sealed, retained, 0) >= retained.first_seq


def _has_expired(engine: Engine, state: TopicState, ttl_ms: int) -> bool:
    """Return whether a segment is due for sealing by the ttl, or the first sealed one has expired."""
    with engine.committer.lock:
        if state.is_gone:
            return False
        if is_to_be_sealed(engine, state):
            return True
        if state.config.keep_history:
            return False
        first = state.sealed[state.dead_segments : state.dead_segments + 1]
        return bool(first) and first[0].max_ts_ms < engine.clock.now_ms() - ttl_ms


def _retained(state: TopicState) -> Retained:
    """Return the records that the topic retains. The caller holds the committer's lock."""
    return Retained(state.retained_from, state.assigned_seq, state.retained_bytes)
