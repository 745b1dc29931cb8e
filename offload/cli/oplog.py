"""The commands `seglog oplog` and `seglog undo`."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from offload.cli.session import emit, format_time, session_of

if TYPE_CHECKING:
    from catalog.refs.oplog import NumberedEntry

__all__ = ["oplog", "undo"]


def oplog(
    context: typer.Context,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="At most so many.")] = 50,
) -> None:
    """Show who changed which branch or tag, newest first. `undo` takes a change back by its number."""
    session = session_of(context)
    with session.archive(read_only=True) as (_, archive):
        for each in islice(archive.operations(), limit):
            emit(session, _fields(each), _line(each))


def undo(
    context: typer.Context,
    number: Annotated[int | None, typer.Argument(help="Of the operation, as `oplog` shows it.", min=1)] = None,
) -> None:
    """Take back the last change of a branch or tag, or the one of that number. No record is changed by this.

    Each `undo` without a number goes one step further back.
    """
    session = session_of(context)
    with session.archive() as (_, archive):
        undone = archive.undo(number)
        emit(session, _fields(undone), f"undone: {_line(undone)}")


def _fields(found: NumberedEntry) -> dict[str, object]:
    entry = found.entry
    return {
        "number": found.number,
        "at": format_time(entry.at_ms),
        "operation": entry.operation,
        "subject": entry.subject,
        "writer": entry.writer_id,
        "message": entry.message,
    }


def _line(found: NumberedEntry) -> str:
    entry = found.entry
    return (
        f"{found.number:<6} {format_time(entry.at_ms)}  {entry.writer_id:<16} {entry.operation:<16} "
        f"{_subject(entry.subject)}  {entry.message}"
    ).rstrip()


def _subject(key: str) -> str:
    """Return the subject of an operation as the command line names it."""
    kind, _, rest = key.partition("/")
    topic, _, name = rest.partition("/")
    return {"refs": f"{topic}@{name}", "tags": f"{topic} tag:{name}"}.get(kind, key)
