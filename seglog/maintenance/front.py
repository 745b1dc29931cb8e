"""The front of a topic: its first live record, whose seq is `earliest_seq`.

A delete makes records dead. So after a delete, and after recovery, the front may be higher than the log knows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.errors import SeglogError
from seglog.format.frame import DELETED, LOST
from seglog.reading.read import read_records
from seglog.segments.tags import reached_seqs
from seglog.values.record import Gap

__all__ = ["advance_front", "find_fronts", "log_unknown_front"]

_logger = logging.getLogger("seglog.maintenance.front")
_LOOK_RECORDS = 8192
_NEAR_RECORDS = 64


def advance_front(engine: Engine, state: TopicState, *, may_ask_store: bool = False) -> None:
    """After a delete, raise `earliest_seq` to the first live record, if that is in this log's segments.

    A delete without a tag costs no search, unless a delete by tag may have reached the record behind it.
    If the record may be in a relocated segment, only the relocator looks. So no other caller waits for a store.
    """
    error = _advanced(engine, state, may_ask_store=may_ask_store)
    if error is not None:
        log_unknown_front(state.name, error)


def log_unknown_front(topic: str, error: Exception) -> None:
    _logger.warning("%s: the first live record stays unknown: %s", topic, error)


def _advanced(engine: Engine, state: TopicState, *, may_ask_store: bool) -> Exception | None:
    """Raise `earliest_seq` as `advance_front` does. Return the error if the first live record cannot be found."""
    first = state.floors.earliest_seq
    if first >= state.tagged_below or first < state.hot_floor:
        return None
    if not may_ask_store and any(info.last_seq >= first for info in state.warm):
        return None
    truncations, head = len(state.truncations), state.head_seq
    try:
        found = _first_near(engine, state, first, head)
    except (SeglogError, FileNotFoundError) as error:
        return error
    with engine.committer.lock:
        floors = state.floors.raised(found or head + 1)
        if len(state.truncations) == truncations and floors is not state.floors:
            state.touch()
            state.floors = floors
    return None


def find_fronts(engine: Engine, on_unknown: Callable[[str, Exception], None]) -> None:
    """Find the first live record of each topic after recovery. A crash may have kept its seq out of the manifest.

    Every opening of the same disk finds the same record. A topic without a delete needs no search. For another topic,
    the search reads the first record, and later ones only if the first is dead. If the front of a topic stays unknown,
    `on_unknown` gets its name and the error.
    """
    for state in list(engine.topics.values()):
        error = _advanced(engine, state, may_ask_store=False) if state.next_op > 1 else None
        if error is not None:
            on_unknown(state.name, error)


def _first_near(engine: Engine, state: TopicState, first: int, last: int) -> int | None:
    """Return the first live seq, or None. Look beyond the next few records of the segment only if all are deleted.

    The few records are read at once. A queue deletes its first record again and again, and the next one is live.
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
    """Return the first live seq, or None. Hot sealed segments need only flags and tags; others are read."""
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
    """Return the seq of the first record that is live or lost, or None."""
    found = next(read_records(engine, state, first, last, gaps=True), None)
    return None if found is None else found.gap_from if isinstance(found, Gap) else found.seq
