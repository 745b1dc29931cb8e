"""Retention at work, and the front of a topic after deletes: decisions are in seglog.maintenance.retention and
seglog.values.floors.

    1 checkpoint   if a topic with limits has records in the WAL only, or some are to be sealed for their age
    2 look         which of the records that are due are live, by the .idx entries
    3 evict        an EVICT_WATERMARK frame, durable: from here on readers are told of a gap
    4 checkpoint   drops the segments below `earliest_seq` (K1 of seglog.maintenance.checkpoint)

E1  Files go after the frame is durable. A crash in between leaves segments that nobody reads, and the next
    checkpoint drops them, as it does those whose records are all deleted.
E2  With `keep_history` nothing is evicted: what is due waits until the archive has it, has read it back, and releases
    it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from seglog.engine.engine import Engine, change
from seglog.engine.entries import EvictEntry
from seglog.engine.state import TopicState
from seglog.errors import SeglogError
from seglog.format.frame import DELETED, LOST
from seglog.maintenance.checkpoint import checkpoint, is_to_be_sealed
from seglog.maintenance.ephemeral import trim
from seglog.maintenance.retention import Retained, Retention, due_seq, passed_cap
from seglog.reading.read import read_records
from seglog.segments.tags import reached_seqs
from seglog.values.reach import Reach
from seglog.values.record import Gap

__all__ = ["advance_front", "due", "enforce", "enforce_limits", "expect_flags", "find_fronts"]

_logger = logging.getLogger("seglog.maintenance.housekeeping")
_LOOK_RECORDS = 8192
_NEAR_RECORDS = 64
_TRIES = 5


def enforce(engine: Engine, states: list[TopicState]) -> list[Retention]:
    """What was done for each topic that had something due. Raises what a checkpoint and a commit raise."""
    engine.check_writable()
    with engine.retention_lock:
        return _enforce(engine, states)


def enforce_limits(engine: Engine, state: TopicState) -> None:
    """After an append. It is not the caller's business if that fails: the next one tries again."""
    if not _is_over(engine, state) or not engine.takes_retention_lock():
        return
    try:
        _enforce(engine, [state])
    except (SeglogError, OSError) as error:
        _logger.warning("%s stays over its limits for now: %s", state.name, error)
    finally:
        engine.leave_retention()


def due(engine: Engine, state: TopicState) -> int:
    """The last seq that retention wants gone from this disk, in sealed segments; 0 if none."""
    now_ms = engine.clock.now_ms()
    with engine.committer.lock:
        seq = due_seq(state.config, state.sealed, _retained(state), now_ms)
        return seq if seq >= state.retained_from else 0


def advance_front(engine: Engine, state: TopicState, *, may_ask_store: bool = False) -> None:
    """After a delete by tag: `earliest_seq` goes on to the first live record, if that is in this log's segments.

    Where it may be in a relocated one, only the relocator looks: no other caller waits for a store.
    """
    error = _advanced(engine, state, may_ask_store=may_ask_store)
    if error is not None:
        tell_unknown(state.name, error)


def tell_unknown(topic: str, error: Exception) -> None:
    _logger.warning("%s: what the first live record is stays unknown: %s", topic, error)


def _advanced(engine: Engine, state: TopicState, *, may_ask_store: bool) -> Exception | None:
    """Why the first live record cannot be found, if so."""
    first = state.floors.earliest_seq
    if first < state.hot_floor or (not may_ask_store and any(info.last_seq >= first for info in state.cold)):
        return None
    cuts, head = len(state.cuts), state.head_seq
    try:
        found = _first_near(engine, state, first, head)
    except (SeglogError, FileNotFoundError) as error:
        return error
    with engine.committer.lock:
        floors = state.floors.raised(found or head + 1)
        if len(state.cuts) == cuts and floors is not state.floors:
            state.touch()
            state.floors = floors
    return None


def expect_flags(engine: Engine) -> None:
    """After recovery: which deletes may have more flags in the .idx files than the snapshot counts."""
    for state in engine.topics.values():
        if state.pending:
            engine.segments.expect_flags(state.topic_id, Reach(state.pending))


def find_fronts(engine: Engine, tell: Callable[[str, Exception], None]) -> None:
    """After recovery: what a crash may have kept out of the snapshot. Every opening of the same disk finds the same.

    A topic without a delete has its front already; of another one the first record is looked at, and only if that is
    dead those behind it. `tell` hears of a topic whose front stays unknown, and why.
    """
    for state in list(engine.topics.values()):
        error = _advanced(engine, state, may_ask_store=False) if state.next_op > 1 else None
        if error is not None:
            tell(state.name, error)


