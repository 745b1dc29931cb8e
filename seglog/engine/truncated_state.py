"""Apply a truncation to the state of a topic: step 1 of `seglog.maintenance.truncation`, in memory."""

from __future__ import annotations

from dataclasses import replace

from seglog.engine.state import TopicState, active_meta
from seglog.engine.tail import Tail
from seglog.segments.segment import SegmentInfo
from seglog.values.names import BRANCH_MARK
from seglog.values.truncate_op import TruncateOp, listed_with

__all__ = ["apply_truncate"]


def apply_truncate(state: TopicState, seq: int, ts_ms: int, epoch: int, kept: SegmentInfo | None) -> None:
    """Change the state as the TRUNCATE frame says. `kept` comes from `kept_part` of seglog.maintenance.truncation."""
    state.touch()
    if state.config.keep_history:
        state.truncate_ops = listed_with(state.truncate_ops, TruncateOp(seq, ts_ms, state.next_op))
    state.ops = state.ops.ended_below(seq)
    state.pending = state.pending.ended_below(seq)
    state.warm_ops = state.warm_ops.ended_below(seq)
    state.flagged_below = min(state.flagged_below, seq)
    state.floors = state.floors.cut(seq)
    state.tagged_below = min(state.tagged_below, seq)
    # A branch may have lost all records of its own. Then none is past the ttl, and it shows its parent's again.
    state.expired_seq = 1 if BRANCH_MARK in state.name else min(state.expired_seq, seq)
    state.oldest_live_ms = 0
    state.ephemeral_buffer.cut(seq)
    state.head_seq = state.logged_seq = seq - 1
    state.last_ts_ms = max(state.last_ts_ms, ts_ms)
    state.hot_floor = min(state.hot_floor, seq)
    if state.truncated_epoch < epoch:  # else an interrupted call has added it
        state.truncations, state.truncated_epoch = (*state.truncations, seq), epoch
    state.generation += 1
    state.wake()
    if seq >= state.tail.first_seq:
        state.tail.cut(seq)
    elif seq > state.segments_end:
        state.tail = Tail(seq)
    else:
        _cut_segments(state, seq, epoch, kept)
    # The last step: until the epoch has changed, an interrupt makes the caller call this again.
    state.epoch = epoch


def _cut_segments(state: TopicState, seq: int, epoch: int, kept: SegmentInfo | None) -> None:
    sealed = tuple(info for info in state.sealed if info.last_seq < seq)
    warm = tuple(info for info in state.warm if info.last_seq < seq)
    meta = replace(
        state.to_meta(),
        epoch=epoch,
        sealed=sealed,
        active=active_meta(kept),
    )
    tail = Tail(seq)
    # One statement, because an interrupt hits only between calls. With the new tail, `_cut_segments` never runs again.
    state.sealed, state.warm, state.active, state.tail, state.truncated_meta = sealed, warm, kept, tail, meta
