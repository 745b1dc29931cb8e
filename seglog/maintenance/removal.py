"""Remove what a topic no longer has: the records from a seq on, or the whole directory of a deleted topic. Find what is
left in front.

**A truncation.** Later appends use the seqs of the removed records again.

    1 frame      The writer makes a TRUNCATE frame durable. From here on the records are gone after any crash. In
                 memory, the segment of the cut ends before the cut and becomes the active one (`apply_truncate`).
    2 manifest   `finish_truncations` stores the newest manifest again, at the same place in the WAL. In the copy, the
                 topic is as it is right after the frame (`is_ahead`). Replay skips the topic's frames up to the
                 TRUNCATE frame.
    3 cut        `finish_truncations` cuts and unlinks segment files, durably.
    4 continue   A checkpoint absorbs later records, at the freed offsets.

TRUNC-1  A file is cut only after a durable manifest says that it ends there. An offset is used again only after the cut
    is durable. Before 2 only the WAL has changed. So the old manifest is whole, and replay reaches the same cut.
TRUNC-2  A cut in the tail, whose records are in the WAL only, needs step 1 alone. It frees no offset of a segment file.
TRUNC-3  A delete that covers seqs from the cut on now ends below the cut. So it reaches no record that takes an old
    seq.
TRUNC-4  The epoch goes up. Readers that are above the cut end with `Truncated`.
TRUNC-5  A truncation never goes below evicted records. Without `keep_history`, it never goes below the hot floor or the
    expiry floor either.
TRUNC-6  If the segment of the cut was relocated, `make_hot` of seglog.maintenance.relocation makes it hot before 1.
    Step 2 dooms relocated segments above the cut (CKPT-7).
TRUNC-7  With `keep_history`, the truncation is listed (seglog.values.deletes) until it is settled. The archive may
    have the removed records.
TRUNC-8  No checkpoint runs while a TRUNCATE frame is in flight, because its caller holds the checkpoint lock. If an
    interrupt hits that caller, it waits for the frame before it releases the lock.

**A deleted topic.** Its directory goes after its TOPIC_DELETE frame.

    1 frame      The writer makes a TOPIC_DELETE frame durable. The name is free. A later topic of this name gets a new
                 id and a higher epoch.
    2 manifest   The next checkpoint stores a manifest without the topic, with its id among the deleted ones.
    3 rename     The checkpoint renames topics/<id> to topics/<id>.deleted, durably.
    4 unlink     The checkpoint unlinks the files in it, and removes the directory.

Before 2, only the WAL has changed. From 2 on, the manifest says that no topic owns the directory. So a crash leaves
only files that recovery removes by the same steps. If the manifest does not mention a directory whose id was already
assigned, recovery leaves it and reports it.

**The front** of a topic is its first live record, whose seq is `earliest_seq`. A delete makes records dead. So after a
delete, and after recovery, the front may be higher than the log knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from seglog.base.lazy import logger
from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.errors import SeglogError
from seglog.files.file_system import Files
from seglog.format.frame import DELETED, LOST
from seglog.reading.read import read_records
from seglog.segments.segment import SegmentFiles, SegmentInfo, cut
from seglog.segments.tags import drop_tags, reached_seqs
from seglog.values.deletes import DeleteList
from seglog.values.layout import SEGMENT_PARTS, Layout, number_in
from seglog.values.record import Gap
from seglog.wal.manifest import TopicMeta, load, store


def lowest_truncation(state: TopicState) -> int:
    """Return the lowest seq that a truncation may name (TRUNC-5)."""
    evict_floor = state.floors.evict_floor
    return evict_floor if state.config.keep_history else max(state.hot_floor, evict_floor, state.expired_seq)


def kept_part(state: TopicState, seq: int, open_segment: Callable[[SegmentInfo], SegmentFiles]) -> SegmentInfo | None:
    """Return the records before `seq` in the segment that holds `seq`, as a segment of their own.

    Return None if there are none, or if no segment holds `seq`.
    """
    info = state.segment_of(seq) if seq >= state.hot_floor else None
    if info is None or info.first_seq == seq:
        return None
    segment = open_segment(info)
    return segment.counted(segment.info(seq - info.first_seq, sealed=False))


def finish_truncations(engine: Engine) -> None:
    """Run steps 2 and 3 for every topic that waits for them. The caller holds the checkpoint lock.

    Raises `OSError` or `FileCorrupt`. After either, the caller may call it again.
    """
    with engine.committer.lock:
        waiting = [
            (state, state.truncated_meta, state.active) for state in engine.states() if state.truncated_meta is not None
        ]
    if not waiting:
        return
    number, manifest = load(engine.files, engine.layout)
    ahead = {meta.topic_id: replace(meta, is_ahead=True) for _, meta, _ in waiting if meta is not None}
    topics = tuple(ahead.get(topic.topic_id, topic) for topic in manifest.topics)
    warm = {(topic.topic_id, info.first_seq) for topic in topics for info in topic.warm}
    pending_warm_deletes = tuple(
        (topic.topic_id, info.first_seq)
        for topic in manifest.topics
        for info in topic.warm
        if (topic.topic_id, info.first_seq) not in warm
    )
    manifest = replace(
        manifest, topics=topics, pending_warm_deletes=(*manifest.pending_warm_deletes, *pending_warm_deletes)
    )
    store(engine.files, engine.layout, number + 1, manifest)
    engine.manifest_number = number + 1
    with engine.committer.lock:
        engine.pending_warm_deletes += pending_warm_deletes
    for state, meta, active in waiting:
        if meta is not None:
            _truncate_files(engine, meta, active)
            state.truncated_meta = None
            state.kept_head = meta.head_seq


def segment_names(files: Files, layout: Layout, topic_id: int) -> list[tuple[str, int]]:
    """Return the kind (of SEGMENT_PARTS) and the first seq of each segment file in the topic's directory."""
    try:
        names = files.list_dir(layout.topic(topic_id))
    except FileNotFoundError:
        return []
    kinds = ((name, name.partition(".")[2]) for name in names)
    numbered = ((kind, number_in(kind, name)) for name, kind in kinds if kind in SEGMENT_PARTS)
    return [(kind, number) for kind, number in numbered if number is not None]


