"""Points in time: the commit, and the record in it, that a target means.

The module is pure: a target and a history in, a fork point out.

A history is the commits that a branch stands on, its parents' up to the fork points included (`catalog.history`).
A point in it is a prefix of the history (the topic's own order, COMMIT-3), cut at a seq:

    seq:N     right after record N was acked: every record up to N, and every delete that happened before N + 1.
              After a truncation, the first record that had the seq is meant.
    a time    inclusive: every record with ts <= time, and every delete that happened by then.
              ISO 8601 with its zone, or how long ago: `15 minutes ago`
    lsn:N     the whole commit N: the branch's own, else its parent's before the fork, and so on
    lsn:N@V   the same of the volume V, whatever commits the branch gets
    head      the newest commit; head~N the one N before it, across fork points. Records that
              the log has not offloaded count as one commit
    tag:NAME  the point that has this name; the caller looks it up
    pin:NAME  the point that this lease holds; the caller looks it up

LINE-1  Deletes, evictions, truncations and restores after the point take no part: the prefix ends before the first.
LINE-2  A delete, eviction, truncation or restore before the point takes part. This holds even if an offload of later
    records was committed first. Those records are then cut off.
LINE-3  The point's lsn is the LSN of the last commit that takes part. Its seq is the cut, None if the commit is whole.
LINE-4  A target outside the history is `OutOfWindow`, with the window. The nearest point is never guessed.
LINE-5  If GC collected the beginning of a history, the history begins with a state. Every record and time up to that
    state lies outside, because earlier deletes and truncations are unknown.
LINE-6  A state from before a truncation of a parent is whole, also on a branch that begins in the middle of a later
    commit (HIST-4). `seq:N` sees the past of such a branch up to its beginning only.
LINE-7  The resolver reads only commits between the checkpoint before the point and the second offload after the point
    (COMMIT-4), whatever the length of the history.

The caller provides the time of a record inside a segment (`LastSeqAt`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import assert_never

from catalog.errors import InvalidKey, InvalidTarget, OutOfWindow
from catalog.format.commit import CommitKind, ForkPoint, SegmentRef
from catalog.format.ids import Vid
from catalog.format.keys import check_name
from catalog.history import History, PastCommit
from seglog.base.arguments import checked
from seglog.base.dataclasses import dataclass
from seglog.base.lazy import pattern

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERED = pattern(r"(seq:|lsn:|head~)([0-9]{1,20})(?:@(.*))?", re.ASCII)
_AGO = pattern(r"([0-9]{1,9}) ?(s|m|h|d|w|seconds?|minutes?|hours?|days?|weeks?) ago", re.ASCII)
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_U64_END = 2**64
_ALTERS = frozenset({CommitKind.DELETE, CommitKind.EVICT, CommitKind.TRUNCATE, CommitKind.RESTORE})

LastSeqAt = Callable[[Vid, SegmentRef, int], int]
"""`(vid, segment, ts_ms)`: the seq of the last record of `segment`, in volume `vid`, whose ts is at most `ts_ms`.

