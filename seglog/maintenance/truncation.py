"""Truncating a topic: the records from a seq on go, and later appends use their seqs again.

    1 frame      TRUNCATE, durable: from here on the records are gone, whatever crashes. In memory the segment that the
                 cut goes through ends before it, as the active one (seglog.engine.truncated_state)
    2 snapshot   the newest one again, at its own place in the WAL, with this topic as it is right after the frame
                 (`is_ahead`): replay passes over the topic's frames up to that one
    3 cut        segment files are cut and unlinked, durably
    4 go on      a checkpoint absorbs what came after, at the offsets that are free now

U1  A file is cut only when a durable snapshot says that it ends there, and an offset is used again only when the cut is
    durable. Before 2 nothing but the WAL has changed, so the old snapshot is whole and replay comes to the same cut.
U2  What the cut takes of the WAL only (the tail) needs 1 alone: nothing in a file is used again.
U3  Deletes that were made above the cut end below it, so that they never reach a record that takes an old seq.
U4  The epoch goes up, readers that are above the cut end with `Truncated`.
U6  A segment that the cut goes through is hot before 1, if it was relocated (`recall` of
    seglog.maintenance.relocator); relocated ones above the
    cut are doomed by 2 (K7 of seglog.maintenance.checkpoint).
U5  Not below what was evicted; nor, without `keep_history`, below what left this disk.
U7  With `keep_history` it is listed (seglog.values.truncate_op) until it is settled, for the archive may have what
goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.files.port import Files
from seglog.segments.segment import SegmentFiles, SegmentInfo, cut
from seglog.segments.tags import drop_tags
from seglog.values.layout import SEGMENT_PARTS, Layout, number_in
from seglog.wal.manifest import TopicMeta, load, store

__all__ = ["kept_part", "lowest_cut", "segment_names", "settle_cuts"]


def lowest_cut(state: TopicState) -> int:
    """U5."""
    evict_floor = state.floors.evict_floor
    return evict_floor if state.config.keep_history else max(state.hot_floor, evict_floor, state.expired_seq)


def kept_part(state: TopicState, seq: int, open_segment: Callable[[SegmentInfo], SegmentFiles]) -> SegmentInfo | None:
    """Of the segment that `seq` is in, what lies before it; None if that is nothing, or `seq` is in none."""
    info = state.segment_of(seq) if seq >= state.hot_floor else None
    if info is None or info.first_seq == seq:
        return None
    segment = open_segment(info)
    return segment.counted(segment.info(seq - info.first_seq, sealed=False))


def settle_cuts(engine: Engine) -> None:
    """Steps 2 and 3, for every topic that waits for it. The checkpoint lock is held.

    Raises `OSError`, `FileCorrupt`; repeat it then.
    """
    with engine.committer.lock:
        waiting = [(state, state.cut_meta, state.active) for state in engine.states() if state.cut_meta is not None]
    if not waiting:
        return
    number, snapshot = load(engine.files, engine.layout)
    ahead = {meta.topic_id: replace(meta, is_ahead=True) for _, meta, _ in waiting if meta is not None}
    topics = tuple(ahead.get(topic.topic_id, topic) for topic in snapshot.topics)
    cold = {(topic.topic_id, info.first_seq) for topic in topics for info in topic.cold}
    doomed = tuple(
        (topic.topic_id, info.first_seq)
        for topic in snapshot.topics
        for info in topic.cold
        if (topic.topic_id, info.first_seq) not in cold
    )
    snapshot = replace(snapshot, topics=topics, doomed=(*snapshot.doomed, *doomed))
    store(engine.files, engine.layout, number + 1, snapshot)
    engine.snapshot_number = number + 1
    with engine.committer.lock:
        engine.doomed += doomed
    for state, meta, active in waiting:
        if meta is not None:
            _cut_files(engine, meta, active)
            state.cut_meta = None
            state.kept_head = meta.head_seq


def segment_names(files: Files, layout: Layout, topic_id: int) -> list[tuple[str, int]]:
    """Kind (of SEGMENT_PARTS) and first seq of what is in the topic's directory."""
    try:
        names = files.list_dir(layout.topic(topic_id))
    except FileNotFoundError:
        return []
    kinds = ((name, name.partition(".")[2]) for name in names)
    found = ((kind, number_in(kind, name)) for name, kind in kinds if kind in SEGMENT_PARTS)
    return [(kind, number) for kind, number in found if number is not None]


def _cut_files(engine: Engine, meta: TopicMeta, active: SegmentInfo | None) -> None:
    """Step 3. Whoever reads these files at the moment looks again."""
    topic_id = meta.topic_id
    last = meta.sealed_seq if active is None else active.first_seq
    for kind, first_seq in segment_names(engine.files, engine.layout, topic_id):
        if first_seq > last:
            engine.segments.forget(topic_id, first_seq)
            engine.files.unlink(engine.layout.part(kind, topic_id, first_seq))
    if active is not None:
        drop_tags(engine.files, engine.layout, topic_id, active.first_seq)
        cut(engine.segments.get(topic_id, active), active.records, active.data_bytes)
    engine.files.sync_dir(engine.layout.topic(topic_id))
