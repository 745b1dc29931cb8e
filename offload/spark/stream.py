"""A stream: where it stands, how far its next micro-batch goes, and the plan of a micro-batch.

Both readers ask this module: the reader in Python calls it, the JVM reader asks the planner.

MICRO-1  The offset alone says what a micro-batch reads (OFFSET-2). So it reads the same records after a restart. A
    sink that drops a batch that it has gets each record once.
MICRO-2  A replay shows the version that the offset names. So it shows records that were deleted, truncated or evicted
    meanwhile, and takes no notice of merged segments.
MICRO-3  GC keeps that version for as long as the PITR window lasts. After that, a replay raises `DataLoss`. With
    `failOnDataLoss=false`, it reads what the newest version shows of the same seqs.
MICRO-4  A commit without records moves the offset too, so an empty micro-batch runs. So the position never falls out
    of the PITR window while the stream runs.
MICRO-5  The ttl counts where a stream begins. After that, the stream gives each record, also if the record expires
    while the stream lags.
MICRO-6  The newest versions are asked for at most once in `headCacheMs`. An idle stream asks for nothing else: one
    GET and one LIST for each topic, and one LIST for all globs.
MICRO-7  With `failOnDataLoss=false`, each loss is one line in the log.

The limits `maxRecordsPerTrigger` and `maxBytesPerTrigger`, which the topics share:

ADMIT-1  Topics with little to read get all that they have. The others share the rest of the limit in equal parts.
    So no topic waits for another, if the limit is not below the number of topics.
ADMIT-2  `maxRecordsPerTrigger` counts seqs that a segment shows, deleted ones among them. No micro-batch has more.
ADMIT-3  `maxBytesPerTrigger` counts decompressed bytes: of whole segments by the commit, of a part by its chunks. A
    micro-batch ends behind a chunk. Each topic with records gets at least one chunk.
ADMIT-4  With both limits, each topic ends where the first of them ends it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from catalog.errors import InvalidObject, NoSuchObject
from catalog.format.commit import SegmentView
from catalog.format.control import MAIN
from catalog.snapshot import Snapshot
from offload.format.block import ChunkRef
from offload.services.expired import expired_before
from offload.spark.data_loss import EVICTED, Loss, check_loss, continued, raise_losses
from offload.spark.offsets import BatchRange, Offset, Position, check_kind, name_of, ranges
from offload.spark.option_texts import moment_ms
from offload.spark.options import EARLIEST, Positions
from offload.spark.pin import Pin, PinnedTopic
from offload.spark.query_plan import Plan, Query, Remote
from offload.spark.stream_options import LATEST, StreamOptions
from seglog.base.dataclasses import dataclass
from seglog.files.clock import SystemClock

_COLLECTED = "cannot be read as the stream planned them, for garbage collection took that version"
_GONE = "are gone, for their branch was deleted"
_log = logging.getLogger(__name__)
_ChunksOf = Callable[[SegmentView], Sequence[ChunkRef]]
"""Returns the chunk table of a segment, ascending."""


@dataclass(frozen=True, slots=True)
class _Standing:
    """A topic's newest state, and the seq that the stream continues with."""

    name: str
    topic: PinnedTopic
    snapshot: Snapshot
    first: int

    @property
    def backlog(self) -> _Backlog:
        end = max(self.first, self.snapshot.bounds.head_seq + 1)
        views = tuple(view for view in self.snapshot.segments if view.last >= self.first)
        return _Backlog(self.first, end, views)


