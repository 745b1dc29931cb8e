"""The command `seglog recover`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from offload.cli.session import counted, emit, format_time, say, session_of

__all__ = ["recover"]


def recover(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="The remote: s3://bucket/prefix or file:///path.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The new data directory.")],
    topic: Annotated[
        str | None, typer.Option(help="Only this topic, with its branches, or TOPIC@BRANCH.", show_default=False)
    ] = None,
    writable: Annotated[
        bool, typer.Option("--writable", help="Take over every topic at once: former writers are fenced.")
    ] = False,
) -> None:
    """Make a data directory from a remote alone: every topic and branch that is there, with bounds and configuration.

    Nothing is copied: reads go to the remote. The first append to a topic, or `takeover`, makes this directory its
    writer. Repeat it after any failure: it goes on. Example: seglog recover s3://my-bucket/acme new-data
    """
    from offload.recovery import RecoveredTopic
    from offload.recovery import recover as recovered

    session = session_of(context)
    failed: Exception | None = None
    for each in recovered(directory, url, only=topic, writable=writable):
        if not isinstance(each, RecoveredTopic):
            say(f"{each.name}: {each.error}")
            failed = each.error
            continue
        last = f", the last one seq {each.last_seq} of {format_time(each.last_ts_ms)}" if each.last_seq else ""
        emit(
            session,
            {
                "topic": each.name,
                "volume": each.volume,
                "lsn": each.lsn,
                "head_seq": each.head_seq,
                "records": each.records,
                "last_seq": each.last_seq or None,
                "last_time": format_time(each.last_ts_ms) if each.last_seq else None,
                "is_writable": each.is_writable,
            },
            f"{each.name}: head {each.head_seq} (lsn {each.lsn}), {counted(each.records)}{last}",
        )
    if failed is not None:
        raise failed
