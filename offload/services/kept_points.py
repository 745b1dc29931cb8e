"""Points of a topic's history that the remote has before a branch or a tag names them."""

from __future__ import annotations

from catalog import ForkPoint, timeline
from offload.context import ArchiveContext
from offload.services.offloading import Offloading
from offload.services.remote_states import RemoteStates
from offload.services.targets import Targets

__all__ = ["KeptPoints"]


class KeptPoints:
    def __init__(self, context: ArchiveContext, states: RemoteStates, targets: Targets, offloading: Offloading) -> None:
        self._locks = context.locks
        self._states = states
        self._targets = targets
        self._offloading = offloading

    def keep(self, name: str, target: str) -> ForkPoint:
        """Return the same point as `HistoryService.point`. If the remote lacks records of the point, first seal and
        offload once.

        The call ignores records and deletes that arrive later, because otherwise it might never end. Raises what
        `Archive.offload` raises.
        """
        wanted = self._targets.parse(target)
        with self._locks.of(name):
            pending, point = self._targets.look_up(name, wanted, offloads=True)
            if pending is None or not pending.has(point):
                return point
            pending.topic.seal()
            self._offloading.run(name)
            if isinstance(wanted, timeline.Time) and self._states.newest(name).max_ts_ms <= wanted.ms:
                wanted = timeline.Head()
            return self._targets.resolve(name, wanted)
