"""The command `seglog seal`."""

from __future__ import annotations

import typer

from offload.cli.run import describe, one, show
from offload.cli.session import TopicName
from offload.commands import seal as use

__all__ = ["seal"]


@describe(use.seal)
def seal(context: typer.Context, topic: TopicName) -> None:
    sealed = one(context, use.seal, topic=topic)
    text = f"{topic} is sealed up to seq {sealed.sealed_seq}: {sealed.segments} sealed segments on this disk"
    show(context, sealed, text)
