"""The command `seglog delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.run import describe, note, one, show
from offload.cli.session import TopicName, counted
from offload.commands import removal as use

__all__ = ["delete"]


@describe(use.delete)
def delete(
    context: typer.Context,
    topic: TopicName,
    before: Annotated[int | None, typer.Option(show_default=False)] = None,
    tag: Annotated[str | None, typer.Option(show_default=False)] = None,
) -> None:
    done = one(context, use.delete, topic=topic, before=before, tag=tag)
    if done.waits_for:
        note(f"deleted here; the remote learns of it later, it waits for: {done.waits_for}")
    count = "records" if done.deleted is None else counted(done.deleted)
    show(context, done, f"deleted {count} of {topic}" + (f" (lsn {done.lsn})" if done.lsn else ""))