class Stream:
    """The part of a stream that is not in its offset: the newest versions as last asked for, and the losses told."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._heads: tuple[float, Pin] | None = None
        self._settled: tuple[Offset, Pin] | None = None
        self._told: set[str] = set()

    def latest(self, remote: Remote, start: Offset, target: Pin | None, *, limited: bool) -> Offset:
        """Return the offset that the next micro-batch ends with. It equals `start` if there is nothing to read.

        `start` is empty for a new stream. The stream goes no further than `target`, and not beyond the limits of the
        options if `limited`. Raises `DataLoss`, `Misuse` for an offset of changes, `SeqOutOfRange` for a new
        stream that begins beyond the head, and what pinning a version raises.
        """
        check_kind(start, of_changes=False)
        heads = target or self._newest(remote)
        if self._settled == (start, heads):
            return start
        states = self._standings(remote, start, heads)
        backlogs = [state.backlog for state in states]
        ends = [backlog.end for backlog in backlogs]
        if limited:
            limits = self._options.max_records, self._options.max_bytes
            ends = _admitted(backlogs, *limits, lambda view: remote.reader.index(view).chunks)
        end = dict(start)
        for state, next_seq in zip(states, ends, strict=True):
            end[state.name] = _moved(start.get(state.name), state, next_seq)
        if end == start:
            self._settled = start, heads
        return end

    def plan(self, remote: Remote, start: Offset, end: Offset, query: Query) -> Plan:
        """Return the tasks of the micro-batch between two offsets. Raises as `Remote.plan`, and `Misuse`."""
        check_kind(end, of_changes=False)
        spans = ranges(start, end)
        try:
            return self._planned(remote, spans, query)
        except (InvalidObject, NoSuchObject):
            current = self._kept(remote, spans)
            if current == spans:
                raise
            return self._planned(remote, current, query)

    def _planned(self, remote: Remote, spans: list[BatchRange], query: Query) -> Plan:
        options = replace(
            self._options.read,
            starting=Positions(None, {span.topic.topic: span.first for span in spans}),
            ending=Positions(None, {span.topic.topic: span.last for span in spans}),
            starting_time=None,
            fail_on_data_loss=False,
        )
        made_at_ms = 0  # at this time no record had expired (MICRO-5)
        return remote.plan(options, Pin(made_at_ms, tuple(span.topic for span in spans)), query)

    def _kept(self, remote: Remote, spans: list[BatchRange]) -> list[BatchRange]:
        """Return the ranges at the newest version where GC collected the wanted one (MICRO-3)."""
        collected = [span for span in spans if remote.is_collected(span.topic.point)]
        self._tell([Loss(span.topic.full_name, span.first, span.last, _COLLECTED) for span in collected])
        newest = {topic.topic: topic for topic in self._newest(remote).topics} if collected else {}
        return [
            replace(span, topic=newest[span.topic.topic]) if span in collected and span.topic.topic in newest else span
            for span in spans
        ]

    def _newest(self, remote: Remote) -> Pin:
        """Return the newest versions of the topics (MICRO-6)."""
        now_s = time.monotonic()
        if self._heads is None or (now_s - self._heads[0]) * 1000 >= self._options.head_cache_ms:
            self._heads = now_s, remote.pin(self._options.read)
        return self._heads[1]

    def _standings(self, remote: Remote, start: Offset, heads: Pin) -> list[_Standing]:
        """Return where the stream continues in each topic, ascending by name."""
        topics = [_not_behind(topic, start.get(name_of(topic.topic, topic.branch))) for topic in heads.topics]
        states = [
            _Standing(name_of(topic.topic, topic.branch), topic, snapshot, 0)
            for topic, snapshot in zip(topics, remote.snapshots(topics), strict=True)
        ]
        losses = self._gone(start, {state.name for state in states})
        begins = self._beginnings(remote, [state for state in states if state.name not in start], is_new=not start)
        for state in states:
            if state.name in start:
                point = state.topic.point
                seen = start[state.name]
                first, lost = continued(state.topic.full_name, seen, point, state.snapshot, remote.volumes)
                begins[state.name] = first
                losses += lost
        self._tell(losses)
        return [replace(state, first=begins[state.name]) for state in states]

    def _beginnings(self, remote: Remote, states: list[_Standing], *, is_new: bool) -> dict[str, int]:
        """Return the first seq of topics that are new to the stream, by name."""
        read, now_ms = self._options.read, SystemClock().now_ms()
        firsts = {state.topic.topic: _asked(read.starting.of(state.topic.topic), state, is_new) for state in states}
        if read.fail_on_data_loss:
            strict = replace(read, starting=Positions(None, firsts))
            check_loss(strict, [(state.topic, state.snapshot) for state in states], remote.reader, now_ms)
        begins: dict[str, int] = {}
        for state in states:
            bounds, is_branch = state.snapshot.bounds, state.topic.branch != MAIN
            first = firsts[state.topic.topic]
            if read.starting_time is not None:
                starting_ms = moment_ms(read.starting_time, now_ms)
                first = max(first or 1, remote.reader.first_seq_at(state.snapshot, starting_ms))
            elif first != EARLIEST and (first or 1) < bounds.evict_floor:
                self._tell([Loss(state.topic.full_name, first or 1, bounds.evict_floor - 1, EVICTED)])
            first = max(first or 1, bounds.evict_floor)
            first = max(first, expired_before(state.snapshot, now_ms, remote.reader, is_branch=is_branch))
            begins[state.name] = min(first, bounds.head_seq + 1)
        return begins

    def _gone(self, start: Offset, names: set[str]) -> list[Loss]:
        """Return the topics of the offset that a glob should find, and does not."""
        losses: list[Loss] = []
        for name, position in start.items():
            topic, _, branch = name.partition("@")
            patterns = [pattern for pattern in self._options.read.topics if pattern.branch == branch]
            if name not in names and any(fnmatchcase(topic, pattern.text) for pattern in patterns):
                losses.append(Loss(name, 1, max(1, position.next_seq - 1), _GONE))
        return losses

    def _tell(self, losses: list[Loss]) -> None:
        """Raise `DataLoss` for losses, or tell each once in the log."""
        if self._options.read.fail_on_data_loss:
            raise_losses(losses)
        for text in map(str, losses):
            if text not in self._told:
                self._told.add(text)
                _log.warning("%s: the stream continues with the records that are there", text)


def _moved(before: Position | None, state: _Standing, next_seq: int) -> Position:
    point = state.topic.point
    moved = Position(point.vid, point.lsn, next_seq)
    if before is None or state.first != before.next_seq:
        return replace(moved, first_seq=state.first)
    return before if replace(before, first_seq=None) == moved else moved


def _not_behind(topic: PinnedTopic, seen: Position | None) -> PinnedTopic:
    """Return the topic, no older than the stream saw it, because a LIST may be late."""
    if seen is None or seen.vid != topic.point.vid or seen.lsn <= topic.point.lsn:
        return topic
    return replace(topic, point=replace(topic.point, lsn=seen.lsn))


def _asked(starting: int | None, state: _Standing, is_new_stream: bool) -> int | None:
    """Return the seq that the options begin a topic with, 0 for `EARLIEST`, None if they say nothing."""
    if starting is not None and not is_new_stream:
        return EARLIEST
    return state.snapshot.bounds.head_seq + 1 if starting == LATEST else starting


@dataclass(frozen=True, slots=True)
class _Backlog:
    """A topic's records for the stream: from the seq `first` up to and without `end`. `views` are ascending."""

    first: int
    end: int
    views: tuple[SegmentView, ...]

    @property
    def records(self) -> int:
        return sum(self.records_of(view) for view in self.views)

    @property
    def size_bytes(self) -> int:
        return sum(self.bytes_of(view) for view in self.views)

    def records_of(self, view: SegmentView) -> int:
        return max(0, view.last + 1 - max(view.first, self.first))

    def bytes_of(self, view: SegmentView) -> int:
        """Return the bytes of a view, as if all records of its segment were of one size."""
        ref = view.ref
        return ref.frame_bytes * self.records_of(view) // (ref.last_seq + 1 - ref.first_seq)


