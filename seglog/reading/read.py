"""Read a topic: the cold tier below the hot floor, then sealed segments, the active one, and the newest in the WAL.

READ-1  A reader holds the committer's lock only to find the place of a batch. It holds no lock while it reads a file,
    and none between records.
READ-2  A reader verifies each record before it shows it: checksum, and seq, time, length and topic against the index.
    It verifies a batch of up to a MiB at once. If a batch has an error, the reader first shows the sound records before
    it.
READ-3  When records change place or a delete reaches them, active readers look again from their position. They never
    show a record that was deleted before they reached it. When the hot copy is deleted, they continue in the cold tier.
READ-4  A reader reports evicted records: as a `Gap` in between, or by raising `Evicted`. It skips deleted records. If
    the topic is truncated below a reader, the reader ends with `Truncated`: it has read records that no longer exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.errors import ColdTierRequired, Evicted, FileCorrupt, NoSuchTopic, SeqOutOfRange, Truncated
from seglog.files.file_system import OpenFile
from seglog.format.arrays import NDArray, np
from seglog.format.frame import DELETED, tombstone
from seglog.format.frames import Frames, take_apart
from seglog.segments.batch import FRAME_BATCH_MAX_BYTES, FRAME_BATCH_MAX_RECORDS, FrameBatch, lost_batch
from seglog.segments.checked_frames import FEW, FewFrames
from seglog.values.deletes import NO_DELETES, MergedDeletes
from seglog.values.record import Gap, Record

_Item = TypeVar("_Item")

# One read spans frames of other topics up to this size, about a page, instead of two reads.
_GAP_MAX_BYTES = 4096
# Maximum records per frame batch. Larger batches amortise numpy's per-call cost.
BATCH_MAX_RECORDS = 8192


def read_records(
    engine: Engine, state: TopicState, first: int, last: int, *, gaps: bool = False
) -> Iterator[Record | Gap]:
    """Yield the live records from `first` to `last`, all published. With `gaps`, also yield gaps for evicted ones."""
    return continue_records(engine, state, first, last, len(state.truncations), gaps=gaps)


def read_frame_batches(engine: Engine, state: TopicState, first: int, last: int) -> Iterator[Frames]:
    """Yield the frames of the hot records from `first` to `last`, batch by batch.

    If a record is deleted and its delete is not listed, a tombstone takes the place of its frame. If a batch has an
    error, the sound frames before it come one by one.
    """
    return _frame_batches(engine, state, first, last, len(state.truncations))


def continue_records(
    engine: Engine, state: TopicState, first: int, last: int, truncations: int, *, gaps: bool, expired: int = 1
) -> Iterator[Record | Gap]:
    """Yield as `read_records` does, for a reader that began when the topic had been truncated `truncations` times.

    Records below `expired` are lost (seglog.reading.times).
    """
    items = _items(engine, state, first, last, truncations, gaps=gaps, expired=expired)
    return joined_gaps(items) if gaps else items


def joined_gaps(items: Iterator[_Item | Gap]) -> Iterator[_Item | Gap]:
    """Join gaps that touch."""
    gap: Gap | None = None
    for item in items:
        if isinstance(item, Gap):
            if gap is not None and gap.gap_to + 1 < item.gap_from:
                yield gap
                gap = None
            gap = item if gap is None else Gap(gap.gap_from, item.gap_to)
            continue
        if gap is not None:
            yield gap
            gap = None
        yield item
    if gap is not None:
        yield gap


def _items(
    engine: Engine, state: TopicState, first: int, last: int, truncations: int, *, gaps: bool, expired: int
) -> Iterator[Record | Gap]:
    """Yield records and gaps. A gap may come in parts."""
    seq = first
    while seq <= last:
        engine.check_open()
        generation = state.generation
        check_place(state, seq, truncations)
        last, floors = min(last, state.head_seq), state.floors
        if seq < expired:
            floors = floors.expired(min((expired, *state.truncations[truncations:])))
        if seq < floors.earliest_seq:
            gap = floors.gap(seq, last)
            if gap is not None and not gaps:
                raise Evicted(state.name, gap.gap_from, gap.gap_to)
            if gap is not None:
                yield gap
            seq = floors.earliest_seq
            continue
        if seq < state.hot_floor:
            upto = min(last, state.hot_floor - 1)
            deletes = state.next_op
            for record in _cold_records(engine, state, seq, upto):
                # Check this after the listed deletes: a delete that came meanwhile may be settled already.
                if state.next_op != deletes:
                    break
                seq = record.seq + 1
                yield record
            else:
                seq = upto + 1
            continue
        batch = _few(engine, state, seq, last) or load_batch(engine, state, seq, last)
        if batch is None:
            continue
        lost = batch if isinstance(batch, Gap) else batch.lost_front()
        if lost is not None:
            if not gaps:
                raise Evicted(state.name, lost.gap_from, lost.gap_to)
            yield lost
            seq = lost.gap_to + 1
            continue
        assert not isinstance(batch, Gap)  # noqa: S101 - a gap is lost
        batch = batch.before_lost()
        # Read the number first: a delete that comes in between is found below.
        deletes, late = state.next_op, NO_DELETES
        try:
            pending = state.pending.reach
            for record in batch.live(pending) if isinstance(batch, FewFrames) else live_records(batch, pending):
                if state.next_op != deletes:
                    deletes, late = state.next_op, state.pending.reach
                if late is not NO_DELETES and late.reaches(record.seq, record.tag):
                    continue
                # Check this after the deletes: a checkpoint raises the generation before it drops a pending delete that
                # is in the flags.
                if state.generation != generation:
                    break
                seq = record.seq + 1
                yield record
            else:
                seq = batch.last_seq + 1
        except FileCorrupt:
            # Entries and frames that were read around a truncation may not fit: look again.
            if state.generation == generation:
                raise


def _frame_batches(engine: Engine, state: TopicState, first: int, last: int, truncations: int) -> Iterator[Frames]:
    seq = first
    while seq <= last:
        engine.check_open()
        generation = state.generation
        check_place(state, seq, truncations)
        last = min(last, state.head_seq)
        if seq < state.hot_floor:
            raise SeqOutOfRange(state.name, seq, state.hot_floor, state.head_seq)
        batch = load_batch(
            engine, state, seq, last, with_memory=not state.config.keep_history, max_records=BATCH_MAX_RECORDS
        )
        if batch is None or (len(state.truncations) != truncations and state.generation != generation):
            continue
        if isinstance(batch, Gap):
            upto = min(batch.gap_to, seq + FRAME_BATCH_MAX_RECORDS - 1)
            batch = lost_batch(state.topic_id, seq, lost_times(engine, state, seq, upto))
        try:
            frames = batch.apart()
            if frames is None and batch.deletes is None and batch.headers() is not None:
                frames = _with_tombstones(state, batch)
            if frames is None:
                for index in range(len(batch)):
                    yield take_apart([_frame(state, batch, index)])
                    seq += 1
                continue
            yield frames
            seq = batch.last_seq + 1
        except FileCorrupt:
            if state.generation == generation:
                raise


def check_place(state: TopicState, seq: int, truncations: int) -> None:
    """Raise `NoSuchTopic` if the topic is deleted, and `Truncated` if it was truncated below `seq` (READ-4).

    `truncations` is the number of its truncations when the reader began.
    """
    if state.is_gone:
        raise NoSuchTopic(state.name)
    if seq > min(state.truncations[truncations:], default=seq):
        epoch = state.epoch  # before the seqs: a truncation changes it last, so the error never names one that it lacks
        raise Truncated(state.name, min(state.truncations[truncations:]), epoch)


def tail_batch(
    engine: Engine, state: TopicState, first: int, last: int, max_records: int = FRAME_BATCH_MAX_RECORDS
) -> FrameBatch:
    """Return records of the tail from `first` on, at most `max_records`. The caller keeps the tail in place.

    If they are one piece that was written as a whole, one hash tells that it is unchanged (seglog.wal.wal).
    """
    with engine.committer.lock:
        file, entries = _find_in_tail(engine, state, first, last, max_records)
    if file is None:
        return lost_batch(state.topic_id, first, entries["ts_ms"].tolist())
    sums = engine.wals.sums(state.topic_id)
    batch = _read_batch(state, first, file, entries[: sums.fitting(file, entries)])
    return replace(batch, is_as_written=sums.is_as_written(file, int(entries[0]["offset"]), batch.buffer))


def lost_times(engine: Engine, state: TopicState, first: int, last: int) -> list[int]:
    """Return times for seqs that are in no file.

    A record in memory has its own time, but none later than the next record. Any other seq gets the time of the next
    record.
    """
    with engine.committer.lock:
        tail = state.tail
        after = tail.ts_ms(tail.first_seq) if len(tail) else state.last_ts_ms
        times = (state.ephemeral_buffer.ts_ms_from(seq) for seq in range(first, last + 1))
        return [after if ts_ms is None else min(ts_ms, after) for ts_ms in times]


def load_batch(
    engine: Engine,
    state: TopicState,
    first: int,
    last: int,
    *,
    with_memory: bool = True,
    max_records: int = FRAME_BATCH_MAX_RECORDS,
) -> FrameBatch | Gap | None:
    """Return a batch of records from `first` on, or a `Gap` if they are lost.

    Return None if the records changed place meanwhile: the caller then looks again. Without `with_memory`, ephemeral
    records count as lost already: an archive never gets them.
    """
    with engine.committer.lock:
        engine.check_open()
        generation = state.generation
        if not state.hot_floor <= first <= state.head_seq or state.is_gone:
            return None
        last = min(last, state.head_seq)  # a truncation may have come since the caller looked
        if with_memory:
            buffered = state.ephemeral_buffer.batch(state.topic_id, first, last)
            if buffered is not None:
                return buffered
            last = min(last, (state.ephemeral_buffer.first_from(first) or last + 1) - 1)
        segment = state.segment_of(first)
        warm_ops = state.warm_ops
        if segment is None and first < state.tail.first_seq:
            return Gap(first, min(last, state.tail.first_seq - 1))
        if segment is None:
            file, entries = _find_in_tail(engine, state, first, last)
    if segment is None:
        return Gap(first, first + len(entries) - 1) if file is None else _read_batch(state, first, file, entries)
    try:
        batch = engine.segment(state.topic_id, segment).batch(first, min(last, segment.last_seq), max_records)
        if segment.is_hot or not warm_ops.reach.may_reach(first):
            return batch
        return replace(batch, deletes=warm_ops.reach)
    except FileCorrupt:
        if state.generation != generation:
            return None
        raise
    except FileNotFoundError as error:
        if state.generation != generation:
            return None
        raise FileCorrupt(engine.layout.data(state.topic_id, segment.first_seq), 0, "the segment is missing") from error


def _few(engine: Engine, state: TopicState, first: int, last: int) -> FewFrames | None:
    """Return the records from `first` to `last` if they are a few in one hot segment, else None.

    If they are damaged, return None as well: the caller loads a batch, and its error names the damage.
    """
    if last - first >= FEW:
        return None
    with engine.committer.lock:
        engine.check_open()
        segment = state.segment_of(first) if state.hot_floor <= first and not state.is_gone else None
        is_whole = segment is not None and segment.is_hot and last <= min(segment.last_seq, state.head_seq)
        if segment is None or not is_whole or state.ephemeral_buffer.first_from(first) is not None:
            return None
    try:
        return engine.segment(state.topic_id, segment).few(first, last)
    except (FileCorrupt, FileNotFoundError):
        return None


def _find_in_tail(
    engine: Engine, state: TopicState, first: int, last: int, max_records: int = FRAME_BATCH_MAX_RECORDS
) -> tuple[OpenFile | None, NDArray[Any]]:
    """Return the WAL file and the entries of records in the tail. The file is None for records that are in no file.

    The caller holds the committer's lock.
    """
    start = first - state.tail.first_seq
    stop = min(last - state.tail.first_seq + 1, start + max_records)
    number, entries = state.tail.near(start, stop, _GAP_MAX_BYTES, FRAME_BATCH_MAX_BYTES)
    return engine.wals.file(state.topic_id, number) if number else None, entries


def _read_batch(state: TopicState, first: int, file: OpenFile, entries: NDArray[Any]) -> FrameBatch:
    begin, end = int(entries[0]["offset"]), int(entries[-1]["offset"]) + int(entries[-1]["length"])
    return FrameBatch(file.path, state.topic_id, first, entries, file.read_exactly(end - begin, begin))


def live_records(batch: FrameBatch, pending: MergedDeletes) -> Iterator[Record]:
    """Yield the records that no delete reaches: neither a flag, nor `batch.deletes`, nor `pending`."""
    deletes = [reach for reach in (batch.deletes, pending) if reach is not None and reach.may_reach(batch.first_seq)]
    return batch.records(np.flatnonzero(batch.entries["flags"] & DELETED == 0), deletes)


def _frame(state: TopicState, batch: FrameBatch, index: int) -> bytes:
    entry, position, header = batch.frame(index)
    if not entry.length:
        return tombstone(header)
    if entry.flags & DELETED or batch.deletes is not None:
        record = batch.record(index)
        is_deleted = entry.flags & DELETED or (
            batch.deletes is not None and batch.deletes.reaches(record.seq, record.tag)
        )
        if is_deleted and not state.ops.reach.reaches(record.seq, record.tag):
            return tombstone(header)
    return batch.buffer[position : position + entry.length]


def _with_tombstones(state: TopicState, batch: FrameBatch) -> Frames:
    """Return the frames of a batch in which every frame is sound, with tombstones where `_frame` says so."""
    frames = batch.frames()
    for index in np.flatnonzero(batch.entries["flags"] & DELETED).tolist():
        frames[index] = _frame(state, batch, index)
    return take_apart(frames)


def _cold_records(engine: Engine, state: TopicState, first: int, last: int) -> Iterator[Record]:
    """Yield records of the cold tier, without the ones that a listed delete reaches.

    A delete reaches the archive later than the log.
    """
    if engine.cold is None:
        raise ColdTierRequired(state.name, first, last)
    for record in engine.cold.read(state.name, first, last):
        if not state.ops.reach.reaches(record.seq, record.tag):
            yield record