def _truncate_files(engine: Engine, meta: TopicMeta, active: SegmentInfo | None) -> None:
    """Run step 3 for one topic. A reader that is using these files looks its records up again."""
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


def remove_topics(files: Files, layout: Layout, topic_ids: tuple[int, ...]) -> None:
    """Run steps 3 and 4. Raises `OSError`. After that, the caller may call it again."""
    names = {*files.list_dir(layout.topics)} if topic_ids else set()
    present = [topic_id for topic_id in topic_ids if layout.topic(topic_id).name in names]
    for topic_id in present:
        files.rename(layout.topic(topic_id), layout.deleted_topic(topic_id))
    if present:
        files.sync_dir(layout.topics)
    for topic_id in present:
        _remove(files, layout.deleted_topic(topic_id))


def remove_leftovers(files: Files, layout: Layout) -> None:
    """Complete step 4 for the directories that a crash left renamed."""
    for name in files.list_dir(layout.topics):
        if layout.is_deleted_topic(name):
            _remove(files, layout.topics / name)


def _remove(files: Files, directory: Path) -> None:
    for name in files.list_dir(directory):
        files.unlink(directory / name)
    files.remove_dir(directory)


_logger = logger("seglog.maintenance.removal")
_LOOK_RECORDS = 8192
_NEAR_RECORDS = 64


def advance_front(engine: Engine, state: TopicState, *, may_ask_store: bool = False) -> None:
    """After a delete, raise `earliest_seq` to the first live record, if that is in this log's segments.

    A delete of all records below a seq costs no search, unless another one may have reached the record behind it.
    If the record may be in a relocated segment, only the relocator looks. So no other caller waits for a store.
    """
    error = _advanced(engine, state, may_ask_store=may_ask_store)
    if error is not None:
        log_unknown_front(state.name, error)


def log_unknown_front(topic: str, error: Exception) -> None:
    _logger.warning("%s: the first live record stays unknown: %s", topic, error)