def _first_near(engine: Engine, state: TopicState, first: int, last: int) -> int | None:
    """Read the next few records of the same segment, at once, and look further only if all of them are deleted.

    A queue loses its first record again and again, and the one behind it is live.
    """
    near = min(last, first + _NEAR_RECORDS - 1, _end_of_segment(engine, state, first))
    found = _first_read(engine, state, first, near)
    return _first_live(engine, state, near + 1, last) if found is None else found


def _end_of_segment(engine: Engine, state: TopicState, seq: int) -> int:
    """Return the last seq of the sealed segment that has `seq`, or the head if none has it."""
    with engine.committer.lock:
        sealed = state.sealed[state.sizes.index_of(seq) :][:1]
    return sealed[0].last_seq if sealed else state.head_seq


def _first_live(engine: Engine, state: TopicState, first: int, last: int) -> int | None:
    """In hot sealed segments by flags and tags alone; elsewhere by reading."""
    with engine.committer.lock:
        sealed, pending = state.sealed[state.sizes.index_of(first) :], state.pending
    for info in sealed:
        if not info.is_hot:
            found = _first_read(engine, state, first, min(last, info.last_seq))
            if found is not None:
                return found
            first = info.last_seq + 1
            continue
        segment = engine.segments.get(state.topic_id, info)
        reached = {*reached_seqs(engine.files, engine.layout, segment, info, pending.reach)}
        for begin in range(max(first, info.first_seq), min(last, info.last_seq) + 1, _LOOK_RECORDS):
            entries = segment.entries(begin, min(last, info.last_seq, begin + _LOOK_RECORDS - 1))
            for seq, flags in enumerate(entries["flags"].tolist(), begin):
                if (not flags & DELETED or flags & LOST) and seq not in reached:
                    return seq
        first = info.last_seq + 1
    return _first_read(engine, state, first, last)


def _first_read(engine: Engine, state: TopicState, first: int, last: int) -> int | None:
    """Or the first lost one."""
    found = next(read_records(engine, state, first, last, gaps=True), None)
    return None if found is None else found.gap_from if isinstance(found, Gap) else found.seq


def _enforce(engine: Engine, states: list[TopicState]) -> list[Retention]:
    if any(_wants_checkpoint(engine, state) for state in states):
        checkpoint(engine)
    done = [_enforce_topic(engine, state) for state in states]
    if any(each.evicted_seq for each in done):
        checkpoint(engine)
    return [each for each in done if each.evicted_seq or each.waiting_seq]


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
    """Steps 2 and 3. False if records changed place meanwhile: look again."""
    with engine.committer.lock:
        generation = state.generation
        first = state.retained_from
        segments = [info for info in state.sealed if first <= info.last_seq <= seq]
        has_cold = state.floors.earliest_seq < state.hot_floor
    try:
        live = [
            found
            for info in segments
            if (found := _live_range(engine, state, max(info.first_seq, first), info.last_seq))
        ]
    except FileNotFoundError:
        return False
    with engine.committer.lock:
        engine.committer.check_open()
        if state.generation != generation or engine.topics.get(state.name) is not state:
            return False
        floors = state.floors
        # What the cold tier still has below is out of reach too, once this disk begins above it.
        begin = floors.earliest_seq if has_cold else min((first for first, _ in live), default=0)
        end = max((last for _, last in live), default=state.hot_floor - 1 if has_cold else 0)
        lost = Gap(begin, end) if begin and begin <= end else None
        entry = EvictEntry(state, floors.evicted(seq + 1, lost))
        engine.committer.enqueue(entry)
    engine.committer.finish(entry)
    return True


def _live_range(engine: Engine, state: TopicState, first: int, last: int) -> tuple[int, int] | None:
    """The first and the last live seq among those of one segment, by the flags of its entries. Lost ones count: whoever
    reads has to be told of them.

    All of a relocated one counts as live (L3 of seglog.values.floors): appends come here, and do not wait for a store.
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
        told = (entries["flags"] & DELETED == 0) | (entries["flags"] & LOST != 0)
        live += (np.flatnonzero(told) + begin).tolist()
        live = [live[0], live[-1]] if live else []
    return (live[0], live[-1]) if live else None


def _is_over(engine: Engine, state: TopicState) -> bool:
    """Whether segments can go for a cap or the ttl, now or after a checkpoint."""
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
    """Whether a segment is to be sealed for the ttl, or the first sealed one has expired."""
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
    """The lock is held."""
    return Retained(state.retained_from, state.assigned_seq, state.retained_bytes)
