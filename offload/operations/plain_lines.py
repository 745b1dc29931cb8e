"""The lines of `read` without conditions, for a process that takes no more than the lines.

The lines of a batch of records are one byte string, and no object is made for a record. So a read of a large topic
takes a tenth of the time. `tests/offload/operations/test_plain_lines.py` compares the bytes with those of the records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from offload.operations.directory import Directory
from offload.operations.lines import RecordBatch
from offload.operations.results import HIDDEN
from seglog import Gap

if TYPE_CHECKING:
    from seglog import RecordArrays

__all__ = ["RecordLines", "plain_lines"]


@dataclass(frozen=True, slots=True)
class RecordLines:
    """The lines of many records."""

    data: bytes = field(metadata=HIDDEN)


def plain_lines(
    place: Directory, name: str, start: int | None, end: int | None, at: str | None
) -> Iterator[RecordLines | RecordBatch]:
    """Yield the lines of the records of a range, or of a past state if `at` is given.

    A gap comes as a batch of its own. Raises `NoRemote`, and what the records raise.
    """
    for found in _arrays(place, name, start, end, at):
        yield RecordBatch((found,)) if isinstance(found, Gap) else RecordLines(found.lines())


def _arrays(
    place: Directory, name: str, start: int | None, end: int | None, at: str | None
) -> Iterator[RecordArrays | Gap]:
    archive = place.maybe_archive
    if at is None and (archive is None or place.log.has_topic(name)):
        return place.log.get_topic(name).read_arrays(start, end, gaps=True)
    return place.archive.read_arrays(name, start, end, at=at)
