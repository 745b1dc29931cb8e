"""Reading a topic in lists: what `seglog.reading.read` shows one by one, for whoever takes thousands at once.

A list has the live records of a run, so up to a MiB or a thousand of them. R1 to R4 of `seglog.reading.read` hold with
"a list"
in the place of "a record": it is looked at when it is handed out, not again while the caller goes through it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.errors import FileCorrupt
from seglog.reading.read import check_place, continue_records, live_records, load_run
from seglog.segments.batch import RUN_MAX_BYTES, RUN_MAX_RECORDS, Run
from seglog.values.record import Gap, Record

__all__ = ["read_batches"]


def read_batches(
    engine: Engine, state: TopicState, first: int, last: int, cuts: int, expired: int = 1
) -> Iterator[list[Record]]:
    """The live records from `first` to `last`, which were chosen when the topic had been truncated `cuts` times."""
    seq = first
    while seq <= last:
        engine.check_open()
        generation = state.generation
        check_place(state, seq, cuts)
        last, retained_from = min(last, state.head_seq), max(state.retained_from, expired)
        if seq < retained_from:
            end = min(last, retained_from - 1)
            yield from _one_by_one(engine, state, seq, end, cuts, expired)
            seq = end + 1
            continue
        run = load_run(engine, state, seq, last)
        if run is None:
            continue
        lost = run if isinstance(run, Gap) else run.lost_front()
        if lost is not None:
            yield from _one_by_one(engine, state, seq, lost.gap_to, cuts)
            seq = lost.gap_to + 1
            continue
        assert isinstance(run, Run)  # noqa: S101 - what is no run is lost
        run = run.before_lost()
        try:
            # The number before the deletes: one that comes in between is looked for after.
            deletes = state.next_op
            batch = list(live_records(run, state.pending.reach))
            if state.next_op != deletes:
                late = state.pending.reach
                batch = [record for record in batch if not late.reaches(record.seq, record.tag)]
        except FileCorrupt:
            # What is sound before it comes first, and then the error, if it is one: this may be around a truncation.
            yield from _one_by_one(engine, state, seq, run.last_seq, cuts)
        else:
            if state.generation != generation:
                continue
            if batch:
                yield batch
        seq = run.last_seq + 1


def _one_by_one(
    engine: Engine, state: TopicState, first: int, last: int, cuts: int, expired: int = 1
) -> Iterator[list[Record]]:
    """From the cold tier, or where something is wrong: what came before an error is handed out before it."""
    batch: list[Record] = []
    size_bytes = 0
    try:
        for record in continue_records(engine, state, first, last, cuts, gaps=False, expired=expired):
            batch.append(cast("Record", record))
            size_bytes += len(batch[-1].value)
            if len(batch) >= RUN_MAX_RECORDS or size_bytes >= RUN_MAX_BYTES:
                full, batch, size_bytes = batch, [], 0
                yield full
    except Exception:
        if batch:
            yield batch
        raise
    if batch:
        yield batch
