"""The undo of a delete that a log made, in a topic without an archive.

    step                                                              state after a crash in this step
    1 plan      The log looks which records the delete took that no   the same
                other delete took, and that still have their bytes.
    2 frame     An UNDELETE frame names the delete and these          the same, or the undo, whole
                records. The delete is listed no longer.
    3 flags     A checkpoint removes the flags of these records.      the undo, whole: the frame is in the WAL

TAKEN-1  No checkpoint and no reclaim runs between steps 1 and 2, so what step 1 has found stays true. A delete that
    comes meanwhile has a higher number, and reaches its records after the undo, too (UNDELETE-2).
TAKEN-2  A record that another delete took as well stays deleted. The other one is still in `last_deletes`, so its undo
    brings the record back.
TAKEN-3  If the bytes of a record are gone, the undo is refused as a whole, unless the caller takes the others. They go
    with a reclaim, and with a segment that a checkpoint drops because it has no live record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from seglog.engine.engine import Engine, change
from seglog.engine.state import TopicState
from seglog.errors import DeleteNotUndone
from seglog.format.arrays import NDArray, np
from seglog.format.frame import DELETED, LOST
from seglog.maintenance.relocation import make_hot
from seglog.maintenance.removal import advance_front
from seglog.reading.read import tail_batch
from seglog.reading.times import expired_seq
from seglog.segments.batch import FrameBatch
from seglog.segments.segment import SegmentInfo
from seglog.segments.tags import reached_seqs
from seglog.values.deletes import DeleteOp, MergedDeletes
from seglog.values.last_deletes import Undeleted
from seglog.values.seq_set import SEQ_RANGES_MAX, SeqSet
from seglog.writing.changes import held_relocation, to_make_hot, undelete_locked

_NAMED_RANGES = 5


@change
def undo_delete(engine: Engine, name: str, number: int | None, *, partial: bool) -> Undeleted:
    """Undo a delete, or with None the newest one that is not undone. Return what is back.

    Raises `DeleteNotUndone`, `NoSuchTopic`, `UpgradeNeeded`, and the errors of a read of the warm store.
    """
    engine.check_writable()
    engine.check_form("an undo", 2)
    state = engine.state(name)
    with held_relocation(engine, state):
        is_hot = False
        while True:
            with engine.retention_lock, engine.checkpoint_lock:
                op, plan = _wanted(engine, state, number)  # another caller may have undone it meanwhile
                if is_hot or not state.warm:
                    undelete_locked(engine, state, _checked(state, op, plan, partial=partial).back, of=op.op)
                    break
            for info in to_make_hot(engine, state, op.seqs or SeqSet.of(())):
                make_hot(engine, state, info)
            number, is_hot = op.op, True
        advance_front(engine, state)
    return plan


def preview_undo(engine: Engine, name: str, number: int | None) -> Undeleted:
    """Return what `undo_delete` would bring back. Change nothing."""
    engine.check_form("an undo", 2)
    state = engine.state(name)
    with engine.checkpoint_lock:
        op, plan = _wanted(engine, state, number)
    return _checked(state, op, plan, partial=bool(plan.back) or bool(plan.gone))


def _wanted(engine: Engine, state: TopicState, number: int | None) -> tuple[DeleteOp, Undeleted]:
    """Return the delete with that number, or with None the newest one that took a record, and its plan.

    The caller holds the checkpoint lock.
    """
    known = state.known_deletes.ops
    if state.config.keep_history:
        reason = "its archive undoes the deletes of a topic that keeps its history"
        raise DeleteNotUndone(state.name, reason, "`Archive.history.undo_delete`, or `seglog undo` with the remote")
    wanted = [op for op in reversed(known) if number in {None, op.op}]
    if not wanted:
        others = ", ".join(f"delete:{other.op}" for other in known)
        which = "no delete" if number is None else f"delete {number} is none that"
        hint = f"these can be: {others}" if others else None
        raise DeleteNotUndone(state.name, f"{which} can be undone here", hint)
    newest = wanted[0], _plan(engine, state, wanted[0])
    older = ((op, _plan(engine, state, op)) for op in wanted[1:])
    return next((each for each in chain([newest], older) if each[1].back or each[1].gone or each[1].stay), newest)


def _checked(state: TopicState, op: DeleteOp, plan: Undeleted, *, partial: bool) -> Undeleted:
    """Return the plan. Raises `DeleteNotUndone` if the caller gets less than it wants."""
    subject = f"delete {op.op}"
    if plan.gone and not (partial and plan.back):
        hint = "`--partial` brings the others back" if plan.back else None
        reason = f"records that {subject} took are gone: seq {_named(plan.gone)}"
        raise DeleteNotUndone(state.name, reason, hint)
    if not plan.back and plan.stay:
        takers = [other.op for other in state.known_deletes.ops if other.op != op.op and _meets(other, plan.stay)]
        hint = f"first undo {', '.join(f'delete:{taker}' for taker in takers)}" if takers else None
        raise DeleteNotUndone(state.name, f"other deletes took the records of {subject} as well", hint)
    if not plan.back:
        raise DeleteNotUndone(state.name, f"{subject} took no record that is still here")
    if plan.back.range_count > SEQ_RANGES_MAX:
        raise DeleteNotUndone(state.name, f"{subject} took records in {plan.back.range_count:,} places, too many")
    return plan


def _meets(op: DeleteOp, seqs: SeqSet) -> bool:
    return op.seqs is not None and any(op.seqs.within(first, last) for first, last in seqs.ranges())


def _named(seqs: SeqSet) -> str:
    named = [f"{first} to {last}" if last > first else str(first) for first, last in seqs.ranges()]
    return ", ".join(named[:_NAMED_RANGES]) + (", …" if len(named) > _NAMED_RANGES else "")


def _plan(engine: Engine, state: TopicState, op: DeleteOp) -> Undeleted:
    """Say what comes back (step 1). The caller holds the checkpoint lock."""
    seqs = op.seqs or SeqSet.of(())
    known = state.known_deletes
    listed = [other for other in (*known.former, *known.ops, *state.ops) if other.op != op.op]
    others = MergedDeletes(listed)
    dropped = seqs.within(1, state.hot_floor - 1)
    for other in listed if dropped else ():
        if other.seqs is not None and other.tag is None:
            dropped -= other.seqs
    first_shown = max(state.floors.evict_floor, expired_seq(engine, state, seqs.first)) if seqs else 1
    back, gone, stay = list[tuple[int, int]](), list[tuple[int, int]](), list[tuple[int, int]]()
    for first, entries, mine, theirs in _looked_up(engine, state, op, others):
        numbers = np.arange(first, first + len(entries))
        is_dead, is_lost = entries["flags"] & DELETED != 0, entries["flags"] & LOST != 0
        taken, is_hidden = mine & ~is_lost, numbers < first_shown
        is_gone = (entries["length"] == 0) | (is_dead & (numbers < known.unknown_below))
        stay += _ranges(first, taken & theirs & ~is_hidden)
        gone += _ranges(first, taken & (is_hidden | (~theirs & is_gone)))
        back += _ranges(first, taken & ~theirs & ~is_gone & ~is_hidden)
    return Undeleted(op.op, SeqSet.of(back), dropped | SeqSet.of(gone), SeqSet.of(stay))


def _ranges(first: int, mask: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last seq of each run of True. The mask begins at `first`."""
    edges = (np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0)) + first).tolist()
    return ((begin, end - 1) for begin, end in zip(edges[::2], edges[1::2], strict=True))


