"""Which commit, and which record in it, a point in time means. Pure: a target and a history in, a fork point out.

A history is the commits that a branch stands on, newest first, its parents' up to the fork points included.
A point in it is a prefix of the history (the topic's own order, C3 in `catalog.commit`), cut at a seq:

    seq:N     right after record N was acked: every record up to N, and every delete that happened before N + 1.
              After a truncation, the first record that had the seq is meant.
    a time    inclusive: every record with ts <= time, and every delete that happened by then
    lsn:N     the whole commit N: the branch's own, else its parent's before the fork, and so on
    head      the newest commit; head~N the one N before it, across fork points

T1  Deletes, evictions and truncations after the point take no part: the prefix ends before the first of them.
T2  One that happened before the point takes part even if it was committed after an offload of later records; those
    records are then cut off.
T3  The point's lsn is that of the last commit that takes part. Its seq is the cut, None if the commit is whole.
T4  A target outside the history is `OutOfWindow`, with the window. Nothing nearest is guessed.

The time of a record inside a segment is asked from the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import assert_never

from catalog.commit import Commit, CommitKind, ForkPoint, SegmentRef
from catalog.errors import InvalidTarget, OutOfWindow
from catalog.gid import Vid

__all__ = ["Head", "LastSeqAt", "Lsn", "PastCommit", "Seq", "Target", "Time", "parse_target", "resolve", "window"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERED = re.compile(r"(seq:|lsn:|head~)([0-9]{1,20})", re.ASCII)
_U64_END = 2**64
_TAKES_AWAY = frozenset({CommitKind.DELETE, CommitKind.EVICT, CommitKind.TRUNCATE})

LastSeqAt = Callable[[Vid, SegmentRef, int], int]
"""`(vid, segment, ts_ms)`: the seq of the last record of `segment`, in volume `vid`, whose ts is at most `ts_ms`.

Asked only when the segment has records on both sides of that time.
"""


@dataclass(frozen=True, slots=True)
class Seq:
    seq: int

    def __str__(self) -> str:
        return f"seq:{self.seq}"


@dataclass(frozen=True, slots=True)
class Lsn:
    lsn: int

    def __str__(self) -> str:
        return f"lsn:{self.lsn}"


@dataclass(frozen=True, slots=True)
class Head:
    back: int = 0

    def __str__(self) -> str:
        return f"head~{self.back}" if self.back else "head"


@dataclass(frozen=True, slots=True)
class Time:
    ms: int

    def __str__(self) -> str:
        return _date(self.ms)


Target = Seq | Lsn | Head | Time


@dataclass(frozen=True, slots=True)
class PastCommit:
    """A commit of a history. `cut_seq`: a fork that came later took its records up to that one only."""

    commit: Commit
    hash: bytes
    cut_seq: int | None = None

    def segments(self) -> Iterator[tuple[SegmentRef, int]]:
        """The segments it adds, each with the last seq that is part of the history."""
        for ref in self.commit.segments:
            last = ref.last_seq if self.cut_seq is None else min(ref.last_seq, self.cut_seq)
            if last >= ref.first_seq:
                yield ref, last

    def point(self, seq: int | None = None) -> ForkPoint:
        """This commit as the last of a prefix, cut at `seq`."""
        cuts = [cut for cut in (seq, self.cut_seq) if cut is not None and cut < self.commit.bounds.head_seq]
        return ForkPoint(self.commit.vid, self.commit.lsn, min(cuts, default=None))


def parse_target(text: str) -> Target:
    """`seq:N`, `lsn:N`, `head`, `head~N`, or an ISO 8601 time with its zone. Raises `InvalidTarget`."""
    if text == "head":
        return Head()
    if numbered := _NUMBERED.fullmatch(text):
        kind, number = numbered[1], int(numbered[2])
        if number >= _U64_END:
            raise InvalidTarget(text, "the number is too large")
        if kind == "head~":
            return Head(number)
        if number == 0:
            raise InvalidTarget(text, "these count from 1")
        return Seq(number) if kind == "seq:" else Lsn(number)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidTarget(text) from None
    if time.tzinfo is None:
        raise InvalidTarget(text, "a time needs its zone, Z or an offset such as +02:00")
    return Time((time - _EPOCH) // timedelta(milliseconds=1))


def resolve(target: Target, history: Sequence[PastCommit], last_seq_at: LastSeqAt) -> ForkPoint:
    """The fork point that `target` means in `history` (newest first). Raises `OutOfWindow`."""
    match target:
        case Head(back):
            found = history[back].point() if back < len(history) else None
        case Lsn(lsn):
            found = next((past.point() for past in history if past.commit.lsn == lsn), None)
        case Seq(seq):
            found = _after_seq(seq, history)
        case Time(ms):
            found = _at_time(ms, history, last_seq_at)
        case _:
            assert_never(target)
    if found is None:
        raise OutOfWindow(str(target), window(history))
    return found


def window(history: Sequence[PastCommit]) -> str:
    """`DATE (lsn a) to DATE (lsn b), seq c to d`: what can be restored from `history` (newest first)."""
    if not history:
        return "nothing, because nothing is committed yet"
    oldest, newest = history[-1], history[0]
    times = [ms for past in history for ms in _times(past)]
    seqs = [seq for past in history for ref, last in past.segments() for seq in (ref.first_seq, last)]
    dates = f"{_date(min(times))} (lsn {oldest.commit.lsn}) to {_date(max(times))} (lsn {newest.commit.lsn})"
    return f"{dates}, seq {min(seqs)} to {max(seqs)}" if seqs else dates


def _after_seq(seq: int, history: Sequence[PastCommit]) -> ForkPoint | None:
    last_taken: PastCommit | None = None
    covered = False
    for past in reversed(history):
        if past.commit.kind in _TAKES_AWAY:
            if past.commit.at_seq >= seq:
                break
            last_taken = past
        elif past.commit.kind is CommitKind.OFFLOAD:
            for ref, last in past.segments():
                if ref.first_seq <= seq:
                    last_taken = past
                    covered = covered or seq <= last
    return last_taken.point(seq) if last_taken is not None and covered else None


def _at_time(ms: int, history: Sequence[PastCommit], last_seq_at: LastSeqAt) -> ForkPoint | None:
    times = [time for past in history for time in _times(past)]
    if not times or not min(times) <= ms <= max(times):
        return None
    last_taken: PastCommit | None = None
    seq = 0
    for past in reversed(history):
        commit = past.commit
        if commit.kind in _TAKES_AWAY:
            if commit.at_ts_ms > ms:
                break
            last_taken = past
            if commit.truncate_from is not None:
                seq = min(seq, commit.truncate_from - 1)
        elif commit.kind is CommitKind.OFFLOAD:
            for ref, last in past.segments():
                if ref.min_ts_ms <= ms:
                    last_taken = past
                    seq = last if ref.max_ts_ms <= ms else min(last, last_seq_at(commit.vid, ref, ms))
    return None if last_taken is None else last_taken.point(seq)


def _times(past: PastCommit) -> Iterator[int]:
    """Times up to which `past` tells what the topic was: those of its records, and of what took some away.

    A segment that a fork cut counts whole: what the fork appended itself is later than all of it.
    """
    for ref, _ in past.segments():
        yield ref.min_ts_ms
        yield ref.max_ts_ms
    if past.commit.kind in _TAKES_AWAY:
        yield past.commit.at_ts_ms


def _date(ms: int) -> str:
    try:
        time = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms after 1970"
    precision = "milliseconds" if ms % 1000 else "seconds"
    return time.replace(tzinfo=None).isoformat(timespec=precision) + "Z"
