"""`seglog read`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import typer

from offload.cli.session import TopicName, session_of, with_branch
from seglog.record import Record

__all__ = ["read"]

_WRITE_RECORDS = 1024


def _time(text: str | None) -> int | None:
    from catalog.errors import InvalidTarget
    from catalog.timeline import Time, parse_target

    if text is None:
        return None
    target = parse_target(text)
    if not isinstance(target, Time):
        raise InvalidTarget(text, "a time is needed here")
    return target.ms


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
) -> None:
    """Write records to standard output, a line each, byte for byte as they were appended.

    With --json: one object a line, with seq, ts_ms, tag, node, and value (value_base64 if it is not UTF-8).
    Examples: seglog read orders --from 100 --limit 10; seglog read orders --at head~1
    """
    from offload.cli.lines import to_json, to_line
    from offload.errors import NoRemote

    session = session_of(context)
    name = with_branch(topic, branch)
    since_ms, until_ms = _time(since), _time(until)

    def wanted(records: Iterator[Record]) -> Iterator[Record]:
        for record in records:
            if until_ms is not None and record.ts_ms > until_ms:
                return
            if (since_ms is None or record.ts_ms >= since_ms) and (tag is None or record.tag == tag):
                yield record

    with session.log_and_maybe_archive() as (log, archive):
        if archive is None and at is not None:
            raise NoRemote(log.path)
        found = log.existing(name).read(start, end) if archive is None else archive.read(name, start, end, at=at)
        records = islice(wanted(found), limit)
        try:
            while group := list(islice(records, _WRITE_RECORDS)):
                if session.as_json:
                    sys.stdout.write("".join(to_json(record) + "\n" for record in group))
                else:
                    sys.stdout.buffer.write(b"".join(map(to_line, group)))
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader of our output has enough, as with `seglog read t | head`: not an error.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
