"""The effect of a delete of the log on segments that are already in object storage.

A delete is a predicate over seq and tag. It applies to the records that existed when it happened. In the remote
history, a delete is a commit that names records. It names the seqs below a bound, or one Roaring bitmap for each
segment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from catalog import Deletions, SegmentRef, SegmentView, Sid, Snapshot
from catalog.format import keys
from catalog.format.lazy_imports import pyroaring
from offload.format.metadata import decode_bitmap
from seglog import DeleteOp, Record, SeqSet, Topic
from seglog.values.deletes import DeleteWhere

if TYPE_CHECKING:
    from offload.read.cold_reader import ColdReader


def count_hot(topic: Topic, where: DeleteWhere, *, start: int = 1) -> int:
    """Return how many live records a delete would take now.

    Counts only records on the local disk, from seq `start` on.
    """
    op = where.op(0, topic.head_seq, 0)
    items = topic.read(max(start, topic.inner.hot_floor, topic.inner.evict_floor), gaps=True)
    return sum(op.matches(item) for item in items if isinstance(item, Record))


def count_cold(op: DeleteOp, earlier: Sequence[DeleteOp], snapshot: Snapshot, reader: ColdReader) -> int:
    """Return how many live records of `snapshot` the delete takes that no delete in `earlier` takes."""
    return sum(len(entries) for _, entries in entries_taken(op, earlier, snapshot, reader))


def entries_taken(
    op: DeleteOp, earlier: Sequence[DeleteOp], snapshot: Snapshot, reader: ColdReader
) -> Iterator[tuple[SegmentView, pyroaring.BitMap]]:
    """Yield the segments with live records that `op` takes and no delete in `earlier`.

    With each segment, yield the entry ids of these records.
    """
    for view in reader.indexed(_reached(op, snapshot)):
        entries = _taken(op, view, reader)
        for earlier_op in earlier if entries else ():
            entries -= _taken(earlier_op, view, reader)
        if entries:
            yield view, entries


def deletions_of(op: DeleteOp, snapshot: Snapshot, reader: ColdReader) -> Deletions | None:
    """Return the deletions that `op` means for the segments of `snapshot`; None if it reaches no record of an object.

    It names records that are deleted already, too, so that an undo of the earlier delete leaves them deleted
    (catalog.undo_plan). For a delete by tag, this reads the index objects of the segments. If a segment has more tags
    than its index lists, this scans the segment. The snapshot may show a segment in several pieces.
    """
    if op.evict_from is not None and op.below <= snapshot.bounds.evict_floor:
        return None  # a log that takes a topic over evicts what the remote has evicted
    is_below = op.is_prefix and op.before is not None
    if is_below and min(op.below, snapshot.before_seq) > 1:  # an earlier delete took records below a seq
        return Deletions(before_seq=op.below)
    by_sid: dict[Sid, pyroaring.BitMap] = defaultdict(pyroaring.BitMap)
    for view in reader.indexed(_reached(op, snapshot)):
        by_sid[view.ref.sid] |= _taken(op, replace(view, deleted=None), reader)
    bitmaps = {sid: bits.serialize() for sid, bits in by_sid.items() if bits}
    if not bitmaps:
        return None
    return Deletions(before_seq=op.below) if is_below else Deletions(bitmaps=bitmaps)


def live_entries(view: SegmentView, reader: ColdReader) -> pyroaring.BitMap:
    """Return the entry ids (`seq - first_seq` of the segment) that a reader of the snapshot sees."""
    first_seq = view.ref.first_seq
    visible = pyroaring.BitMap(range(view.first - first_seq, view.last - first_seq + 1))
    if view.deleted:
        visible -= pyroaring.BitMap.deserialize(view.deleted)
    index = reader.index(view)
    return visible & decode_bitmap(index.live, index, keys.index_key(view.vid, view.ref.sid))


def shown_entries(view: SegmentView, reader: ColdReader) -> pyroaring.BitMap:
    """Return what `live_entries` returns. The index is read only if the segment lacked records when made."""
    if not _is_dense(view.ref):
        return live_entries(view, reader)
    entries = pyroaring.BitMap(range(view.first - view.ref.first_seq, view.last - view.ref.first_seq + 1))
    return entries - pyroaring.BitMap.deserialize(view.deleted) if view.deleted else entries


def fetch_shown(views: Iterable[SegmentView], reader: ColdReader) -> None:
    """Fetch the indexes that `shown_entries` reads of these views, several at a time."""
    for _ in reader.indexed(view for view in views if not _is_dense(view.ref)):
        pass


def shown_seqs(views: Sequence[SegmentView], reader: ColdReader) -> SeqSet:
    """Return the seqs of the live records of views. An index is read only if its segment lacked records when made."""
    shown: list[tuple[int, int]] = []
    for view in views:
        if _is_dense(view.ref) and view.deleted is None:
            shown.append((view.first, view.last))
        else:
            shown += _ranges(shown_entries(view, reader), view.ref.first_seq)
    return SeqSet.of(shown)


def _ranges(entries: pyroaring.BitMap, first_seq: int) -> Iterator[tuple[int, int]]:
    return SeqSet.of_seqs(first_seq + entry for entry in entries).ranges()


def count_live(view: SegmentView, reader: ColdReader) -> int:
    """Return how many entries `live_entries` returns, if possible from the commits alone.

    The index is read only if the view shows a part of a segment, and records of that segment were gone when it was
    made.
    """
    ref = view.ref
    if not _is_dense(ref) and not view.is_whole:
        return len(live_entries(view, reader))
    records = view.last - view.first + 1 if _is_dense(ref) else ref.live_records
    if view.deleted is None:
        return records
    # A commit names only records that its object holds (`deletions_of`).
    return records - pyroaring.BitMap.deserialize(view.deleted).range_cardinality(
        view.first - ref.first_seq, view.last - ref.first_seq + 1
    )


def last_live_seq(view: SegmentView, reader: ColdReader) -> int:
    """Return the highest seq of `live_entries`, which must not be empty."""
    return view.ref.first_seq + shown_entries(view, reader).max()


def _is_dense(ref: SegmentRef) -> bool:
    return ref.live_records == ref.last_seq - ref.first_seq + 1


def _reached(op: DeleteOp, snapshot: Snapshot) -> list[SegmentView]:
    views = (view for view in snapshot.segments if view.first < op.below)
    return [view for view in views if op.seqs is None or op.seqs.within(view.first, view.last)]


def _taken(op: DeleteOp, view: SegmentView, reader: ColdReader) -> pyroaring.BitMap:
    first_seq = view.ref.first_seq
    highest = op.below - 1
    if view.first > highest:
        return pyroaring.BitMap()
    in_range = pyroaring.BitMap(range(min(view.last, highest) - first_seq + 1))
    if op.seqs is not None:
        ranges = op.seqs.within(view.first, view.last).ranges()
        parts = (pyroaring.BitMap(range(a - first_seq, b - first_seq + 1)) for a, b in ranges)
        in_range &= pyroaring.BitMap.union(pyroaring.BitMap(), *parts)
    candidates = live_entries(view, reader) & in_range
    if op.tag is None or not candidates:
        return candidates
    index = reader.index(view)
    if index.tags is None:
        records = reader.segment_records(view, view.first, min(view.last, highest))
        return candidates & pyroaring.BitMap(record.seq - first_seq for record in records if op.matches(record))
    key = keys.index_key(view.vid, view.ref.sid)
    tagged = [decode_bitmap(bitmap, index, key) for tag, bitmap in index.tags.items() if op.tag_fits(tag)]
    return candidates & pyroaring.BitMap.union(pyroaring.BitMap(), *tagged)
