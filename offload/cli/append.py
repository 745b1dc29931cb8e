"""The command `seglog append`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

from offload.cli.execution import directory_of
from offload.cli.output import counted, note
from offload.cli.progress import progress
from offload.cli.session import Session
from offload.commands import append as use
from offload.commands.append import Appended, Format, RecordSink
from offload.commands.lines import Batch
from offload.commands.parameters import About, TopicName
from offload.errors import NoSuchFile

__all__ = ["append"]


def append(
    session: Session,
    topic: TopicName,
    file: Annotated[
        Path | None, About("The file to append; standard input without it.", is_argument=True, shown_default="-")
    ] = None,
    input_format: Annotated[
        Format, About("lines: a record a line, byte-exact. jsonl: objects with value, tag, node.", "--format")
    ] = Format.LINES,
    tag: Annotated[str | None, About("A tag for the records, to delete or read them by.")] = None,
    node: Annotated[str | None, About("The origin of the records.")] = None,
    durability: Annotated[
        str | None, About("fsync, disk or memory, instead of the topic's own. Not ephemeral: this process ends.")
    ] = None,
) -> None:
    """Append the lines of a file or of standard input, and print their seqs.

    No byte changes: `seglog append t FILE` and `seglog read t` give FILE again, whatever its line ends.
    Example: seglog append access /var/log/nginx/access.log --tag web1
    """
    with _stream(file) as (stream, size), _sink(session, topic, durability) as sink:
        found = use.batches(
            stream,
            input_format,
            tag=tag,
            node=node,
            max_record_bytes=session.settings().log.max_record_bytes,
            is_file=size is not None,
        )
        with progress(f"append {topic}", size) as advance:
            done = _append(sink, topic, _advancing(found, advance), durability)
    seqs = f", seq {done.first_seq} to {done.last_seq}" if done.appended else ""
    session.output.show(done, f"appended {counted(done.appended)} to {topic}{seqs}")


def _append(sink: RecordSink, topic: str, found: Iterator[Batch], durability: str | None) -> Appended:
    """Append the batches, and return the total. On an error, print how far the appends came."""
    done: Appended | None = None
    try:
        for done in use.append(sink, topic, found, durability):  # noqa: B007 - the last one counts
            pass
    except Exception:
        if done is not None and done.last_seq:
            note(f"appended before the error: seq {done.first_seq} to {done.last_seq}")
        raise
    assert done is not None  # noqa: S101 - there is a total before the first batch
    return done


def _advancing(found: Iterator[Batch], advance: Callable[[int], None]) -> Iterator[Batch]:
    """Yield the batches. When the caller asks for the next one, the one before is done."""
    for batch in found:
        yield batch
        advance(batch.size_bytes)


@contextmanager
def _stream(file: Path | None) -> Iterator[tuple[BinaryIO, int | None]]:
    """Yield the input and its size. The size is None if the input is not a regular file. Raises `NoSuchFile`."""
    if file is None or str(file) == "-":
        yield sys.stdin.buffer, None
        return
    with _opened(file) as stream:
        yield stream, file.stat().st_size if file.is_file() else None


def _opened(file: Path) -> BinaryIO:
    try:
        return file.open("rb")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise NoSuchFile(file) from None


@contextmanager
def _sink(session: Session, topic: str, durability: str | None) -> Iterator[RecordSink]:
    """Yield the topic that takes the records. While a daemon holds the directory, the daemon appends them."""
    daemon = session.daemon()
    if daemon is not None:
        yield daemon.topic(topic)
        return
    with directory_of(session) as place:
        yield use.open_sink(place, topic, durability)
