"""`seglog branch create` and `seglog branch list`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.served import Served
from offload.cli.session import Session, TopicName, counted, emit, format_time, session_of

__all__ = ["app", "branch_of_target"]

app = typer.Typer(help="Branches of a topic.", no_args_is_help=True)


@app.command("create", cls=Served)
def create(
    context: typer.Context,
    topic: TopicName,
    name: Annotated[str, typer.Argument(help="The new branch.")],
    at: Annotated[str, typer.Option(help="Where to start: seq:N, lsn:N, head, head~N, or a time.")] = "head",
) -> None:
    """Make a branch: a few small objects, whatever the size of the topic.

    Read it as TOPIC@NAME. What is appended or deleted there is not seen on the branch it came from.
    """
    branch_of_target(session_of(context), topic, at, name)


@app.command("list", cls=Served)
def list_branches(context: typer.Context, topic: Annotated[str, typer.Argument(help="The topic.")]) -> None:
    """List the branches of a topic that are in the remote."""
    session = session_of(context)
    with session.archive() as (_, archive):
        for branch in archive.branches(topic):
            parent = branch.parent
            origin = (
                f"from {parent.vid} lsn {parent.lsn}" + (f" seq {parent.seq}" if parent.seq else "") if parent else ""
            )
            emit(
                session,
                {
                    "topic": topic,
                    "branch": branch.branch,
                    "volume": str(branch.vid),
                    "created_at": format_time(branch.created_at_ms),
                    "parent": {"volume": str(parent.vid), "lsn": parent.lsn, "seq": parent.seq} if parent else None,
                },
                f"{branch.branch:<24} {branch.vid}  {format_time(branch.created_at_ms)}  {origin}".rstrip(),
            )


def branch_of_target(session: Session, topic: str, target: str, name: str) -> None:
    """Make the branch and say what it holds, down to the last record's time."""
    with session.archive() as (_, archive):
        restored = archive.restore(topic, to=target, name=name)
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
