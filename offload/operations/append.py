"""Append the records of a stream: `seglog append`."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, Protocol

from offload.errors import InvalidParameters
from offload.operations.command import Directory
from offload.operations.lines import Batch, json_batches, line_batches, longest_line, skip
from offload.operations.results import HIDDEN
from seglog import RecordTooLarge

if TYPE_CHECKING:
    from seglog import Topic

__all__ = ["Appended", "Format", "RecordSink", "append", "batches", "open_sink"]


class Format(enum.StrEnum):
    LINES = "lines"
    JSONL = "jsonl"


@dataclass(frozen=True, slots=True)
class Appended:
    """The records appended so far, of so many lines. The seqs are None if there are no records yet."""

    topic: str
    appended: int
    first_seq: int | None
    last_seq: int | None
    line_count: int = field(default=0, metadata=HIDDEN)


class RecordSink(Protocol):
    """The port to a topic that takes records: a topic of an open log, or of the daemon."""

    def append(
        self,
        values: Sequence[bytes],
        *,
        tag: str | None,
        node: str | None,
        unterminated: bool,
        durability: str | None,
    ) -> range:
        """Append as `Topic.append` does, and return the seqs."""
        ...


def open_sink(directory: Directory, topic: str, durability: str | None) -> Topic:
    """Return a topic for appends by a process that then ends. Raises `InvalidParameters` for an ephemeral append."""
    log, archive = directory.log, directory.maybe_archive
    sink = log.topic(topic) if archive is None or log.has_topic(topic) else archive.open_for_append(topic)
    if (durability or sink.config.durability) == "ephemeral":
        reason = "ephemeral records end with the process that appends them, and this one ends at once"
        raise InvalidParameters(f"{reason}; nothing was appended. Say --durability memory, disk or fsync")
    return sink


def batches(
    stream: BinaryIO,
    kind: Format,
    *,
    tag: str | None,
    node: str | None,
    max_record_bytes: int,
    is_file: bool,
    skip_lines: int = 0,
) -> Iterator[Batch]:
    """Yield the records of a stream in batches, behind `skip_lines` lines.

    Raises `RecordTooLarge`, `InvalidInput`, and `InvalidParameters` if the stream has fewer lines.

    In a file of lines, the search for a line that is too long comes before the first batch. So a file goes in whole or
    not at all.
    """
    skip(stream, skip_lines)
    if kind is Format.JSONL:
        yield from json_batches(stream, tag, node, skipped=skip_lines)
        return
    if is_file:
        start = stream.tell()
        longest = longest_line(stream, max_record_bytes)
        if longest > max_record_bytes:
            raise RecordTooLarge(longest, max_record_bytes)
        stream.seek(start)
    yield from line_batches(stream, tag, node, max_record_bytes)


def append(sink: RecordSink, topic: str, incoming: Iterable[Batch], durability: str | None) -> Iterator[Appended]:
    """Append the batches. Yield the total so far, first before the first batch and then after each batch."""
    first = last = count = lines = 0
    yield Appended(topic, 0, None, None)
    for batch in incoming:
        seqs = sink.append(
            batch.values, tag=batch.tag, node=batch.node, unterminated=batch.unterminated, durability=durability
        )
        first, last, count = first or seqs.start, seqs.stop - 1, count + len(seqs)
        lines += batch.line_count
        yield Appended(topic, count, first or None, last or None, lines)
