"""The command `seglog restore`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.branch import made_text
from offload.cli.run import describe, one, show
from offload.cli.session import TopicName
from offload.commands import branch as use

__all__ = ["restore"]


@describe(use.restore)
def restore(
    context: typer.Context,
    topic: TopicName,
    to: Annotated[str, typer.Option("--to")],
    as_branch: Annotated[str, typer.Option("--as")],
    message: Annotated[str, typer.Option("-m", "--message")] = "",
) -> None:
    made = one(context, use.restore, topic=topic, to=to, as_branch=as_branch, message=message)
    show(context, made, made_text(made))
