"""The part of a topic that no commit has yet, as the commits that an offload would make of it. This module makes none
of them.

WAIT-1  A target means the same before and after the offload. `catalog.timeline` looks the target up in the existing
    commits, followed by these.
WAIT-2  The commits have the offloader's order (OFFLOAD-1). First come the deletes whose records are offloaded. Then
    come the truncations, each after the deletes before it, then the records, then the other deletes.
WAIT-3  If a truncation took records before any offload, these records are in no commit. No target means them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from catalog import Bounds, Commit, CommitKind, ForkPoint, History, SegmentRef, Sid, Snapshot, Vid, timeline
from catalog.errors import OutOfWindow
from catalog.format.commit import Codec
from catalog.format.encoding import StoredCommit
from catalog.snapshot import cut
from offload.errors import HistoryBehind
from offload.handles import Tip
from seglog import DeleteOp, Record, Topic, TruncateOp
from seglog.format.frame import DELETED, read_header, record_of

__all__ = ["PastState", "PendingCommits", "hot_records", "pending_commits_of"]

_NO_VOLUME = Vid.new(0)


@dataclass(frozen=True, slots=True)
class PastState:
    """A state whose newest part is in no commit.

    The state consists of the records in `snapshot` (None: no records), and the log's records from `hot_first` to
    `hot_last`. It lacks every record that a delete in `deletes` reaches. While `places` stays the same, the reader
    finds the records there.
    """

    snapshot: Snapshot | None
    bounds: Bounds
    deletes: tuple[DeleteOp, ...]
    hot_first: int
    hot_last: int
    places: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class PendingCommits:
    """The waiting part of one topic at one moment, in its `epoch`.

    The `commits` follow `lsn`. `deletes` maps the LSN of a commit to its delete. `has_volume` is False if nothing was
    offloaded, so that no volume is known.
    """

    topic: Topic
    epoch: int
    vid: Vid
    lsn: int
    commits: tuple[Commit, ...]
    deletes: dict[int, DeleteOp]
    has_volume: bool

    def has(self, point: ForkPoint) -> bool:
        """Return whether `point` lies after the existing commits."""
        return point.vid == self.vid and point.lsn > self.lsn

    def must_offload(self, target: timeline.Target) -> bool:
        """Return whether only an offload tells which commit `target` means, because the target counts commits."""
        if not self.has_volume:
            counts_commits = isinstance(target, timeline.Lsn) or (isinstance(target, timeline.Head) and target.back > 0)
            return counts_commits and bool(self.commits)
        takes_away = any(commit.kind is not CommitKind.OFFLOAD for commit in self.commits)
        return isinstance(target, timeline.Head) and target.back > 0 and takes_away

    def resolve(self, target: timeline.Target, published: History, last_seq_at: timeline.LastSeqAt) -> ForkPoint:
        """Resolve `target` in `published` and the waiting commits, as `timeline.resolve` does. Raises `OutOfWindow`."""
        past = published.followed_by([StoredCommit(commit, b"") for commit in self.commits])

        def last_seq(vid: Vid, ref: SegmentRef, ts_ms: int) -> int:
            is_hot = any(ref in commit.segments for commit in self.commits)
            return _last_hot_seq(self.topic, ref, ts_ms) if is_hot else last_seq_at(vid, ref, ts_ms)

        try:
            return timeline.resolve(target, past, last_seq)
        except OutOfWindow as refusal:
            raise OutOfWindow(refusal.target, self.window(published)) from None

    def window(self, published: History) -> str:
        """Return the window as text, as `timeline.window` does. It names only the LSNs of `published`, because the
        others do not exist yet.
        """
        past = published.followed_by([StoredCommit(commit, b"") for commit in self.commits])
        found, made = timeline.span(past), timeline.span(published)
        if found is None:
            return timeline.window(published)
        lsns = (made.first_lsn, made.last_lsn) if made else (0, 0)
        return timeline.span_text(replace(found, first_lsn=lsns[0], last_lsn=lsns[1]))

    def state(self, point: ForkPoint, snapshot: Snapshot | None, start: Bounds) -> PastState:
        """Return the state at `point`, which is in one of `commits`. `snapshot`, with the bounds `start`, is the state
        at `lsn`.
        """
        bounds, hot_first, hot_last = start, 1, 0
        deletes: list[DeleteOp] = []
        for commit in self.commits[: point.lsn - self.lsn]:
            bounds = commit.bounds
            if commit.truncate_from is not None and snapshot is not None:
                snapshot = cut(snapshot, commit.truncate_from - 1)
            if commit.lsn in self.deletes:
                deletes.append(self.deletes[commit.lsn])
            for ref in commit.segments:
                hot_first, hot_last = ref.first_seq, ref.last_seq
        if point.seq is not None:
            above = point.seq + 1
            snapshot = None if snapshot is None else cut(snapshot, point.seq)
            first_seq, evict_floor = min(bounds.first_seq, above), min(bounds.evict_floor, above)
            bounds, hot_last = Bounds(first_seq, min(bounds.head_seq, point.seq), evict_floor), min(hot_last, point.seq)
        return PastState(snapshot, bounds, tuple(deletes), hot_first, hot_last)


def pending_commits_of(topic: Topic, vid: Vid | None, lsn: int, tip: Tip | None) -> PendingCommits:
    """Return the commits that would follow the commit at `lsn`, which left `tip`. If nothing was offloaded, `vid` and
    `tip` are None.

    Raises `HistoryBehind`.
    """
    while True:
        epoch, head_seq = topic.epoch, topic.head_seq
        # Read after the head: a delete above it is newer. A delete before the first record of all makes no commit.
        lowest = min(topic.first_seq, topic.hot_floor) if tip is None else 0
        ops = [op for op in topic.delete_ops() if lowest <= op.at_seq <= head_seq]
        truncations = topic.truncate_ops()
        if topic.epoch == epoch:
            break
    start = tip.bounds if tip is not None else Bounds(topic.first_seq, topic.first_seq - 1)
    truncations = tuple(op for op in truncations if op.seq <= start.head_seq) if tip is not None else ()
    builder = _CommitBuilder(vid or _NO_VOLUME, lsn, start)
    builder.make(topic, head_seq, ops, truncations, is_known=tip is not None)
    return PendingCommits(topic, epoch, builder.vid, lsn, tuple(builder.commits), builder.deletes, tip is not None)


def hot_records(topic: Topic, state: PastState, first: int, last: int) -> Iterator[tuple[list[Record], int]]:
    """Yield the live records of the state that only the log has, in batches. Each batch comes with the last seq it
    covers.

    Raises `SeqOutOfRange` if the records leave the disk, and what reading raises.
    """
    last = min(last, state.hot_last)
    if first > last:
        return
    for frames in topic.frame_batches(first, last):
        records: list[Record] = []
        last_seq = first
        for frame in frames:
            header = read_header(frame)
            last_seq = header.seq
            if header.flags & DELETED:
                continue  # deleted before the log listed deletes: no offload would have it either
            record = record_of(frame, 0, header)
            if not any(op.matches(record) for op in state.deletes):
                records.append(record)
        yield records, last_seq


class _CommitBuilder:
    def __init__(self, vid: Vid, lsn: int, bounds: Bounds) -> None:
        self.vid = vid
        self.commits: list[Commit] = []
        self.deletes: dict[int, DeleteOp] = {}
        self._lsn = lsn
        self._bounds = bounds

    def make(
        self, topic: Topic, head_seq: int, ops: list[DeleteOp], truncations: Iterable[TruncateOp], *, is_known: bool
    ) -> None:
        """Make the commits, in the offloader's order (WAIT-2)."""
        for op in truncations:
            ops = self._delete([each for each in ops if each.op < op.next_op], ops)
            self._truncate(op)
        ops = self._delete(ops, ops)
        if head_seq > self._bounds.head_seq:
            first_seq = max(self._bounds.head_seq + 1, topic.hot_floor)
            if is_known and first_seq > self._bounds.head_seq + 1:
                raise HistoryBehind(topic.name, first_seq - 1, self._bounds.head_seq)
            if first_seq <= head_seq:
                self._append(topic, first_seq, head_seq)
        self._delete(ops, ops)

    def _delete(self, due: list[DeleteOp], ops: list[DeleteOp]) -> list[DeleteOp]:
        """Make a commit for each delete of `due` whose records are in earlier commits. Return the rest of `ops`."""
        made = [op for op in due if op.at_seq <= self._bounds.head_seq]
        for op in made:
            kind = CommitKind.DELETE
            if op.evict_from is not None:
                kind, self._bounds = CommitKind.EVICT, replace(self._bounds, first_seq=op.below, evict_floor=op.below)
            self.deletes[self._add(kind, op.at_seq, op.ts_ms)] = op
        return [op for op in ops if op not in made]

    def _truncate(self, op: TruncateOp) -> None:
        bounds = self._bounds
        self._bounds = Bounds(min(bounds.first_seq, op.seq), op.seq - 1, min(bounds.evict_floor, op.seq))
        self._add(CommitKind.TRUNCATE, bounds.head_seq, op.ts_ms, truncate_from=op.seq)

    def _append(self, topic: Topic, first_seq: int, last_seq: int) -> None:
        first_ms, last_ms = _ts_ms(topic, first_seq), _ts_ms(topic, last_seq)
        ref = SegmentRef(
            Sid.new(last_ms), first_seq, last_seq, first_ms, last_ms, 0, b"", 0, 0, b"", Codec.NONE, 0, 0
        )  # fmt: skip
        self._bounds = replace(self._bounds, head_seq=last_seq)
        self._add(CommitKind.OFFLOAD, last_seq, last_ms, segments=(ref,))

    def _add(
        self,
        kind: CommitKind,
        at_seq: int,
        ts_ms: int,
        *,
        segments: tuple[SegmentRef, ...] = (),
        truncate_from: int | None = None,
    ) -> int:
        self._lsn += 1
        self.commits.append(
            Commit(
                vid=self.vid,
                lsn=self._lsn,
                kind=kind,
                bounds=self._bounds,
                parent_hash=b"",
                nonce=b"",
                created_at_ms=ts_ms,
                writer_id="",
                epoch=0,
                at_seq=at_seq,
                at_ts_ms=ts_ms,
                segments=segments,
                truncate_from=truncate_from,
            )
        )
        return self._lsn


def _last_hot_seq(topic: Topic, ref: SegmentRef, ts_ms: int) -> int:
    """Return the last seq of `ref` with a time of at most `ts_ms`. Times never decrease.

    The first record's time must be at most `ts_ms`, and the last record's time above it.
    """
    low, high = ref.first_seq, ref.last_seq  # the time at `low` is at most `ts_ms`, the time at `high` is above
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _ts_ms(topic, middle) <= ts_ms else (low, middle)
    return low


def _ts_ms(topic: Topic, seq: int) -> int:
    [frame] = topic.frames(seq, seq)
    return read_header(frame).ts_ms
