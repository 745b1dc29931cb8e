"""The feed of changes: what each commit of one topic did to its records, as parts of a plan.

CHANGE-1  A row is a record that one commit changed. An append or undelete has the whole record. A delete, truncation or
    eviction has its seq alone. A commit has at most one row of a seq. So the newest row of each seq, by `_lsn`, makes a
    copy of an earlier state equal to the later one. That holds for the rows of one read or micro-batch. Those of
    several are applied one after the other, because LSNs begin anew after a promotion.
CHANGE-2  A feed is of the commits of one volume, to which the name leads. It begins after a state that GC still keeps.
    If no start is given, it begins with the oldest such state, whose records are its first appends. For a branch, this
    may be the state which it was forked with, at LSN 0. A range by time begins with the first kept commit at or after
    its start. It ends before the first one after its end. So ranges that follow each other have each commit once, also
    if the clocks of writers differ.
CHANGE-3  A start in another volume gives the difference of both states as one change, at the last LSN of the feed. That
    is 0 if the volume has no commit yet. The name led there before a promotion. If GC took commits since the volumes
    parted, equal seqs count as other records.
CHANGE-4  A removal is made of ranges. It reads no data object, and an index only if its segment lacked records when it
    was made.
CHANGE-5  A stream's micro-batch has whole commits: all that are there. If the name leads to another volume than the
    offset names, the micro-batch is the difference of both states (CHANGE-3). So a copy follows a promotion.
CHANGE-6  Commits without a change that a reader sees, such as merges, have no rows. A record past its ttl has none
    until an eviction takes it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import field, replace
from itertools import islice, takewhile

from pyroaring import BitMap

from catalog.errors import HistoryCollected, InvalidObject, NoSuchObject, OutOfWindow
from catalog.format.commit import Codec, Commit, CommitKind, ForkPoint, SegmentView
from catalog.format.encoding import StoredCommit
from catalog.format.ids import Vid
from catalog.history import History, retry_if_collected
from catalog.snapshot import Snapshot, fold
from catalog.volume import Volumes
from offload.errors import InvalidOption
from offload.format.block import ChunkRef
from offload.read.cold_reader import ColdReader
from offload.read.delete_effects import fetch_shown, shown_entries
from offload.services.diff import State, shared_seq
from offload.spark.option_texts import moment_ms
from offload.spark.options import ReadOptions
from offload.spark.selection import Conditions, SelectedChunk, Selection, select
from offload.spark.task import Change, ChangeKind, NumberedChunk
from seglog.base.dataclasses import dataclass

_CHUNK_ROWS = 65_536  # of a removal
_NOTHING = 0  # the seq at which a state without records is cut
_INVISIBLE = frozenset({CommitKind.COMPACT, CommitKind.CONFIG})
_REMOVALS = {CommitKind.EVICT: ChangeKind.EVICT, CommitKind.TRUNCATE: ChangeKind.TRUNCATE}


@dataclass(frozen=True, slots=True)
class _Changed:
    """Records of one segment that a commit changed: all that the view shows, or only `entries` if they were removed.

    An entry is a seq less the segment's first seq.
    """

    view: SegmentView
    change: Change
    entries: BitMap = field(default_factory=BitMap)


def feed_range(options: ReadOptions, volumes: Volumes, vid: Vid, now_ms: int) -> tuple[ForkPoint, ForkPoint]:
    """Return the state before the feed, and its last commit. `check_feed` tells whether GC keeps that state.

    Raises `InvalidOption` for an end that is not there, or that lies before the start.
    """
    feed = options.feed
    assert feed is not None  # noqa: S101 - the caller has looked
    newest = volumes.newest_lsn(vid)
    last = newest if feed.last is None else feed.last
    if options.ending_time is not None:
        ending_ms = moment_ms(options.ending_time, now_ms)
        if options.starting_time is not None and ending_ms < moment_ms(options.starting_time, now_ms):
            raise InvalidOption("endingTimestamp", "it lies before startingTimestamp", hint="give a later one")
        last = _before_time(volumes, vid, ending_ms + 1, newest)
    if last > newest:
        raise InvalidOption("endingVersion", f"there is no commit {last}", hint=f"the newest has lsn {newest}")
    if feed.first is not None:
        since = ForkPoint(vid if feed.volume is None else feed.volume, feed.first - 1)
    elif options.starting_time is not None:
        since = ForkPoint(vid, _before_time(volumes, vid, moment_ms(options.starting_time, now_ms), newest))
    else:
        since = ForkPoint(vid, _oldest(volumes, vid), _NOTHING)
    return since, ForkPoint(vid, last)


def feed_of(
    options: ReadOptions, topic: str, since: ForkPoint, point: ForkPoint, volumes: Volumes, reader: ColdReader
) -> list[Selection]:
    """Return the changes after the state `since`, up to the commit of `point`, ascending by LSN.

    Raises as `check_feed`.
    """
    check_feed(options, topic, since, point, volumes)
    try:
        return list(_selections(topic, list(_changed(since, point, volumes, reader)), reader))
    except (HistoryCollected, InvalidObject, NoSuchObject):
        check_feed(options, topic, since, point, volumes)  # GC may have passed the state meanwhile
        raise


def _selections(topic: str, changed: Sequence[_Changed], reader: ColdReader) -> Iterator[Selection]:
    indexed = reader.indexed(each.view for each in changed if not each.change.kind.is_removal)
    for each in changed:
        if each.change.kind.is_removal:
            yield _removal(topic, each)
        elif (selection := select(topic, next(indexed), reader.index(each.view), Conditions())) is not None:
            yield replace(selection, change=each.change)


def check_feed(options: ReadOptions, topic: str, since: ForkPoint, point: ForkPoint, volumes: Volumes) -> None:
    """Raise `OutOfWindow` if GC does not keep the state `since`, and `InvalidOption` if none is there, or a later one.

    `options` tell which of them the error is about.
    """
    oldest = _oldest(volumes, point.vid)
    is_whole = since.seq == _NOTHING
    if since.lsn < _oldest(volumes, since.vid) or (is_whole and since.lsn > point.lsn):
        since_time = f"the commits of {topic} since {options.starting_time}"
        state = f"the state of {topic} at lsn {point.lsn if is_whole else since.lsn}"
        window = f"changes with startingVersion={oldest + 1} or later"
        hint = f"begin with an empty copy and, for a stream, a new checkpoint: the records at lsn {oldest} come first"
        raise OutOfWindow(state if options.starting_time is None else since_time, window, hint=hint)
    if since.vid != point.vid:
        _check_volume(topic, since, volumes)
    elif since.lsn > point.lsn:
        if options.starting_time is not None:
            reason = f"the commits up to the end of the feed, lsn {point.lsn}, are older"
            raise InvalidOption("startingTimestamp", reason, hint=f"`seglog log {topic}` shows their times")
        hint = f"{point.lsn + 1} waits for the next commit; `seglog log {topic}` shows those that are there"
        reason = f"{since.lsn + 1} is behind the end of the feed, lsn {point.lsn}"
        raise InvalidOption("startingVersion", reason, hint=hint)


def _check_volume(topic: str, since: ForkPoint, volumes: Volumes) -> None:
    hint = f"`seglog log {topic} --json` names the volume of each commit"
    try:
        of = volumes.control(since.vid).topic
    except NoSuchObject:
        raise InvalidOption("startingVersion", f"there is no volume {since.vid}", hint=hint) from None
    if of != topic:
        raise InvalidOption("startingVersion", f"{since.vid} is a volume of {of}, not of {topic}", hint=hint)
    newest = volumes.newest_lsn(since.vid)
    if since.lsn > newest:
        reason = f"{since.lsn + 1} is behind the end of {since.vid}, lsn {newest}"
        raise InvalidOption("startingVersion", reason, hint=hint)


def _oldest(volumes: Volumes, vid: Vid) -> int:
    """Return the LSN of the oldest state that GC keeps; 0 for the one before the first commit."""
    boundary = volumes.boundary(vid)
    return boundary if boundary > 1 else 0


def _before_time(volumes: Volumes, vid: Vid, ms: int, newest: int) -> int:
    """Return the LSN before the first kept commit of the volume that was made at a time or later (CHANGE-2).

    If there is none, return that of the newest commit. Times of commits come from several clocks, and need not ascend.
    """

    def found(history: History) -> int:
        own = takewhile(lambda past: past.commit.vid == vid, history)
        return min([newest + 1, *(past.commit.lsn for past in own if past.commit.created_at_ms >= ms)]) - 1

    return retry_if_collected(lambda: volumes.history(vid), found)


def _changed(since: ForkPoint, point: ForkPoint, volumes: Volumes, reader: ColdReader) -> Iterator[_Changed]:
    before = volumes.snapshot(since.vid, since.lsn, since.seq)
    if since.vid != point.vid:
        yield from _crossed(before, volumes.snapshot(point.vid, point.lsn), volumes, reader)
        return
    if since.seq == _NOTHING:
        before = volumes.snapshot(since.vid, since.lsn)
        appended = Change(ChangeKind.APPEND, since.lsn)
        yield from (_Changed(view, appended) for view in before.segments)
    head_seq, waiting = before.bounds.head_seq, list[StoredCommit]()
    for stored in volumes.commits(point.vid, since.lsn + 1, point.lsn):
        commit = stored.commit
        is_append = _only_appends(commit, head_seq)
        for ref in commit.segments if is_append else ():
            view = SegmentView(ref, commit.vid, commit.lsn, ref.first_seq, ref.last_seq)
            yield _Changed(view, Change(ChangeKind.APPEND, commit.lsn))
        if is_append or commit.kind in _INVISIBLE:
            waiting.append(stored)  # folded together, because a fold costs as much as the state has views
        else:
            before = fold(before, waiting)
            after = fold(before, [stored])
            yield from _by_commit(before, after, commit, reader)
            before, waiting = after, []
        head_seq = commit.bounds.head_seq


def _only_appends(commit: Commit, head_seq: int) -> bool:
    """Tell whether all that the commit does is to add records above the head."""
    changes_others = commit.removed_sids or commit.truncate_from is not None or commit.restored is not None
    deletes = commit.deletions.before_seq or commit.deletions.bitmaps
    is_above = all(ref.first_seq > head_seq for ref in commit.segments)
    return commit.kind is CommitKind.OFFLOAD and is_above and not changes_others and not deletes


def _by_commit(before: Snapshot, after: Snapshot, commit: Commit, reader: ColdReader) -> Iterator[_Changed]:
    left, right = _apart(before.segments, after.segments, id)  # a fold keeps the views that it does not change
    removed = Change(_REMOVALS.get(commit.kind, ChangeKind.DELETE), commit.lsn)
    added = Change(ChangeKind.UNDELETE if commit.kind is CommitKind.RESTORE else ChangeKind.APPEND, commit.lsn)
    for view, entries in _less(left, right, reader):
        yield _Changed(view, removed, entries)
    for view, entries in _less(right, left, reader):
        yield _Changed(_showing(view, entries), added)


def _crossed(before: Snapshot, after: Snapshot, volumes: Volumes, reader: ColdReader) -> Iterator[_Changed]:
    """Yield the difference of two volumes' states (CHANGE-3). Above the shared seq, equal seqs are other records."""
    states = [State(state, volumes.history(state.vid, state.lsn)) for state in (before, after)]
    shared = shared_seq(*states) if _is_known(*(state.past for state in states)) else 0
    left, right = _apart(before.segments, after.segments, lambda view: view)
    for view, entries in _less(left, right, reader):
        for part, kind in _split(view, entries, shared, ChangeKind.DELETE, ChangeKind.TRUNCATE):
            yield _Changed(view, Change(kind, after.lsn), part)
    for view, entries in _less(right, left, reader, shared):
        for part, kind in _split(view, entries, shared, ChangeKind.UNDELETE, ChangeKind.APPEND):
            yield _Changed(_showing(view, part), Change(kind, after.lsn))


