"""Offloads of a topic, also before a branch or a tag names a point of its history, and the release of hot copies."""

from __future__ import annotations

from collections.abc import Callable

from catalog import ForkPoint, timeline
from offload.context import ArchiveContext
from offload.replication.takeover import Writers
from offload.services.remote_states import RemoteStates
from offload.services.results import OffloadResult
from offload.services.targets import Targets
from offload.write.offloader import Offloader

__all__ = ["Offloading"]


class Offloading:
    def __init__(
        self,
        context: ArchiveContext,
        states: RemoteStates,
        targets: Targets,
        writers: Writers,
        offloader: Offloader,
    ) -> None:
        self._log = context.log
        self._handles = context.handles
        self._locks = context.locks
        self._states = states
        self._targets = targets
        self._writers = writers
        self._offloader = offloader

    def run(
        self,
        name: str,
        *,
        up_to: int | None = None,
        drop_hot: bool = False,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> OffloadResult:
        self._log.check_writable()
        topic = self._log.get_topic(name)
        with self._locks.of(name):
            self._writers.open(name)
            published = self._offloader.run(name, up_to=up_to, on_bytes=on_bytes)
            released = self._offloader.release(name, at_once=drop_hot)
        return OffloadResult(
            published=tuple(published),
            released_seq=released,
            offloaded_seq=self._handles.offloaded_seq(name),
            unsealed_records=topic.head_seq - topic.sealed_seq,
        )

    def release(self, name: str, *, at_once: bool = False) -> int:
        """Return the last released seq, or 0. A topic that this directory does not write is left alone."""
        with self._locks.of(name):
            handle = self._handles.find(name)
            is_writer = handle is not None and self._handles.is_writer(handle)
            return self._offloader.release(name, at_once=at_once) if is_writer else 0

    def keep_point(self, name: str, target: str, check: Callable[[], None] = lambda: None) -> ForkPoint:
        """Return the same point as `HistoryService.point`. If the remote lacks records of the point, first seal and
        offload once.

        Before that, it calls `check`, so that a caller can refuse what cannot be. The call ignores records and deletes
        that arrive later, because otherwise it might never end. Raises what `Archive.offload` and `check` raise.
        """
        wanted = self._targets.parse(target)
        with self._locks.of(name):
            pending, point = self._targets.look_up(name, wanted, offloads=True)
            if pending is None or not (pending.has(point) or pending.must_offload(wanted)):
                return point
            check()
            pending.topic.seal()
            self.run(name)
            if isinstance(wanted, timeline.Time) and self._states.newest(name).max_ts_ms <= wanted.ms:
                wanted = timeline.Head()
            return self._targets.resolve(name, wanted)
