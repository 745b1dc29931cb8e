"""A past state as a branch: `seglog restore`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from offload.commands import branch
from offload.commands.branch import BranchMade
from offload.commands.parameters import About, TopicName

if TYPE_CHECKING:
    from offload.archive import Archive

__all__ = ["restore"]


def restore(
    archive: Archive,
    topic: TopicName,
    to: Annotated[str, About("seq:N (right after record N), lsn:N, head, head~N, tag:NAME, or a time.")],
    as_branch: Annotated[str, About("The name of the branch to make.")],
    message: Annotated[str, About("Why, for the oplog.")] = "",
) -> BranchMade:
    """Bring a past state back as a branch. Nothing is overwritten and no data is copied.

    Examples: seglog restore orders --to head~1 --as before-the-delete;
    seglog restore orders --to 2026-11-21T09:30:00Z --as morning; seglog restore orders --to "15 minutes ago" --as back
    """
    return branch.create(archive, topic, as_branch, to, message)