def _is_known(left: History, right: History) -> bool:
    """Tell whether no commit since the common point is collected. It may have been a truncation, as in SLOSS-3."""
    ends = {span.vid: (span.first_lsn, span.last_lsn) for span in right.spans}
    for span in left.spans:
        if span.vid in ends:
            first, last = ends[span.vid]
            return max(span.first_lsn, first) <= min(span.last_lsn, last) + 1
    return False


def _split(
    view: SegmentView, entries: BitMap, seq: int, up_to: ChangeKind, above: ChangeKind
) -> Iterator[tuple[BitMap, ChangeKind]]:
    """Yield the entries up to a seq, and those above it, each with its kind of change."""
    lower = entries & BitMap(range(max(0, seq + 1 - view.ref.first_seq)))
    yield from ((part, kind) for part, kind in ((lower, up_to), (entries - lower, above)) if part)


def _apart(
    left: Sequence[SegmentView], right: Sequence[SegmentView], key: Callable[[SegmentView], Hashable]
) -> tuple[list[SegmentView], list[SegmentView]]:
    """Return the views that only one of two states has."""
    alike = {*map(key, left)} & {*map(key, right)}
    return [view for view in left if key(view) not in alike], [view for view in right if key(view) not in alike]


def _less(
    views: Sequence[SegmentView], others: Sequence[SegmentView], reader: ColdReader, shared: int | None = None
) -> Iterator[tuple[SegmentView, BitMap]]:
    """Yield the views with the entries whose seqs none of `others` shows, or only above `shared`. Both ascend."""
    fetch_shown((*views, *others), reader)
    for view in views:
        base, entries = view.ref.first_seq, shown_entries(view, reader)
        at = bisect_left(others, view.first, key=lambda other: other.last)
        for other in islice(others, at, None):
            if other.first > view.last:
                break
            alike = shown_entries(other, reader).shift(other.ref.first_seq - base)
            entries -= alike if shared is None else alike & BitMap(range(max(0, shared + 1 - base)))
        if entries:
            yield view, entries


def _showing(view: SegmentView, entries: BitMap) -> SegmentView:
    """Return the view as if it showed only `entries`."""
    hidden = BitMap(range(view.first - view.ref.first_seq, view.last + 1 - view.ref.first_seq)) - entries
    return replace(view, deleted=hidden.serialize() if hidden else None)


def _removal(topic: str, removed: _Changed) -> Selection:
    """Return the removal of records, with ranges of their seqs in the place of chunks."""
    view, entries, base = removed.view, removed.entries, removed.view.ref.first_seq
    first, last = base + entries.min(), base + entries.max()
    chunks: list[SelectedChunk] = []
    for begin in range(first, last + 1, _CHUNK_ROWS):
        end = min(begin + _CHUNK_ROWS - 1, last)
        rows = entries.range_cardinality(begin - base, end + 1 - base)
        if rows:
            seqs = ChunkRef(0, 0, 0, begin, end, min_ts_ms=0, max_ts_ms=0, xxh3=0)
            chunks.append(SelectedChunk(NumberedChunk(0, seqs), rows, ()))
    return Selection(topic, view, 0, Codec.NONE, 1, 0, first, last, entries, tuple(chunks), removed.change)
