"""The command `seglog append`."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from offload.cli.progress import progress
from offload.cli.session import Session, TopicName, counted, emit, say, session_of

if TYPE_CHECKING:
    from offload.client import RemoteTopic
    from seglog import Topic

__all__ = ["append"]


class Format(enum.StrEnum):
    LINES = "lines"
    JSONL = "jsonl"


def append(
    context: typer.Context,
    topic: TopicName,
    file: Annotated[
        Path | None, typer.Argument(help="What to append; standard input without it.", show_default="-")
    ] = None,
    input_format: Annotated[
        Format,
        typer.Option("--format", help="lines: a record a line, byte-exact. jsonl: objects with value, tag, node."),
    ] = Format.LINES,
    tag: Annotated[
        str | None, typer.Option(help="A tag for the records, to delete or read them by.", show_default=False)
    ] = None,
    node: Annotated[str | None, typer.Option(help="Where the records come from.", show_default=False)] = None,
    durability: Annotated[
        str | None,
        typer.Option(
            help="fsync, disk or memory, instead of the topic's own. Not ephemeral: this process ends.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Append the lines of a file or of standard input, and print the seqs they got.

    Every byte comes back as it was: `seglog append t FILE` and `seglog read t` give FILE again, whatever its line ends.
    Example: seglog append access /var/log/nginx/access.log --tag web1
    """
    session = session_of(context)
    if file is None or str(file) == "-":
        _append(session, topic, sys.stdin.buffer, None, input_format, tag, node, durability)
        return
    with file.open("rb") as stream:
        _append(session, topic, stream, file, input_format, tag, node, durability)


def _append(
    session: Session,
    topic: str,
    stream: BinaryIO,
    file: Path | None,
    input_format: Format,
    tag: str | None,
    node: str | None,
    durability: str | None,
) -> None:
    from offload.cli.lines import json_batches, line_batches, longest_line
    from seglog.errors import RecordTooLarge

    first = last = count = 0
    record_max_bytes = session.settings().log.max_record_bytes
    with _target(session, topic, durability) as target:
        if file is not None and file.is_file() and input_format is Format.LINES:
            # Look for a line that is too long before the first append, so that a file goes in whole or not at all.
            longest = longest_line(stream)
            if longest > record_max_bytes:
                raise RecordTooLarge(longest, record_max_bytes)
            stream.seek(0)
        if input_format is Format.LINES:
            batches = line_batches(stream, tag, node, record_max_bytes)
        else:
            batches = json_batches(stream, tag, node)
        total = file.stat().st_size if file is not None and file.is_file() else None
        try:
            with progress(f"append {topic}", total) as advance:
                for batch in batches:
                    seqs = target.append(
                        batch.values,
                        tag=batch.tag,
                        node=batch.node,
                        durability=durability,
                        unterminated=batch.unterminated,
                    )
                    first, last, count = first or seqs.start, seqs.stop - 1, count + len(seqs)
                    advance(batch.size_bytes)
        except Exception:
            if last:
                say(f"appended before the error: seq {first} to {last}")
            raise
    emit(
        session,
        {"topic": topic, "appended": count, "first_seq": first or None, "last_seq": last or None},
        f"appended {counted(count)} to {topic}" + (f", seq {first} to {last}" if count else ""),
    )


@contextmanager
def _target(session: Session, topic: str, durability: str | None) -> Iterator[Topic | RemoteTopic]:
    """Yield the topic that takes the records. While a daemon holds the directory, the daemon appends them."""
    daemon = session.daemon()
    if daemon is not None:
        yield daemon.topic(topic)
        return
    with session.log_and_maybe_archive() as (log, archive):
        target = log.topic(topic) if archive is None or log.has_topic(topic) else archive.writable(topic)
        if (durability or target.config.durability) == "ephemeral":
            reason = "ephemeral records end with the process that appends them, and this one ends at once"
            raise typer.BadParameter(f"{reason}; nothing was appended. Say --durability memory, disk or fsync")
        yield target
