"""The commands `seglog oplog` and `seglog undo`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.run import describe, each, one, show
from offload.commands import oplog as use
from offload.commands.oplog import Operation

__all__ = ["oplog", "undo"]


@describe(use.oplog)
def oplog(context: typer.Context, limit: Annotated[int, typer.Option("-n", "--limit", min=1)] = 50) -> None:
    for operation in each(context, use.oplog, limit=limit):
        show(context, operation, _line(operation))


@describe(use.undo)
def undo(context: typer.Context, number: Annotated[int | None, typer.Argument(min=1)] = None) -> None:
    undone = one(context, use.undo, number=number)
    show(context, undone, f"undone: {_line(undone)}")


def _line(found: Operation) -> str:
    return (
        f"{found.number:<6} {found.at}  {found.writer:<16} {found.operation:<16} "
        f"{_subject(found.subject)}  {found.message}"
    ).rstrip()


def _subject(key: str) -> str:
    """Return the subject of an operation as the command line names it."""
    kind, _, rest = key.partition("/")
    topic, _, name = rest.partition("/")
    return {"refs": f"{topic}@{name}", "tags": f"{topic} tag:{name}"}.get(kind, key)
