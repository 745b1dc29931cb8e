"""The seqs that a read with conditions has to look at, from commits and index heads, as a plan for Spark has them.

PRUNE-1  Only chunks that cannot have a matching record are left out. What no segment of the remote has is looked at.
PRUNE-2  The caller reads the ranges as it reads without conditions, and checks each record. So a range that is too
    large costs time, and changes no result.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from offload.errors import NotOffloaded
from offload.operations.matching import Match
from seglog import Gap, Record
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    from catalog import Snapshot
    from offload.archive import Archive
    from offload.spark.task import Filter
    from seglog import Topic


@dataclass(frozen=True, slots=True)
class ReadStats:
    """The number of chunks that a read looked at, and of chunks that the index left out.

    `segments_skipped` counts the segments that the commits left out: their chunks are not counted. `records` counts the
    records that were looked at, here and in the remote.
    """

    chunks_read: int
    chunks_skipped: int
    segments_skipped: int
    records: int


@dataclass(slots=True)
class Skipped:
    """The counts of a read that has not ended."""

    chunks_read: int = 0
    chunks_skipped: int = 0
    segments_skipped: int = 0
    records: int = 0

    def told(self) -> ReadStats:
        return ReadStats(self.chunks_read, self.chunks_skipped, self.segments_skipped, self.records)


def pruned_here(
    archive: Archive, topic: Topic, first: int, end: int | None, match: Match, counts: Skipped
) -> Iterator[Record | Gap]:
    """Yield the records of a topic of the log. Below its hot floor, leave out what has no match."""
    below = topic.inner.hot_floor - 1 if end is None else min(end, topic.inner.hot_floor - 1)
    live = min(topic.inner.evict_floor, below + 1)
    if first < live:
        yield from topic.read(first, live - 1, gaps=True)
        first = live
    for first_seq, last_seq in _ranges(archive, archive.history.snapshot(topic.name), match, first, below, counts):
        yield from topic.read(first_seq, last_seq, gaps=True)
    if end is None or end > below:
        yield from topic.read(below + 1, end, since_ms=match.since_ms, until_ms=match.until_ms, gaps=True)


def pruned_there(
    archive: Archive, name: str, start: int | None, end: int | None, match: Match, at: str | None, counts: Skipped
) -> Iterator[Record]:
    """Return the records of a state in the remote, without what has no match. Raises as `Archive.read` does."""
    from offload.services.states import range_to_read

    snapshot = archive.history.snapshot(name, at)
    floor = archive.history.live_floor(name, snapshot) if _is_newest(at) else snapshot.bounds.evict_floor
    first, last = range_to_read(name, snapshot.bounds, floor, start)
    last = last if end is None else min(end, last)
    return chain.from_iterable(
        archive.history.read_snapshot(name, snapshot, floor, *span)
        for span in _ranges(archive, snapshot, match, first, last, counts)
    )


def read_state(
    archive: Archive,
    name: str,
    start: int | None,
    end: int | None,
    match: Match,
    at: str | None,
    counts: Skipped | None,
) -> Iterator[Record]:
    """Return the records of a state. With `counts`, chunks in the remote without a match are left out (PRUNE-2)."""
    if counts is not None:
        with suppress(NotOffloaded):  # the log has records of the state that no commit has: they are read without index
            return pruned_there(archive, name, start, end, match, at, counts)
    return archive.read(name, start, end, at=at)


def _is_newest(at: str | None) -> bool:
    from catalog.timeline import Head, parse_target

    return at is None or parse_target(at, now_ms=0) == Head()


def _ranges(
    archive: Archive, snapshot: Snapshot, match: Match, first: int, last: int, counts: Skipped
) -> Iterator[tuple[int, int]]:
    """Yield the ranges of seqs to read between two seqs, ascending. Each is of one segment, or of none.

    Reads the index head of each segment that the commits leave in question, when the caller gets there.
    """
    from offload.spark.selection import conditions_of, may_show, select
    from offload.spark.task import Filter, Op

    bounds = [Filter("seq", Op.GE, (first,)), Filter("seq", Op.LE, (last,))]
    conditions = conditions_of([*_filters(match), *bounds])
    position = first
    for view in snapshot.segments:
        start, end = max(view.first, position), min(view.last, last)
        if start > end:
            continue
        if position < start:
            yield position, start - 1
        position = end + 1
        if not may_show(view, conditions):
            counts.segments_skipped += 1
            continue
        index = archive.history.index(view)
        selection = select("", view, index, conditions)
        chosen = [] if selection is None else [chunk.chunk.ref for chunk in selection.chunks]
        counts.chunks_read += len(chosen)
        counts.chunks_skipped += len(list(index.chunks_between(start, end))) - len(chosen)
        yield from _joined((max(start, chunk.first_seq), min(end, chunk.last_seq)) for chunk in chosen)
    if position <= last:
        yield position, last


def _filters(match: Match) -> Iterator[Filter]:
    from offload.spark.task import Filter, Op

    if match.since_ms is not None:
        yield Filter("timestamp", Op.GE, (match.since_ms * 1000,))
    if match.until_ms is not None:
        yield Filter("timestamp", Op.LE, (match.until_ms * 1000,))
    if match.tag is not None:
        is_prefix = match.tag.endswith("*")
        yield Filter("tag", Op.PREFIX if is_prefix else Op.EQ, (match.tag.removesuffix("*"),))


def _joined(ranges: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join ranges that touch."""
    open_range: tuple[int, int] | None = None
    for first, last in ranges:
        if open_range is not None and open_range[1] + 1 == first:
            open_range = open_range[0], last
            continue
        if open_range is not None:
            yield open_range
        open_range = first, last
    if open_range is not None:
        yield open_range
