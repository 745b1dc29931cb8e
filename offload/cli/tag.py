"""The commands `seglog tag ...`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from offload.cli.served import Served
from offload.cli.session import TopicName, emit, format_time, session_of

if TYPE_CHECKING:
    from catalog.format.control import Tag

__all__ = ["app"]

app = typer.Typer(help="Names for points in a topic's history, which GC keeps.", no_args_is_help=True)


@app.command("create", cls=Served)
def create(
    context: typer.Context,
    topic: TopicName,
    name: Annotated[str, typer.Argument(help="The new tag.")],
    at: Annotated[str, typer.Option(help="What to name: seq:N, lsn:N, head, head~N, tag:NAME, or a time.")] = "head",
    message: Annotated[str, typer.Option("-m", "--message", help="Why.")] = "",
) -> None:
    """Name a point in the history. It stays restorable, as tag:NAME, until the tag is deleted."""
    session = session_of(context)
    with session.archive() as (_, archive):
        tag = archive.tags.tag(topic, name, to=at, message=message)
        emit(session, _fields(topic.partition("@")[0], name, tag), _line(name, tag))


@app.command("list", cls=Served)
def list_tags(context: typer.Context, topic: Annotated[str, typer.Argument(help="The topic.")]) -> None:
    """List the tags of a topic and its branches."""
    session = session_of(context)
    with session.archive(read_only=True) as (_, archive):
        for each in archive.tags.list(topic):
            emit(session, _fields(topic, each.name, each.tag), _line(each.name, each.tag))


@app.command("delete", cls=Served)
def delete(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    name: Annotated[str, typer.Argument(help="The tag.")],
) -> None:
    """Delete a tag. What it named goes when nothing else holds it; `seglog undo` brings the tag back before that."""
    session = session_of(context)
    with session.archive() as (_, archive):
        tag = archive.tags.delete_tag(topic, name)
        emit(session, _fields(topic, name, tag), f"tag {name} is deleted")


def _fields(topic: str, name: str, tag: Tag) -> dict[str, object]:
    return {
        "topic": topic,
        "tag": name,
        "branch": tag.branch,
        "volume": str(tag.point.vid),
        "lsn": tag.point.lsn,
        "seq": tag.point.seq,
        "created_at": format_time(tag.created_at_ms),
        "message": tag.message,
    }


def _line(name: str, tag: Tag) -> str:
    cut = f" seq {tag.point.seq}" if tag.point.seq else ""
    place = f"{tag.branch} lsn {tag.point.lsn}{cut}"
    return f"{name:<24} {place:<28} {format_time(tag.created_at_ms)}  {tag.message}".rstrip()