def _advanced(engine: Engine, state: TopicState, *, may_ask_store: bool) -> Exception | None:
    """Raise `earliest_seq` as `advance_front` does. Return the error if the first live record cannot be found."""
    first = state.floors.earliest_seq
    if first >= state.selective_below or first < state.hot_floor:
        return None
    if not may_ask_store and any(info.last_seq >= first for info in state.warm):
        return None
    truncations, head, next_op = len(state.truncations), state.head_seq, state.next_op
    try:
        seq = _first_near(engine, state, first, head)
    except (SeglogError, FileNotFoundError) as error:
        return error
    with engine.committer.lock:
        floors = state.floors.raised(seq or head + 1)
        # A delete or an undelete that came meanwhile looks for itself.
        is_same = len(state.truncations) == truncations and state.next_op == next_op
        if is_same and floors is not state.floors:
            state.touch()
            state.floors = floors
    return None


def find_fronts(engine: Engine, on_unknown: Callable[[str, Exception], None]) -> None:
    """Find the first live record of each topic after recovery. A crash may have kept its seq out of the manifest.

    Every opening of the same disk finds the same record. A topic without a delete needs no search. For another topic,
    the search reads the first record, and later ones only if the first is dead. If the front of a topic stays unknown,
    `on_unknown` gets its name and the error.
    """
    for state in list(engine.topics.values()):
        error = _advanced(engine, state, may_ask_store=False) if state.next_op > 1 else None
        if error is not None:
            on_unknown(state.name, error)


def _first_near(engine: Engine, state: TopicState, first: int, last: int) -> int | None:
    """Return the first live seq, or None. Look beyond the next few records of the segment only if all are deleted.

    The few records are read at once. A queue deletes its first record again and again, and the next one is live.
    """
    near = min(last, first + _NEAR_RECORDS - 1, _end_of_segment(engine, state, first))
    seq = _first_read(engine, state, first, near)
    return _first_live(engine, state, near + 1, last) if seq is None else seq


def _end_of_segment(engine: Engine, state: TopicState, seq: int) -> int:
    """Return the last seq of the sealed segment that has `seq`, or the head if none has it."""
    with engine.committer.lock:
        sealed = state.sealed[state.sizes.index_of(seq) :][:1]
    return sealed[0].last_seq if sealed else state.head_seq


def _first_live(engine: Engine, state: TopicState, first: int, last: int) -> int | None:
    """Return the first live seq, or None. Hot sealed segments need only flags and tags; others are read."""
    with engine.committer.lock:
        sealed, pending = state.sealed[state.sizes.index_of(first) :], state.pending
    for info in sealed:
        end = min(last, info.last_seq)
        seq, is_lost = _first_flagged(engine, state, info, pending, first, end) if info.is_hot else (first, True)
        # A lost record may still be in memory, with a tag that a delete reached: only a read knows.
        live_seq = seq if seq is None or not is_lost else _first_read(engine, state, seq, end)
        if live_seq is not None:
            return live_seq
        first = info.last_seq + 1
    return _first_read(engine, state, first, last)


def _first_flagged(
    engine: Engine, state: TopicState, info: SegmentInfo, pending: DeleteList, first: int, last: int
) -> tuple[int | None, bool]:
    """Return the first seq of a hot sealed segment that neither flags nor tags call deleted, and whether it is lost."""
    segment = engine.segments.get(state.topic_id, info)
    reached = {*reached_seqs(engine.files, engine.layout, segment, info, pending.reach)}
    for begin in range(max(first, info.first_seq), last + 1, _LOOK_RECORDS):
        entries = segment.entries(begin, min(last, begin + _LOOK_RECORDS - 1))
        for seq, flags in enumerate(entries["flags"].tolist(), begin):
            if (not flags & DELETED or flags & LOST) and seq not in reached:
                return seq, bool(flags & LOST)
    return None, False


def _first_read(engine: Engine, state: TopicState, first: int, last: int) -> int | None:
    """Return the seq of the first record that is live or lost, or None."""
    item = next(read_records(engine, state, first, last, gaps=True), None)
    return None if item is None else item.gap_from if isinstance(item, Gap) else item.seq
