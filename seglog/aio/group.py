"""The commit of merged appends as one group, in the committing thread."""

from __future__ import annotations

from typing import TypeAlias

from seglog.aio.merged import Outcome, Part
from seglog.engine.engine import Engine
from seglog.errors import TopicFull
from seglog.maintenance.checkpoint import wait_for_room
from seglog.writing.append import PendingAppend, begin_append, finish_append

__all__ = ["Outcomes", "commit"]

Outcomes: TypeAlias = dict[Part, Outcome]

# The parts whose appends are in the queue of the committer, or were refused there.
_Begun: TypeAlias = dict[Part, "PendingAppend | Outcome"]


def commit(engine: Engine, group: list[Part], outcomes: Outcomes) -> BaseException | None:
    """Commit all parts as one group of the committer, and put the outcome of each into `outcomes`. Raise nothing.

    If the topic of a part is being deleted, that part and all behind it are another group, after the deletion.
    A part that has no room as a whole is split. If an interrupt ends the call early, the committer completes what was
    begun. Only the parts that it does not reach get the interrupt, and the call returns it.
    """
    begun: _Begun = {}
    waiting = group[::-1]
    try:
        for part in group:
            part.drop_cancelled()
        wait_for_room(engine)
        while waiting:
            _begin(engine, waiting, begun)
            for part, one in begun.items():
                outcomes[part] = _finish(engine, one) if isinstance(one, tuple) else one
            begun = {}
            if waiting:
                _flush(engine, waiting, outcomes)
    except BaseException as error:
        failure = _abandoned(engine, error)
        for part, one in begun.items():
            outcomes.setdefault(part, _reached(one, failure))
        for part in waiting:
            outcomes.setdefault(part, failure)
        return failure
    return None


def _abandoned(engine: Engine, error: BaseException) -> BaseException:
    """Abandon what was begun before an error that no append raises. Return the error for the tasks."""
    try:
        engine.committer.abandon()
    except BaseException as worse:
        return worse
    return error


def _reached(begun: PendingAppend | Outcome, failure: BaseException) -> Outcome:
    """Return the outcome of an append that was abandoned. If it is not done yet, that is `failure`."""
    if not isinstance(begun, tuple):
        return begun
    _, _, entries, seqs, _ = begun
    if not all(entry.is_done for entry in entries):
        return failure
    return next((entry.error for entry in entries if entry.error is not None), seqs.start)


def _begin(engine: Engine, waiting: list[Part], begun: _Begun) -> None:
    """Begin the appends of the parts, the last one first, up to the first part whose topic is being deleted."""
    while waiting:
        part = waiting[-1]
        outcome = _begin_one(engine, part, is_alone=not begun and len(waiting) == 1)
        if outcome is None:
            return
        if isinstance(outcome, TopicFull) and len(part.acks) > 1:
            waiting[-1:] = part.split()[::-1]  # there may be room for some of the appends
        else:
            begun[part] = outcome
            part.is_repeated = isinstance(outcome, tuple) and outcome[4]
            del waiting[-1]


def _begin_one(engine: Engine, part: Part, *, is_alone: bool) -> PendingAppend | Outcome | None:
    if not part.acks:
        return 0
    topic, options = part.kind
    try:
        return begin_append(engine, topic, part.values, part.records, part.size_bytes, options, is_alone=is_alone)
    except Exception as error:
        return error


def _flush(engine: Engine, waiting: list[Part], outcomes: Outcomes) -> None:
    """Make the deletion durable that the parts wait for. If that fails, the failure is their outcome."""
    try:
        engine.committer.flush()
    except Exception as error:
        outcomes |= dict.fromkeys(waiting, error)
        waiting.clear()


def _finish(engine: Engine, begun: PendingAppend) -> Outcome:
    """Commit the append. If an interrupt comes before that, raise it: `commit` then abandons the entries."""
    try:
        return finish_append(engine, begun).start
    except Exception as error:
        if not all(entry.is_done for entry in begun[2]):
            raise
        return error
