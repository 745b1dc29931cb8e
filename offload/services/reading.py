"""Reads of the newest and of past states. They change nothing here or in the remote.

If an offload moves records during a read, the read continues in the new place (TARGET-2).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from catalog import Bounds, Snapshot, timeline
from offload.context import ArchiveContext
from offload.services.history import HistoryService, range_to_read
from offload.services.pending_commits import PastState, hot_records
from offload.services.remote_states import RemoteStates
from offload.services.targets import Targets
from seglog import Record
from seglog.base.ownership import Owned
from seglog.errors import SeqOutOfRange
from seglog.format.record_arrays import RecordArrays, in_arrays

__all__ = ["Reading"]


class Reading(Owned):
    def __init__(
        self, context: ArchiveContext, states: RemoteStates, targets: Targets, history: HistoryService
    ) -> None:
        self._log = context.log
        self._volumes = context.volumes
        self._reader = context.reader
        self._states = states
        self._targets = targets
        self._history = history

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

    def _wanted(self, at: str | None) -> timeline.Target:
        return timeline.Head() if at is None else self._targets.parse(at)

    def _is_of_log(self, name: str, wanted: timeline.Target) -> bool:
        """Return whether the log itself has the state."""
        return self._log.has_topic(name) and wanted == timeline.Head()

    def _range(
        self, name: str, wanted: timeline.Target, start: int | None, end: int | None, at: str | None
    ) -> tuple[Snapshot | PastState, int, int]:
        """Return the state, and the first and the last seq to read of it."""
        state = self._states.newest(name) if at is None else self._state_at(name, wanted)
        floor = state.bounds.evict_floor
        if wanted == timeline.Head() and isinstance(state, Snapshot):
            floor = self._history.live_floor(name, state)
        start, last = range_to_read(name, state.bounds, floor, start)
        return state, start, last if end is None else min(end, last)

    def _state_at(self, name: str, wanted: timeline.Target) -> Snapshot | PastState:
        places = self._targets.places(name)
        pending, point = self._targets.look_up(name, wanted)
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
                    if self._targets.places(name) != state.places:
                        break
                    yield from records
                    first = last_seq + 1
                else:
                    return
            if self._targets.places(name) == state.places:
                raise SeqOutOfRange(name, first, state.hot_first, state.hot_last)
            state = self._state_at(name, wanted)
        yield from self._reader.records(state, first, last)

    def _cold_part(self, state: PastState, first: int, last: int) -> Iterator[Record]:
        if state.snapshot is None or first > state.snapshot.bounds.head_seq:
            return
        for record in self._reader.records(state.snapshot, first, last):
            if not any(op.matches(record) for op in state.deletes):
                yield record
