"""The states of topics and branches: the newest that the remote has, those that a target such as `seq:5` or `head~2`
names, and the records of each. Nothing here changes the log or the remote.

TARGET-1  A target is looked up in the existing commits, and in the commits that an offload would make.
TARGET-2  A look-up does not take the topic's lock, so an offload may run beside it. The offload moves records, and the
    reader looks for the next record in the new place (MOVED-1). Two numbers reveal the move: the LSN of the handle, and
    the epoch of the topic.

**Pending commits** are the part of a topic that no commit has yet, as the commits that an offload would make of it.

WAIT-1  A target means the same before and after the offload. `catalog.timeline` looks the target up in the existing
    commits, followed by these.
WAIT-2  The commits have the offloader's order (OFFLOAD-1). First come the deletes whose records are offloaded. Then
    come the truncations, each after the deletes before it, then the records, then the other deletes.
WAIT-3  If a truncation took records before any offload, these records are in no commit. No target means them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from math import inf

from catalog import Bounds, Commit, CommitKind, ForkPoint, Handle, History, SegmentRef, Sid, Snapshot, Vid, timeline
from catalog.errors import NoSuchObject, NoSuchPin, OutOfWindow, PinLost
from catalog.errors import NoSuchTopic as NoTopicInRemote
from catalog.format.commit import Codec
from catalog.format.encoding import StoredCommit
from catalog.history import NO_HISTORY, retry_if_collected
from catalog.refs.state_names import Pins
from catalog.snapshot import cut
from offload.errors import HistoryBehind, NotOffloaded
from offload.handles import Tip, retry_if_moved, split_name
from offload.read.delete_effects import count_live, last_live_seq
from offload.services.archive_parts import OfArchive
from offload.services.expired import expired_before
from seglog import DeleteOp, Record, Topic, TruncateOp
from seglog.base.dataclasses import dataclass
from seglog.base.ownership import Owned
from seglog.errors import Evicted, NoSuchTopic, SeqOutOfRange
from seglog.format.frame import DELETED, read_header, record_of
from seglog.format.record_arrays import RecordArrays, in_arrays
from seglog.values.names import BRANCH_MARK

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
        lowest = min(topic.first_seq, topic.inner.hot_floor) if tip is None else 0
        ops = [op for op in topic.inner.delete_ops() if lowest <= op.at_seq <= head_seq]
        truncations = topic.inner.truncate_ops()
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
    for frames in topic.inner.frame_batches(first, last):
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
            first_seq = max(self._bounds.head_seq + 1, topic.inner.hot_floor)
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
    [frame] = topic.inner.frames(seq, seq)
    return read_header(frame).ts_ms


class TopicStates(OfArchive, Owned):
    """Finds states of the topics and branches of one archive, and reads them."""

    def newest(self, name: str) -> Snapshot:
        """Return the remote state of a topic or branch, as far as this directory knows it."""
        handle = self._found(name)
        if handle is None:
            return self._volumes.snapshot(self._handles.resolve(name))
        try:
            return self._volumes.snapshot(handle.vid, handle.lsn)
        except NoSuchObject:
            moved = self.behind_gc(handle)
            if moved is None:
                raise
            return self._volumes.snapshot(moved.vid, moved.lsn)

    def behind_read(self, name: str, snapshot: Snapshot) -> Snapshot | None:
        """Return a newer state of a writer's topic, if GC deleted objects of `snapshot` since. Otherwise None.

        An example is a process that died right after its merge. GC then deletes the merged segments, and this directory
        still knows the state before.
        """
        handle = self._handles.find(name)
        moved = None if handle is None else self.behind_gc(handle)
        if moved is None or moved.lsn <= snapshot.lsn:
            return None
        return self._volumes.snapshot(moved.vid, moved.lsn)

    def behind_gc(self, handle: Handle) -> Handle | None:
        """Return the handle of a writer, advanced past GC's commits.

        Returns None unless GC keeps only these commits after the handle. The call does not save the result: the next
        offload advances the handle on record.
        """
        if not self._handles.is_writer(handle) or not self._parts.publisher.is_passed(handle):
            return None
        updates = self._handles.fetch_updates(handle)
        bounds = self._handles.tip(handle).bounds
        if updates.is_empty or not updates.is_maintenance(bounds, handle.epoch):
            return None
        return self._handles.advanced(handle, updates)

    def history(self, name: str) -> History:
        """Return the commits of the topic or branch, through its fork points, as far as GC keeps them.

        A topic of the log that the remote does not have yet has no history.
        """
        handle = self._found(name)
        if handle is not None:
            return self._volumes.history(handle.vid, handle.lsn)
        try:
            vid = self._handles.resolve(name)
        except NoTopicInRemote:
            if self._log.has_topic(name):
                return NO_HISTORY
            raise
        return self._volumes.history(vid)

    def _found(self, name: str) -> Handle | None:
        """Return the handle, if it belongs to this remote (HANDLE-6). Raises `OtherRemote`, `RemoteBehind`."""
        handle = self._handles.find(name)
        if handle is not None:
            self._handles.check_chosen(handle)
        return handle

    def parse(self, target: str) -> timeline.Target:
        return timeline.parse_target(target, now_ms=self._clock.now_ms())

    def look_up(
        self, name: str, wanted: timeline.Target, *, offloads: bool = False
    ) -> tuple[PendingCommits | None, ForkPoint]:
        """Return the point, and for a topic of the log its waiting part, which may contain the point.

        An LSN means an existing commit. `head~N` counts waiting records as one commit. A waiting delete may become no
        commit, because nothing is left to delete. So `head~N` then needs a caller that `offloads`. Both need such a
        caller if no commit exists yet.
        """
        if isinstance(wanted, timeline.Named):
            return None, self._context.tags.get(split_name(name)[0], wanted.name).point
        if isinstance(wanted, timeline.Pinned):
            return None, self._pinned(name, wanted.name)
        return retry_if_moved(
            lambda: retry_if_collected(
                lambda: self._published(name, wanted, offloads=offloads),
                lambda published: self._look_up(name, wanted, *published, offloads=offloads),
            ),
            lambda: self.places(name),
            HistoryBehind,
            NoSuchTopic,
            SeqOutOfRange,
        )

    def _look_up(
        self, name: str, wanted: timeline.Target, handle: Handle | None, published: History, *, offloads: bool
    ) -> tuple[PendingCommits | None, ForkPoint]:
        if not self._log.has_topic(name):
            return None, timeline.resolve(wanted, published, self._reader.last_seq_at)
        pending = self._pending(name, handle)
        if isinstance(wanted, timeline.Time):
            if wanted.ms > max(self._clock.now_ms(), pending.topic.last_ts_ms):
                raise OutOfWindow(f"{wanted}, which is in the future", pending.window(published))
            if self._newest_ms(handle, pending) <= wanted.ms:
                wanted = timeline.Head()
        if handle is not None and isinstance(wanted, timeline.Lsn):
            return pending, timeline.resolve(wanted, published, self._reader.last_seq_at)
        if not offloads and pending.must_offload(wanted):
            raise NotOffloaded(name, str(wanted))
        return pending, pending.resolve(wanted, published, self._reader.last_seq_at)

    def _published(
        self, name: str, wanted: timeline.Target, *, offloads: bool = False
    ) -> tuple[Handle | None, History]:
        """Return the handle, and the history of existing commits. If GC has passed the handle, return both after GC's
        commits.

        If the target is an LSN, the call keeps the old history, because copies of collected commits may still be in
        this directory. A replica is synced if the caller `offloads`: it wants to keep a state, and GC keeps that of
        the last sync no longer.
        """
        handle = self._handles.find(name)
        if handle is None and self._log.has_topic(name):
            return None, NO_HISTORY
        published = self.history(name)
        is_passed = published.is_passed and not isinstance(wanted, timeline.Lsn)
        if is_passed and offloads and self._parts.replicas.is_replica(name):
            self._parts.sync.follow(name)
            return self._handles.find(name), self.history(name)
        moved = self.behind_gc(handle) if handle is not None and is_passed else None
        return (handle, published) if moved is None else (moved, self._volumes.history(moved.vid, moved.lsn))

    def _pinned(self, name: str, pin: str) -> ForkPoint:
        """Return the point of a lease on a volume of the topic. Raises `NoSuchPin`, and `PinLost` if it has ended."""
        held = Pins(self._volumes).find(pin)
        if self._volumes.control(held.pin.point.vid).topic != split_name(name)[0]:
            raise NoSuchPin(pin)
        if held.pin.expires_at_ms <= self._clock.now_ms():
            raise PinLost(held.key)
        return held.pin.point

    def _pending(self, name: str, handle: Handle | None) -> PendingCommits:
        """Return the part of the topic that no commit has yet.

        Raises `BranchCollected`, and `Diverged` for a topic of the log that does not follow its volume.
        """
        topic = self._log.topic(name)
        if handle is None:
            return pending_commits_of(topic, None, 0, None)
        if handle.is_collected:
            self._handles.check_alive(handle)
        if not self._handles.is_writer(handle):
            self._handles.check_fits(handle)
        return pending_commits_of(topic, handle.vid, handle.lsn, self._handles.tip(handle))

    def _newest_ms(self, handle: Handle | None, pending: PendingCommits) -> float:
        """Return the latest time of the topic. A target at or after that time means the topic's head."""
        if pending.commits:
            return max(commit.at_ts_ms for commit in pending.commits)
        return inf if handle is None else self._volumes.snapshot(handle.vid, handle.lsn).max_ts_ms

    def places(self, name: str) -> tuple[int, int]:
        """Return the LSN of the handle and the epoch of the topic. If either changes, records have moved (TARGET-2)."""
        handle = self._handles.find(name)
        return (-1 if handle is None else handle.lsn), self._log.topic(name).epoch

    def resolve(self, name: str, wanted: timeline.Target) -> ForkPoint:
        """Return the point of the target in the existing commits. Raises `OutOfWindow`."""
        return retry_if_collected(
            lambda: self._published(name, wanted)[1],
            lambda published: timeline.resolve(wanted, published, self._reader.last_seq_at),
        )

    def live_floor(self, name: str, snapshot: Snapshot) -> int:
        """Return the floor that `HistoryService.live_floor` describes."""
        is_branch = BRANCH_MARK in name
        expired = expired_before(snapshot, self._clock.now_ms(), self._reader, is_branch=is_branch)
        return max(snapshot.bounds.evict_floor, expired)

    def count(self, snapshot: Snapshot) -> tuple[int, Record | None]:
        """Return the numbers that `HistoryService.count` describes."""
        counts = [count_live(view, self._reader) for view in snapshot.segments]
        last = next((view for view, live in zip(snapshot.segments[::-1], counts[::-1], strict=True) if live), None)
        if last is None:
            return 0, None
        last_seq = last_live_seq(last, self._reader)
        return sum(counts), next(self._reader.records(snapshot, last_seq, last_seq))

    def read(
        self, name: str, start: int | None = None, end: int | None = None, *, at: str | None = None
    ) -> Iterator[Record]:
        """Return the records that `Archive.read` describes."""
        wanted = self._wanted(at)
        if self._is_of_log(name, wanted):
            return self._log.topic(name).read(start, end)
        return self._records_at(name, wanted, *self._range(name, wanted, start, end, at))

    def read_arrays(
        self, name: str, start: int | None = None, end: int | None = None, *, at: str | None = None
    ) -> Iterator[RecordArrays]:
        """Return the records that `Archive.read_arrays` describes."""
        wanted = self._wanted(at)
        if self._is_of_log(name, wanted):
            return self._log.topic(name).read_arrays(start, end)
        state, first, last = self._range(name, wanted, start, end, at)
        if isinstance(state, Snapshot):
            return self._reader.arrays(state, first, last)
        return in_arrays(self._records_at(name, wanted, state, first, last))

    def bounds(self, name: str, at: str) -> tuple[int, int, str]:
        """Return what `HistoryService.bounds` describes."""
        wanted = self.parse(at)
        if self._is_of_log(name, wanted):
            topic = self._log.topic(name)
            return topic.earliest_seq, topic.head_seq, str(wanted)
        fixed = self._fixed(name, wanted)
        state, first, last = self._range(name, fixed, None, None, at)
        if wanted == timeline.Head() and isinstance(state, Snapshot):
            first, _ = range_to_read(name, state.bounds, self.live_floor(name, state), None)
        return first, last, str(fixed)

    def _fixed(self, name: str, wanted: timeline.Target) -> timeline.Target:
        """Return a target that means the same state after later commits, if there is one, or else the target."""
        if isinstance(wanted, timeline.Named | timeline.Pinned):
            return wanted
        pending, point = self.look_up(name, wanted)
        if not point.lsn or (pending is not None and pending.has(point)):
            return wanted
        # A commit at the fork point of a branch is cut there, and so is its LSN.
        is_whole = point.seq is None or isinstance(wanted, timeline.Head | timeline.Lsn)
        return timeline.Lsn(point.lsn, point.vid) if is_whole else wanted

    def _wanted(self, at: str | None) -> timeline.Target:
        return timeline.Head() if at is None else self.parse(at)

    def _is_of_log(self, name: str, wanted: timeline.Target) -> bool:
        """Return whether the log itself has the state."""
        return self._log.has_topic(name) and wanted == timeline.Head()

    def _range(
        self, name: str, wanted: timeline.Target, start: int | None, end: int | None, at: str | None
    ) -> tuple[Snapshot | PastState, int, int]:
        """Return the state, and the first and the last seq to read of it."""
        state = self.newest(name) if at is None else self._state_at(name, wanted)
        floor = state.bounds.evict_floor
        if wanted == timeline.Head() and isinstance(state, Snapshot):
            floor = self.live_floor(name, state)
        start, last = range_to_read(name, state.bounds, floor, start)
        return state, start, last if end is None else min(end, last)

    def _state_at(self, name: str, wanted: timeline.Target) -> Snapshot | PastState:
        places = self.places(name)
        pending, point = self.look_up(name, wanted)
        if pending is None or not pending.has(point):
            return self._volumes.snapshot(point.vid, point.lsn, point.seq)
        if not pending.has_volume:
            first_seq = pending.topic.first_seq
            state = pending.state(point, None, Bounds(first_seq, first_seq - 1))
        else:
            snapshot = self._volumes.snapshot(pending.vid, pending.lsn)
            state = pending.state(point, snapshot, snapshot.bounds)
        return replace(state, places=places)

    def _records_at(
        self, name: str, wanted: timeline.Target, state: Snapshot | PastState, first: int, last: int
    ) -> Iterator[Record]:
        while not isinstance(state, Snapshot):
            for record in self._cold_part(state, first, last):
                yield record
                first = record.seq + 1
            first = max(first, state.hot_first)
            # Yield a batch only if no record has moved since the lookup. Otherwise the batch may lack records.
            with suppress(SeqOutOfRange):
                for records, last_seq in hot_records(self._log.topic(name), state, first, last):
                    if self.places(name) != state.places:
                        break
                    yield from records
                    first = last_seq + 1
                else:
                    return
            if self.places(name) == state.places:
                raise SeqOutOfRange(name, first, state.hot_first, state.hot_last)
            state = self._state_at(name, wanted)
        yield from self._reader.records(state, first, last)

    def _cold_part(self, state: PastState, first: int, last: int) -> Iterator[Record]:
        if state.snapshot is None or first > state.snapshot.bounds.head_seq:
            return
        for record in self._reader.records(state.snapshot, first, last):
            if not any(op.matches(record) for op in state.deletes):
                yield record


def range_to_read(name: str, bounds: Bounds, floor: int, start: int | None) -> tuple[int, int]:
    """Return the first and the last seq to read. Records below `floor` are lost. Raises `Evicted`, `SeqOutOfRange`."""
    first, last = bounds.first_seq, bounds.head_seq
    start = max(first, floor) if start is None else start
    if 1 <= start < floor:
        raise Evicted(name, start, floor - 1)
    if not first <= start <= last + 1:
        raise SeqOutOfRange(name, start, first, last)
    return start, last
