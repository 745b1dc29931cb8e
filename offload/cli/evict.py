"""The command `seglog evict`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.run import describe, note, one, show
from offload.cli.session import TopicName, counted
from offload.commands import removal as use

__all__ = ["evict"]


@describe(use.evict)
def evict(
    context: typer.Context,
    topic: TopicName,
    before: Annotated[int | None, typer.Option(min=1, show_default=False)] = None,
    older: Annotated[str | None, typer.Option("--older-than", show_default=False)] = None,
) -> None:
    done = one(context, use.evict, topic=topic, before=before, older=older)
    if done.waits_for:
        note(f"evicted here; the remote learns of it later, it waits for: {done.waits_for}")
    count = "records" if done.evicted is None else counted(done.evicted)
    told = f"evicted {count} of {topic}, which begins with seq {done.earliest_seq} now"
    show(context, done, told + (f" (lsn {done.lsn})" if done.lsn else ""))
