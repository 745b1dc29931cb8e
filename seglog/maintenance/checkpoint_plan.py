"""The plan of a checkpoint (step 1): what callers request, the topics to look at, and a draft of each that changes.

    topic                                           in the plan
    has records, deletes or a request to apply      a draft
    changed, and has nothing to write               its metadata, for the manifest
    unchanged since the newest manifest             not in it: the encoder has what the manifest says (CKPT-9)

The rules CKPT-1 to CKPT-9 are those of seglog.maintenance.checkpoint. This module writes nothing.

**Retention** decides from values what it removes.

    ttl_ms                       a sealed segment is due when its newest record is older
    cap_records, cap_bytes       with discard "old", the oldest sealed segment is due as long as the rest still fills
                                 the cap; with "reject", an append that would pass a cap is refused
    segment_max_age_ms           a segment is sealed when its oldest record is older than this, or than the ttl. So
                                 expired records free their space at most one ttl later

RETAIN-1  Retention removes only whole sealed segments, from the front. So a topic holds up to one segment more than its
    cap. Retention never touches the active segment.
RETAIN-2  Caps count the records on this disk that may be live. The count starts at the first live record and includes
    deleted records behind it.

Source: topics engine architecture, section 3.4. No I/O.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from heapq import heappop, heappush
from itertools import count, islice
from operator import itemgetter

from seglog.base.dataclasses import dataclass
from seglog.engine.engine import Engine
from seglog.engine.state import TopicState, active_meta, relocated
from seglog.segments.segment import SegmentInfo, Sizes
from seglog.values.config import TopicConfig
from seglog.values.deletes import NO_DELETES, DeleteList, DeleteOp, MergedDeletes, TruncateOp
from seglog.values.last_deletes import LastDeletes
from seglog.values.seq_set import SeqSet
from seglog.values.written_elsewhere import Elsewhere
from seglog.wal.manifest import TopicMeta, WalPosition

_ticket = count()


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
    undeleted: SeqSet | None
    pending: DeleteList
    pending_count: int
    seal: bool
    sealed: list[SegmentInfo]
    active: SegmentInfo | None
    released: list[SegmentInfo]
    made_hot: int | None
    warm: tuple[SegmentInfo, ...]
    last_deletes: LastDeletes
    new_deletes: tuple[tuple[DeleteOp, int], ...]
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
        warm_ops = _kept_warm_ops((*self.meta.warm_ops, *self.deletes.selective), self.warm)
        self.warm_ops = DeleteList(warm_ops)
        self.sizes = Sizes(tuple(self.sealed), self.warm)
        active = active_meta(self.active)
        has_none = self.meta.last_deletes is None
        last = None if has_none else self.last_deletes.added(self.new_deletes)
        self.final = replace(self.meta, sealed=self.sizes.segments, active=active, warm_ops=warm_ops, last_deletes=last)
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
            self.sealed[bisect_left(self.sealed, info.first_seq, key=lambda segment: segment.first_seq)] = info


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
    """Return the selective deletes that may reach relocated segments, without those that another covers (CKPT-7)."""
    if not warm:
        return ()
    # A delete that does not reach the first record reaches none behind it.
    return tuple(op for op in MergedDeletes(ops).selective if op.may_reach(warm[0].first_seq))


def plan_checkpoint(engine: Engine, requests: Sequence[CheckpointRequest] = ()) -> Plan:
    """Return the plan. Each topic has one request at most.

    If an interrupted leader has published a part of its group, wait for the rest (GROUP-6).
    A manifest with that part would have a state that is not the one before its place in the WAL (MANIFEST-1).
    """
    while True:
        with engine.committer.lock:
            if not engine.committer.is_publishing:
                return _plan(engine, requests)
        engine.committer.flush()


def _plan(engine: Engine, requests: Sequence[CheckpointRequest]) -> Plan:
    """Return the plan. The caller holds the committer's lock."""
    # This manifest leaves out a topic whose creation is not published. Recovery creates that topic from the WAL, so
    # its id must look unused in the manifest.
    next_topic_id = min(engine.creating, default=engine.next_topic_id)
    ends, deleted = engine.committer.published_ends, engine.deleted
    elsewhere = tuple(sorted(engine.elsewhere.items(), key=itemgetter(0)))
    plan = Plan(ends, next_topic_id, [], [], deleted, engine.epoch_floor, engine.pending_warm_deletes, elsewhere)
    by_topic = {request.topic: request for request in requests}
    for state in _to_look_at(engine, by_topic):
        own = by_topic.get(state.name)
        aged = is_to_be_sealed(engine, state)
        if own is not None or aged or has_news(state):
            plan.drafts.append(_draft(state, own or CheckpointRequest(state.name), seal=aged))
        else:
            meta = state.to_meta()
            if meta.last_deletes is not None and state.new_deletes:
                meta = replace(meta, last_deletes=state.known_deletes)
            plan.others.append((state, meta))
    return plan


