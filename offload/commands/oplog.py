"""The changes of branches and tags, and the way back: `seglog oplog` and `seglog undo`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated

from offload.commands.parameters import About
from offload.moment import Moment

if TYPE_CHECKING:
    from catalog.refs.oplog import NumberedEntry
    from offload.archive import Archive

__all__ = ["Operation", "oplog", "undo"]


@dataclass(frozen=True, slots=True)
class Operation:
    """A change of a branch or a tag. `subject` is its key in the remote."""

    number: int
    at: Moment
    operation: str
    subject: str
    writer: str
    message: str


def oplog(
    archive: Archive, limit: Annotated[int, About("At most so many.", "-n --limit", least=1)] = 50
) -> Iterator[Operation]:
    """Show who changed which branch or tag, newest first. `undo` reverts a change by its number."""
    return map(_operation, islice(archive.history.operations(), limit))


def undo(
    archive: Archive,
    number: Annotated[int | None, About("The number of the change in `oplog`.", least=1, is_argument=True)] = None,
) -> Operation:
    """Revert the last change of a branch or tag, or the change with that number. No record changes.

    Each `undo` without a number goes one step further back.
    """
    return _operation(archive.history.undo(number))


def _operation(found: NumberedEntry) -> Operation:
    entry = found.entry
    return Operation(
        number=found.number,
        at=Moment(entry.at_ms),
        operation=entry.operation,
        subject=entry.subject,
        writer=entry.writer_id,
        message=entry.message,
    )
