"""The publication of a load: one commit that names the segments of all tasks (steps 5 to 7 of offload.load)."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from catalog import Commit, CommitKind, SegmentRef, Snapshot, Volumes, encode_commit
from catalog.checkpointer import CheckpointPolicy
from catalog.errors import BranchCollected, Diverged, KeyTaken
from catalog.format import keys
from catalog.format.commit import LoadMark
from catalog.format.encoding import load_nonce
from catalog.sync import pull
from offload.errors import InvalidRow, LoadConflict, LoadTooLate, RowsChanged
from offload.load.opening import Load, loaded_seq
from offload.load.part import BEFORE_THE_LAST, SORT_BY_TIME, LoadedPart, discard_segments
from offload.write.publisher import make_due_checkpoint

__all__ = ["Loaded", "publish_load"]

_ROUNDS = 20
_REFUSALS = (BranchCollected, InvalidRow, LoadConflict, LoadTooLate, RowsChanged)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of a load. `lsn` is its commit, None if it made none: no rows, or its key was there before.

    Then `done_seq` is the last seq of the load that brought the key. Its records may have been truncated since.
    """

    lsn: int | None
    first_seq: int
    last_seq: int
    done_seq: int | None = None


def publish_load(
    volumes: Volumes,
    load: Load,
    parts: Sequence[LoadedPart],
    *,
    writer_id: str,
    now_ms: int,
    checkpoints: CheckpointPolicy | None = None,
) -> Loaded:
    """Make the records of all parts visible by one commit.

    Raises `RowsChanged` and `InvalidRow` if the parts do not fit together, `LoadConflict`, `LoadTooLate`,
    `BranchCollected`, and `OutcomeUnknown`. After `OutcomeUnknown`, only a load with the same key can tell.
    """
    segments = [segment for part in sorted(parts, key=lambda part: part.partition) for segment in part.segments]
    if not segments:
        return _nothing(load, load.done_seq)
    try:
        _check_fit(load, parts, segments)
        newest = volumes.snapshot(load.vid, load.lsn)
        for _ in range(_ROUNDS):
            done_seq = loaded_seq(newest, load.request)
            if done_seq is not None:
                discard_segments(volumes.store, load, (segment.sid for segment in segments))
                return _nothing(load, done_seq)
            if any(segment.sid.created_ms < newest.collected_before_ms for segment in segments):
                raise LoadTooLate(load.name)
            commit = _commit(load, newest, segments, writer_id, now_ms)
            try:
                volumes.publish(load.vid, commit.lsn, encode_commit(commit)[0])
            except BranchCollected:
                raise
            except Diverged:
                newest = _after(volumes, load, newest)
                continue
            make_due_checkpoint(volumes, load.vid, commit.lsn, checkpoints or CheckpointPolicy(), now_ms=now_ms)
            return Loaded(commit.lsn, segments[0].first_seq, segments[-1].last_seq)
        raise KeyTaken(keys.commit_key(load.vid, newest.lsn + 1))
    except _REFUSALS:  # after any other error, the commit may still land (LOAD-6)
        discard_segments(volumes.store, load, (segment.sid for segment in segments))
        raise


def _nothing(load: Load, done_seq: int | None) -> Loaded:
    return Loaded(None, load.bounds.head_seq + 1, load.bounds.head_seq, done_seq)


def _check_fit(load: Load, parts: Sequence[LoadedPart], segments: Iterable[SegmentRef]) -> None:
    """Check that the segments are the seqs that the load assigns, in the order of their times (LOAD-7)."""
    by_partition = {part.partition: part for part in parts}
    for partition, counted in load.request.rows or ():
        rows = by_partition[partition].rows if partition in by_partition else 0
        if rows != counted:
            raise RowsChanged(partition, rows, counted)
    seq, newest_ms = load.bounds.head_seq + 1, load.newest_ms
    for segment in segments:
        if segment.first_seq != seq:
            raise InvalidRow(segment.first_seq, "seq", f"is not {seq}, which follows the records before it")
        if segment.min_ts_ms < newest_ms:
            raise InvalidRow(seq, "timestamp", BEFORE_THE_LAST, hint=SORT_BY_TIME)
        seq, newest_ms = segment.last_seq + 1, segment.max_ts_ms


def _commit(load: Load, newest: Snapshot, segments: Sequence[SegmentRef], writer_id: str, now_ms: int) -> Commit:
    mark = LoadMark(load.request.key, os.urandom(16))
    return Commit(
        vid=load.vid,
        lsn=newest.lsn + 1,
        kind=CommitKind.OFFLOAD,
        bounds=replace(load.bounds, head_seq=segments[-1].last_seq),
        parent_hash=newest.head_hash,
        nonce=load_nonce(mark),
        created_at_ms=now_ms,
        writer_id=writer_id,
        epoch=load.epoch,
        at_seq=segments[-1].last_seq,
        at_ts_ms=segments[-1].max_ts_ms,
        message=f"load {load.request.key}" if load.request.key else "load",
        segments=tuple(segments),
        load=mark,
    )


def _after(volumes: Volumes, load: Load, base: Snapshot) -> Snapshot:
    """Return the state after the commits that took the load's LSN. Raises `LoadConflict` if they are not maintenance.

    A commit that raises the epoch is none, also up to the load's own epoch: it began a writer since the load was
    opened. A commit with the load's key is no conflict.
    """
    updates = pull(volumes, load.vid, base.lsn, base.head_hash)
    newest = volumes.snapshot(load.vid, updates.lsn)
    if loaded_seq(newest, load.request) is not None:
        return newest
    if updates.is_empty or not updates.is_maintenance(load.bounds, base.epoch):
        writer_id = updates.commits[0].commit.writer_id if updates.commits else ""
        raise LoadConflict(load.name, base.lsn + 1, writer_id)
    _log.info("%s: lsn %d was taken by maintenance, going on after lsn %d", load.name, base.lsn + 1, newest.lsn)
    return newest
