"""Move segments to the warm store, and delete segments from it: in a separate thread, after checkpoints.

    1 let go   The relocator deletes the segments of `pending_warm_deletes`.
    2 copy     It copies each segment that hot retention does not keep (seglog.maintenance.relocation), oldest first.
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

Source: topics engine architecture, section 3.6.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from xxhash import xxh3_64_intdigest

from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.errors import LogClosed, SameFile, WriterPoisoned
from seglog.format.index import ENTRY
from seglog.maintenance.checkpoint import checkpoint_locked
from seglog.maintenance.draft import CheckpointRequest
from seglog.maintenance.front import advance_front
from seglog.maintenance.relocation import HotRetention, relocate, to_relocate
from seglog.segments.segment import SegmentInfo
from seglog.tiers.local_store import LocalSegmentStore
from seglog.tiers.segment_store import Part, SegmentId
from seglog.tiers.topic_tier import TopicTier
from seglog.tiers.warm_stores import WarmStores

__all__ = ["make_hot", "relocate_due"]

_logger = logging.getLogger("seglog.maintenance.relocator")
_TRIES = 3


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
            engine.pending_warm_deletes = tuple(one for one in engine.pending_warm_deletes if one != key)


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
        due = to_relocate(hot, retention)
        pending = {first_seq for topic_id, first_seq in engine.pending_warm_deletes if topic_id == state.topic_id}
        return next((info for info in hot if info.first_seq in due and info.first_seq not in pending), None)


@contextmanager
def _flip(engine: Engine, state: TopicState, info: SegmentInfo, segment: SegmentId, check: int) -> Iterator[None]:
    """Flip the pointer under the checkpoint lock (MOVER-2). Raises `_Changed` if the segment is not what was copied."""
    with engine.checkpoint_lock:
        engine.check_open()
        if state.relocation_holds or info not in state.sealed or engine.topics.get(state.name) is not state:
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
        is_there = not state.is_gone and any(one.first_seq == info.first_seq for one in state.sealed)
    if not is_there:
        stores.changing(state.topic_id, engine.files).delete(SegmentId(info.first_seq))


def _look_for_front(engine: Engine, state: TopicState) -> None:
    last_op = state.next_op
    has_tags = state.warm_ops.reach.has_tags or state.pending.reach.has_tags
    is_warm = any(info.last_seq >= state.floors.earliest_seq for info in state.warm)
    if has_tags and is_warm and state.front_op != last_op:
        advance_front(engine, state, may_ask_store=True)
        state.front_op = last_op


def _hot(engine: Engine, state: TopicState) -> LocalSegmentStore:
    return LocalSegmentStore(engine.files, engine.layout, state.topic_id)