_Looked = tuple[int, NDArray[Any], NDArray[Any], NDArray[Any]]


def _looked_up(engine: Engine, state: TopicState, op: DeleteOp, others: MergedDeletes) -> Iterator[_Looked]:
    """Yield for each part of the topic its first seq, its entries, and which records `op` and `others` reach."""
    seqs, mine = op.seqs or SeqSet.of(()), MergedDeletes((op,))
    with engine.committer.lock:
        segments, tail_first, tail_end = state.segments, state.tail.first_seq, state.tail.end_seq
    for info in segments:
        within = seqs.within(info.first_seq, info.last_seq)
        if within and info.is_hot:
            segment = engine.segments.get(state.topic_id, info)
            reached = (reached_seqs(engine.files, engine.layout, segment, info, reach) for reach in (mine, others))
            entries = segment.entries(info.first_seq, info.last_seq)
            masks = [_mask(part, info) for part in reached]
            yield info.first_seq, entries, masks[0], masks[1]
        elif within:  # a preview moves no segment
            first = info.first_seq
            while first <= info.last_seq:
                batch = engine.segment(state.topic_id, info).batch(first, info.last_seq)
                yield _read(batch, op, others, is_flagged=True)
                first = batch.last_seq + 1
    within = seqs.within(tail_first, tail_end - 1)
    first = within.first
    while within and first < within.end:
        batch = tail_batch(engine, state, first, within.end - 1)
        yield _read(batch, op, others, is_flagged=False)
        first = batch.last_seq + 1


def _read(batch: FrameBatch, op: DeleteOp, others: MergedDeletes, *, is_flagged: bool) -> _Looked:
    """Look a batch up by its frames. The flags of relocated segments do not say what is deleted: `is_flagged`."""
    entries = batch.entries.copy()
    mine, theirs = np.zeros(len(entries), np.bool_), np.zeros(len(entries), np.bool_)
    for record in batch.records(np.flatnonzero((entries["flags"] & LOST == 0) & (entries["length"] != 0))):
        at = record.seq - batch.first_seq
        mine[at], theirs[at] = op.reaches(record.seq, record.tag), others.reaches(record.seq, record.tag)
    if is_flagged:
        entries["flags"] |= DELETED
    return batch.first_seq, entries, mine, theirs


def _mask(seqs: Sequence[int], info: SegmentInfo) -> NDArray[Any]:
    mask = np.zeros(info.last_seq - info.first_seq + 1, np.bool_)
    if len(seqs):
        mask[np.asarray(seqs, np.int64) - info.first_seq] = True
    return mask