def _to_look_at(engine: Engine, names: Iterable[str]) -> list[TopicState]:
    """Return the topics that this checkpoint looks at, ascending by id (CKPT-9).

    The caller holds the committer's lock.
    """
    for topic_id in [state.topic_id for state in engine.changed.values() if state.is_gone]:
        del engine.changed[topic_id]
    states = {**engine.changed, **{state.topic_id: state for state in _aged(engine)}}
    name_set = {*names}
    leaving = [state for state in engine.topics_being_deleted.values() if state.name in name_set]
    states |= {state.topic_id: state for state in (*map(engine.find, name_set), *leaving) if state is not None}
    return [states[topic_id] for topic_id in sorted(states) if not states[topic_id].is_gone]


def _aged(engine: Engine) -> list[TopicState]:
    """Return the topics of `aging` that are due. They count as changed until a checkpoint has sealed them."""
    states: list[TopicState] = []
    now_ms = engine.clock.now_ms()
    while engine.aging and engine.aging[0][0] < now_ms:
        state = engine.aging[0][2]
        if not state.is_gone:
            state.touch()
            states.append(state)
        state.seal_due_ms = None
        heappop(engine.aging)
    return states


def schedule(engine: Engine, state: TopicState, meta: TopicMeta | None) -> None:
    """Schedule the topic for sealing by age, and for the next checkpoint if it has news or is not as `meta` says.

    `meta` is what the newest manifest says of the topic. The caller holds the committer's lock.
    """
    due_ms = _seal_due_ms(engine, state)
    if due_ms is not None and due_ms != state.seal_due_ms:
        heappush(engine.aging, (due_ms, next(_ticket), state))
        state.seal_due_ms = due_ms
    if has_news(state):
        state.touch()
    elif state.to_meta() == meta:
        engine.changed.pop(state.topic_id, None)


def has_news(state: TopicState) -> bool:
    """Return whether the topic has anything that segments and flags lack. The caller holds the committer's lock."""
    is_changed = len(state.tail) or state.pending or state.undeleted or state.head_seq != state.kept_head
    return bool(is_changed or _is_outdated(state))


def _seal_due_ms(engine: Engine, state: TopicState) -> int | None:
    """Return the time after which the active segment is old enough to seal, or None.

    Records in the tail are news anyway.
    """
    max_age_ms = seal_age_ms(state.config, engine.settings.segment_max_age_ms)
    return state.active.min_ts_ms + max_age_ms if max_age_ms and state.active is not None else None


def is_to_be_sealed(engine: Engine, state: TopicState) -> bool:
    """Return whether the oldest unsealed record is old enough to seal. The caller holds the committer's lock."""
    max_age_ms = seal_age_ms(state.config, engine.settings.segment_max_age_ms)
    if not max_age_ms:
        return False
    oldest = state.tail.ts_ms(state.tail.first_seq) if len(state.tail) else None
    if state.active is not None:
        oldest = state.active.min_ts_ms
    return is_aged(oldest, max_age_ms, engine.clock.now_ms())


def _is_outdated(state: TopicState) -> bool:
    """Return whether a checkpoint can drop segments, or forget listed deletes."""
    if state.ops and not _keeps_ops(state, state.hot_floor):
        return True
    return state.dead_segments > 0 and not state.config.keep_history


def _draft(state: TopicState, request: CheckpointRequest, *, seal: bool) -> Draft:
    released, sealed = _segments(state, request)
    has_moved = bool(released) or request.made_hot is not None or request.relocated is not None
    hot_floor = released[-1].last_seq + 1 if released else state.hot_floor
    ops = tuple(state.ops) if _keeps_ops(state, hot_floor) else ()
    if request.settle_op is not None:
        ops = tuple(op for op in ops if op.op != request.settle_op)
    truncate_ops = tuple(op for op in state.truncate_ops if op != request.settle_truncation)
    return Draft(
        state=state,
        meta=replace(state.to_meta(), hot_floor=hot_floor, ops=ops, truncate_ops=truncate_ops),
        lost_seq=state.segments_end + 1,
        first_seq=state.tail.first_seq,
        kept_seq=state.tail.kept_seq,
        last_seq=state.head_seq,
        undeleted=state.undeleted,
        pending=state.pending,
        pending_count=len(state.pending),
        seal=seal or request.seal,
        sealed=sealed,
        active=state.active,
        released=released,
        made_hot=request.made_hot,
        warm=relocated(sealed) if has_moved else state.warm,
        last_deletes=state.last_deletes,
        new_deletes=tuple(state.new_deletes),
    )