Called only if the segment has records on both sides of that time.
"""


def no_time_lookup(vid: Vid, segment: SegmentRef, ts_ms: int) -> int:
    """Raise an error. This is the `LastSeqAt` for targets that are no times."""
    raise AssertionError(f"a target that is no time needs no record's time ({vid}, {segment}, {ts_ms})")


@dataclass(frozen=True, slots=True)
class Seq:
    seq: int

    def __str__(self) -> str:
        return f"seq:{self.seq}"


@dataclass(frozen=True, slots=True)
class Lsn:
    """A commit of the volume `vid`, or without it of the newest volume that has the LSN."""

    lsn: int
    vid: Vid | None = None

    def __str__(self) -> str:
        return f"lsn:{self.lsn}" if self.vid is None else f"lsn:{self.lsn}@{self.vid}"


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


@dataclass(frozen=True, slots=True)
class Named:
    """A tag of the topic."""

    name: str

    def __str__(self) -> str:
        return f"tag:{self.name}"


@dataclass(frozen=True, slots=True)
class Pinned:
    """A lease on a point of the topic."""

    name: str

    def __str__(self) -> str:
        return f"pin:{self.name}"


Target = Seq | Lsn | Head | Time | Named | Pinned


@checked
def parse_target(text: str, *, now_ms: int) -> Target:
    """Parse `seq:N`, `lsn:N`, `lsn:N@VOLUME`, `head`, `head~N`, `tag:NAME`, `pin:NAME`, `15 minutes ago`, or an ISO
    8601 time with its zone.

    Raise `InvalidTarget`, and `InvalidName` for a text that cannot be a tag.
    """
    if text == "head":
        return Head()
    if text.startswith("tag:"):
        return Named(check_name("tag", text.removeprefix("tag:")))
    if text.startswith("pin:"):
        return Pinned(text.removeprefix("pin:"))
    if numbered := _NUMBERED.fullmatch(text):
        kind, number = numbered[1], int(numbered[2])
        if numbered[3] is not None and kind != "lsn:":
            raise InvalidTarget(text)
        if number >= _U64_END:
            raise InvalidTarget(text, "the number is too large")
        if kind == "head~":
            return Head(number)
        if number == 0:
            raise InvalidTarget(text, "these count from 1")
        return Seq(number) if kind == "seq:" else Lsn(number, _volume(text, numbered[3]))
    if ago := _AGO.fullmatch(text):
        return Time(now_ms - int(ago[1]) * _UNIT_MS[ago[2][0]])
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidTarget(text) from None
    if time.tzinfo is None:
        raise InvalidTarget(text, "a time needs its zone, Z or an offset such as +02:00")
    return Time((time - _EPOCH) // timedelta(milliseconds=1))


def _volume(text: str, volume: str | None) -> Vid | None:
    try:
        return None if volume is None else Vid.parse(volume)
    except InvalidKey:
        raise InvalidTarget(text, f"{volume} is no volume") from None


@checked
def resolve(target: Target, history: History, last_seq_at: LastSeqAt) -> ForkPoint:
    """Return the fork point that `target` means in `history`. Raise `OutOfWindow` if there is none."""
    point = _found(target, history, last_seq_at)
    if point is None:
        raise OutOfWindow(str(target), window(history))
    full_history = history.whole_at(point.vid, point.lsn)
    return point if full_history is None else _found(target, full_history, last_seq_at) or point


def _found(target: Target, history: History, last_seq_at: LastSeqAt) -> ForkPoint | None:
    match target:
        case Head(back):
            past = history.nth(back)
            return None if past is None else past.point()
        case Lsn(lsn, vid):
            past = history.at_lsn(lsn) if vid is None else history.at(vid, lsn)
            return None if past is None else past.point()
        case Seq(seq):
            return _after_seq(seq, history)
        case Time(ms):
            return _at_time(ms, history, last_seq_at)
        case Named() | Pinned():
            raise AssertionError(f"{target} is not found by looking at the past")
        case _:
            assert_never(target)


@dataclass(frozen=True, slots=True)
class Span:
    """The range that a history covers.

    Times in ms, None if it has no records; LSNs of its oldest and newest commit.
    """

    first_ms: int | None
    last_ms: int | None
    first_lsn: int
    last_lsn: int
    seqs: tuple[int, int] | None


@checked
def window(history: History) -> str:
    """Return the range that can be restored from `history`: `DATE (lsn a) to DATE (lsn b), seq c to d`."""
    restorable = span(history)
    return "nothing, because nothing is committed yet" if restorable is None else span_text(restorable)


def span_text(span: Span) -> str:
    """Return the text of `window` for a span. Omit LSNs if `last_lsn` is 0."""
    if span.first_ms is None or span.last_ms is None:
        return f"lsn {span.first_lsn} to lsn {span.last_lsn}"
    first, last = (f" (lsn {lsn})" if span.last_lsn else "" for lsn in (span.first_lsn, span.last_lsn))
    dates = f"{_date(span.first_ms)}{first} to {_date(span.last_ms)}{last}"
    return f"{dates}, seq {span.seqs[0]} to {span.seqs[1]}" if span.seqs else dates


def span(history: History) -> Span | None:
    """Return the range of `history`; None if it has no commits.

    Read both ends, as far as the first commit with records. Beyond that commit nothing lies further out (COMMIT-4).
    """
    oldest, newest = _up_to_records(history.oldest_first()), _up_to_records(iter(history))
    if not oldest:
        return None
    first_times = [ms for past in oldest for ms in _times(past)]
    first_seqs = [ref.first_seq for past in oldest for ref, _ in _appended(past)]
    if history.is_cut:
        mark = history.first_mark
        first_times = [] if mark is None else [mark.max_ts_ms]
        first_seqs = [] if mark is None else [mark.max_seq + 1]
    last_times = [ms for past in newest for ms in _times(past)] + first_times
    last_seq = max((last for past in newest for _, last in _appended(past)), default=0)
    first_seq = min(first_seqs, default=0)
    return Span(
        min(first_times, default=None),
        max(last_times, default=None),
        oldest[0].commit.lsn,
        newest[0].commit.lsn,
        (first_seq, last_seq) if 0 < first_seq <= last_seq else None,
    )


def _up_to_records(commits: Iterable[PastCommit]) -> list[PastCommit]:
    commits_read: list[PastCommit] = []
    for past in commits:
        commits_read.append(past)
        if past.commit.kind is CommitKind.OFFLOAD and any(past.segments()):
            break
    return commits_read


def _after_seq(seq: int, history: History) -> ForkPoint | None:
    if history.is_cut:
        mark = history.first_mark
        if mark is None or seq <= mark.max_seq:
            return None
    last_taken: PastCommit | None = None
    covered = is_beyond = False
    for past in history.oldest_first(lambda mark: mark.max_seq < seq):
        if past.commit.kind in _ALTERS:
            if past.at_seq >= seq:
                break
            last_taken = past
        elif past.commit.kind is CommitKind.OFFLOAD:
            if is_beyond:
                break
            for ref, last in past.segments():
                is_beyond = is_beyond or last > seq
                if ref.first_seq <= seq:
                    last_taken = past
                    covered = covered or seq <= last
    return last_taken.point(seq) if last_taken is not None and covered else None


def _at_time(ms: int, history: History, last_seq_at: LastSeqAt) -> ForkPoint | None:
    dates = span(history)
    if dates is None or dates.first_ms is None or dates.last_ms is None or not dates.first_ms <= ms <= dates.last_ms:
        return None
    last_taken: PastCommit | None = None
    seq = 0
    is_beyond = False
    for past in history.oldest_first(lambda mark: mark.max_ts_ms <= ms):
        commit = past.commit
        if last_taken is None and commit.at_ts_ms <= ms and not any(_appended(past)):
            # The first commit that is read is a passed checkpoint. All commits before it take part, too.
            seq, last_taken = past.head_seq, past
        elif commit.kind in _ALTERS:
            if commit.at_ts_ms > ms:
                break
            last_taken = past
            if commit.truncate_from is not None:
                seq = min(seq, commit.truncate_from - 1)
            elif commit.kind is CommitKind.RESTORE:
                seq = past.head_seq
        elif commit.kind is CommitKind.OFFLOAD:
            if is_beyond:
                break
            for ref, last in past.segments():
                if ref.min_ts_ms <= ms:
                    last_taken = past
                    seq = last if ref.max_ts_ms <= ms else min(last, last_seq_at(commit.vid, ref, ms))
                is_beyond = is_beyond or seq < last
    return None if last_taken is None else last_taken.point(seq)


def _appended(past: PastCommit) -> Iterator[tuple[SegmentRef, int]]:
    """Yield the segments whose records are new with this commit. A segment that a merge adds is not."""
    return past.segments() if past.commit.kind is CommitKind.OFFLOAD else iter(())


def _times(past: PastCommit) -> Iterator[int]:
    """Yield times up to which `past` tells the topic's state: of its records, and of operations on them.

    If a fork cut a segment, the segment counts whole, because all records that the fork appended are later.
    """
    for ref, _ in _appended(past):
        yield ref.min_ts_ms
        yield ref.max_ts_ms
    if past.commit.kind in _ALTERS:
        yield past.commit.at_ts_ms


def _date(ms: int) -> str:
    try:
        time = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms after 1970"
    precision = "milliseconds" if ms % 1000 else "seconds"
    return time.replace(tzinfo=None).isoformat(timespec=precision) + "Z"
