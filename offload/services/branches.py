"""`archive.branches`: the branches of a topic in the remote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from catalog import MAIN, Branch
from catalog.format import keys
from catalog.format.control import full_name
from catalog.refs.branch import Distance
from offload.context import ArchiveContext
from offload.errors import OpenBranch
from offload.moment import format_time
from seglog.base.arguments import checked
from seglog.base.ownership import Owned

if TYPE_CHECKING:
    from offload.services.promotion import Promoted, Promotion

__all__ = ["BranchService"]


class BranchService(Owned):
    """The calls about branches. `Archive.restore` makes one."""

    def __init__(self, context: ArchiveContext, promotion: Callable[[], Promotion]) -> None:
        self._log = context.log
        self._branches = context.branches
        self._clock = context.clock
        self._promotion = promotion

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
        return sorted(full_name(topic, branch) for topic, branch in self._branches.names())

    @checked
    def delete_branch(self, topic: str, branch: str, *, message: str = "") -> Branch:
        """Delete the branch. `undelete_branch` restores it during the PITR window. The oplog keeps `message`.

        Raises `NoSuchBranch`, `OpenBranch` if this directory has the branch open for appends, and `UnnamableBranch` for
        main.
        """
        self._check_not_open(topic, branch)
        return self._branches.delete(topic, branch, now_ms=self._clock.now_ms(), message=message)

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

    @checked
    def promote_branch(
        self,
        topic: str,
        branch: str,
        *,
        keep: str | None = None,
        carry: bool = False,
        leave: bool = False,
        message: str = "",
    ) -> Promoted:
        """Make the branch the topic's main (offload.services.promotion). The former main stays as the branch `keep`.

        By default, `keep` is `before-promote-` and the time. The call first offloads what this directory has of both,
        and then drops its hot copies. Writers of both in other directories are fenced.

        Raises `RecordsAfterFork` if main has records that the branch lacks. With `carry`, the call appends them to the
        branch first, with new seqs. With `leave`, they stay in the former main only. Raises
        `NoSuchTopic`, `NoSuchBranch`, `BranchExists`, `KeyChanged` or `VolumeHasName` for a lost race, `Diverged`, and
        what the store raises. After an error, the caller repeats the call.
        """
        if keep is None:
            keep = self._name_of_an_earlier_try(topic, branch) or _name_of_former(self._clock.now_ms())
        keys.check_name("branch", keep)
        return self._promotion().run(topic, branch, keep, carry=carry, leave=leave, message=message)

    def _name_of_an_earlier_try(self, topic: str, branch: str) -> str | None:
        """Return the name that a promotion gave to main's volume before it ended early, or None."""
        found = self._branches.branches(topic)
        mains = {each.vid for each in found if each.branch == MAIN}
        names = [each.branch for each in found if each.vid in mains and each.branch not in {MAIN, branch}]
        return names[0] if names else None

    def _check_not_open(self, topic: str, branch: str) -> None:
        self._log.check_writable()
        if branch != MAIN and self._log.has_topic(f"{topic}@{branch}"):
            raise OpenBranch(f"{topic}@{branch}")


def _name_of_former(now_ms: int) -> str:
    """Return a name such as `before-promote-20261122T093000Z`."""
    seconds, _, _ = format_time(now_ms).replace("-", "").replace(":", "").partition(".")
    return f"before-promote-{seconds}Z"
