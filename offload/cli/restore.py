"""The command `seglog restore`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.branch import branch_of_target
from offload.cli.session import TopicName, session_of

__all__ = ["restore"]


def restore(
    context: typer.Context,
    topic: TopicName,
    to: Annotated[
        str, typer.Option("--to", help="seq:N (right after record N), lsn:N, head, head~N, tag:NAME, or a time.")
    ],
    as_branch: Annotated[str, typer.Option("--as", help="The name of the branch to make.")],
    message: Annotated[str, typer.Option("-m", "--message", help="Why, for the oplog.")] = "",
) -> None:
    """Bring a past state back as a branch. Nothing is overwritten and no data is copied.

    Examples: seglog restore orders --to head~1 --as before-the-delete;
    seglog restore orders --to 2026-11-21T09:30:00Z --as morning; seglog restore orders --to "15 minutes ago" --as back
    """
    branch_of_target(session_of(context), topic, to, as_branch, message)
