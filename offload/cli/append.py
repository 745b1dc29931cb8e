"""The command `seglog append`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from offload.cli.progress import progress
from offload.cli.run import directory_of, note, show
from offload.cli.session import Session, TopicName, counted, session_of
from offload.commands import append as use
from offload.commands.append import Appended, Format, Target
from offload.commands.lines import Batch
from offload.errors import BadParameter

__all__ = ["append"]


def append(
    context: typer.Context,
    topic: TopicName,
    file: Annotated[
        Path | None, typer.Argument(help="The file to append; standard input without it.", show_default="-")
    ] = None,
    input_format: Annotated[
        Format,
        typer.Option("--format", help="lines: a record a line, byte-exact. jsonl: objects with value, tag, node."),
    ] = Format.LINES,
    tag: Annotated[
        str | None, typer.Option(help="A tag for the records, to delete or read them by.", show_default=False)
    ] = None,
    node: Annotated[str | None, typer.Option(help="The origin of the records.", show_default=False)] = None,
    durability: Annotated[
        str | None,
        typer.Option(
            help="fsync, disk or memory, instead of the topic's own. Not ephemeral: this process ends.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Append the lines of a file or of standard input, and print their seqs.

    No byte changes: `seglog append t FILE` and `seglog read t` give FILE again, whatever its line ends.
    Example: seglog append access /var/log/nginx/access.log --tag web1
    """
    session = session_of(context)
    with _stream(file) as (stream, size), _target(session, topic, durability) as target:
        found = use.batches(
            stream,
            input_format,
            tag=tag,
            node=node,
            max_record_bytes=session.settings().log.max_record_bytes,
            is_file=size is not None,
        )
        with progress(f"append {topic}", size) as advance:
            done = _append(target, topic, _advancing(found, advance), durability)
    seqs = f", seq {done.first_seq} to {done.last_seq}" if done.appended else ""
    show(context, done, f"appended {counted(done.appended)} to {topic}{seqs}")


def _append(target: Target, topic: str, found: Iterator[Batch], durability: str | None) -> Appended:
    """Append the batches, and return the total. On an error, print how far the appends came."""
    done: Appended | None = None
    try:
        for done in use.append(target, topic, found, durability):  # noqa: B007 - the last one counts
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
    """Yield the input and its size. The size is None if the input is not a regular file."""
    if file is None or str(file) == "-":
        yield sys.stdin.buffer, None
        return
    with file.open("rb") as stream:
        yield stream, file.stat().st_size if file.is_file() else None


@contextmanager
def _target(session: Session, topic: str, durability: str | None) -> Iterator[Target]:
    """Yield the topic that takes the records. While a daemon holds the directory, the daemon appends them."""
    daemon = session.daemon()
    if daemon is not None:
        yield daemon.topic(topic)
        return
    with directory_of(session) as place:
        try:
            target = use.open_target(place, topic, durability)
        except BadParameter as error:
            raise typer.BadParameter(str(error)) from error
        yield target
