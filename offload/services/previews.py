"""`archive.previews`: what a command would take away, and which names would still show it. Changes nothing.

A preview reads the records that are still on this disk. The commits and the heads of the index objects tell the numbers
of the others. The preview reads the first and the last of them for their times.

**Before `undo` takes a name away**, `SoleNames` checks that records which only its branch shows keep a name.

Records of a rescue (`reset --as`), of a takeover or of an append to a branch may be in no other branch. If an undo took
the branch away, GC would delete them at the end of the window. `seglog branch delete` takes such a branch away: it
shows the records first, and asks.

SOLE-1  An undo takes no name away under which this directory has a branch open for appends, as a rename does not. The
    newest records of the branch are only here. The undo of a promotion offloads them first, so it may.
SOLE-2  An undo takes no branch away if no other branch and no tag shows all its records. A lease does not count,
    because it ends by itself.
SOLE-3  A branch without a commit of its own shows a past state of its parent. If GC keeps that state and the parent has
    a name, the branch may go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from pyroaring import BitMap64

from catalog import MAIN, Branch, SegmentView, Sid, Snapshot
from catalog.errors import NoSuchTopic, NotUndone, main_cannot
from catalog.format.control import full_name
from catalog.refs.name_undo import names_taken_away
from catalog.refs.oplog import NumberedEntry
from catalog.refs.promotion import moved_main
from catalog.undo_plan import by_segment
from offload.errors import TopicAttached, open_branch
from offload.handles import split_name
from offload.read.delete_effects import count_live, entries_taken, live_entries
from offload.services.archive_parts import ArchiveParts, OfArchive
from offload.services.diff import State, shared_seq
from offload.services.expired import expired_before
from offload.write.merging import holds_more
from seglog import DeleteOp, Record, Topic
from seglog.base.arguments import checked
from seglog.base.dataclasses import dataclass
from seglog.base.ownership import Owned
from seglog.values.deletes import DeleteWhere
from seglog.values.seq_set import SeqSet, seq_set


@dataclass(frozen=True, slots=True)
class Going:
    """Records that a command would take away. `first` and `last` are a seq and a time in ms, or None for no record.

    `size_bytes` counts values on this disk. In the remote, it is the share of these records in the frames. The preview
    of a removal knows the `seqs`.
    """

    records: int = 0
    size_bytes: int = 0
    first: tuple[int, int] | None = None
    last: tuple[int, int] | None = None
    seqs: BitMap64 = field(default_factory=BitMap64, repr=False)


_NOTHING = Going()
_LEAVES = "the topic leaves this directory"


@dataclass(frozen=True, slots=True)
class Preview:
    """The records that would go, of about `of_records` live ones. `deletes` counts local deletes that would go as well.

    `shown_by` are the branches and tags that would still show some of them: TOPIC@BRANCH and `tag:NAME`. Of an erasure,
    they are those that keep the objects, also if they show none of the records. `effect` is a sentence about a topic
    that would go.
    """

    going: Going
    of_records: int
    shown_by: tuple[str, ...] = ()
    deletes: int = 0
    effect: str | None = None


@dataclass(frozen=True, slots=True)
class _Name:
    """A branch or a tag, with its state. It shows no record below `floor`."""

    name: str
    state: State
    floor: int

    @property
    def segments(self) -> tuple[SegmentView, ...]:
        return self.state.snapshot.segments


def preview_here(topic: Topic, where: DeleteWhere) -> Preview:
    """Return the preview for a topic that has nothing in a remote."""
    going = _hot(topic, where.op(0, topic.head_seq, 0), where.start or 1)
    return Preview(going, max(going.records, _count_hot(topic)))


def preview_of_all(topic: Topic) -> Preview:
    """Return the preview of the deletion of a topic that has nothing in a remote."""
    return replace(preview_here(topic, DeleteWhere()), effect=_LEAVES)


class PreviewService(OfArchive, Owned):
    """The calls that tell what others would take away."""

    @checked
    def removal(
        self,
        name: str,
        *,
        start: int = 1,
        before: int | None = None,
        tag: str | None = None,
        end: int | None = None,
        seqs: SeqSet | Iterable[int] | None = None,
    ) -> Preview:
        """Return the live records that meet each given condition, as `Archive.delete` would take them.

            >>> archive.previews.removal("orders", tag="eu").going.records
            2

        Args:
            name: The topic, or TOPIC@BRANCH.
            start: The first seq.
            before: The seq behind the last one.
            tag: The exact tag, or a prefix with a trailing `*`.
            end: The last seq, inclusive.
            seqs: Single seqs, in any order.

        Raises:
            NoSuchTopic, NoSuchBranch: There is none here and in the remote.
            SeglogError: As `Archive.read` does.
        """
        where = DeleteWhere(before, tag, start, end, seq_set(seqs))
        topic = self._log.topic(name) if self._log.has_topic(name) else None
        if topic is not None and self._handles.find(name) is None:
            return preview_here(topic, where)
        snapshot = self._states.newest(name)
        head_seq = snapshot.bounds.head_seq if topic is None else topic.head_seq
        op = where.op(0, head_seq, 0)
        if topic is None:
            going, total = self._cold(op, (), snapshot), sum(map(self._live, snapshot.segments))
        else:
            below = topic.inner.hot_floor
            cold = self._cold(replace(op, at_seq=min(head_seq, below - 1)), topic.inner.delete_ops(), snapshot)
            going = _joined([cold, _hot(topic, op, start)])
            total = _count_hot(topic) + sum(self._live(view) for view in snapshot.segments if view.last < below)
        return Preview(going, max(total, going.records), self._showing(name, snapshot, going))

    @checked
    def seq_at(self, name: str, ts_ms: int) -> int:
        """Return the first seq whose time is `ts_ms` or later, or the seq after the head. Takes nothing over."""
        if self._log.has_topic(name):
            return self._log.topic(name).seq_at(ts_ms)
        return self._reader.first_seq_at(self._states.newest(name), ts_ms)

    @checked
    def local(self, name: str) -> Preview:
        """Return the records and deletes that only this directory has."""
        if not self._log.has_topic(name):
            return Preview(_NOTHING, 0)
        topic, handle = self._log.topic(name), self._handles.find(name)
        if handle is None:
            return replace(preview_here(topic, DeleteWhere()), deletes=len(topic.inner.delete_ops()))
        start = self._replicas.common_seq(handle) + 1
        going = _hot(topic, DeleteOp(0, topic.head_seq, 0), start)
        changes = self._replicas.changes(handle)
        live = max(going.records, topic.head_seq + 1 - topic.earliest_seq)
        return Preview(going, live, (), changes.deletes + changes.truncations)

    @checked
    def topic(self, name: str, *, detach: bool = False, discard: bool = False) -> Preview:
        """Return the records that `Archive.delete_topic` would drop. Raises `NoSuchTopic`, `TopicAttached`."""
        if self._replicas.is_replica(name):
            return Preview(_NOTHING, 0, effect="this directory follows the topic no more")
        topic = self._log.get_topic(name)
        if self._handles.find(name) is None:
            return preview_of_all(topic)
        if not detach:
            raise TopicAttached(name)
        going = self.local(name) if discard else Preview(_NOTHING, topic.head_seq + 1 - topic.earliest_seq)
        return replace(going, effect=f"{_LEAVES}, and the remote keeps what is offloaded")

    @checked
    def branch(self, topic: str, branch: str) -> Preview:
        """Return the records that only this branch shows. Raises the errors of `BranchService.delete_branch`."""
        if branch == MAIN:
            raise main_cannot(topic, "be deleted")
        if self._log.has_topic(f"{topic}@{branch}"):
            raise open_branch(f"{topic}@{branch}")
        snapshot = self._volumes.snapshot(self._branches.resolve(topic, branch))
        holders = list(self._names(topic, other_than=branch))
        views = by_segment(view for holder in holders for view in holder.segments)
        mine = by_segment(snapshot.segments)
        shown_by = tuple(holder.name for holder in holders if self._shares(mine, holder.segments))
        alone = _joined(self._alone(view, views.get(view.ref.sid, ())) for view in snapshot.segments)
        return Preview(alone, sum(map(self._live, snapshot.segments)), shown_by)

    @checked
    def erasure(self, name: str) -> Preview:
        """Return the deleted records that are still in objects of the topic's own volume.

        Raises `NoSuchTopic` for a replica, which may not rewrite objects.
        """
        self._log.get_topic(name)
        if self._handles.find(name) is None:
            return Preview(_NOTHING, 0)
        snapshot = self._states.newest(name)
        own = [view for view in snapshot.segments if view.vid == snapshot.vid]
        holding = {view.ref.sid: view.ref for view in own if holds_more(view)}
        live = sum(map(self._live, snapshot.segments))
        live_own = sum(self._live(view) for view in own if view.ref.sid in holding)
        refs = sorted(holding.values(), key=lambda ref: ref.first_seq)
        if not refs:
            return Preview(_NOTHING, live)
        hidden = sum(ref.live_records for ref in refs) - live_own
        size_bytes = sum(ref.frame_bytes for ref in refs)
        first, last = (refs[0].first_seq, refs[0].min_ts_ms), (refs[-1].last_seq, refs[-1].max_ts_ms)
        topic, branch = split_name(name)
        holders = self._names(topic, other_than=branch)
        shown_by = tuple(holder.name for holder in holders if any(view.ref.sid in holding for view in holder.segments))
        return Preview(Going(hidden, size_bytes, first, last), live + hidden, shown_by)

    def _names(self, topic: str, *, other_than: str) -> Iterator[_Name]:
        """Yield the branches, without one, and the tags of a topic. A topic without names in the remote has none."""
        try:
            branches = self._branches.branches(topic)
        except NoSuchTopic:
            return
        for ref in branches:
            if ref.branch != other_than:
                snapshot = self._volumes.snapshot(ref.vid)
                expired = expired_before(snapshot, self._clock.now_ms(), self._reader, is_branch=ref.branch != MAIN)
                now = State(snapshot, self._volumes.history(ref.vid))
                yield _Name(full_name(topic, ref.branch), now, max(expired, snapshot.bounds.evict_floor))
        for tag in self._tags.list(topic):
            point = tag.tag.point
            snapshot = self._volumes.snapshot(point.vid, point.lsn, point.seq)
            past = State(snapshot, self._volumes.history(point.vid, point.lsn))
            yield _Name(f"tag:{tag.name}", past, snapshot.bounds.evict_floor)

    def _showing(self, name: str, snapshot: Snapshot, going: Going) -> tuple[str, ...]:
        """Return the other names that show a record of `going`, which they share with this topic."""
        if not going.seqs:
            return ()
        topic, branch = split_name(name)
        own = State(snapshot, self._states.history(name))
        names = []
        for holder in self._names(topic, other_than=branch):
            first = max(holder.floor, going.seqs.min())
            last = min(shared_seq(own, holder.state), going.seqs.max())
            shared = going.seqs & BitMap64(range(first, last + 1))
            near = [view for view in holder.segments if view.first <= last and view.last >= first]
            if any(shared & self._seqs(view) for view in near):
                names.append(holder.name)
        return tuple(names)

    def _seqs(self, view: SegmentView) -> BitMap64:
        """Return the live seqs of a segment."""
        return BitMap64(view.ref.first_seq + entry for entry in live_entries(view, self._reader))

    def _shares(self, mine: Mapping[Sid, Sequence[SegmentView]], views: Iterable[SegmentView]) -> bool:
        """Return whether some of `views` show a live record that those of `mine` show, too."""
        pairs = ((view, twin) for twin in views for view in mine.get(twin.ref.sid, ()))
        return any(
            self._live(view) if _is_alike(view, twin) else self._seqs(view) & self._seqs(twin) for view, twin in pairs
        )

    def _cold(self, op: DeleteOp, earlier: Sequence[DeleteOp], snapshot: Snapshot) -> Going:
        size_bytes, seqs = 0, BitMap64()
        for view, entries in entries_taken(op, earlier, snapshot, self._reader):
            seqs |= BitMap64(view.ref.first_seq + entry for entry in entries)
            size_bytes += view.ref.frame_bytes * len(entries) // view.ref.live_records
        if not seqs:
            return _NOTHING
        first, last = self._place(snapshot, seqs.min()), self._place(snapshot, seqs.max())
        return Going(len(seqs), size_bytes, first, last, seqs)

    def _place(self, snapshot: Snapshot, seq: int) -> tuple[int, int]:
        return seq, next(self._reader.records(snapshot, seq, seq)).ts_ms

    def _alone(self, view: SegmentView, views: Sequence[SegmentView]) -> Going:
        """Return the live records of a segment that no other view of it shows. The times are those of the segment."""
        ref = view.ref
        if any(_is_alike(view, other) for other in views):
            return _NOTHING
        if views:
            entries = live_entries(view, self._reader)
            for other in views:
                entries -= live_entries(other, self._reader)
            count = len(entries)
            first, last = (ref.first_seq + entries.min(), ref.first_seq + entries.max()) if entries else (0, 0)
        else:
            count, first, last = self._live(view), view.first, view.last
        if not count:
            return _NOTHING
        return Going(count, ref.frame_bytes * count // ref.live_records, (first, ref.min_ts_ms), (last, ref.max_ts_ms))

    def _live(self, view: SegmentView) -> int:
        return count_live(view, self._reader)


def _is_alike(one: SegmentView, other: SegmentView) -> bool:
    """Return whether two views of one segment show the same records."""
    return (one.first, one.last, one.deleted) == (other.first, other.last, other.deleted)


def _hot(topic: Topic, op: DeleteOp, start: int) -> Going:
    begin = max(start, topic.inner.hot_floor, topic.inner.evict_floor)
    if begin >= op.below:
        return _NOTHING
    size_bytes, seqs = 0, BitMap64()
    first = last = None
    for item in topic.read(begin, op.below - 1, gaps=True):
        if isinstance(item, Record) and op.matches(item):
            size_bytes += len(item.value)
            seqs.add(item.seq)
            last = (item.seq, item.ts_ms)
            first = first or last
    return Going(len(seqs), size_bytes, first, last, seqs)


def _count_hot(topic: Topic) -> int:
    """Return about how many live records are on this disk. Records of deletes since the last checkpoint count."""
    first = max(topic.inner.hot_floor, topic.earliest_seq)
    dead = sum(segment.dead_records for segment in topic.inner.segments() if segment.last_seq >= first)
    return max(0, topic.head_seq + 1 - first - dead)


def _joined(parts: Iterable[Going]) -> Going:
    filled = [part for part in parts if part.records]
    if not filled:
        return _NOTHING
    records, size_bytes = sum(part.records for part in filled), sum(part.size_bytes for part in filled)
    seqs = BitMap64.union(*(part.seqs for part in filled))
    return Going(records, size_bytes, filled[0].first, filled[-1].last, seqs)


class SoleNames(OfArchive):
    def __init__(self, parts: ArchiveParts) -> None:
        super().__init__(parts)
        self._previews = PreviewService(parts)

    def check(self, operation: NumberedEntry) -> None:
        """Raise `NotUndone` if an undo of the operation would take away the only name of records.

        If it gives an open branch another name, raise `Conflict`. A name that has changed since is passed over: the
        undo itself refuses it.
        """
        is_promotion = moved_main(operation.entry) is not None
        for topic, branch, vid, is_renamed in names_taken_away(operation.entry):
            name = full_name(topic, branch)
            if is_renamed and (is_promotion or not self._log.has_topic(name)):
                continue
            live = self._branches.branches(topic)
            for ref in live:
                if (ref.branch, ref.vid) == (branch, vid):
                    if is_renamed:
                        raise open_branch(name)
                    self._check_branch(operation.number, ref, live)

    def _check_branch(self, number: int, branch: Branch, live: Sequence[Branch]) -> None:
        name = full_name(branch.topic, branch.branch)
        if self._log.has_topic(name):
            raise _refused(number, branch, f"{name} is open for appends in this directory, and may have records")
        if self._is_a_past_state(branch, live):
            return
        records = self._previews.branch(branch.topic, branch.branch).going.records
        if records:
            many = "1 record" if records == 1 else f"{records:,} records"
            raise _refused(number, branch, f"no other branch and no tag shows {many} of {name}")

    def _is_a_past_state(self, branch: Branch, live: Sequence[Branch]) -> bool:
        """Return whether the branch shows only a state that its parent still has (SOLE-3)."""
        parent = branch.parent
        if self._volumes.newest_lsn(branch.vid):
            return False
        if parent is None:
            return True
        return any(ref.vid == parent.vid for ref in live) and parent.lsn >= self._volumes.boundary(parent.vid)


def _refused(number: int, branch: Branch, reason: str) -> NotUndone:
    return NotUndone(
        number,
        f"{reason}, and it would have no name any more",
        f"`seglog branch delete {branch.topic} {branch.branch} --dry-run` shows what would go, and without --dry-run it"
        " deletes the branch; `seglog oplog` lists earlier operations, and `seglog undo N` takes one of them back",
    )
