"""Following a volume that others write: pull, fetch, and how far this directory and the volume are apart.

    pull     new commits come into the local catalog, of many the newest ones; what readers see stays
    forward  the handle goes on to the newest commit: from now on readers see that
    fetch    pull, and every commit from the newest checkpoint on, through fork points: a snapshot needs no request

R1  What readers of a replica see changes with one row of the local catalog, so they see a commit whole or not at all.
R2  No lock of the local catalog is held over a request to the store.

Source: Graft RFC 0001 (Pull & Fetch Volume, Sync remote volume to local).
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog import Handle, LocalCatalog, Volumes
from catalog.sync import News
from offload.handles import Handles
from seglog import Log

__all__ = ["LocalChanges", "Replicas", "SyncState"]


@dataclass(frozen=True, slots=True)
class LocalChanges:
    """What a topic of the log has that no commit tells of: records, deletes, and truncations of what the volume has."""

    records: int
    deletes: int
    truncations: int = 0

    def __bool__(self) -> bool:
        return bool(self.records or self.deletes or self.truncations)


@dataclass(frozen=True, slots=True)
class SyncState:
    """As text `123+2 r130+3`: up to seq 123 both have the same, 2 changes are here only, and of the volume's commits
    after lsn 130, up to which both are the same, 3 are known here. Zeros are left out.
    """

    seq: int
    local_ahead: int
    lsn: int
    remote_ahead: int

    def __str__(self) -> str:
        here = f"{self.seq}+{self.local_ahead}" if self.local_ahead else f"{self.seq}"
        there = f"r{self.lsn}+{self.remote_ahead}" if self.remote_ahead else f"r{self.lsn}"
        return f"{here} {there}"


class Replicas:
    """Of the topics of one log. The caller sees to it that one thread at a time is at a topic."""

    def __init__(self, log: Log, volumes: Volumes, handles: Handles, local: LocalCatalog) -> None:
        self._log = log
        self._volumes = volumes
        self._handles = handles
        self._local = local

    def pull(self, handle: Handle) -> News:
        """A writer hears of each commit: what is no maintenance of its volume stops it."""
        return self._handles.heard(handle, each=self._handles.is_writer(handle))

    def fetch(self, handle: Handle) -> News:
        news = self.pull(handle)
        for lsn in {handle.lsn, news.lsn}:
            self._volumes.snapshot(handle.vid, lsn)
        self._volumes.history(handle.vid, news.lsn)  # asks for the boundary and the checkpoints on the way
        return news

    def forward(self, handle: Handle) -> Handle:
        """After what a pull finds, on record."""
        news = self.pull(handle)
        if news.is_empty:
            return handle
        moved = self._handles.advanced(handle, news)
        self._local.save(handle=moved)
        return moved

    def is_replica(self, name: str) -> bool:
        """Whether it is known here, and not in the log. Asks the local disk only."""
        return not self._log.has_topic(name) and self._handles.find(name) is not None

    def names(self) -> list[str]:
        """Of replicas, ascending."""
        return [handle.name for handle in self._local.handles() if self.is_replica(handle.name)]

    def changes(self, handle: Handle) -> LocalChanges:
        """Asks the local disk only."""
        if not self._log.has_topic(handle.name):
            return LocalChanges(0, 0)
        topic = self._log.topic(handle.name)
        return LocalChanges(
            max(0, topic.head_seq - self.common_seq(handle)),
            len(topic.delete_ops()),
            len(self._handles.waiting_truncations(handle)),
        )

    def common_seq(self, handle: Handle) -> int:
        """Up to where the topic in the log and the volume are the same. A topic that came past the archive has nothing
        in common with the volume but what it says that it follows.
        """
        if self._log.has_topic(handle.name) and not self._handles.is_writer(handle):
            return self._log.topic(handle.name).first_seq - 1
        return self._handles.common_seq(handle)

    def state(self, handle: Handle) -> SyncState:
        """Asks the local disk only."""
        changes = self.changes(handle)
        return SyncState(
            seq=self.common_seq(handle),
            local_ahead=changes.records + changes.deletes + changes.truncations,
            lsn=handle.lsn,
            remote_ahead=max(0, self._local.newest_lsn(handle.vid) - handle.lsn),
        )

    def forget(self, name: str) -> None:
        """Follow it no more. Nothing in the remote changes; a commit that is pending is not sent again."""
        if self.is_replica(name):
            self._local.delete_handle(name)

    def demote(self, handle: Handle) -> Handle:
        """A replica's handle at the same commit, on record; nothing is pending, and it has not diverged."""
        moved = Handle(handle.name, handle.vid, handle.lsn, config=handle.config)
        self._local.save(handle=moved)
        return moved
