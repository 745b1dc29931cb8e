"""The calls of an archive for names: branches and tags, and the undo of a change of a name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from catalog import MAIN, Branch, Vid
from catalog.format import keys
from catalog.format.control import Tag
from catalog.refs.branch import Distance
from catalog.refs.oplog import NumberedEntry, Oplog
from catalog.refs.tag import NamedTag
from catalog.refs.undo import undo
from offload.errors import OpenBranch
from offload.handles import split_name
from offload.services.history import HistoryCalls
from seglog.arguments import checked

__all__ = ["NameCalls", "Restored"]


@dataclass(frozen=True, slots=True)
class Restored:
    """A new branch, and its contents. `last_seq` and `last_ts_ms` are 0 if the branch is empty."""

    vid: Vid
    records: int
    last_seq: int
    last_ts_ms: int


class NameCalls(HistoryCalls):
    """A mixin of `offload.archive.Archive`."""

    @checked
    def restore(self, topic: str, *, to: str, name: str, message: str = "") -> Restored:
        """Create the branch `name` with the state of the topic at `to`. `topic` may also be a branch, as TOPIC@BRANCH.

        The call overwrites nothing and copies no data. If the remote lacks that state, the call seals and offloads the
        topic once. Raises `BranchExists`, and what `point` and `offload` raise.
        """
        self._log.check_writable()
        keys.check_name("branch", name)
        base, _ = split_name(topic)
        point = self._kept_point(topic, to)
        snapshot = self._volumes.snapshot(point.vid, point.lsn, point.seq)
        # Count before creating the branch, so that damage is found while there is nothing to undo.
        count, last = self.count(snapshot)
        vid = self._branches.create(base, name, point, now_ms=self._clock.now_ms(), message=message)
        return Restored(vid, count, last.seq if last else 0, last.ts_ms if last else 0)

    @checked
    def branches(self, topic: str, *, deleted: bool = False) -> list[Branch]:
        """Return every branch of a topic in the remote, by name. With `deleted`, include the branches that can be
        undeleted.

        Raises `NoSuchTopic`.
        """
        return self._branches.branches(topic, deleted=deleted)

    @checked
    def distances(self, branches: Sequence[Branch]) -> list[Distance]:
        """Return how far each branch and its parent have moved since the fork."""
        return self._branches.distances(branches)

    def remote_names(self) -> list[str]:
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

    @checked
    def tag(self, topic: str, name: str, *, to: str = "head", message: str = "") -> Tag:
        """Name a point of the topic, so that GC keeps it. `topic` may also be a branch, as TOPIC@BRANCH.

        If the remote lacks the point, the call seals and offloads the topic once. Raises `TagExists`, and what
        `restore` raises.
        """
        self._log.check_writable()
        base, branch = split_name(topic)
        point = self._kept_point(topic, to)
        return self._tags.create(base, name, point, branch=branch, now_ms=self._clock.now_ms(), message=message)

    @checked
    def tags(self, topic: str) -> list[NamedTag]:
        """Return the tags of a topic, by name."""
        return self._tags.list(topic)

    @checked
    def delete_tag(self, topic: str, name: str) -> Tag:
        """Delete a tag of the topic. Raises `NoSuchTag`."""
        self._log.check_writable()
        return self._tags.delete(topic, name, now_ms=self._clock.now_ms())

    def operations(self) -> Iterator[NumberedEntry]:
        """Return the operations log, newest first: each entry says which writer changed which name."""
        return Oplog(self._store).entries()

    @checked
    def undo(self, number: int | None = None) -> NumberedEntry:
        """Undo the change of a name with that number; without a number, the newest. Raises `NotUndone`."""
        self._log.check_writable()
        return undo(self._volumes, number, writer_id=self._writer_id, now_ms=self._clock.now_ms())

    def _check_not_open(self, topic: str, branch: str) -> None:
        self._log.check_writable()
        if branch != MAIN and self._log.has_topic(f"{topic}@{branch}"):
            raise OpenBranch(f"{topic}@{branch}")
