"""The commit of merged appends as one group, in the committing thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from seglog.aio.merged import Outcome, Part
from seglog.engine.engine import Engine
from seglog.errors import TopicFull
from seglog.maintenance.checkpoint import wait_for_room
from seglog.writing.append import PendingAppend, begin_append, finish_append

__all__ = ["commit"]


def commit(engine: Engine, group: Sequence[Part]) -> list[tuple[Part, Outcome]]:
    """Commit all parts as one group of the committer, and return the outcome of each.

    If the topic of a part is being deleted, that part and all behind it are another group, after the deletion.
    """
    outcomes: list[tuple[Part, Outcome]] = []
    waiting = deque(group)
    try:
        wait_for_room(engine)
        while waiting:
            begun = _begin(engine, waiting)
            outcomes += [(part, _finish(engine, one) if isinstance(one, tuple) else one) for part, one in begun]
            if waiting:
                _flush(engine, waiting, outcomes)
    except BaseException as error:
        engine.committer.abandon()
        return [(part, error) for part in group]
    return outcomes


def _begin(engine: Engine, waiting: deque[Part]) -> list[tuple[Part, PendingAppend | Outcome]]:
    """Begin the appends of the parts, in order, up to the first part whose topic is being deleted."""
    begun: list[tuple[Part, PendingAppend | Outcome]] = []
    while waiting:
        part = waiting[0]
        outcome = _begin_one(engine, part)
        if outcome is None:
            return begun
        waiting.popleft()
        if isinstance(outcome, TopicFull) and len(part.acks) > 1:
            waiting.extendleft(reversed(part.split()))  # there may be room for some of the appends
        else:
            begun.append((part, outcome))
    return begun


def _begin_one(engine: Engine, part: Part) -> PendingAppend | Outcome | None:
    if not part.values:
        return range(0)
    topic, options = part.kind
    try:
        return begin_append(engine, topic, part.values, len(part.values), options)
    except Exception as error:
        return error


def _flush(engine: Engine, waiting: deque[Part], outcomes: list[tuple[Part, Outcome]]) -> None:
    """Make the deletion durable that the parts wait for. If that fails, the failure is their outcome."""
    try:
        engine.committer.flush()
    except Exception as error:
        outcomes += [(part, error) for part in waiting]
        waiting.clear()


def _finish(engine: Engine, begun: PendingAppend) -> Outcome:
    try:
        return finish_append(engine, begun)
    except Exception as error:
        return error
