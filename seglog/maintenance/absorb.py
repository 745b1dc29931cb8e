"""Steps 2 and 3 of a checkpoint: copy records from the WAL to segments, and set the flags of deletes.

The rules CKPT-1 to CKPT-9 are those of seglog.maintenance.checkpoint.

A sync waits for the disk, and the copy of the next segment needs the processor. In the background thread of a log,
another thread makes the sync meanwhile. All syncs have ended before the checkpoint goes on to its next step.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from typing import NoReturn

from seglog.engine.engine import Engine
from seglog.engine.work_thread import Background
from seglog.files.file_system import NO_DESCRIPTOR, OpenFile
from seglog.maintenance.checkpoint_plan import Draft
from seglog.maintenance.removal import segment_names
from seglog.reading.read import BATCH_MAX_RECORDS, lost_times, tail_batch
from seglog.segments.batch import FRAME_BATCH_MAX_RECORDS, FrameBatch, lost_batch
from seglog.segments.segment import SegmentFiles, SegmentInfo, SegmentWriter, cut
from seglog.segments.tags import reached_seqs, write_tags
from seglog.values.config import LogSettings
from seglog.values.deletes import MergedDeletes
from seglog.values.seq_set import SeqSet
from seglog.wal.wal import NO_SPACE


class Syncs:
    """Syncs segments, one after the other. With `is_beside`, the caller continues during a sync."""

    __slots__ = ("_failure", "_is_beside", "_thread")

    def __init__(self, *, is_beside: bool) -> None:
        self._is_beside = is_beside
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def begin(self, writer: SegmentWriter) -> None:
        """Write and sync what the writer has, after the sync that has begun before. Raises the `OSError` of either.

        The caller gives the writer no further records.
        """
        self.finish()
        if self._is_beside:
            writer.flush()
            self._thread = threading.Thread(target=self._run, args=(writer,), name="seglog-sync", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the process has no room for another thread
                self._thread = None
        if self._thread is None:
            writer.sync()

    def finish(self) -> None:
        """Return when the last sync has ended. Raises its `OSError`."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def finish_after(self, error: BaseException) -> NoReturn:
        """Wait for the last sync. Raise its failure if that poisons the writer (CKPT-5), and otherwise `error`.

        After a failed sync the content of the files is unknown, whatever failed beside it. A full disk is no reason to
        hide `error`, which may poison the writer itself.
        """
        try:
            self.finish()
        except OSError as failure:
            if failure.errno not in (*NO_SPACE, *NO_DESCRIPTOR):
                raise failure from error
        raise error

    def _run(self, writer: SegmentWriter) -> None:
        try:
            writer.sync()
        except BaseException as error:
            self._failure = error


def write_segments(engine: Engine, drafts: list[Draft], pause_s: float) -> None:
    """Run steps 2 and 3. Sleep `pause_s` after each batch of records: then this is the work of the upkeep.

    New directories of topics become durable with one sync of their parent, after all of them.
    """
    has_new = False
    syncs = Syncs(is_beside=pause_s > 0 and isinstance(engine.upkeep, Background))
    for draft in drafts:
        draft.merge_deletes()
        try:
            has_new |= _absorb(engine, draft, pause_s, syncs)
        except BaseException as error:
            syncs.finish_after(error)
        syncs.finish()
        if draft.undeleted is not None:
            _unflag_all(engine, draft, draft.undeleted)
        for info in draft.segments if draft.deletes.top else ():
            if info.is_hot and draft.deletes.may_reach(info.first_seq):
                known_below = 0 if info.first_seq == draft.made_hot else draft.state.flagged_below
                draft.replace(_flag(engine, draft.state.topic_id, info, draft.deletes, known_below))
    if has_new:
        engine.files.sync_dir(engine.layout.topics)


def give_back(engine: Engine, drafts: list[Draft]) -> None:
    """Free the space of what a checkpoint without room has written, which nothing refers to (CKPT-2).

    The files stay, empty. An error of that attempt, as long as somebody has it, keeps them open.
    """
    for draft in drafts:
        state = draft.state
        with suppress(OSError):
            for kind, first_seq in segment_names(engine.files, engine.layout, state.topic_id):
                if first_seq > state.segments_end and kind in {"data", "idx"}:
                    OpenFile(engine.files, engine.layout.part(kind, state.topic_id, first_seq)).truncate(0)
            if state.active is not None:
                segment = engine.segments.get(state.topic_id, state.active)
                cut(segment, state.active.records, state.active.data_bytes)


def _absorb(engine: Engine, draft: Draft, pause_s: float, syncs: Syncs) -> bool:
    """Copy the records of a topic. Return whether they are in the topic's first segment, whose directory is new."""
    had_segments = bool(draft.sealed or draft.released or draft.active)
    writer: SegmentWriter | None = None
    created = False
    for batch in _batches(engine, draft, is_upkeep=pause_s > 0):
        headers = batch.verified()
        start = 0
        while start < len(batch):
            if writer is None:
                writer = _writer(engine, draft, batch.first_seq + start, int(batch.entries["length"][start]))
                created |= writer.records == 0
            stop = start + writer.room(batch.entries["length"][start:], engine.settings)
            if start < stop:
                part = batch.entries[start:stop]
                writer.add(batch.piece(start, stop), part["length"], part["ts_ms"], headers["flags"][start:stop])
            if stop < len(batch):
                _finish(engine, draft, writer, syncs, seal=True)
                writer = None
            start = stop
        if pause_s:
            time.sleep(pause_s)
    if writer is not None:
        _finish(engine, draft, writer, syncs, seal=_is_full(writer.info(sealed=False), 1, engine.settings))
    if draft.seal and draft.active is not None:
        _seal(engine, draft, draft.active)
    if created or draft.has_new_tags:
        engine.files.sync_dir(engine.layout.topic(draft.state.topic_id))
    return created and not had_segments


