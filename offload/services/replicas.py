"""The calls of an archive by which several data directories share a topic: who follows it, and who writes it."""

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
    """The outcome of `delete_topic`: the topic was `deleted` for good, `detached` from this directory, or `unfollowed`.

    The remote has it up to `lsn`; None: it has nothing of it. `records` and `deletes` were dropped unsent.
    """

    outcome: Literal["deleted", "detached", "unfollowed"]
    lsn: int | None
    records: int = 0
    deletes: int = 0


class ReplicaCalls(StatusCalls):
    """Mixed into `offload.archive.Archive`."""

    @checked
    def pull(self, name: str) -> SyncState:
        """Bring new commits of the volume into the local catalog; readers see what they saw.

        A name that is only in the remote becomes a replica. Raises `NoSuchTopic`, `NoSuchBranch`.
        """
        with self._turn(name):
            self._replicas.pull(self._followed(name))
        return self.sync_state(name)

    @checked
    def fetch(self, name: str) -> SyncState:
        """Pull, and bring every commit that a snapshot needs here. Raises as `pull` does."""
        with self._turn(name):
            self._replicas.fetch(self._followed(name))
        return self.sync_state(name)

    @checked
    def sync(self, name: str, *, on_bytes: Callable[[int], None] = lambda _: None) -> Synced:
        """Make this directory and the volume the same: follow it, or push what is sealed here
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
        """What `sync` does for a name that is followed here; False, and nothing, for one that is written by now."""
        with self._turn(name):
            return self.is_replica(name) and self._sync.follow(name).commits > 0

    @checked
    def reset(self, name: str, *, as_branch: str | None = None, discard: bool = False) -> ResetResult:
        """Drop what only this directory has of the topic, and follow the volume again (offload.replication.reset).

        With `as_branch` it becomes a branch. Raises `LocalChangesLost` if there is something and neither is said.
        """
        self._log.check_writable()
        if as_branch is not None:
            keys.check_name("branch", as_branch)
        with self._turn(name):
            return self._reset.run(self._handles.follow(name), as_branch=as_branch, discard=discard)

    @checked
    def take_over(self, name: str) -> Topic:
        """Become the writer of the topic: whoever writes it now is fenced (offload.replication.takeover).

        Raises `Fenced` and `Diverged` for a topic that is written here, and another writer has it.
        """
        self._log.check_writable()
        with self._turn(name):
            handle = self._open(name) if self._log.has_topic(name) else self._takeover.run(name)
            if handle.diverged_lsn is not None:
                raise divergence(handle)
        return self._log.topic(name)

    @checked
    def delete_topic(self, name: str, *, detach: bool = False, discard: bool = False) -> TopicGone:
        """Delete a topic of the log that has nothing in the remote, or follow a replica no more.

        A topic that has a history in the remote goes only with `detach`, and only from here: in the remote it stays;
        `sync` or `take_over` bring it back. All of it is offloaded first, or with `discard` what is only here is
        dropped; and what replaces the hot copies is read back. Repeat it after an error: it goes on.
        Raises `NoSuchTopic`, `TopicAttached` without `detach`, `Diverged`, and what the store raises.
        """
        self._log.check_writable()
        if self.is_replica(name):
            with self._turn(name):
                lsn = self._handles.follow(name).lsn
                self._replicas.forget(name)
            return TopicGone("unfollowed", lsn)
        topic = self._log.existing(name)
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