def _segments(state: TopicState, request: CheckpointRequest) -> tuple[list[SegmentInfo], list[SegmentInfo]]:
    """Return the sealed segments that leave the disk, and those that stay, as the request wants them."""
    sealed = list(state.sealed)
    if request.relocated is not None:
        sealed = [_with_check(info, *request.relocated) for info in sealed]
    if request.made_hot is not None:
        sealed = [info._replace(warm_check=None) if info.first_seq == request.made_hot else info for info in sealed]
    release_seq = request.release_seq or 0
    if request.epoch not in {None, state.epoch}:
        release_seq = 0
    if not state.config.keep_history:
        release_seq = max(release_seq, state.floors.earliest_seq - 1)
    count = bisect_right(sealed, release_seq, key=lambda segment: segment.last_seq)
    return sealed[:count], sealed[count:]


def _with_check(info: SegmentInfo, first_seq: int, check: int) -> SegmentInfo:
    return info._replace(warm_check=check) if info.first_seq == first_seq else info


def _keeps_ops(state: TopicState, hot_floor: int) -> bool:
    """Return whether the topic keeps its listed deletes.

    A delete that reaches into the cold tier sets no flags there, so it stays listed until it is settled.
    """
    return state.config.keep_history or state.floors.earliest_seq < hot_floor


@dataclass(frozen=True, slots=True)
class Retained:
    """The records `first_seq` to `last_seq` that a topic holds on this disk, and the bytes of their frames."""

    first_seq: int
    last_seq: int
    size_bytes: int

    @property
    def records(self) -> int:
        return self.last_seq - self.first_seq + 1


@dataclass(frozen=True, slots=True)
class Retention:
    """The result of one call for one topic. The fields are seqs; 0 means none.

    `evicted_seq` is the last record that was evicted. `waiting_seq` is the last record that is due under
    `keep_history`. It waits until the archive has it and releases it.
    """

    topic: str
    evicted_seq: int = 0
    waiting_seq: int = 0


def due_seq(config: TopicConfig, sealed: Sequence[SegmentInfo], retained: Retained, now_ms: int) -> int:
    """Return the last seq of the last sealed segment that is due, or 0 if none is."""
    seq, records, size_bytes = 0, retained.records, retained.size_bytes
    start = bisect_left(sealed, retained.first_seq, key=lambda segment: segment.last_seq)
    for segment in islice(sealed, start, None):
        records -= segment.last_seq - max(segment.first_seq, retained.first_seq) + 1
        size_bytes -= segment.data_bytes
        is_old = config.ttl_ms is not None and segment.max_ts_ms < now_ms - config.ttl_ms
        is_over = (config.cap_records is not None and records >= config.cap_records) or (
            config.cap_bytes is not None and size_bytes >= config.cap_bytes
        )
        if not (is_old or (is_over and config.discard == "old")):
            break
        seq = segment.last_seq
    return seq


def passed_cap(config: TopicConfig, retained: Retained) -> tuple[str, int] | None:
    """Return the name and the value of a cap that is passed, or None."""
    if config.cap_records is not None and retained.records > config.cap_records:
        return "cap_records", config.cap_records
    if config.cap_bytes is not None and retained.size_bytes > config.cap_bytes:
        return "cap_bytes", config.cap_bytes
    return None


def seal_age_ms(config: TopicConfig, segment_max_age_ms: int) -> int:
    """Return the age at which the active segment is sealed. 0 means that age never seals it."""
    return min(filter(None, (config.ttl_ms, segment_max_age_ms)), default=0)


def is_aged(oldest_ts_ms: int | None, max_age_ms: int, now_ms: int) -> bool:
    """Return whether the unsealed records are old enough to seal.

    `oldest_ts_ms` is the time of the oldest one, or None if there are none.
    """
    return max_age_ms > 0 and oldest_ts_ms is not None and oldest_ts_ms < now_ms - max_age_ms
