"""The command `seglog read`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from offload.cli.output import output
from offload.cli.session import Session, TopicName, say, session_of, with_branch
from seglog import LogClosed, Topic
from seglog.files.clock import SystemClock
from seglog.values.record import Gap, Record

if TYPE_CHECKING:
    from offload.archive import Archive

__all__ = ["read"]

_WRITE_RECORDS = 1024
_LISTENER_CHECK_S = 1.0
_REPLICA_LOOK_S = 1.0


def _time(text: str | None) -> int | None:
    from catalog.errors import InvalidTarget
    from catalog.timeline import Time, parse_target

    if text is None:
        return None
    target = parse_target(text, now_ms=SystemClock().now_ms())
    if not isinstance(target, Time):
        raise InvalidTarget(text, "a time is needed here")
    return max(0, target.ms)  # no record is older than 1970


def read(
    context: typer.Context,
    topic: TopicName,
    start: Annotated[int | None, typer.Option("--from", help="The first seq.", show_default=False)] = None,
    end: Annotated[int | None, typer.Option("--to", help="The last seq.", show_default=False)] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only records of this time or later, such as 2026-11-21T09:30:00Z.", show_default=False),
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only records of this time or earlier.", show_default=False)] = None,
    tag: Annotated[str | None, typer.Option(help="Only records with this tag.", show_default=False)] = None,
    branch: Annotated[
        str | None, typer.Option(help="The branch; the same as TOPIC@BRANCH.", show_default=False)
    ] = None,
    at: Annotated[
        str | None, typer.Option(help="As it was then: seq:N, lsn:N, head, head~N, or a time.", show_default=False)
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many records.", show_default=False)] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Then wait for more, and write each record as it comes.")
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(min=0, help="With --follow: end after so many seconds without one.", show_default=False),
    ] = None,
) -> None:
    """Write records to standard output, a line each, byte for byte as they were appended.

    Without --from it begins with the first record there is. Where retention took records of the range, a line on
    standard error says which; with --json an object with gap_from and gap_to does.
    With --json: one object a line, with seq, ts_ms, tag, node, and value (value_base64 if it is not UTF-8).
    Examples: seglog read orders --from 100 --limit 10; seglog read orders --at head~1
    """
    from offload.errors import NoRemote

    if follow and (end is not None or until is not None or at is not None):
        raise typer.BadParameter("--follow has no end: leave out --to, --until and --at")
    session = session_of(context)
    name = with_branch(topic, branch)
    since_ms, until_ms = _time(since), _time(until)

    def wanted(items: Iterator[Record | Gap]) -> Iterator[Record | Gap]:
        for item in items:
            if isinstance(item, Gap):
                yield item
                continue
            if until_ms is not None and item.ts_ms > until_ms:
                return
            if (since_ms is None or item.ts_ms >= since_ms) and (tag is None or item.tag == tag):
                yield item

    # --follow needs the log itself: a read-only view does not grow.
    with session.log_and_maybe_archive(read_only=not follow) as (log, archive):
        if archive is None and at is not None:
            raise NoRemote(log.path)
        found: Iterator[Record | Gap]
        if follow and archive is not None and archive.is_replica(name):
            found = _follow_replica(session, archive, name, start, wait)
        elif follow:
            found = _follow(session, log.get_topic(name), start, wait)
        elif archive is None or (at is None and log.has_topic(name)):
            found = log.get_topic(name).read(start, end, since_ms=since_ms, until_ms=until_ms, gaps=True)
        else:
            found = archive.read(name, start, end, at=at)
        items = _limited(wanted(found), limit)
        try:
            while group := list(islice(items, 1 if follow else _WRITE_RECORDS)):
                _write(session, name, group)
                if follow:
                    output().flush()
            output().flush()
        except BrokenPipeError:
            # The reader of the output has closed it, as `head` does in `seglog read t | head`. That is no error.
            output().abandon()


def _follow(session: Session, topic: Topic, start: int | None, wait_s: float | None) -> Iterator[Record | Gap]:
    """Yield records until the log closes, the daemon stops, or `wait_s` seconds pass without a record.

    The flush after each idle slice raises `BrokenPipeError` if the daemon runs the command and its client has gone.
    """
    idle_s = 0.0
    while not session.is_ending and (wait_s is None or idle_s < wait_s):
        slice_s = _LISTENER_CHECK_S if wait_s is None else min(_LISTENER_CHECK_S, wait_s - idle_s)
        try:
            for item in topic.follow(start, timeout_s=slice_s, gaps=True):
                start = (item.gap_to if isinstance(item, Gap) else item.seq) + 1
                idle_s = 0.0
                yield item
        except LogClosed:
            return
        idle_s += slice_s
        output().flush()


def _follow_replica(
    session: Session, archive: Archive, name: str, start: int | None, wait_s: float | None
) -> Iterator[Record | Gap]:
    """Yield the records of a replica, and then the new ones after each sync.

    It ends as `_follow` does, and also if this directory becomes the writer of `name`.
    """
    idle_s = 0.0
    while archive.is_replica(name):
        for record in archive.read(name, start):
            start, idle_s = record.seq + 1, 0.0
            yield record
        start = archive.snapshot(name).bounds.head_seq + 1
        output().flush()
        if session.is_ending or (wait_s is not None and idle_s >= wait_s):
            return
        time.sleep(_REPLICA_LOOK_S)
        idle_s += _REPLICA_LOOK_S
        archive.follow(name)


def _limited(items: Iterator[Record | Gap], limit: int | None) -> Iterator[Record | Gap]:
    """Yield items up to `limit` records. A gap does not count."""
    for item in items:
        yield item
        if limit is not None and isinstance(item, Record):
            limit -= 1
            if not limit:
                return


def _write(session: Session, name: str, items: list[Record | Gap]) -> None:
    from offload.commands.lines import to_json, to_line

    if session.as_json:
        output().text("".join(_gap_json(item) if isinstance(item, Gap) else to_json(item) + "\n" for item in items))
        return
    for item in items:
        if isinstance(item, Gap):
            say(f"{name}: seq {item.gap_from} to {item.gap_to} were evicted")
    output().data(b"".join(to_line(item) for item in items if isinstance(item, Record)))


def _gap_json(gap: Gap) -> str:
    return json.dumps({"gap_from": gap.gap_from, "gap_to": gap.gap_to}) + "\n"
