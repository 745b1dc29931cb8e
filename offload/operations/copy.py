"""A new topic from a state of another one, or from some of its records: `seglog copy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from offload.errors import Misuse
from offload.moment import Moment
from offload.operations.command import About, Command, Directory, Reason, TopicName
from offload.operations.matching import Fixed, Match, Pattern, Since, Tag, Until, conditions
from offload.operations.printing import counted, format_bytes, lines
from seglog import Record
from seglog.base.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicCopied:
    """A new topic. `moved_bytes` is 0 if it shares the objects of its source. Without records, `last_seq` is 0."""

    topic: str
    volume: str
    records: int
    last_seq: int
    last_time: Moment | None
    moved_bytes: int


def copy(
    directory: Directory,
    topic: TopicName,
    new: Annotated[str, About("The new topic.", metavar="NEW", names="plain topic")],
    at: Annotated[str, About("Which state: seq:N, lsn:N, head, head~N, tag:NAME, or a time.", names="target")] = "head",
    start: Annotated[int | None, About("Only records from this seq on.", "--from", least=1)] = None,
    end: Annotated[int | None, About("Only records up to this seq.", "--to", least=1)] = None,
    since: Since = None,
    until: Until = None,
    tag: Tag = None,
    grep: Pattern = None,
    fixed: Fixed = False,
    into: Annotated[
        str | None, About("Another remote, such as s3://bucket/prefix or file:///path.", metavar="URL")
    ] = None,
    message: Reason = "",
) -> TopicCopied:
    """Make a new topic of a state of another one. Records keep their seqs, times, tags and nodes.

    A copy of all records within the remote moves no bytes: it costs four small objects, whatever the size of the topic.
    A copy of some records, or into another remote, moves them. The source does not change. The next append to the new
    topic continues its seqs.
    Examples: seglog copy orders orders-before --at head~1; seglog copy orders orders-eu --tag "eu*";
    seglog copy orders orders --into s3://other-bucket/archive
    """
    if into is not None and directory.host.serves_others:
        hint = "stop the daemon and repeat the command, or run it in another data directory with the same remote"
        raise Misuse("a daemon copies within its own remote only", hint=hint)
    match = conditions(directory, since, until, tag, grep, fixed=fixed)
    with directory.counting(f"copy {topic}"):
        copied = directory.archive.copy(topic, new, at=at, where=_where(start, end, match), into=into, message=message)
    last_time = Moment(copied.last_ts_ms) if copied.last_seq else None
    return TopicCopied(new, str(copied.vid), copied.records, copied.last_seq, last_time, copied.moved_bytes)


def _where(start: int | None, end: int | None, match: Match) -> Callable[[Record], bool] | None:
    """Return the test of a record; None if there is no condition."""
    if start is None and end is None and match == Match():
        return None
    first, last = start or 0, float("inf") if end is None else end
    until_ms = float("inf") if match.until_ms is None else match.until_ms
    return lambda record: first <= record.seq <= last and record.ts_ms <= until_ms and match.fits(record)


def copied_text(copied: TopicCopied) -> str:
    last = f", the last one seq {copied.last_seq} of {copied.last_time}" if copied.last_seq else ""
    how = f"{format_bytes(copied.moved_bytes)} copied" if copied.moved_bytes else "no bytes copied"
    return f"{copied.topic} holds {counted(copied.records)}{last}; {how}"


COPY = Command("copy", copy, lines(copied_text), is_slow=True, section="time travel")
