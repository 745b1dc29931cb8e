"""Points of a topic's past, to find the moment before a mistake: `seglog points` and `seglog resolve`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from heapq import nsmallest
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any

from offload.moment import Moment
from offload.operations.command import About, Command, TopicName, always
from offload.operations.commits import CommitListed, commit_text, listed
from offload.operations.printing import Output, counted, fitted, format_bytes, parse_span_s, shown_time, time_ms
from seglog.base.dataclasses import dataclass
from seglog.errors import Evicted, SeqOutOfRange

if TYPE_CHECKING:
    from catalog import PastCommit, Snapshot
    from catalog.history import History
    from offload.archive import Archive
    from seglog import Record

    _Mark = tuple["PointListed", PastCommit]

_SHOWN_BYTES = 60
_TAKES_AWAY = ("delete", "evict", "truncate")


@dataclass(frozen=True, slots=True)
class Window:
    """The range that a restore accepts now. `range` is a text."""

    topic: str
    range: str


@dataclass(frozen=True, slots=True)
class PointListed:
    """A point that a restore accepts as `target`.

    `time` is the topic's time then, `committed_at` the time of the commit. `what` tells what happened there, and `kept`
    why GC keeps the point. `records` and `bytes` count what the commit added, or the records that it names as deleted,
    also if an earlier one deleted them. Of what it took below a seq or from a seq on, they count what was there before.
    """

    target: str
    time: Moment
    committed_at: Moment
    head_seq: int
    what: str
    records: int
    bytes: int
    writer: str
    message: str
    kept: str


@dataclass(frozen=True, slots=True)
class RecordNearby:
    """A record near a point. `start` are its first bytes as text."""

    seq: int
    time: Moment
    tag: str | None
    start: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """The point that a target means. `before` ends with its last live record. `hash` is of the commit `lsn`.

    `after` are the next live records of today. `next_commit` follows the point. `pin` names the lease on it.
    """

    topic: str
    target: str
    volume: str
    lsn: int
    seq: int | None
    before: tuple[RecordNearby, ...]
    after: tuple[RecordNearby, ...]
    next_commit: CommitListed | None
    pin: str | None
    pinned_until: Moment | None
    hash: str = ""


def points(
    archive: Archive,
    topic: TopicName,
    around: Annotated[
        str | None, About("The points nearest to this time, such as 2026-11-21T09:30Z.", names="time")
    ] = None,
    limit: Annotated[int, About("At most so many.", "-n --limit", least=1)] = 20,
) -> Iterator[Window | PointListed]:
    """Show the points that matter for a restore. They are each commit that took records away, the point right before
    it, tags, and starts of branches. Newest first.

    Each target is one for restore, branch create, tag create and read --at. `seglog undo TOPIC lsn:N` takes back a
    commit that took records away. Example: seglog points orders --around "2 hours ago"
    """
    from catalog import timeline

    around_ms = time_ms(around)
    history = archive.history.commits(topic)
    yield Window(topic, timeline.window(history))
    marks: Iterable[_Mark] = chain(_of_commits(history), _of_names(archive, topic, history))  # it may be long
    if around_ms is not None:
        marks = nsmallest(limit, marks, key=lambda mark: abs(mark[0].time - around_ms))
    for point, past in nsmallest(limit, marks, key=lambda mark: (-mark[0].time, -mark[0].head_seq)):
        takes = point.what in _TAKES_AWAY and not point.records
        yield replace(point, records=_taken_at_an_end(archive, past)) if takes else point


def resolve(
    archive: Archive,
    topic: TopicName,
    to: Annotated[
        str, About("seq:N (right after record N), lsn:N, head, head~N, tag:NAME, or a time.", "--to", names="target")
    ],
    neighbours: Annotated[int, About("So many records on each side.", "--context", least=0)] = 3,
    pin: Annotated[str | None, About("Let GC keep the point for this time, such as 1h.")] = None,
) -> Resolved:
    """Show the exact point that a target means. It has its last record, the records around it, and what the next commit
    did.

    Nothing is restored. Example: seglog resolve orders --to 2026-11-21T09:30:00Z --pin 1h
    """
    ttl_s = None if pin is None else parse_span_s("--pin", pin)
    point = archive.history.point(topic, to)
    snapshot = archive.history.snapshot_at(point)
    history = archive.history.commits(topic)
    following = history.at(point.vid, point.lsn + 1)
    resolved = Resolved(
        topic=topic,
        target=to,
        volume=str(point.vid),
        lsn=point.lsn,
        seq=point.seq,
        before=_before(archive, topic, snapshot, neighbours),
        after=_after(archive, topic, snapshot.bounds.head_seq + 1, neighbours),
        next_commit=None if following is None else listed(following, history),
        pin=None,
        pinned_until=None,
        hash=archive.history.commit_at(point).hash.hex(),
    )
    if ttl_s is None:
        return resolved
    pinned = archive.history.pin(point, ttl_s)  # last, so that an error of the lines above leaves no lease behind
    return replace(resolved, pin=pinned.name, pinned_until=Moment(pinned.pin.expires_at_ms))


def _before(archive: Archive, topic: str, snapshot: Snapshot, count: int) -> tuple[RecordNearby, ...]:
    """Return the last live record of a state, and the live ones of the `count` seqs before it."""
    _, last = archive.history.count(snapshot)
    if last is None:
        return ()
    first = max(snapshot.bounds.first_seq, last.seq - count)
    return tuple(map(_shown, archive.history.read_snapshot(topic, snapshot, 0, first, last.seq)))


def _after(archive: Archive, topic: str, first_seq: int, count: int) -> tuple[RecordNearby, ...]:
    """Return the next `count` live records of today."""
    with suppress(SeqOutOfRange, Evicted):  # the topic ends there today, or those records are gone
        return tuple(map(_shown, islice(archive.read(topic, first_seq), count)))
    return ()


def _shown(record: Record) -> RecordNearby:
    start = record.value[:_SHOWN_BYTES].decode(errors="replace")
    return RecordNearby(record.seq, Moment(record.ts_ms), record.tag, start)


def _taken_at_an_end(archive: Archive, past: PastCommit) -> int:
    """Return how many records a commit took below a seq or from a seq on; 0 if GC has passed the state before."""
    from catalog import ForkPoint
    from catalog.errors import NoSuchObject
    from catalog.format.lazy_imports import pyroaring
    from catalog.snapshot import deleted_below

    below, truncated_from = deleted_below(past.commit), past.commit.truncate_from
    if not below and truncated_from is None:
        return 0
    try:
        before = archive.history.snapshot_at(ForkPoint(past.commit.vid, past.commit.lsn - 1))
    except NoSuchObject:
        return 0
    records = 0
    for view in before.segments:
        if truncated_from is None:
            first, end = view.first, min(view.last + 1, below)
        else:
            first, end = max(view.first, truncated_from), view.last + 1
        if first < end:
            deleted = pyroaring.BitMap() if view.deleted is None else pyroaring.BitMap.deserialize(view.deleted)
            records += end - first - deleted.range_cardinality(first - view.ref.first_seq, end - view.ref.first_seq)
    return records


def _of_commits(history: History) -> Iterator[_Mark]:
    """Yield the head, the commits that took something away, and the point before each."""
    newer: PastCommit | None = None
    for past in history:
        is_head, takes = newer is None, past.commit.kind.name.lower() in _TAKES_AWAY
        if newer is not None and newer.commit.kind.name.lower() in _TAKES_AWAY and not takes:
            taker = history.target_of(newer.commit).replace(":", " ")
            yield _point(history, past, f"before {taker}, which took records away", "window")
        if takes:
            yield _point(history, past, past.commit.kind.name.lower(), "window")
        elif is_head:
            yield _point(history, past, "head", "window")
        newer = past


def _of_names(archive: Archive, topic: str, history: History) -> Iterator[_Mark]:
    """Yield the tags, and the starts of branches, that stand on this history. A tag may be older than the window."""
    from catalog.errors import NoSuchTag

    base = topic.partition("@")[0]
    volumes = {span.vid for span in history.spans}
    for tag in archive.tags.list(base):
        past = history.at(tag.tag.point.vid, tag.tag.point.lsn)
        if past is None and tag.tag.point.vid in volumes:
            with suppress(NoSuchTag):  # deleted meanwhile
                past = archive.history.commit(topic, f"tag:{tag.name}")
        if past is not None:
            yield _point(history, past, "tag", f"tag {tag.name}", f"tag:{tag.name}", tag.tag.point.seq)
    for branch in archive.branches.list(base):
        past = None if branch.parent is None else history.at(branch.parent.vid, branch.parent.lsn)
        if past is not None and branch.parent is not None:
            target = "" if branch.parent.seq is None else f"seq:{branch.parent.seq}"
            yield _point(history, past, "fork", f"branch {branch.branch}", target, branch.parent.seq)


def _point(
    history: History, past: PastCommit, event: str, keeper: str, target: str = "", seq: int | None = None
) -> _Mark:
    commit = past.commit
    detail = listed(past, history)
    added = sum(last - ref.first_seq + 1 for ref, last in past.segments()) if detail.commit_kind == "offload" else 0
    point = PointListed(
        target=target or detail.target,
        time=Moment(commit.at_ts_ms),
        committed_at=Moment(commit.created_at_ms),
        head_seq=past.head_seq if seq is None else seq,
        what=event,
        records=added or (detail.deleted_records if event in _TAKES_AWAY else 0),
        bytes=sum(segment.data_bytes for segment in detail.segments),
        writer=commit.writer_id,
        message=commit.message,
        kept=keeper,
    )
    return point, past


def point_text(point: Window | PointListed, output: Output | None = None) -> str:
    if isinstance(point, Window):
        return f"{point.topic}: {point.range}"
    size = [counted(point.records)] if point.records else []
    size += [format_bytes(point.bytes)] if point.bytes else []
    details = ", ".join([point.what, *size, f"kept by {point.kept}", f"by {point.writer}"])
    message = f": {point.message}" if point.message else ""
    return f"{point.target:<16} {shown_time(output, point.time):<11}  head seq {point.head_seq:<8} {details}{message}"


def resolved_text(resolved: Resolved, *, has_context: bool = True) -> str:
    cut = "" if resolved.seq is None else f", cut after seq {resolved.seq}"
    texts = [f"{resolved.target} is lsn {resolved.lsn} of volume {resolved.volume}{cut}"]
    *earlier, last = [_record(record) for record in resolved.before] or ["no record"]
    texts += [f"    {text}" for text in earlier]
    texts.append(f"  > {last}")
    texts += [f"    {_record(record)}" for record in resolved.after]
    if has_context and not resolved.after:
        texts.append("    no record follows today")
    if resolved.next_commit is not None:
        texts.append(f"  the next commit: {commit_text(resolved.next_commit)}")
    if resolved.pin is not None:
        texts.append(f"  kept until {resolved.pinned_until} by the pin {resolved.pin}")
    return "\n".join(texts)


def _record(record: RecordNearby) -> str:
    tag = f" tag {record.tag}" if record.tag else ""
    return f"seq {record.seq}  {record.time}{tag}  {record.start}"


def _print_resolved(output: Output, results: Iterator[Resolved], values: Mapping[str, Any]) -> None:
    for resolved in results:
        output.show(resolved, resolved_text(resolved, has_context=values["neighbours"] > 0))


def _print_points(output: Output, results: Iterator[Window | PointListed], _: Mapping[str, Any]) -> None:
    for point in results:
        output.show(point, fitted(output, point_text(point, output), 4))


POINTS = Command("points", points, _print_points, reads=always, role="read", is_long=True, section="time travel")
RESOLVE = Command("resolve", resolve, _print_resolved, reads=lambda values: values["pin"] is None)
