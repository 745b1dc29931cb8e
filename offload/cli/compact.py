"""The command `seglog compact`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.run import describe, each, remark, show
from offload.cli.session import format_bytes
from offload.commands import compact as use
from offload.commands.compact import Rewritten

__all__ = ["compact"]


@describe(use.compact)
def compact(
    context: typer.Context,
    topic: Annotated[str | None, typer.Argument(show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all")] = False,
    erase: Annotated[bool, typer.Option("--erase")] = False,
) -> None:
    for done in each(context, use.compact, topic=topic, every=every, erase=erase):
        if isinstance(done, Rewritten):
            size = format_bytes(done.stored_bytes)
            seqs = f"seq {done.first_seq}-{done.last_seq}"
            show(context, done, f"{done.topic}: {seqs} in one object of {size} (lsn {done.lsn})")
        else:
            remark(context, f"{done.topic}: nothing to {'erase' if erase else 'merge'}")
