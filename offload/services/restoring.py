"""Restore: a branch with a past state of a topic, to the exact record. Tags and copies take their states here, too.

    step                                                              state after a crash in this step
    1 The call looks the state up. If the remote lacks records of     the same topic, further in the remote
      it, it seals the topic and offloads once.
    2 It counts the records of the state, so that damage is found     the same
      while there is nothing to undo.
    3 It creates the branch, whose name comes last (catalog.refs).    the same, or the branch, whole

It overwrites nothing, and copies no data.
"""

from __future__ import annotations

from collections.abc import Callable

from catalog import ForkPoint, timeline
from catalog.format import keys
from offload.handles import split_name
from offload.services.archive_parts import ArchiveParts
from offload.services.results import Restored


def restore(parts: ArchiveParts, topic: str, to: str, name: str, message: str) -> Restored:
    """Create the branch `name` of `topic` with its state at `to`. Raises as `Archive.restore` does."""
    context = parts.context
    context.log.check_writable()
    keys.check_name("branch", name)
    base, _ = split_name(topic)
    point = offloaded_point(parts, topic, to, lambda: context.branches.check_free(base, name))
    count, last = parts.states.count(context.volumes.snapshot(point.vid, point.lsn, point.seq))
    vid = context.branches.create(base, name, point, now_ms=context.clock.now_ms(), message=message)
    return Restored(vid, count, last.seq if last else 0, last.ts_ms if last else 0)


def offloaded_point(parts: ArchiveParts, name: str, target: str, check: Callable[[], None]) -> ForkPoint:
    """Return the same point as `HistoryService.point`. If the remote lacks records of the point, first seal and
    offload once.

    Before that, it calls `check`, so that a caller can refuse what cannot be. The call ignores records and deletes
    that arrive later, because otherwise it might never end. Raises what `Archive.offload` and `check` raise.
    """
    parsed = parts.states.parse(target)
    with parts.context.locks.of(name):
        pending, point = parts.states.look_up(name, parsed, offloads=True)
        if pending is None or not (pending.has(point) or pending.must_offload(parsed)):
            return point
        check()
        pending.topic.seal()
        parts.writer.offload(name)
        if isinstance(parsed, timeline.Time) and parts.states.newest(name).max_ts_ms <= parsed.ms:
            parsed = timeline.Head()
        return parts.states.resolve(name, parsed)
