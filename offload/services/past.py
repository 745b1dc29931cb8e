"""The calls of an archive that read the past of a topic. They change nothing here or in the remote.

P1  The archive looks a target up in the existing commits, and in the commits that an offload would make
    (`offload.services.waiting`).
P2  A read does not take the topic's lock, so an offload may run beside it. The offload moves records, and the reader
    looks for the next record in the new place. Two numbers reveal the move: the LSN of the handle, and the epoch of the
    topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from math import inf

from catalog import Bounds, ForkPoint, Handle, History, Snapshot, timeline
from catalog.errors import HistoryCollected, OutOfWindow
from catalog.history import NO_HISTORY, retry_if_collected
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
    """A mixin of `offload.archive.Archive`."""

    @checked
    def read(
        self, name: str, start: int | None = None, end: int | None = None, *, at: str | None = None
    ) -> Iterator[Record]:
        """Return the live records from seq `start` to seq `end`, both included, hot or cold. With `at`, read that past
        state.

        The call seals, offloads and changes nothing. Records that no commit has yet come from the log. The newest state
        hides records past the topic's ttl. A past state shows them as long as the window keeps them.

        Raises `SeqOutOfRange` if `start` lies outside the state, `Evicted` if the records at `start` are lost,
        `NoSuchTopic`, `NoSuchBranch`, `InvalidTarget`, `OutOfWindow`.
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
        """Return the live floor of the newest state. Every record below it was evicted, or is past the ttl now.

        May read one index object and one chunk.
        """
        is_branch = BRANCH_MARK in name
        expired = expired_before(snapshot, self._clock.now_ms(), self._reader, is_branch=is_branch)
        return max(snapshot.bounds.evict_floor, expired)

    @checked
    def read_snapshot(
        self, name: str, snapshot: Snapshot, floor: int, start: int | None = None, end: int | None = None
    ) -> Iterator[Record]:
        """Return records of a state that the caller has, as `read` does. The records below `floor` are lost.

        Raises `SeqOutOfRange`, `Evicted`.
        """
        start, last = _checked(name, snapshot.bounds, floor, start)
        return self._reader.records(snapshot, start, last if end is None else end)

    @checked
    def snapshot(self, name: str, at: str | None = None) -> Snapshot:
        """Return the remote state of a topic or branch: the newest, or the state at the target `at`. Raises as `point`
        does.
        """
        if at is None:
            return self._newest(name)
        point = self.point(name, at)
        return self._volumes.snapshot(point.vid, point.lsn, point.seq)

    @checked
    def history(self, name: str) -> History:
        """Return the commits of the topic or branch, through its fork points, as far as GC keeps them."""
        handle = self._handles.find(name)
        if handle is not None:
            return self._volumes.history(handle.vid, handle.lsn)
        return self._volumes.history(self._handles.resolve(name))

    @checked
    def point(self, name: str, target: str) -> ForkPoint:
        """Return the exact point that `target` names: `seq:N`, `lsn:N`, `head`, `head~N`, `tag:NAME` or a time.

        The call seals and offloads nothing. Raises `NotOffloaded` if the remote has no such point yet, `InvalidTarget`,
        `OutOfWindow`, `NoSuchTag`.
        """
        waiting, point = self._looked_up(name, self._parsed(target))
        if waiting is not None and waiting.has(point):
            raise NotOffloaded(name, target)
        return point

    # ------------------------------------------------------------ inside

    def _kept_point(self, name: str, target: str) -> ForkPoint:
        """Return the same point as `point`. If the remote lacks records of the point, first seal and offload once.

        The call ignores records and deletes that arrive later, because otherwise it might never end. Raises what
        `offload` raises.
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
            return retry_if_collected(
                lambda: self._told(name, wanted)[1],
                lambda told: timeline.resolve(wanted, told, self._reader.last_seq_at),
            )

    def _parsed(self, target: str) -> timeline.Target:
        return timeline.parse_target(target, now_ms=self._clock.now_ms())

    def _looked_up(
        self, name: str, wanted: timeline.Target, *, offloads: bool = False
    ) -> tuple[Waiting | None, ForkPoint]:
        """Return the point, and for a topic of the log its waiting part, which may contain the point.

        An LSN and `head~N` count existing commits. If there is none yet and the caller `offloads`, they count the
        commits that the offload will make.
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
        """Return the handle, and the history of existing commits. If GC has passed the handle, return both after GC's
        commits.

        If the target is an LSN, the call keeps the old history, because copies of collected commits may still be in
        this directory.
        """
        handle = self._handles.find(name)
        if handle is None and self._log.has_topic(name):
            return None, NO_HISTORY
        told = self.history(name)
        is_passed = told.is_passed and not isinstance(wanted, timeline.Lsn)
        moved = self._behind_gc(handle) if handle is not None and is_passed else None
        return (handle, told) if moved is None else (moved, self._volumes.history(moved.vid, moved.lsn))

    def _waiting(self, name: str, handle: Handle | None) -> Waiting:
        """Return the part of the topic that no commit has yet.

        Raises `BranchCollected`, and `Diverged` for a topic of the log that does not follow its volume.
        """
        topic = self._log.topic(name)
        if handle is None:
            return waiting_of(topic, None, 0, None)
        if handle.is_collected:
            self._handles.check_alive(handle)
        if not self._handles.is_writer(handle):
            self._handles.check_fits(handle)
        return waiting_of(topic, handle.vid, handle.lsn, self._handles.tip(handle))

    def _newest_ms(self, handle: Handle | None, waiting: Waiting) -> float:
        """Return the latest time of the topic. A target at or after that time means the topic's head."""
        if waiting.commits:
            return max(commit.at_ts_ms for commit in waiting.commits)
        return inf if handle is None else self._volumes.snapshot(handle.vid, handle.lsn).max_ts_ms

    def _places(self, name: str) -> tuple[int, int]:
        """Return the LSN of the handle and the epoch of the topic. If either changes, records have moved (P2)."""
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
            # Yield a batch only if no record has moved since the lookup. Otherwise the batch may lack records.
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
    """Return the first and the last seq to read. Records below `floor` are lost. Raises `Evicted`, `SeqOutOfRange`."""
    first, last = bounds.first_seq, bounds.head_seq
    start = max(first, floor) if start is None else start
    if 1 <= start < floor:
        raise Evicted(name, start, floor - 1)
    if not first <= start <= last + 1:
        raise SeqOutOfRange(name, start, first, last)
    return start, last
