"""Read a topic in lists or as arrays, for callers that take thousands or millions of records at once.

`seglog.reading.read` shows the same records one by one. A list has the live records of one batch: up to a MiB or a
thousand of them. Arrays need no object for each record.

The rules of reading hold with "a list" or "the records of an array" in the place of "a record" (READ-1 to READ-4). The
reader checks a list when it hands it out, and not again while the caller goes through it. Where a batch has an error,
the reader reads its records one by one, and makes lists or arrays of them. So the sound records come before the error,
and the error is the same.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import groupby
from typing import cast

from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.errors import ColdTierRequired, FileCorrupt
from seglog.format.record_arrays import RecordArrays, in_arrays
from seglog.reading.read import BATCH_MAX_RECORDS, check_place, continue_records, joined_gaps, live_records, load_batch
from seglog.segments.batch import FrameBatch
from seglog.tiers.cold_tier import ArraysTier
from seglog.values.record import Gap, Record, in_groups


def read_batches(
    engine: Engine, state: TopicState, first: int, last: int, truncations: int, expired: int = 1
) -> Iterator[list[Record]]:
    """Yield the live records from `first` to `last`, in lists.

    The topic had been truncated `truncations` times when the caller chose the range. Records below `expired` are lost
    (seglog.reading.times).
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


def read_arrays(
    engine: Engine, state: TopicState, first: int, last: int, truncations: int, *, gaps: bool, expired: int = 1
) -> Iterator[RecordArrays | Gap]:
    """Yield the records of `seglog.reading.read.continue_records`, and with `gaps` its gaps. No array is empty."""
    items = _Reader(engine, state, truncations, expired, gaps=gaps).items(first, last)
    return joined_gaps(items) if gaps else items


class _Reader:
    """One read. It began when the topic had been truncated `truncations` times. Records below `expired` are lost."""

    def __init__(self, engine: Engine, state: TopicState, truncations: int, expired: int, *, gaps: bool) -> None:
        self._engine = engine
        self._state = state
        self._truncations = truncations
        self._expired = expired
        self._gaps = gaps

    def items(self, seq: int, last: int) -> Iterator[RecordArrays | Gap]:
        state = self._state
        while seq <= last:
            self._engine.check_open()
            generation = state.generation
            check_place(state, seq, self._truncations)
            last = min(last, state.head_seq)
            lost_to = min(last, max(state.floors.earliest_seq, self._expired) - 1)
            if seq <= lost_to:
                yield from self._one_by_one(seq, lost_to)
                seq = lost_to + 1
            elif seq < state.hot_floor:
                seq = yield from self._cold(seq, min(last, state.hot_floor - 1))
            else:
                seq = yield from self._hot(seq, last, generation)

    def _cold(self, seq: int, last: int) -> Generator[RecordArrays, None, int]:
        """Yield records of the cold tier. Return the seq after them. The caller looks again from there."""
        state = self._state
        deletes = state.next_op
        for arrays in self._tier_arrays(seq, last):
            live = arrays.without([state.ops.reach])
            # Check this after the listed deletes: a delete that came meanwhile may be settled already.
            if state.next_op != deletes:
                return seq
            seq = arrays.last_seq + 1
            if len(live):
                yield live
        return last + 1

    def _tier_arrays(self, first: int, last: int) -> Iterator[RecordArrays]:
        tier, name = self._engine.cold, self._state.name
        if tier is None:
            raise ColdTierRequired(name, first, last)
        if isinstance(tier, ArraysTier):
            return tier.read_arrays(name, first, last)
        return in_arrays(tier.read(name, first, last))

    def _hot(self, seq: int, last: int, generation: int) -> Generator[RecordArrays | Gap, None, int]:
        """Yield records of one batch. Return the seq after them.

        The caller has checked `seq` since the topic had this `generation`.
        """
        state = self._state
        batch = load_batch(self._engine, state, seq, last, max_records=BATCH_MAX_RECORDS)
        if batch is None:
            return seq
        lost = batch if isinstance(batch, Gap) else batch.lost_front()
        if lost is not None:
            yield from self._one_by_one(seq, lost.gap_to)
            return lost.gap_to + 1
        assert isinstance(batch, FrameBatch)  # noqa: S101 - what is no batch is lost
        batch = batch.before_lost()
        # Read the number first: a delete that comes in between is found below.
        deletes, pending = state.next_op, state.pending.reach
        arrays = batch.arrays()
        if arrays is None:
            # If a truncation caused the damage, a second read shows none.
            yield from self._one_by_one(seq, batch.last_seq)
            return batch.last_seq + 1
        arrays = arrays.without([pending] if batch.deletes is None else [batch.deletes, pending])
        if state.next_op != deletes:
            arrays = arrays.without([state.pending.reach])
        if state.generation != generation:
            return seq
        if len(arrays):
            yield arrays
        return batch.last_seq + 1

    def _one_by_one(self, first: int, last: int) -> Iterator[RecordArrays | Gap]:
        items = continue_records(
            self._engine, self._state, first, last, self._truncations, gaps=self._gaps, expired=self._expired
        )
        for are_gaps, group in groupby(items, lambda item: isinstance(item, Gap)):
            if are_gaps:
                yield from cast("Iterator[Gap]", group)
            else:
                yield from in_arrays(cast("Iterator[Record]", group))
