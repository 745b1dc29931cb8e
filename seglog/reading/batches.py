"""Read a topic in lists, for callers that take thousands of records at once. `seglog.reading.read` shows the same
records one by one.

A list has the live records of one batch: up to a MiB or a thousand of them. The rules of reading hold with
"a list" in the place of "a record" (READ-1 to READ-4). The reader checks a list when it hands it out, and not again
while the caller goes through it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.errors import FileCorrupt
from seglog.reading.read import check_place, continue_records, live_records, load_batch
from seglog.segments.batch import FrameBatch
from seglog.values.record import Gap, Record, in_groups

__all__ = ["read_batches"]


def read_batches(
    engine: Engine, state: TopicState, first: int, last: int, truncations: int, expired: int = 1
) -> Iterator[list[Record]]:
    """Yield the live records from `first` to `last`, in lists.

    The topic had been truncated `truncations` times when the caller chose the range. Records below `expired` are lost
    (seglog.reading.expiry).
    """
    seq = first
    while seq <= last:
        engine.check_open()
        generation = state.generation
        check_place(state, seq, truncations)
        last, retained_from = min(last, state.head_seq), max(state.retained_from, expired)
        if seq < retained_from:
            end = min(last, retained_from - 1)
            yield from _one_by_one(engine, state, seq, end, truncations, expired)
            seq = end + 1
            continue
        frame_batch = load_batch(engine, state, seq, last)
        if frame_batch is None:
            continue
        lost = frame_batch if isinstance(frame_batch, Gap) else frame_batch.lost_front()
        if lost is not None:
            yield from _one_by_one(engine, state, seq, lost.gap_to, truncations)
            seq = lost.gap_to + 1
            continue
        assert isinstance(frame_batch, FrameBatch)  # noqa: S101 - what is no batch is lost
        frame_batch = frame_batch.before_lost()
        try:
            # Read the number first: a delete that comes in between is found below.
            deletes = state.next_op
            batch = list(live_records(frame_batch, state.pending.reach))
            if state.next_op != deletes:
                late = state.pending.reach
                batch = [record for record in batch if not late.reaches(record.seq, record.tag)]
        except FileCorrupt:
            # Yield the sound records first, then raise the error. If a truncation caused it, a second read shows none.
            yield from _one_by_one(engine, state, seq, frame_batch.last_seq, truncations)
        else:
            if state.generation != generation:
                continue
            if batch:
                yield batch
        seq = frame_batch.last_seq + 1


def _one_by_one(
    engine: Engine, state: TopicState, first: int, last: int, truncations: int, expired: int = 1
) -> Iterator[list[Record]]:
    """Return lists of records that are read one by one: from the cold tier, or where a batch has an error.

    The records before an error come before it.
    """
    records = continue_records(engine, state, first, last, truncations, gaps=False, expired=expired)
    return in_groups(cast("Iterator[Record]", records))
