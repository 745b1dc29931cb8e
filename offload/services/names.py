"""The calls of an archive that give names: branches and tags, and taking a change of a name back."""

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
    """A branch that was made, and what it holds. `last_seq` and `last_ts_ms` are 0 for an empty one."""

    vid: Vid
    records: int
    last_seq: int
    last_ts_ms: int


class NameCalls(HistoryCalls):
    """Mixed into `offload.archive.Archive`."""

    @checked
    def restore(self, topic: str, *, to: str, name: str, message: str = "") -> Restored:
        """Make the branch `name` of the topic (or of its branch, as TOPIC@BRANCH) as it was at `to`.

        Nothing is overwritten, no data is copied. If the remote does not have that state yet, the topic is sealed and
        offloaded once. Raises `BranchExists`, and what `point` and `offload` raise.
        """
        self._log.check_writable()
        keys.check_name("branch", name)
        base, _ = split_name(topic)
        point = self._kept_point(topic, to)
        snapshot = self._volumes.snapshot(point.vid, point.lsn, point.seq)
        # Counted before the branch is made: damage is found while there is nothing to undo.
        count, last = self.count(snapshot)
        vid = self._branches.create(base, name, point, now_ms=self._clock.now_ms(), message=message)
        return Restored(vid, count, last.seq if last else 0, last.ts_ms if last else 0)

    @checked
    def branches(self, topic: str, *, deleted: bool = False) -> list[Branch]:
        """Every branch of a topic that is in the remote, by name; with `deleted`, those that can be had back too.

        Raises `NoSuchTopic`.
        """
        return self._branches.branches(topic, deleted=deleted)

    @checked
    def distances(self, branches: Sequence[Branch]) -> list[Distance]:
        """How far each and its parent went since the fork."""
        return self._branches.distances(branches)

    def remote_names(self) -> list[str]:
        """Of every topic and branch in the remote, ascending; of deleted branches too."""
        return sorted(topic if branch == MAIN else f"{topic}@{branch}" for topic, branch in self._branches.names())

    @checked
    def delete_branch(self, topic: str, branch: str) -> Branch:
        """Its name leads nowhere from now on. It can be had back for the PITR window. Raises `NoSuchBranch`,
        `OpenBranch` if this directory has it open for appends, and `UnnamableBranch` for main.
        """
        self._check_not_open(topic, branch)
        return self._branches.delete(topic, branch, now_ms=self._clock.now_ms())

    @checked
    def undelete_branch(self, topic: str, branch: str) -> Branch:
        """Raises `NoSuchBranch`, `VolumeHasName` if it was renamed meanwhile, and `OutOfWindow` if it was collected."""
        self._log.check_writable()
        return self._branches.undelete(topic, branch, now_ms=self._clock.now_ms())

    @checked
    def rename_branch(self, topic: str, branch: str, new: str) -> Branch:
        """Raises `NoSuchBranch`, `BranchExists`, `OpenBranch`, and `UnnamableBranch` for main."""
        self._check_not_open(topic, branch)
        return self._branches.rename(topic, branch, new, now_ms=self._clock.now_ms())

    @checked
    def tag(self, topic: str, name: str, *, to: str = "head", message: str = "") -> Tag:
        """Name a point of the topic (or of its branch, as TOPIC@BRANCH): GC keeps it. It is offloaded
        as `restore` does. Raises `TagExists`, and what `restore` raises.
        """
        self._log.check_writable()
        base, branch = split_name(topic)
        point = self._kept_point(topic, to)
        return self._tags.create(base, name, point, branch=branch, now_ms=self._clock.now_ms(), message=message)

    @checked
    def tags(self, topic: str) -> list[NamedTag]:
        """By name."""
        return self._tags.list(topic)

    @checked
    def delete_tag(self, topic: str, name: str) -> Tag:
        """Raises `NoSuchTag`."""
        self._log.check_writable()
        return self._tags.delete(topic, name, now_ms=self._clock.now_ms())

    def operations(self) -> Iterator[NumberedEntry]:
        """Who changed which name, newest first."""
        return Oplog(self._store).entries()

    @checked
    def undo(self, number: int | None = None) -> NumberedEntry:
        """Take back a change of a name: the newest, or that of a number. Raises `NotUndone`."""
        self._log.check_writable()
        return undo(self._volumes, number, writer_id=self._writer_id, now_ms=self._clock.now_ms())

    def _check_not_open(self, topic: str, branch: str) -> None:
        self._log.check_writable()
        if branch != MAIN and self._log.has_topic(f"{topic}@{branch}"):
            raise OpenBranch(f"{topic}@{branch}")
