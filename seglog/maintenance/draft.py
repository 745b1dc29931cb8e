"""The parts of a checkpoint as values: the requests of callers, the draft of each topic that changes, and the plan.

The rules CKPT-1 to CKPT-9 are those of seglog.maintenance.checkpoint. No I/O.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace

from seglog.engine.state import TopicState, active_meta, relocated
from seglog.segments.segment import SegmentInfo
from seglog.segments.sizes import Sizes
from seglog.values.delete_list import DeleteList
from seglog.values.deletes import DeleteOp
from seglog.values.elsewhere import Elsewhere
from seglog.values.merged_deletes import NO_DELETES, MergedDeletes
from seglog.values.truncate_op import TruncateOp
from seglog.wal.manifest import TopicMeta, WalPosition

__all__ = ["CheckpointRequest", "Draft", "Plan"]


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """A change to a topic that a caller asks of a checkpoint. The manifest makes it durable, or it does not happen.

    `seal` seals the active segment. `release_seq` releases the sealed segments that end there or below; with `epoch`,
    only if the topic has that epoch. `settle_op` and `settle_truncation` take a delete and a truncation off their
    lists. `relocated` is the first seq of a hot segment with a copy in the warm store, and its .idx's XXH3-64.
    `made_hot` is the first seq of a relocated segment that is hot again.
    """

    topic: str
    seal: bool = False
    settle_op: int | None = None
    release_seq: int | None = None
    epoch: int | None = None
    settle_truncation: TruncateOp | None = None
    relocated: tuple[int, int] | None = None
    made_hot: int | None = None


@dataclass(slots=True)
class Draft:
    """A topic during a checkpoint: first as planned, then as it will be published.

    The tail goes from `first_seq` to `last_seq`, and is absorbed up to `kept_seq`. All records from `lost_seq` to the
    tail were ephemeral. `deletes` are the deletes to flag: the first `pending_count` of `pending`, and the deletes that
    a segment made hot again was not flagged for.
    """

    state: TopicState
    meta: TopicMeta
    lost_seq: int
    first_seq: int
    kept_seq: int
    last_seq: int
    pending: DeleteList
    pending_count: int
    seal: bool
    sealed: list[SegmentInfo]
    active: SegmentInfo | None
    released: list[SegmentInfo]
    made_hot: int | None
    warm: tuple[SegmentInfo, ...]
    final: TopicMeta | None = None
    warm_ops: DeleteList = field(default_factory=DeleteList)
    deletes: MergedDeletes = NO_DELETES
    sizes: Sizes = field(default_factory=Sizes)
    has_new_tags: bool = False

    @property
    def segments(self) -> list[SegmentInfo]:
        return self.sealed if self.active is None else [*self.sealed, self.active]

    @property
    def pending_warm_deletes(self) -> list[tuple[int, int]]:
        gone = [info.first_seq for info in relocated(self.released)]
        return [(self.meta.topic_id, seq) for seq in (*gone, self.made_hot) if seq is not None]

    def result(self) -> TopicMeta:
        """Return the metadata for the manifest and for `_publish`. Call this after all segments are written."""
        warm_ops = _kept_warm_ops((*self.meta.warm_ops, *self.deletes.tagged), self.warm)
        self.warm_ops = DeleteList(warm_ops)
        self.sizes = Sizes(tuple(self.sealed), self.warm)
        active = active_meta(self.active)
        self.final = replace(self.meta, sealed=self.sizes.segments, active=active, warm_ops=warm_ops)
        return self.final

    def merge_deletes(self) -> None:
        """Merge the deletes to flag. This runs without the lock, because there may be many."""
        made_hot = () if self.made_hot is None else self.meta.warm_ops
        if made_hot or self.pending_count:
            self.deletes = MergedDeletes((*made_hot, *self.pending.first(self.pending_count)))

    def replace(self, info: SegmentInfo) -> None:
        """Replace the info of that segment."""
        if not info.sealed:
            self.active = info
        else:
            self.sealed[bisect_left(self.sealed, info.first_seq, key=lambda each: each.first_seq)] = info


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a checkpoint. `others` are topics with nothing to write that may differ from the newest manifest."""

    wal: tuple[WalPosition, ...]
    next_topic_id: int
    drafts: list[Draft]
    others: list[tuple[TopicState, TopicMeta]]
    deleted: tuple[int, ...]
    epoch_floor: int
    pending_warm_deletes: tuple[tuple[int, int], ...]
    elsewhere: tuple[tuple[str, Elsewhere], ...]

    def all_pending_warm_deletes(self) -> tuple[tuple[int, int], ...]:
        return (*self.pending_warm_deletes, *(key for draft in self.drafts for key in draft.pending_warm_deletes))


def _kept_warm_ops(ops: tuple[DeleteOp, ...], warm: tuple[SegmentInfo, ...]) -> tuple[DeleteOp, ...]:
    """Return the deletes by tag that may reach relocated segments, without deletes that a later one covers (CKPT-7)."""
    if not warm:
        return ()
    # A delete that does not reach the first record reaches none behind it.
    return tuple(op for op in MergedDeletes(ops).tagged if op.may_reach(warm[0].first_seq))