def _admitted(
    backlogs: Sequence[_Backlog], max_records: int | None, max_bytes: int | None, chunks_of: _ChunksOf
) -> list[int]:
    """Return for each topic the seq that the next micro-batch begins with. Raises what `chunks_of` raises."""
    ends = [backlog.end for backlog in backlogs]
    if max_records is not None:
        shares = _shares(max_records, [backlog.records for backlog in backlogs])
        ends = [_end_by_records(*pair) for pair in zip(backlogs, shares, strict=True)]
    if max_bytes is not None:
        shares = _shares(max_bytes, [backlog.size_bytes for backlog in backlogs])
        by_bytes = [_end_by_bytes(*pair, chunks_of) for pair in zip(backlogs, shares, strict=True)]
        ends = [min(pair) for pair in zip(ends, by_bytes, strict=True)]
    return ends


def _shares(limit: int, sizes: Sequence[int]) -> list[int]:
    """Return each one's share of `limit`, the smallest first (ADMIT-1)."""
    shares = [0] * len(sizes)
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    for waiting, number in zip(range(len(order), 0, -1), order, strict=True):
        shares[number] = min(sizes[number], limit // waiting)
        limit -= shares[number]
    return shares


def _end_by_records(backlog: _Backlog, share: int) -> int:
    if not share and backlog.records:
        return backlog.first
    for view in backlog.views:
        if share < backlog.records_of(view):
            return max(view.first, backlog.first) + share
        share -= backlog.records_of(view)
    return backlog.end


def _end_by_bytes(backlog: _Backlog, share: int, chunks_of: _ChunksOf) -> int:
    end = backlog.first
    for view in backlog.views:
        size = backlog.bytes_of(view)
        if size <= share:
            end, share = view.last + 1, share - size
            continue
        for chunk in chunks_of(view):
            if chunk.last_seq < max(view.first, backlog.first) or chunk.first_seq > view.last:
                continue
            if chunk.raw_length > share and end > backlog.first:
                return end
            end, share = min(chunk.last_seq, view.last) + 1, share - chunk.raw_length
    return backlog.end
