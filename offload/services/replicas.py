"""The calls of an archive that let several data directories share a topic: one directory writes it, the others follow
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from catalog.format import keys
from offload.errors import TopicAttached
from offload.replication.replica import SyncState
from offload.replication.reset import ResetResult
from offload.replication.sync import Synced
from offload.services.status import StatusCalls
from offload.write.publisher import divergence
from seglog import Topic
from seglog.arguments import checked

__all__ = ["ReplicaCalls", "TopicGone"]


@dataclass(frozen=True, slots=True)
class TopicGone:
    """The result of `delete_topic`: the topic was `deleted` for good, `detached` from this directory, or `unfollowed`.

    The remote has the topic up to `lsn`, or nothing of it if `lsn` is None. `records` and `deletes` count the local
    changes that were dropped without an offload.
    """

    outcome: Literal["deleted", "detached", "unfollowed"]
    lsn: int | None
    records: int = 0
    deletes: int = 0


class ReplicaCalls(StatusCalls):
    """A mixin of `offload.archive.Archive`."""

    @checked
    def pull(self, name: str) -> SyncState:
        """Fetch new commits of the volume into the local catalog. Readers still see the same state.

        If the name is only in the remote, it becomes a replica. Raises `NoSuchTopic`, `NoSuchBranch`.
        """
        with self._turn(name):
            self._replicas.pull(self._followed(name))
        return self.sync_state(name)

    @checked
    def fetch(self, name: str) -> SyncState:
        """Pull, and fetch every commit that a snapshot needs. Raises as `pull` does."""
        with self._turn(name):
            self._replicas.fetch(self._followed(name))
        return self.sync_state(name)

    @checked
    def sync(self, name: str, *, on_bytes: Callable[[int], None] = lambda _: None) -> Synced:
        """Bring this directory and the volume to the same state: follow the volume, or push the sealed records
        (offload.replication.sync).

        Raises `Diverged` and `Fenced` if both have changed, and what the store raises.
        """
        self._log.check_writable()
        with self._turn(name):
            if not self._log.has_topic(name):
                return self._sync.follow(name)
            self._open(name)
            return self._sync.write(name, on_bytes)

    @checked
    def follow(self, name: str) -> bool:
        """Sync a replica, and return whether it moved. If the name is not a replica, do nothing and return False."""
        with self._turn(name):
            return self.is_replica(name) and self._sync.follow(name).commits > 0

    @checked
    def reset(self, name: str, *, as_branch: str | None = None, discard: bool = False) -> ResetResult:
        """Drop the local changes of the topic, and follow the volume again (offload.replication.reset).

        With `as_branch`, the local changes become a branch. Raises `LocalChangesLost` if there are local changes and
        the caller passes neither `as_branch` nor `discard`.
        """
        self._log.check_writable()
        if as_branch is not None:
            keys.check_name("branch", as_branch)
        with self._turn(name):
            return self._reset.run(self._handles.follow(name), as_branch=as_branch, discard=discard)

    @checked
    def take_over(self, name: str) -> Topic:
        """Become the writer of the topic, and fence its present writer (offload.replication.takeover).

        Raises `Fenced` or `Diverged` if this log has the topic but another writer owns the volume.
        """
        self._log.check_writable()
        with self._turn(name):
            handle = self._open(name) if self._log.has_topic(name) else self._takeover.run(name)
            if handle.diverged_lsn is not None:
                raise divergence(handle)
        return self._log.topic(name)

    @checked
    def delete_topic(self, name: str, *, detach: bool = False, discard: bool = False) -> TopicGone:
        """Delete a topic of the log that has nothing in the remote, or stop following a replica.

        If the topic has a history in the remote, the call requires `detach`, and deletes the topic only here. `sync` or
        `take_over` brings it back. The call first offloads the whole topic; with `discard`, it drops the local changes
        instead. Before the hot copies go, the call reads back the objects that replace them.

        After an error, the caller repeats the call to resume. Raises `NoSuchTopic`, `TopicAttached` without `detach`,
        `Diverged`, and what the store raises.
        """
        self._log.check_writable()
        if self.is_replica(name):
            with self._turn(name):
                lsn = self._handles.follow(name).lsn
                self._replicas.forget(name)
            return TopicGone("unfollowed", lsn)
        topic = self._log.get_topic(name)
        with self._turn(name):
            if self._local.handle(name) is not None:
                if not detach:
                    raise TopicAttached(name)
                if not discard:
                    self._open(name)
                    topic.seal()
                    self._offloader.run(name)
                result = self._reset.run(self._handles.follow(name), discard=discard)
                self._replicas.forget(name)
                kept_lsn = result.lsn if result.is_followed else None
                return TopicGone("detached", kept_lsn, result.changes.records, result.changes.deletes)
            self._log.configure(name, replace(topic.config, keep_history=False))
            self._log.delete_topic(name)
            return TopicGone("deleted", None)
