"""Relocation: sealed segments leave the hot tier for the warm store, and no crash loses one.

**One segment** is in one of four states.

    state    facts                                                next step
    HOT      the hot copy is whole; warm may have a part of one   copy: put, and read back every byte
    COPIED   both copies are whole and equal                      flip: the pointer says warm, durably
    FLIPPED  the pointer says warm                                delete the hot copy
    WARM     the hot copy is gone, or half of it is               -

A crash leaves it in one of them. `relocate` finds out which, and continues from there. It puts the segment again even
if the warm store shows it already. A visible segment may not be durable yet: only a `put` that returned makes it
durable.

RELOC-1  The hot copy is deleted only after the pointer is durable. The pointer is flipped only after a read-back.
RELOC-2  The pointer belongs to the module that keeps the topic's metadata, and that module supplies `flip`. When `flip`
    is entered, the pointer is durable, or `flip` raises. Until `flip` is left, no thread brings the hot copy back.
    `relocate` may call `flip` for a segment whose pointer says warm already.
RELOC-3  Flags in the .idx may change during the copy. `flip` gets the XXH3-64 of the copied .idx, and raises if the
    current .idx has another one.
RELOC-4  `relocate` never deletes a hot file that is the same file as its warm copy, by device and inode. It also keeps
    a hot file that a `put` into the warm store has replaced. In that case the store writes into the hot tier by some
    path. If a hot file is gone after the `put`, it was truncated, evicted or deleted meanwhile, and `flip` reports it.

**The relocator** works in a separate thread, after checkpoints. It also deletes segments from the warm store.

    1 let go   The relocator deletes the segments of `pending_warm_deletes`.
    2 copy     It copies each segment that hot retention does not keep (`to_relocate`), oldest first.
    3 flip     It makes a checkpoint whose manifest says that the segment is in the warm store. Then it deletes the hot
               copy.
    4 look     After deletes by tag, it looks for the first live record, if that may be in the warm store.

MOVER-1  The relocator holds no lock of the log over a call of a warm store. So a store that hangs or fails delays only
    this thread and the readers of that store. It never delays an append, a hot read or a checkpoint. It delays closing
    the log by a second at most.
MOVER-2  Step 3 runs under the checkpoint lock, which flagging, truncations and closing need too. It runs only if
    nothing of the segment has changed since it was read. Otherwise the relocator copies the segment again.
MOVER-3  The relocator never puts a segment under a name before the pending delete of that name. So no old segment is
    taken for a new one.
MOVER-4  A failure is logged. The relocator tries again after the next checkpoint.

Source: topics engine architecture, section 3.6, and the knobs of its layout section.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from xxhash import xxh3_64_intdigest

from seglog.base.dataclasses import dataclass
from seglog.base.lazy import logger
from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.errors import InvalidSetting, LogClosed, NoSuchSegment, SameFile, SegmentCut, WriterPoisoned
from seglog.format.index import ENTRY
from seglog.maintenance.checkpoint import checkpoint_locked
from seglog.maintenance.checkpoint_plan import CheckpointRequest
from seglog.maintenance.removal import advance_front
from seglog.segments.segment import SegmentInfo
from seglog.tiers.segment_store import LocalSegmentStore, Part, SegmentId, SegmentStore, TopicTier, is_whole
from seglog.tiers.warm_stores import WarmStores

_Flip: TypeAlias = Callable[[SegmentId, int], AbstractContextManager[None]]
"""Flip the pointer of a segment (RELOC-2). The second argument is the XXH3-64 of the copied .idx (RELOC-3)."""

_COMPARE_BYTES = 1024 * 1024
_logger = logger("seglog.maintenance.relocation")
_TRIES = 3


@dataclass(frozen=True, slots=True)
class HotRetention:
    """How many of the newest sealed segments stay hot, and how many bytes of data. The stricter limit counts.

    `hot_retain_bytes` 0 means no limit by bytes.
    """

    hot_retain_segments: int = 4
    hot_retain_bytes: int = 0

    def __post_init__(self) -> None:
        for key in ("hot_retain_segments", "hot_retain_bytes"):
            if getattr(self, key) < 0:
                raise InvalidSetting(key, f"{getattr(self, key)} is below 0")


def to_relocate(hot: Sequence[SegmentInfo], retention: HotRetention) -> list[SegmentId]:
    """Return the segments that leave the hot tier, oldest first. The active segment always stays.

    `hot` are the topic's hot segments, ascending.
    """
    sealed = [segment for segment in hot if segment.sealed]
    count, kept_bytes = 0, 0
    for segment in reversed(sealed):
        kept_bytes += segment.data_bytes
        is_over = retention.hot_retain_bytes and kept_bytes > retention.hot_retain_bytes
        if count == retention.hot_retain_segments or is_over:
            break
        count += 1
    return [SegmentId(segment.first_seq) for segment in sealed[: len(sealed) - count]]


def relocate(tier: TopicTier, segment: SegmentId, flip: _Flip) -> None:
    """Move a segment from hot to warm, from the state that it is in. On return, only the warm copy exists.

    Raises `NoSuchSegment` if neither store has it whole. Raises `SegmentCut` if the warm store returns other bytes than
    it got. Raises `SameFile` (RELOC-4), and any error of the stores and of `flip`. After an error, the hot copy exists
    or the pointer says warm.
    """
    if tier.warm is None:
        raise InvalidSetting("log.cold_dir", "there is no warm store")
    if is_whole(tier.hot, segment):
        idx = _copy(tier.hot, tier.warm, segment)
    elif is_whole(tier.warm, segment):
        idx = _read(tier.warm, segment, Part.IDX)
    else:
        raise NoSuchSegment(segment)
    _check_apart(tier, segment)
    with flip(segment, xxh3_64_intdigest(idx)):
        _check_apart(tier, segment)
        tier.hot.delete(segment)


def _check_apart(tier: TopicTier, segment: SegmentId) -> None:
    """Raise `SameFile` if a hot file is the same file as its warm copy (RELOC-4).

    A store that is no directory has only bytes and no file identities, so it is not checked.
    """
    hot, warm = tier.hot, tier.warm
    if not isinstance(hot, LocalSegmentStore) or not isinstance(warm, LocalSegmentStore):
        return
    for part in Part:
        identity = hot.identity(segment, part)
        if identity is not None and identity == warm.identity(segment, part):
            raise SameFile(hot.path(segment, part), warm.path(segment, part))


def _identities(store: SegmentStore, segment: SegmentId) -> list[tuple[int, int] | None]:
    return [store.identity(segment, part) for part in Part] if isinstance(store, LocalSegmentStore) else []


def _read(store: SegmentStore, segment: SegmentId, part: Part) -> bytes:
    return store.read_range(segment, part, 0, store.length(segment, part))


def _copy(hot: SegmentStore, warm: SegmentStore, segment: SegmentId) -> bytes:
    """Put the hot segment into the warm store, read it back, and return its .idx."""
    bodies = {part: _read(hot, segment, part) for part in Part}
    before = _identities(hot, segment)
    warm.put(segment, bodies[Part.DATA], bodies[Part.IDX])
    if any(now not in (None, was) for now, was in zip(_identities(hot, segment), before, strict=True)):
        assert isinstance(hot, LocalSegmentStore)  # noqa: S101 - other stores have no identities
        raise SameFile(hot.path(segment, Part.DATA), None)
    difference = _first_difference(warm, segment, bodies)
    if difference is not None:
        part, offset = difference
        raise SegmentCut(segment, part.value, offset, len(bodies[part]))
    return bodies[Part.IDX]


def _first_difference(store: SegmentStore, segment: SegmentId, bodies: dict[Part, bytes]) -> tuple[Part, int] | None:
    """Return the first part and offset where the stored bytes differ from `bodies`, or None.

    The offset is the start of the piece of `_COMPARE_BYTES` that differs.
    """
    for part, body in bodies.items():
        if store.length(segment, part) != len(body):
            return part, min(store.length(segment, part), len(body))
        for offset in range(0, len(body), _COMPARE_BYTES):
            piece = body[offset : offset + _COMPARE_BYTES]
            if store.read_range(segment, part, offset, len(piece)) != piece:
                return part, offset
    return None


class _Changed(Exception):
    """The segment no longer is what was copied."""


def relocate_due(engine: Engine) -> None:
    """Run all pending deletes in the warm stores, and relocate all segments that are due."""
    stores = engine.warm_stores
    if stores is None:
        return
    try:
        _let_go(engine, stores)
        for state in list(engine.topics.values()):
            if engine.is_closed or engine.committer.is_poisoned:
                return
            _attempt(state, functools.partial(_relocate_topic, engine, stores, state))
    except (LogClosed, WriterPoisoned):
        return


def make_hot(engine: Engine, state: TopicState, info: SegmentInfo) -> None:
    """Make a relocated segment hot again, durably. The caller holds no lock, and keeps `relocation_holds` above 0
    meanwhile.

    Raises what a read of the segment raises, and what a checkpoint raises. If the segment is gone meanwhile, `make_hot`
    does nothing.
    """
    stores = engine.warm_stores
    if stores is None:
        return
    segment = stores.segment(state.topic_id, info)
    idx = segment.idx.read_exactly(info.records * ENTRY.size, 0)
    data = stores.part(state.topic_id, info.first_seq, Part.DATA).read_exactly(info.data_bytes, 0)
    with engine.checkpoint_lock:
        engine.check_open()
        if info not in state.sealed or engine.topics.get(state.name) is not state:
            return
        engine.segments.forget(state.topic_id, info.first_seq)
        _hot(engine, state).put(SegmentId(info.first_seq), data, idx)
        checkpoint_locked(engine, CheckpointRequest(state.name, made_hot=info.first_seq))


def _attempt(state: TopicState, work: functools.partial[None]) -> None:
    """Call `work`. Log its failure (MOVER-4), but raise `LogClosed` and `WriterPoisoned`."""
    try:
        work()
    except (LogClosed, WriterPoisoned):
        raise
    except Exception as error:
        _logger.warning("%s: nothing more is relocated for now: %s", state.name, error)


def _let_go(engine: Engine, stores: WarmStores) -> None:
    for key in engine.pending_warm_deletes:
        topic_id, first_seq = key
        try:
            stores.changing(topic_id, engine.files).delete(SegmentId(first_seq))
        except Exception as error:
            _logger.warning("the warm store keeps segment %d of topic %d for now: %s", first_seq, topic_id, error)
            continue
        with engine.committer.lock:
            engine.pending_warm_deletes = tuple(pending for pending in engine.pending_warm_deletes if pending != key)


def _relocate_topic(engine: Engine, stores: WarmStores, state: TopicState) -> None:
    tries = 0
    while tries < _TRIES and (info := _next_due(engine, state)) is not None:
        tier = TopicTier(_hot(engine, state), stores.changing(state.topic_id, engine.files))
        try:
            relocate(tier, SegmentId(info.first_seq), functools.partial(_flip, engine, state, info))
            tries = 0
        except (_Changed, SameFile) as error:
            if isinstance(error, SameFile) and _is_as_it_was(engine, state, info):
                raise
            tries += 1
            _drop_if_gone(engine, stores, state, info)
    if not state.is_gone:
        _look_for_front(engine, state)


def _next_due(engine: Engine, state: TopicState) -> SegmentInfo | None:
    settings = engine.settings
    retention = HotRetention(settings.hot_retain_segments, settings.hot_retain_bytes)
    with engine.committer.lock:
        if engine.is_closed or state.relocation_holds or not state.is_published or state.is_gone:
            return None
        hot = [info for info in state.segments if info.is_hot]
        leaving = to_relocate(hot, retention)
        pending = {first_seq for topic_id, first_seq in engine.pending_warm_deletes if topic_id == state.topic_id}
        return next((info for info in hot if info.first_seq in leaving and info.first_seq not in pending), None)


@contextmanager
def _flip(engine: Engine, state: TopicState, info: SegmentInfo, segment: SegmentId, check: int) -> Iterator[None]:
    """Flip the pointer under the checkpoint lock (MOVER-2). Raises `_Changed` if the segment is not what was copied."""
    with engine.checkpoint_lock:
        engine.check_open()
        is_there = info in state.sealed and engine.topics.get(state.name) is state
        if state.relocation_holds or state.undeleted is not None or not is_there:
            raise _Changed
        if _check_now(engine, state, info) != check or _has_fewer_bytes(engine, state, info):
            raise _Changed
        checkpoint_locked(engine, CheckpointRequest(state.name, relocated=(segment, check)))
        if info in state.sealed or state.is_gone:
            raise _Changed
        try:
            yield
        finally:
            engine.segments.forget(state.topic_id, segment)


def _check_now(engine: Engine, state: TopicState, info: SegmentInfo) -> int:
    idx = engine.segments.get(state.topic_id, info).idx
    return xxh3_64_intdigest(idx.read_exactly(info.records * ENTRY.size, 0))


def _has_fewer_bytes(engine: Engine, state: TopicState, info: SegmentInfo) -> bool:
    """Return whether a rewrite made .data shorter than `info` says (REWRITE-5).

    If so, update the topic's state.
    """
    segment = engine.segments.get(state.topic_id, info)
    if segment.data.size() == info.data_bytes:
        return False
    with engine.committer.lock:
        state.replace_segment(info, segment.counted(info))
    return True


def _is_as_it_was(engine: Engine, state: TopicState, info: SegmentInfo) -> bool:
    """Return whether the log still has the segment as `info` tells. If not, the log may have replaced its files."""
    with engine.committer.lock:
        return info in state.sealed


def _drop_if_gone(engine: Engine, stores: WarmStores, state: TopicState, info: SegmentInfo) -> None:
    """Delete the warm copy of a segment that was truncated, evicted or deleted during its relocation."""
    with engine.committer.lock:
        is_there = not state.is_gone and any(sealed.first_seq == info.first_seq for sealed in state.sealed)
    if not is_there:
        stores.changing(state.topic_id, engine.files).delete(SegmentId(info.first_seq))


def _look_for_front(engine: Engine, state: TopicState) -> None:
    last_op = state.next_op
    is_selective = state.warm_ops.selective or state.pending.selective
    is_warm = any(info.last_seq >= state.floors.earliest_seq for info in state.warm)
    if is_selective and is_warm and state.front_op != last_op:
        advance_front(engine, state, may_ask_store=True)
        state.front_op = last_op


def _hot(engine: Engine, state: TopicState) -> LocalSegmentStore:
    return LocalSegmentStore(engine.files, engine.layout, state.topic_id)
