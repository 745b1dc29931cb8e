"""The calls of an archive that tell what a topic was. They ask, and change nothing here or in the remote.

P1  A target is looked up in the commits that are made, and in those that an offload would make
(`offload.services.waiting`).
P2  No turn is taken, so an offload may go on beside a read: it moves records, and the reader looks at the next record
    in the new place. Two numbers tell that it did: the LSN of the handle, and the epoch of the topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from math import inf

from catalog import Bounds, ForkPoint, Handle, History, Snapshot, timeline
from catalog.errors import HistoryCollected, OutOfWindow
from catalog.history import NO_HISTORY, asked
from offload.errors import HistoryBehind, NotOffloaded
from offload.handles import split_name
from offload.services.expired import expired_before
from offload.services.offloading import OffloadCalls
from offload.services.waiting import PastState, Waiting, hot_records, waiting_of
from seglog import Record
from seglog.arguments import checked
from seglog.errors import Evicted, SeqOutOfRange
from seglog.values.names import BRANCH_MARK

__all__ = ["PastCalls"]

_ROUNDS = 5


class PastCalls(OffloadCalls):
    """Mixed into `offload.archive.Archive`."""

    @checked
    def read(
        self, name: str, start: int | None = None, end: int | None = None, *, at: str | None = None
    ) -> Iterator[Record]:
        """Live records from seq `start` to seq `end`, both included, hot or cold; with `at`, those of that time.

        Nothing is sealed, offloaded or changed: records that no commit tells yet come from the log.
        The newest state hides what is past the topic's ttl. A past one shows it as long as the window keeps it.

        Raises `SeqOutOfRange` when `start` lies outside what there is, `Evicted` below what was evicted, `NoSuchTopic`,
        `NoSuchBranch`, `InvalidTarget`, `OutOfWindow`.
        """
        wanted = timeline.Head() if at is None else self._parsed(at)
        if self._log.has_topic(name) and wanted == timeline.Head():
            return self._log.topic(name).read(start, end)
        state = self._newest(name) if at is None else self._state_at(name, wanted)
        floor = state.bounds.evict_floor
        if wanted == timeline.Head() and isinstance(state, Snapshot):
            floor = self.live_floor(name, state)
        start, last = _checked(name, state.bounds, floor, start)
        return self._records_at(name, wanted, state, start, last if end is None else min(end, last))

    @checked
    def live_floor(self, name: str, snapshot: Snapshot) -> int:
        """Of the newest state: below it all was evicted, or is past the ttl now. May read one index object."""
        is_branch = BRANCH_MARK in name
        expired = expired_before(snapshot, self._clock.now_ms(), self._reader, is_branch=is_branch)
        return max(snapshot.bounds.evict_floor, expired)

    @checked
    def read_snapshot(
        self, name: str, snapshot: Snapshot, floor: int, start: int | None = None, end: int | None = None
    ) -> Iterator[Record]:
        """As `read`, of a state that the caller has, and of what is lost there. Raises `SeqOutOfRange`, `Evicted`."""
        start, last = _checked(name, snapshot.bounds, floor, start)
        return self._reader.records(snapshot, start, last if end is None else end)

    @checked
    def snapshot(self, name: str, at: str | None = None) -> Snapshot:
        """The remote state of a topic or branch: the newest, or at a point in time. Raises as `point`."""
        if at is None:
            return self._newest(name)
        point = self.point(name, at)
        return self._volumes.snapshot(point.vid, point.lsn, point.seq)

    @checked
    def history(self, name: str) -> History:
        """The commits that made the topic or branch what it is, through its fork points, as far as they are kept."""
        handle = self._handles.find(name)
        if handle is not None:
            return self._volumes.history(handle.vid, handle.lsn)
        return self._volumes.history(self._handles.resolve(name))

    @checked
    def point(self, name: str, target: str) -> ForkPoint:
        """The exact point that `target` names: `seq:N`, `lsn:N`, `head`, `head~N`, `tag:NAME` or a time.

        Nothing is sealed or offloaded: `NotOffloaded` if the remote has no such point yet. Raises `InvalidTarget`,
        `OutOfWindow`, `NoSuchTag`.
        """
        waiting, point = self._looked_up(name, self._parsed(target))
        if waiting is not None and waiting.has(point):
            raise NotOffloaded(name, target)
        return point

    # ------------------------------------------------------------ inside

    def _kept_point(self, name: str, target: str) -> ForkPoint:
        """As `point`, after one seal and one offload of the records that it needs and the remote does not have.

        Records and deletes that come later take no part: a second look might never end. Raises what `offload` raises.
        """
        wanted = self._parsed(target)
        with self._turn(name):
            waiting, point = self._looked_up(name, wanted, offloads=True)
            if waiting is None or not waiting.has(point):
                return point
            waiting.topic.seal()
            self.offload(name)
            if isinstance(wanted, timeline.Time) and self._newest(name).max_ts_ms <= wanted.ms:
                wanted = timeline.Head()
            return asked(
                lambda: self._told(name, wanted)[1],
                lambda told: timeline.resolve(wanted, told, self._reader.last_seq_at),
            )

    def _parsed(self, target: str) -> timeline.Target:
        return timeline.parse_target(target, now_ms=self._clock.now_ms())

    def _looked_up(
        self, name: str, wanted: timeline.Target, *, offloads: bool = False
    ) -> tuple[Waiting | None, ForkPoint]:
        """The point, and for a topic of the log what waits behind its commits: the point may be there.

        An LSN and `head~N` count commits that are made; where there is none yet and the caller `offloads`, those that
        it will make.
        """
        if isinstance(wanted, timeline.Named):
            return None, self._tags.get(split_name(name)[0], wanted.name).point
        for _ in range(_ROUNDS - 1):
            before = self._places(name)
            try:
                return self._looked_up_once(name, wanted, offloads=offloads)
            except HistoryCollected:
                continue
            except (HistoryBehind, SeqOutOfRange):
                if self._places(name) == before:
                    raise
        return self._looked_up_once(name, wanted, offloads=offloads)

    def _looked_up_once(
        self, name: str, wanted: timeline.Target, *, offloads: bool
    ) -> tuple[Waiting | None, ForkPoint]:
        handle, told = self._told(name, wanted)
        if not self._log.has_topic(name):
            return None, timeline.resolve(wanted, told, self._reader.last_seq_at)
        waiting = self._waiting(name, handle)
        if isinstance(wanted, timeline.Time):
            if wanted.ms > max(self._clock.now_ms(), waiting.topic.last_ts_ms):
                raise OutOfWindow(f"{wanted}, which is in the future", waiting.window(told))
            if self._newest_ms(handle, waiting) <= wanted.ms:
                wanted = timeline.Head()
        if _counts_commits(wanted):
            if handle is not None:
                return waiting, timeline.resolve(wanted, told, self._reader.last_seq_at)
            if waiting.commits and not offloads:
                raise NotOffloaded(name, str(wanted))
        return waiting, waiting.resolve(wanted, told, self._reader.last_seq_at)

    def _told(self, name: str, wanted: timeline.Target) -> tuple[Handle | None, History]:
        """The handle, and the commits that are made. Where GC has passed the handle, both as they follow GC's.

        An LSN that GC has taken is still looked for among the copies of commits in this directory.
        """
        handle = self._handles.find(name)
        if handle is None and self._log.has_topic(name):
            return None, NO_HISTORY
        told = self.history(name)
        is_passed = told.is_passed and not isinstance(wanted, timeline.Lsn)
        moved = self._behind_gc(handle) if handle is not None and is_passed else None
        return (handle, told) if moved is None else (moved, self._volumes.history(moved.vid, moved.lsn))

    def _waiting(self, name: str, handle: Handle | None) -> Waiting:
        """Raises `BranchCollected`, and `Diverged` for a topic of the log that does not follow its volume."""
        topic = self._log.topic(name)
        if handle is None:
            return waiting_of(topic, None, 0, None)
        if handle.is_collected:
            self._handles.check_alive(handle)
        if not self._handles.is_writer(handle):
            self._handles.check_fits(handle)
        return waiting_of(topic, handle.vid, handle.lsn, self._handles.tip(handle))

    def _newest_ms(self, handle: Handle | None, waiting: Waiting) -> float:
        """The latest time that the topic has: a target of that time or later means its head."""
        if waiting.commits:
            return max(commit.at_ts_ms for commit in waiting.commits)
        return inf if handle is None else self._volumes.snapshot(handle.vid, handle.lsn).max_ts_ms

    def _places(self, name: str) -> tuple[int, int]:
        """P2."""
        handle = self._handles.find(name)
        return (-1 if handle is None else handle.lsn), self._log.topic(name).epoch

    def _state_at(self, name: str, wanted: timeline.Target) -> Snapshot | PastState:
        places = self._places(name)
        waiting, point = self._looked_up(name, wanted)
        if waiting is None or not waiting.has(point):
            return self._volumes.snapshot(point.vid, point.lsn, point.seq)
        if not waiting.is_told:
            first_seq = waiting.topic.first_seq
            state = waiting.state(point, None, Bounds(first_seq, first_seq - 1))
        else:
            snapshot = self._volumes.snapshot(waiting.vid, waiting.lsn)
            state = waiting.state(point, snapshot, snapshot.bounds)
        return replace(state, places=places)

    def _records_at(
        self, name: str, wanted: timeline.Target, state: Snapshot | PastState, first: int, last: int
    ) -> Iterator[Record]:
        while not isinstance(state, Snapshot):
            for record in self._cold_part(state, first, last):
                yield record
                first = record.seq + 1
            first = max(first, state.hot_first)
            # A batch counts if nothing has moved since it was looked up: else it may have lost records.
            with suppress(SeqOutOfRange):
                for records, last_seq in hot_records(self._log.topic(name), state, first, last):
                    if self._places(name) != state.places:
                        break
                    yield from records
                    first = last_seq + 1
                else:
                    return
            if self._places(name) == state.places:
                raise SeqOutOfRange(name, first, state.hot_first, state.hot_last)
            state = self._state_at(name, wanted)
        yield from self._reader.records(state, first, last)

    def _cold_part(self, state: PastState, first: int, last: int) -> Iterator[Record]:
        if state.snapshot is None or first > state.snapshot.bounds.head_seq:
            return
        for record in self._reader.records(state.snapshot, first, last):
            if not any(op.matches(record) for op in state.deletes):
                yield record


def _counts_commits(wanted: timeline.Target) -> bool:
    return isinstance(wanted, timeline.Lsn) or (isinstance(wanted, timeline.Head) and wanted.back > 0)


def _checked(name: str, bounds: Bounds, floor: int, start: int | None) -> tuple[int, int]:
    """The seqs to read from and to; below `floor` all is lost. Raises `Evicted`, `SeqOutOfRange`."""
    first, last = bounds.first_seq, bounds.head_seq
    start = max(first, floor) if start is None else start
    if 1 <= start < floor:
        raise Evicted(name, start, floor - 1)
    if not first <= start <= last + 1:
        raise SeqOutOfRange(name, start, first, last)
    return start, last
