"""The command `seglog read`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from offload.cli.run import describe, each, is_json, note, show
from offload.cli.session import TopicName
from offload.commands import read as use
from offload.commands.lines import RecordBatch, to_line
from offload.commands.parameters import with_branch
from seglog import Gap, Record

__all__ = ["read"]


@describe(use.read)
def read(
    context: typer.Context,
    topic: TopicName,
    start: Annotated[int | None, typer.Option("--from", show_default=False)] = None,
    end: Annotated[int | None, typer.Option("--to", show_default=False)] = None,
    since: Annotated[str | None, typer.Option(show_default=False)] = None,
    until: Annotated[str | None, typer.Option(show_default=False)] = None,
    tag: Annotated[str | None, typer.Option(show_default=False)] = None,
    branch: Annotated[str | None, typer.Option(show_default=False)] = None,
    at: Annotated[str | None, typer.Option(show_default=False)] = None,
    limit: Annotated[int | None, typer.Option(min=1, show_default=False)] = None,
    follow: Annotated[bool, typer.Option("--follow")] = False,
    wait: Annotated[float | None, typer.Option(min=0, show_default=False)] = None,
) -> None:
    batches = each(
        context,
        use.read,
        topic=topic,
        start=start,
        end=end,
        since=since,
        until=until,
        tag=tag,
        branch=branch,
        at=at,
        limit=limit,
        follow=follow,
        wait=wait,
    )
    try:
        for batch in batches:
            _write(context, with_branch(topic, branch), batch)
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output has closed it, as `head` does in `seglog read t | head`. That is no error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write(context: typer.Context, name: str, batch: RecordBatch) -> None:
    if is_json(context):
        show(context, batch, "")
        return
    for item in batch.items:
        if isinstance(item, Gap):
            note(f"{name}: seq {item.gap_from} to {item.gap_to} were evicted")
    sys.stdout.buffer.write(b"".join(to_line(item) for item in batch.items if isinstance(item, Record)))
