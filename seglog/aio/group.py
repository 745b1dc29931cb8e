"""The commit of merged appends as one group, in the committing thread."""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from seglog.aio.merged import Outcome, Part
from seglog.engine.engine import Engine
from seglog.errors import TopicFull
from seglog.maintenance.checkpoint import wait_for_room
from seglog.writing.append import PendingAppend, begin_append, finish_append

__all__ = ["Outcomes", "commit"]

Outcomes: TypeAlias = list[tuple[Part, Outcome]]


def commit(engine: Engine, group: list[Part]) -> Outcomes:
    """Commit all parts as one group of the committer, and return the outcome of each. Raise nothing.

    If the topic of a part is being deleted, that part and all behind it are another group, after the deletion.
    The call replaces a part in `group` that it splits.
    """
    outcomes: Outcomes = []
    waiting = deque(group)
    try:
        for part in group:
            part.drop_cancelled()
        wait_for_room(engine)
        while waiting:
            begun = _begin(engine, waiting, group)
            outcomes += [(part, _finish(engine, one) if isinstance(one, tuple) else one) for part, one in begun]
            if waiting:
                _flush(engine, waiting, outcomes)
    except BaseException as error:
        failure = _abandoned(engine, error)
        return [(part, failure) for part in group]
    return outcomes


def _abandoned(engine: Engine, error: BaseException) -> BaseException:
    """Abandon what was begun before an error that no append raises. Return the error for the tasks."""
    try:
        engine.committer.abandon()
    except BaseException as worse:
        return worse
    return error


def _begin(engine: Engine, waiting: deque[Part], group: list[Part]) -> list[tuple[Part, PendingAppend | Outcome]]:
    """Begin the appends of the parts, in order, up to the first part whose topic is being deleted."""
    begun: list[tuple[Part, PendingAppend | Outcome]] = []
    while waiting:
        part = waiting[0]
        outcome = _begin_one(engine, part, is_alone=not begun and len(waiting) == 1)
        if outcome is None:
            return begun
        waiting.popleft()
        if isinstance(outcome, TopicFull) and len(part.acks) > 1:
            split = part.split()  # there may be room for some of the appends
            position = group.index(part)
            group[position : position + 1] = split
            waiting.extendleft(reversed(split))
        else:
            begun.append((part, outcome))
    return begun


def _begin_one(engine: Engine, part: Part, *, is_alone: bool) -> PendingAppend | Outcome | None:
    if not part.acks:
        return 0
    topic, options = part.kind
    try:
        return begin_append(engine, topic, part.values, part.records, options, is_alone=is_alone)
    except Exception as error:
        return error


def _flush(engine: Engine, waiting: deque[Part], outcomes: Outcomes) -> None:
    """Make the deletion durable that the parts wait for. If that fails, the failure is their outcome."""
    try:
        engine.committer.flush()
    except Exception as error:
        outcomes += [(part, error) for part in waiting]
        waiting.clear()


def _finish(engine: Engine, begun: PendingAppend) -> Outcome:
    try:
        return finish_append(engine, begun).start
    except Exception as error:
        return error
