"""`archive.branches`: the branches of a topic in the remote."""

from __future__ import annotations

from collections.abc import Sequence

from catalog import MAIN, Branch
from catalog.refs.branch import Distance
from offload.context import ArchiveContext
from offload.errors import OpenBranch
from seglog.arguments import checked
from seglog.process.ownership import Owned

__all__ = ["BranchService"]


class BranchService(Owned):
    """The calls about branches. `Archive.restore` makes one."""

    def __init__(self, context: ArchiveContext) -> None:
        self._log = context.log
        self._branches = context.branches
        self._clock = context.clock

    @checked
    def list(self, topic: str, *, deleted: bool = False) -> list[Branch]:
        """Return every branch of a topic in the remote, by name. With `deleted`, include the branches that can be
        undeleted.

        Raises `NoSuchTopic`.
        """
        return self._branches.branches(topic, deleted=deleted)

    @checked
    def distances(self, branches: Sequence[Branch]) -> Sequence[Distance]:
        """Return how far each branch and its parent have moved since the fork."""
        return self._branches.distances(branches)

    def remote_names(self) -> Sequence[str]:
        """Return the names of all topics and branches in the remote, ascending, deleted branches included."""
        return sorted(topic if branch == MAIN else f"{topic}@{branch}" for topic, branch in self._branches.names())

    @checked
    def delete_branch(self, topic: str, branch: str) -> Branch:
        """Delete the branch. `undelete_branch` restores it during the PITR window.

        Raises `NoSuchBranch`, `OpenBranch` if this directory has the branch open for appends, and `UnnamableBranch` for
        main.
        """
        self._check_not_open(topic, branch)
        return self._branches.delete(topic, branch, now_ms=self._clock.now_ms())

    @checked
    def undelete_branch(self, topic: str, branch: str) -> Branch:
        """Restore a deleted branch.

        Raises `NoSuchBranch`, `VolumeHasName` if the branch was renamed meanwhile, and `OutOfWindow` if GC collected
        it.
        """
        self._log.check_writable()
        return self._branches.undelete(topic, branch, now_ms=self._clock.now_ms())

    @checked
    def rename_branch(self, topic: str, branch: str, new: str) -> Branch:
        """Rename the branch to `new`. Raises `NoSuchBranch`, `BranchExists`, `OpenBranch`, and `UnnamableBranch` for
        main.
        """
        self._check_not_open(topic, branch)
        return self._branches.rename(topic, branch, new, now_ms=self._clock.now_ms())

    def _check_not_open(self, topic: str, branch: str) -> None:
        self._log.check_writable()
        if branch != MAIN and self._log.has_topic(f"{topic}@{branch}"):
            raise OpenBranch(f"{topic}@{branch}")
