"""The commands `seglog branch ...`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.run import describe, each, one, show
from offload.cli.session import TopicName, counted
from offload.commands import branch
from offload.commands.branch import BranchListed, BranchMade
from offload.commands.parameters import without_main

__all__ = ["app", "made_text"]

app = typer.Typer(help="Branches of a topic.", no_args_is_help=True)
Word = Annotated[str, typer.Argument()]


@app.command()
@describe(branch.create)
def create(
    context: typer.Context,
    topic: TopicName,
    name: Word,
    at: Annotated[str, typer.Option()] = "head",
    message: Annotated[str, typer.Option("-m", "--message")] = "",
) -> None:
    made = one(context, branch.create, topic=topic, name=name, at=at, message=message)
    show(context, made, made_text(made))


@app.command("list")
@describe(branch.list_branches)
def list_branches(
    context: typer.Context,
    topic: Word,
    deleted: Annotated[bool, typer.Option("--deleted")] = False,
    as_tree: Annotated[bool, typer.Option("--tree")] = False,
) -> None:
    for row in each(context, branch.list_branches, topic=topic, deleted=deleted, as_tree=as_tree):
        show(context, row, _line(row))


@app.command()
@describe(branch.delete)
def delete(context: typer.Context, topic: Word, name: Word) -> None:
    gone = one(context, branch.delete, topic=topic, name=name)
    show(context, gone, f"{gone.branch} is deleted; `seglog branch undelete {topic} {name}` brings it back")


@app.command()
@describe(branch.undelete)
def undelete(context: typer.Context, topic: Word, name: Word) -> None:
    back = one(context, branch.undelete, topic=topic, name=name)
    show(context, back, f"{back.branch} is back")


@app.command()
@describe(branch.rename)
def rename(context: typer.Context, topic: Word, name: Word, new: Word) -> None:
    renamed = one(context, branch.rename, topic=topic, name=name, new=new)
    show(context, renamed, f"{topic}@{name} is {renamed.branch} now")


@app.command()
@describe(branch.diff)
def diff(
    context: typer.Context,
    left: Annotated[str, typer.Argument(metavar="LEFT", callback=without_main)],
    right: Annotated[str, typer.Argument(metavar="RIGHT", callback=without_main)],
) -> None:
    for found in each(context, branch.diff, left=left, right=right):
        side = found.side
        seqs = f", seq {side.first_seq} to {side.last_seq}" if side.appended else ""
        told = f"appended {counted(side.appended)}{seqs}; deleted {counted(side.deleted)}"
        show(context, found, f"{found.branch:<24} {told} of those up to seq {found.shared_seq}")


def made_text(made: BranchMade) -> str:
    last = f", the last one seq {made.last_seq} of {made.last_time}" if made.last_seq else ""
    return f"{made.branch} holds {counted(made.records)}{last}"


def _line(row: BranchListed) -> str:
    parent = row.parent
    name = "  " * row.depth + ("- " if row.depth else "") + row.branch
    origin = ""
    if parent is not None:
        cut = f" seq {parent.seq}" if parent.seq else ""
        origin = f"from {row.parent_name or parent.volume} lsn {parent.lsn}{cut}, +{row.ahead} -{row.behind}"
    gone = f"deleted {row.deleted_at}" if row.deleted_at is not None else ""
    return f"{name:<24} {row.volume}  {row.created_at}  {origin}  {gone}".rstrip()