def _batches(engine: Engine, draft: Draft, *, is_upkeep: bool) -> Iterator[FrameBatch]:
    """Yield the records to absorb, ascending: lost ones in the place of ephemeral ones (CKPT-8), then the tail."""
    state, seq = draft.state, draft.lost_seq
    # After an opening nothing is known of pieces, and no append waits: then large batches cost less a record.
    is_recovered = not is_upkeep and engine.wals.sums(state.topic_id).is_empty
    max_records = BATCH_MAX_RECORDS if is_recovered else FRAME_BATCH_MAX_RECORDS
    while draft.first_seq <= draft.kept_seq and seq <= draft.kept_seq:
        if seq < draft.first_seq:
            upto = min(draft.first_seq - 1, seq + FRAME_BATCH_MAX_RECORDS - 1)
            batch = lost_batch(state.topic_id, seq, lost_times(engine, state, seq, upto))
        else:
            batch = tail_batch(engine, state, seq, draft.kept_seq, max_records)
        yield batch
        seq = batch.last_seq + 1


def _writer(engine: Engine, draft: Draft, seq: int, frame_bytes: int) -> SegmentWriter:
    """Return a writer of the active segment, or of a new one that begins with `seq`."""
    topic_id = draft.state.topic_id
    if draft.active is not None and _is_full(draft.active, frame_bytes, engine.settings):
        _seal(engine, draft, draft.active)
    if draft.active is not None:
        return SegmentWriter(engine.files, engine.segments.get(topic_id, draft.active), draft.active)
    engine.files.make_dir(engine.layout.topic(topic_id))
    return SegmentWriter(engine.files, engine.segments.create(topic_id, seq), None)


def _seal(engine: Engine, draft: Draft, active: SegmentInfo) -> None:
    """Seal the active segment: cut its files to their lengths, and sync them even if they look right (CKPT-6).

    From now on the size of the files, and no longer the manifest, says where the segment ends.
    """
    segment = engine.segments.get(draft.state.topic_id, active)
    cut(segment, active.records, active.data_bytes)
    segment.data.datasync()
    segment.idx.datasync()
    _add_sealed(engine, draft, segment, active._replace(sealed=True))


def _finish(engine: Engine, draft: Draft, writer: SegmentWriter, syncs: Syncs, *, seal: bool) -> None:
    syncs.begin(writer)
    info = writer.info(sealed=seal)
    if seal:
        _add_sealed(engine, draft, writer.segment, info)
    else:
        draft.active = info


def _add_sealed(engine: Engine, draft: Draft, segment: SegmentFiles, info: SegmentInfo) -> None:
    draft.has_new_tags |= write_tags(engine.files, engine.layout, segment, info)
    draft.sealed.append(info)
    draft.active = None


def _is_full(info: SegmentInfo, frame_bytes: int, settings: LogSettings) -> bool:
    """Return whether a segment has no room for the frame. An empty segment takes one record of any size."""
    limit = settings.segment_max_bytes
    is_over = info.data_bytes >= limit or info.data_bytes + frame_bytes > limit + settings.max_store_overflow
    return info.records >= settings.segment_max_events or (info.records > 0 and is_over)


def _unflag_all(engine: Engine, draft: Draft, undeleted: SeqSet) -> None:
    """Remove the flags of an undelete, but for records that a listed delete takes: a view knows these by their flag."""
    topic_id = draft.state.topic_id
    for info in draft.segments:
        seqs = undeleted.within(info.first_seq, info.last_seq)
        if seqs and info.is_hot:
            segment = engine.segments.get(topic_id, info)
            taken = {*reached_seqs(engine.files, engine.layout, segment, info, draft.deletes)}
            seqs = SeqSet.of_seqs(seq for a, b in seqs.ranges() for seq in range(a, b + 1) if seq not in taken)
            if not seqs:
                continue
            for first in range(seqs.first, seqs.end, FRAME_BATCH_MAX_RECORDS):
                segment.set_live(first, min(first + FRAME_BATCH_MAX_RECORDS, seqs.end) - 1, seqs)
            segment.idx.datasync()
            draft.replace(segment.counted(info))
    engine.segments.show(topic_id, None)


def _flag(engine: Engine, topic_id: int, info: SegmentInfo, deletes: MergedDeletes, known_below: int) -> SegmentInfo:
    """Run step 3 for one segment, also where the flag is set already (CKPT-6).

    Return the new info of the segment. If the deletes reach no record, return `info` and read no entries.
    """
    segment = engine.segments.get(topic_id, info)
    seqs = reached_seqs(engine.files, engine.layout, segment, info, deletes, known_below=known_below)
    if not seqs:
        return info
    for _, group in groupby(seqs, key=lambda seq: (seq - info.first_seq) // FRAME_BATCH_MAX_RECORDS):
        batch = list(group)
        segment.entries(batch[0], batch[-1])
        segment.set_deleted(batch[0], batch[-1], batch)
    segment.idx.datasync()
    return segment.counted(info)
