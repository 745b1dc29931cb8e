"""The command `seglog truncate`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.run import describe, note, one, show
from offload.cli.session import TopicName, counted
from offload.commands import removal as use

__all__ = ["truncate"]


@describe(use.truncate)
def truncate(
    context: typer.Context,
    topic: TopicName,
    start: Annotated[int, typer.Option("--from", min=1)],
    yes: Annotated[bool, typer.Option("--yes")] = False,
) -> None:
    done = one(context, use.truncate, topic=topic, start=start, yes=yes)
    if done.waits_for:
        note(f"truncated here; the remote learns of it later, it waits for: {done.waits_for}")
    ends = f"which ends with seq {done.head_seq} now" + (f" (lsn {done.lsn})" if done.lsn else "")
    show(context, done, f"removed {counted(done.removed)} of {topic}, {ends}")
