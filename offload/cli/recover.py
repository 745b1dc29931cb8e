"""The command `seglog recover`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from offload.cli.run import note, show
from offload.cli.session import counted

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
    """Make a data directory from a remote alone: every topic and branch, with its bounds and configuration.

    The command copies no records: reads go to the remote. The first append to a topic, or `takeover`, makes this
    directory its writer. After a failure, repeat the command: it continues. Example: seglog recover s3://my-bucket/acme
    new-data
    """
    from offload.commands import recover as use
    from offload.recovery import NotRecovered

    for found in use.recover(directory, url, topic=topic, writable=writable):
        if isinstance(found, NotRecovered):
            note(f"{found.topic}: {found.error}")
            continue
        last = f", the last one seq {found.last_seq} of {found.last_time}" if found.last_seq else ""
        text = f"{found.topic}: head {found.head_seq} (lsn {found.lsn}), {counted(found.records)}{last}"
        show(context, found, text)
