"""The commands `seglog tag ...`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.run import describe, each, one, show
from offload.cli.session import TopicName
from offload.commands import tag
from offload.commands.tag import TagListed

__all__ = ["app"]

app = typer.Typer(help="Names for points in a topic's history, which GC keeps.", no_args_is_help=True)
Word = Annotated[str, typer.Argument()]


@app.command()
@describe(tag.create)
def create(
    context: typer.Context,
    topic: TopicName,
    name: Word,
    at: Annotated[str, typer.Option()] = "head",
    message: Annotated[str, typer.Option("-m", "--message")] = "",
) -> None:
    made = one(context, tag.create, topic=topic, name=name, at=at, message=message)
    show(context, made, _line(made))


@app.command("list")
@describe(tag.list_tags)
def list_tags(context: typer.Context, topic: Word) -> None:
    for listed in each(context, tag.list_tags, topic=topic):
        show(context, listed, _line(listed))


@app.command()
@describe(tag.delete)
def delete(context: typer.Context, topic: Word, name: Word) -> None:
    show(context, one(context, tag.delete, topic=topic, name=name), f"tag {name} is deleted")


def _line(listed: TagListed) -> str:
    cut = f" seq {listed.seq}" if listed.seq else ""
    place = f"{listed.branch} lsn {listed.lsn}{cut}"
    return f"{listed.tag:<24} {place:<28} {listed.created_at}  {listed.message}".rstrip()
