"""The check before `undo` takes a name away: records that only its branch shows keep a name.

Records of a rescue (`reset --as`), of a takeover or of an append to a branch may be in no other branch. If an undo took
the branch away, GC would delete them at the end of the window. `seglog branch delete` takes such a branch away: it
shows the records first, and asks.

SOLE-1  An undo takes no name away under which this directory has a branch open for appends, as a rename does not. The
    newest records of the branch are only here. The undo of a promotion offloads them first, so it may.
SOLE-2  An undo takes no branch away if no other branch and no tag shows all its records. A lease does not count,
    because it ends by itself.
SOLE-3  A branch without a commit of its own shows a past state of its parent. If GC keeps that state and the parent has
    a name, the branch may go.
"""

from __future__ import annotations

from collections.abc import Sequence

from catalog import Branch
from catalog.errors import NotUndone
from catalog.format.control import full_name
from catalog.refs.oplog import NumberedEntry
from catalog.refs.promotion import moved_main
from catalog.refs.undo import names_taken_away
from offload.context import ArchiveContext
from offload.errors import OpenBranch
from offload.services.previews import PreviewService

__all__ = ["SoleNames"]


class SoleNames:
    def __init__(self, context: ArchiveContext, previews: PreviewService) -> None:
        self._log = context.log
        self._volumes = context.volumes
        self._branches = context.branches
        self._previews = previews

    def check(self, found: NumberedEntry) -> None:
        """Raise `NotUndone` if an undo of the operation would take away the only name of records.

        If it gives an open branch another name, raise `OpenBranch`. A name that has changed since is passed over: the
        undo itself refuses it.
        """
        is_promotion = moved_main(found.entry) is not None
        for topic, branch, vid, is_renamed in names_taken_away(found.entry):
            name = full_name(topic, branch)
            if is_renamed and (is_promotion or not self._log.has_topic(name)):
                continue
            live = self._branches.branches(topic)
            for each in live:
                if (each.branch, each.vid) == (branch, vid):
                    if is_renamed:
                        raise OpenBranch(name)
                    self._check_branch(found.number, each, live)

    def _check_branch(self, number: int, branch: Branch, live: Sequence[Branch]) -> None:
        name = full_name(branch.topic, branch.branch)
        if self._log.has_topic(name):
            raise _refused(number, branch, f"{name} is open for appends in this directory, and may have records")
        if self._is_a_past_state(branch, live):
            return
        records = self._previews.branch(branch.topic, branch.branch).going.records
        if records:
            many = "1 record" if records == 1 else f"{records:,} records"
            raise _refused(number, branch, f"no other branch and no tag shows {many} of {name}")

    def _is_a_past_state(self, branch: Branch, live: Sequence[Branch]) -> bool:
        """Return whether the branch shows only a state that its parent still has (SOLE-3)."""
        parent = branch.parent
        if self._volumes.newest_lsn(branch.vid):
            return False
        if parent is None:
            return True
        return any(each.vid == parent.vid for each in live) and parent.lsn >= self._volumes.boundary(parent.vid)


def _refused(number: int, branch: Branch, reason: str) -> NotUndone:
    return NotUndone(
        number,
        f"{reason}, and it would have no name any more",
        f"`seglog branch delete {branch.topic} {branch.branch} --dry-run` shows what would go, and without --dry-run it"
        " deletes the branch; `seglog oplog` lists earlier operations, and `seglog undo N` takes one of them back",
    )
