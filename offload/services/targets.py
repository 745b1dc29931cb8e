"""The resolution of targets, such as `seq:5` or `head~2`, to points in the history of a topic.

TARGET-1  A target is looked up in the existing commits, and in the commits that an offload would make
    (`offload.services.pending_commits`).
TARGET-2  A look-up does not take the topic's lock, so an offload may run beside it. The offload moves records, and the
    reader looks for the next record in the new place (MOVED-1). Two numbers reveal the move: the LSN of the handle, and
    the epoch of the topic.
"""

from __future__ import annotations

from math import inf

from catalog import ForkPoint, Handle, History, timeline
from catalog.errors import NoSuchPin, OutOfWindow, PinLost
from catalog.history import NO_HISTORY, retry_if_collected
from catalog.refs.state_names import Pins
from offload.context import ArchiveContext
from offload.errors import HistoryBehind, NotOffloaded
from offload.handles import split_name
from offload.moved import retry_if_moved
from offload.services.pending_commits import PendingCommits, pending_commits_of
from offload.services.remote_states import RemoteStates
from seglog.errors import NoSuchTopic, SeqOutOfRange

__all__ = ["Targets"]


class Targets:
    def __init__(self, context: ArchiveContext, states: RemoteStates) -> None:
        self._log = context.log
        self._volumes = context.volumes
        self._tags = context.tags
        self._pins = Pins(context.volumes)
        self._handles = context.handles
        self._reader = context.reader
        self._clock = context.clock
        self._states = states

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
            return None, self._tags.get(split_name(name)[0], wanted.name).point
        if isinstance(wanted, timeline.Pinned):
            return None, self._pinned(name, wanted.name)
        return retry_if_moved(
            lambda: retry_if_collected(
                lambda: self._published(name, wanted),
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

    def _published(self, name: str, wanted: timeline.Target) -> tuple[Handle | None, History]:
        """Return the handle, and the history of existing commits. If GC has passed the handle, return both after GC's
        commits.

        If the target is an LSN, the call keeps the old history, because copies of collected commits may still be in
        this directory.
        """
        handle = self._handles.find(name)
        if handle is None and self._log.has_topic(name):
            return None, NO_HISTORY
        published = self._states.history(name)
        is_passed = published.is_passed and not isinstance(wanted, timeline.Lsn)
        moved = self._states.behind_gc(handle) if handle is not None and is_passed else None
        return (handle, published) if moved is None else (moved, self._volumes.history(moved.vid, moved.lsn))

    def _pinned(self, name: str, pin: str) -> ForkPoint:
        """Return the point of a lease on a volume of the topic. Raises `NoSuchPin`, and `PinLost` if it has ended."""
        held = self._pins.find(pin)
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
