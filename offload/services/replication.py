"""`archive.replication`: several data directories share a topic. One directory writes it, the others follow it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from catalog import Handle
from catalog.errors import NoSuchBranch
from catalog.format import keys
from catalog.objects.object_store import Forward, is_behind_proxy
from offload.errors import Conflict
from offload.format.topic_config import config_of
from offload.handles import split_name
from offload.replication.replica import SyncState
from offload.services.archive_parts import OfArchive
from seglog import Topic, TopicConfig
from seglog.base.arguments import checked
from seglog.base.ownership import Owned
from seglog.errors import NoSuchTopic

if TYPE_CHECKING:
    from catalog import Snapshot
    from offload.replication.replica_follower import ReplicaFollower
    from offload.replication.reset import ResetResult
    from offload.replication.sync import Synced

MOST_WAITS = 8
"""Topics of a proxy that one directory waits for with `await_news`, each by a thread."""

WAIT_S = 20
"""The seconds of one call of `await_news`."""

LOOKS_PER_SEARCH = 12
"""Looks at the known topics, for each search of the remote for new ones: a search lists all its names."""


class ReplicationService(OfArchive, Owned):
    """The calls that follow a topic, write it, or take it over."""

    @checked
    def keep_following(self, *, is_on: bool) -> None:
        """Refuse the first append to a topic that the log lacks, as a proxy does, or take it.

        `take_over` takes a topic over in either case, and `Log.create_topic` makes one.
        """
        self._context.takes_over = not is_on

    @checked
    def followed_from(self, name: str, since: int) -> Forward | None:
        """Return what a follower of the name needs after the LSN `since`, as a proxy answers; None without the name."""
        return self._replicas.followed_from(name, since)

    @checked
    def newest(self, name: str) -> tuple[int, Snapshot]:
        """Return the epoch of a replica, and its newest state here. Raises `NoSuchTopic` if the name is none."""
        return self._parts.epochs.newest(name)

    @checked
    def changed_since(self, name: str, epoch: int) -> tuple[int, int | None]:
        """Return the epoch of a replica, and the lowest seq that may mean another record than in `epoch`, or None."""
        return self._parts.epochs.changed_since(name, epoch)

    @checked
    def follower(
        self, name: str, start: int | None = None, *, gaps: bool = False, epoch: int | None = None
    ) -> ReplicaFollower:
        """Return a follower of the records of a replica (offload.replication.replica_follower).

        Args:
            name: The replica.
            start: The first seq; None is the first record that is not lost.
            gaps: Tell lost ranges, in place of `Evicted`.
            epoch: The caller has the records below `start` as they were in this epoch.

        Raises:
            Truncated: The records below `start` are others by now.
            SeqOutOfRange: `start` lies behind the head.
        """
        return self._parts.epochs.follower(name, start, gaps=gaps, epoch=epoch)

    @checked
    def pull(self, name: str) -> SyncState:
        """Fetch new commits of the volume into the local catalog. Readers still see the same state.

        If the name is only in the remote, it becomes a replica. Raises `NoSuchTopic`, `NoSuchBranch`.
        """
        with self._locks.of(name):
            self._replicas.pull(self._followed(name))
        return self._replicas.sync_state(name)

    @checked
    def fetch(self, name: str) -> SyncState:
        """Pull, and fetch every commit that a snapshot needs, and the names of tags. Raises as `pull` does."""
        with self._locks.of(name):
            self._replicas.fetch(self._followed(name))
            self._context.tags.list(split_name(name)[0])
        return self._replicas.sync_state(name)

    @checked
    def sync(self, name: str, *, on_bytes: Callable[[int], None] = lambda _: None) -> Synced:
        """Bring this directory and the remote to the same state: follow the volume, or push the sealed records.

            >>> archive.replication.sync("orders").commits
            0

        A topic that another directory writes becomes a replica here (offload.replication.sync).

        Args:
            name: The topic, or TOPIC@BRANCH.
            on_bytes: Called now and then with the number of frame bytes that a push has just read.

        Raises:
            Diverged, Fenced: Both have changed. `reset` keeps what is only here as a branch.
            SeglogError: What the store raises. The state here stays as it was.
        """
        self._log.check_writable()
        with self._locks.of(name):
            if not self._log.has_topic(name):
                return self._parts.sync.follow(name)
            self._parts.takeover.open(name)
            return self._parts.sync.write(name, on_bytes)

    @checked
    def follow(self, name: str) -> bool:
        """Sync a replica, and return whether it moved. If the name is not a replica, do nothing and return False.

        A proxy also settles a topic that it writes itself, and looks for another writer. Raises `Diverged` or `Fenced`.
        """
        with self._locks.of(name):
            if self._replicas.is_replica(name):
                return self._parts.sync.follow(name).commits > 0
            handle = None if self._context.takes_over else self._context.handles.find(name)
            if handle is not None and self._context.handles.is_writer(handle):
                self._parts.sync.fast_forward(name)
            return False

    @property
    def can_wait(self) -> bool:
        """Return whether the remote is a proxy, which tells of news (`await_news`)."""
        return is_behind_proxy(self._context.store)

    @checked
    def await_news(self, name: str, wait_s: int) -> bool | None:
        """Wait until a proxy knows another commit of a replica than this directory, for `wait_s` seconds at most.

        Return whether it does; None if the remote is no proxy, or if it does not follow the name. Takes no lock.
        Raises what the store raises, once, and `StoreUnreachable` after `end_waits`.
        """
        handle, store = self._context.handles.find(name), self._context.store
        if handle is None or not is_behind_proxy(store) or not self._replicas.is_replica(name):
            return None
        found = store.await_forward(name, handle.vid, handle.lsn, wait_s)
        return None if found is None else found.vid != handle.vid or found.lsn > handle.lsn

    def end_waits(self) -> None:
        """End each `await_news` at once, and let none begin."""
        if is_behind_proxy(self._context.store):
            self._context.store.end_waits()

    @checked
    def reset(
        self, name: str, *, as_branch: str | None = None, discard: bool = False, message: str = ""
    ) -> ResetResult:
        """Drop the local changes of the topic, and follow the remote again (offload.replication.reset).

            archive.replication.reset("orders", as_branch="only-here")

        Args:
            name: The topic, or TOPIC@BRANCH.
            as_branch: Keep the local changes as a branch of this name.
            discard: Drop them for good.
            message: What the oplog says.

        Raises:
            LocalChangesLost: There are local changes, and neither `as_branch` nor `discard` was given.
        """
        self._log.check_writable()
        if as_branch is not None:
            keys.check_name("branch", as_branch)
        with self._locks.of(name):
            handle = self._context.handles.follow(name)
            self._parts.reset.note(name, "reset", message)
            return self._parts.reset.run(handle, as_branch=as_branch, discard=discard)

    @checked
    def take_over(self, name: str) -> Topic:
        """Become the writer of the topic, and fence its present writer (offload.replication.takeover).

            archive.replication.take_over("orders").append([b"book"])

        Raises:
            Fenced, Diverged: This log has the topic, and another writer owns the volume: `reset` first. Or another
                takeover came first.
            NoSuchTopic, NoSuchBranch: The remote has none.
        """
        from offload.write.publisher import divergence

        self._log.check_writable()
        with self._locks.of(name):
            handle = self._parts.takeover.open(name) if self._log.has_topic(name) else self._parts.takeover.run(name)
            if handle.diverged_lsn is not None:
                raise divergence(handle)
        return self._log.topic(name)

    @checked
    def sync_state(self, name: str) -> SyncState:
        """Return how far this directory and the volume differ, as far as this directory knows. Reads the local disk
        only.
        """
        return self._replicas.sync_state(name)

    @checked
    def is_replica(self, name: str) -> bool:
        """Return whether this directory follows the name and does not write it. Reads the local disk only."""
        return self._replicas.is_replica(name)

    @checked
    def check_not_followed(self, name: str) -> None:
        """Raise `Conflict` if this directory follows the name and does not write it.

        So does a proxy for a name that its remote has and its log lacks. It asks the remote, and raises what the store
        raises.
        """
        if self._replicas.is_replica(name) or self._is_of_remote(name):
            if self._context.takes_over:
                then = f"`seglog takeover {name}` makes this directory its writer"
                hint = f"{then}, as the next `seglog append {name}` does. It stops another writer"
                text = f"this directory follows {name}, and does not write it; nothing was changed"
                raise Conflict(text, hint=hint)
            from offload.replication.takeover import refusal_of_proxy

            refusal = refusal_of_proxy(name, is_new=False)
            raise Conflict(str(refusal), hint=refusal.hint)

    @checked
    def config(self, name: str) -> TopicConfig:
        """Return the configuration of a replica as of its last sync. Reads the local disk only.

        Raises `NoSuchTopic` if this directory does not follow the name.
        """
        handle = self._context.handles.find(name)
        if handle is None or not self._replicas.is_replica(name):
            raise NoSuchTopic(name)
        return config_of(handle.config, f"volume {handle.vid}")

    def replicas(self) -> list[str]:
        """Return the names that this directory follows. Reads the local disk only."""
        return self._replicas.names()

    def _is_of_remote(self, name: str) -> bool:
        if self._context.takes_over or self._log.has_topic(name):
            return False
        with suppress(NoSuchTopic, NoSuchBranch):
            self._context.handles.resolve(name)
            return True
        return False

    def _followed(self, name: str) -> Handle:
        handle = self._context.handles.follow(name)
        self._context.handles.check_remote(handle)
        return handle
