"""The first bad record or commit between a good point and a bad one: `seglog bisect`. No record is copied.

    1  The states between both points are those after each commit. The search asks about the middle one, and so on.
    2  If the first bad commit only appended records, the same search goes over the states after each of its records.

A state that the judge skips says nothing. If skipped states lie right before the first bad one, the result names them
all.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Iterator
from itertools import chain
from typing import Protocol

from offload.errors import Misuse
from offload.operations.commits import CommitListed
from offload.operations.diff import RecordShown
from offload.operations.points import Resolved
from offload.operations.record_text import RecordBatch
from seglog import Record
from seglog.base.dataclasses import dataclass


class Verdict(enum.StrEnum):
    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class State:
    """A past state: the target `at`, up to the record `last_seq` if that is given. `read --at AT --to SEQ` reads it."""

    at: str
    last_seq: int | None = None

    def __str__(self) -> str:
        return self.at if self.last_seq is None else f"{self.at} up to seq {self.last_seq}"


@dataclass(frozen=True, slots=True)
class Tried:
    """A verdict about one state. About `steps_left` more follow."""

    at: str
    last_seq: int | None
    verdict: str
    steps_left: int


@dataclass(frozen=True, slots=True)
class FirstBad:
    """The result: `found` is record, commit or unsettled. `first_bad` and `last_good` are states.

    If skipped states lie between the good and the bad one, `found` is unsettled, and `skipped` names them.
    """

    topic: str
    found: str
    first_bad: str
    last_good: str
    commit: CommitListed | None
    record: RecordShown | None
    skipped: tuple[str, ...]


class Past(Protocol):
    """The port to the history of one topic."""

    def resolve(self, target: str) -> Resolved:
        """Return the point that a target means."""

    def commits(self) -> Iterator[CommitListed]:
        """Return the commits, newest first."""

    def records(self, state: State, first_seq: int | None = None) -> Iterator[RecordBatch]:
        """Return the records of a state, from `first_seq` on."""


_Judge = Callable[[State], Verdict]


@dataclass(frozen=True, slots=True)
class _After:
    """The state after a commit."""

    commit: CommitListed
    state: State


def bisect(topic: str, past: Past, judge: _Judge, good: str, bad: str) -> Iterator[Tried | FirstBad]:
    """Yield the verdicts, and at the end the result. Raises `Misuse` if the command contradicts an end."""
    start, end = past.resolve(good), past.resolve(bad)
    first_state, steps = _states(past, start, end)
    last_state = steps[-1].state
    for name, end_state, expected in (("--good", first_state, Verdict.GOOD), ("--bad", last_state, Verdict.BAD)):
        verdict = judge(end_state)
        yield Tried(end_state.at, end_state.last_seq, verdict, len(steps).bit_length())
        if verdict not in (expected, Verdict.SKIP):
            raise Misuse(f"{name}: the command says {verdict} of {end_state}, so there is nothing to find")
    low, high = yield from _search(len(steps), lambda step: steps[step - 1].state, judge)
    step, before = steps[high - 1], first_state if low == 0 else steps[low - 1].state
    state = step.state
    first_seq, last_seq = _new_seqs(step.commit, start, end)
    if high - low > 1 or first_seq > last_seq:
        skipped = tuple(str(after.state) for after in steps[low : high - 1])
        kind = "unsettled" if skipped else "commit"
        yield FirstBad(topic, kind, str(state), str(before), step.commit, None, skipped)
        return
    low, high = yield from _search(
        last_seq - first_seq + 1, lambda position: State(state.at, first_seq - 1 + position), judge
    )
    before = State(state.at, first_seq - 1 + low) if low else before
    state = State(state.at, first_seq - 1 + high)
    skipped = tuple(str(State(state.at, first_seq - 1 + position)) for position in range(low + 1, high))
    record = None if skipped else _record(past, state)
    kind = "unsettled" if skipped else "commit" if record is None else "record"
    yield FirstBad(topic, kind, str(state), str(before), step.commit, record, skipped)


def _states(past: Past, start: Resolved, end: Resolved) -> tuple[State, list[_After]]:
    """Return the state at `start`, and those after it up to `end`, oldest first. None has a record that `end` lacks."""
    steps: list[_After] = []
    for commit in past.commits():
        point = commit.volume, commit.lsn
        is_start = point == (start.volume, start.lsn)
        if steps or point == (end.volume, end.lsn):
            if is_start and start.seq is None:
                break
            steps.append(_After(commit, State(commit.target, end.seq)))
        if is_start:
            break
    else:
        raise Misuse(f"--good {start.target} and --bad {end.target} are no two points of this history")
    is_cut = start.seq is not None and point == (end.volume, end.lsn)
    if not steps or (is_cut and end.seq is not None and end.seq <= (start.seq or 0)):
        raise Misuse(f"--good {start.target} is not before --bad {end.target}")
    return State(commit.target, start.seq), steps[::-1]


def _new_seqs(commit: CommitListed, start: Resolved, end: Resolved) -> tuple[int, int]:
    """Return the first and the last seq that a commit added, or (1, 0) if it also did something else."""
    if (commit.volume, commit.lsn) == (start.volume, start.lsn):
        first, last = (start.seq or 0) + 1, commit.head_seq
    elif commit.commit_kind == "offload" and commit.truncate_from is None and commit.segments:
        first = min(segment.first_seq for segment in commit.segments)
        last = max(segment.last_seq for segment in commit.segments)
    else:
        return 1, 0
    return first, last if end.seq is None else min(last, end.seq)


def _search(count: int, state_of: Callable[[int], State], judge: _Judge) -> Generator[Tried, None, tuple[int, int]]:
    """Return the last good step and the first bad one. Step 0 is good, and step `count` is bad."""
    low, high = 0, count
    skipped: set[int] = set()
    while (step := _middle(low, high, skipped)) is not None:
        state = state_of(step)
        verdict = judge(state)
        match verdict:
            case Verdict.GOOD:
                low = step
            case Verdict.BAD:
                high = step
            case Verdict.SKIP:
                skipped.add(step)
        yield Tried(state.at, state.last_seq, verdict, (high - low - 1).bit_length())
    return low, high


def _middle(low: int, high: int, skipped: set[int]) -> int | None:
    """Return the step nearest to the middle that was not skipped, or None."""
    middle = (low + high) // 2
    for distance in range(high - low):
        for step in (middle - distance, middle + distance):
            if low < step < high and step not in skipped:
                return step
    return None


def _record(past: Past, state: State) -> RecordShown | None:
    """Return the last record that the state got, or None if a delete has taken it."""
    batches = past.records(state, state.last_seq)
    for record in chain.from_iterable(batch.items for batch in batches):
        if isinstance(record, Record):
            return RecordShown.of(record)
    return None
