"""The commands `seglog branch ...`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from offload.cli.served import Served
from offload.cli.session import Session, TopicName, counted, emit, format_time, session_of, without_main

if TYPE_CHECKING:
    from catalog import Branch, Vid
    from catalog.refs.branch import Distance

__all__ = ["app", "branch_of_target"]

app = typer.Typer(help="Branches of a topic.", no_args_is_help=True)


@app.command("create", cls=Served)
def create(
    context: typer.Context,
    topic: TopicName,
    name: Annotated[str, typer.Argument(help="The new branch.")],
    at: Annotated[str, typer.Option(help="Where to start: seq:N, lsn:N, head, head~N, tag:NAME, or a time.")] = "head",
    message: Annotated[str, typer.Option("-m", "--message", help="Why, for the oplog.")] = "",
) -> None:
    """Make a branch: a few small objects, whatever the size of the topic.

    Read it as TOPIC@NAME. What is appended or deleted there is not seen on the branch it came from.
    """
    branch_of_target(session_of(context), topic, at, name, message)


@app.command("list", cls=Served)
def list_branches(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    deleted: Annotated[bool, typer.Option("--deleted", help="Those too that are deleted and can be had back.")] = False,
    as_tree: Annotated[bool, typer.Option("--tree", help="As a tree: each branch below the one it came from.")] = False,
) -> None:
    """List the branches of a topic that are in the remote, and how far each and its parent went since the fork."""
    session = session_of(context)
    with session.archive(read_only=True) as (_, archive):
        found = archive.branches(topic, deleted=deleted)
        rows = list(zip(found, archive.distances(found), strict=True))
        names = {branch.vid: branch.branch for branch in found}
        for depth, (branch, distance) in _tree(rows) if as_tree else ((0, row) for row in rows):
            emit(session, _fields(branch, distance), _line(branch, distance, depth, names))


@app.command("delete", cls=Served)
def delete(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    name: Annotated[str, typer.Argument(help="The branch.")],
) -> None:
    """Delete a branch. `undelete` brings it back, until GC has taken what only it had."""
    session = session_of(context)
    with session.archive() as (_, archive):
        gone = archive.delete_branch(topic, name)
        emit(
            session,
            {"branch": f"{topic}@{name}", "volume": str(gone.vid), "deleted_at": format_time(gone.deleted_at_ms or 0)},
            f"{topic}@{name} is deleted; `seglog branch undelete {topic} {name}` brings it back",
        )


@app.command("undelete", cls=Served)
def undelete(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    name: Annotated[str, typer.Argument(help="The branch.")],
) -> None:
    """Bring a deleted branch back, as it was."""
    session = session_of(context)
    with session.archive() as (_, archive):
        back = archive.undelete_branch(topic, name)
        emit(session, {"branch": f"{topic}@{name}", "volume": str(back.vid)}, f"{topic}@{name} is back")


@app.command("rename", cls=Served)
def rename(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    name: Annotated[str, typer.Argument(help="The branch.")],
    new: Annotated[str, typer.Argument(help="Its new name.")],
) -> None:
    """Give a branch another name."""
    session = session_of(context)
    with session.archive() as (_, archive):
        branch = archive.rename_branch(topic, name, new)
        emit(session, {"branch": f"{topic}@{new}", "volume": str(branch.vid)}, f"{topic}@{name} is {topic}@{new} now")


@app.command("diff", cls=Served)
def diff(
    context: typer.Context,
    left: Annotated[str, typer.Argument(metavar="LEFT", help="TOPIC or TOPIC@BRANCH.", callback=without_main)],
    right: Annotated[str, typer.Argument(metavar="RIGHT", help="The one to compare with.", callback=without_main)],
) -> None:
    """Show what only one of two branches has, and what one has deleted. What is not offloaded yet does not count."""
    session = session_of(context)
    with session.archive(read_only=True) as (_, archive):
        found = archive.diff(left, right)
        for name, side in ((left, found.left), (right, found.right)):
            seqs = f", seq {side.first_seq} to {side.last_seq}" if side.appended else ""
            told = f"appended {counted(side.appended)}{seqs}; deleted {counted(side.deleted)}"
            emit(
                session,
                {
                    "branch": name,
                    "shared_seq": found.shared_seq,
                    "appended": side.appended,
                    "first_seq": side.first_seq or None,
                    "last_seq": side.last_seq or None,
                    "deleted": side.deleted,
                },
                f"{name:<24} {told} of those up to seq {found.shared_seq}",
            )


def _tree(rows: Sequence[tuple[Branch, Distance]]) -> Iterator[tuple[int, tuple[Branch, Distance]]]:
    """Yield each branch with its depth. A branch follows the branch that it was forked from."""
    there = {branch.vid for branch, _ in rows}

    def below(parent: Vid | None, depth: int) -> Iterator[tuple[int, tuple[Branch, Distance]]]:
        for row in rows:
            origin = row[0].parent.vid if row[0].parent and row[0].parent.vid in there else None
            if origin == parent:
                yield depth, row
                yield from below(row[0].vid, depth + 1)

    return below(None, 0)


def _fields(branch: Branch, distance: Distance) -> dict[str, object]:
    parent = branch.parent
    return {
        "topic": branch.topic,
        "branch": branch.branch,
        "volume": str(branch.vid),
        "created_at": format_time(branch.created_at_ms),
        "parent": {"volume": str(parent.vid), "lsn": parent.lsn, "seq": parent.seq} if parent else None,
        "ahead": distance.ahead,
        "behind": distance.behind,
        "deleted_at": format_time(branch.deleted_at_ms) if branch.deleted_at_ms is not None else None,
    }


def _line(branch: Branch, distance: Distance, depth: int, names: Mapping[Vid, str]) -> str:
    parent = branch.parent
    name = "  " * depth + ("- " if depth else "") + branch.branch
    origin = ""
    if parent is not None:
        cut = f" seq {parent.seq}" if parent.seq else ""
        origin = f"from {names.get(parent.vid, parent.vid)} lsn {parent.lsn}{cut}, +{distance.ahead} -{distance.behind}"
    gone = f"deleted {format_time(branch.deleted_at_ms)}" if branch.deleted_at_ms is not None else ""
    return f"{name:<24} {branch.vid}  {format_time(branch.created_at_ms)}  {origin}  {gone}".rstrip()


def branch_of_target(session: Session, topic: str, target: str, name: str, message: str) -> None:
    """Make a branch of a past state. Print how many records it holds, and the seq and time of the last one."""
    with session.archive() as (_, archive):
        restored = archive.restore(topic, to=target, name=name, message=message)
        base = topic.partition("@")[0]
        last = (
            f", the last one seq {restored.last_seq} of {format_time(restored.last_ts_ms)}" if restored.last_seq else ""
        )
        emit(
            session,
            {
                "branch": f"{base}@{name}",
                "volume": str(restored.vid),
                "records": restored.records,
                "last_seq": restored.last_seq,
                "last_time": format_time(restored.last_ts_ms) if restored.last_seq else None,
            },
            f"{base}@{name} holds {counted(restored.records)}{last}",
        )
