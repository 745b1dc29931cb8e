"""Replicas: a directory follows a volume that another one writes, and measures how far the two differ.

    pull     fetches new commits into the local catalog, of many only the newest; readers still see the same state
    forward  moves the handle to the newest commit; readers see that state from now on
    fetch    pulls, and fetches every commit from the newest checkpoint on, through fork points: a snapshot needs no
             request

REPLICA-1  One row of the local catalog decides which state the readers of a replica see. So they see a commit whole or
    not at all.
REPLICA-2  No thread holds a lock of the local catalog during a request to the store.
REPLICA-3  The log keeps the producers and keys that a topic had before this directory followed it
    (seglog.values.written_elsewhere). Once another directory has appended, it keeps the keys only. A producer that went
    on there would skip numbers here.

Source: Graft RFC 0001 (Pull & Fetch Volume, Sync remote volume to local).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from catalog import CommitKind, Handle
from catalog.objects.object_store import Forward
from offload.context import ArchiveContext, OfContext, TopicLocks
from seglog import Elsewhere
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    from catalog.updates import Updates

_MOST_COMMITS = 64  # that go to a follower one by one


@dataclass(frozen=True, slots=True)
class LocalChanges:
    """The local changes of a topic of the log: the records and deletes, and the truncations of the volume's records,
    that no commit has yet.
    """

    records: int
    deletes: int
    truncations: int = 0

    def __bool__(self) -> bool:
        return bool(self.records or self.deletes or self.truncations)


@dataclass(frozen=True, slots=True)
class SyncState:
    """How far this directory and the volume differ. Its text looks like `123+2 r130+3`.

    Up to seq 123 both are the same, and 2 changes are only here. Up to LSN 130 both are the same, and 3 later commits
    of the volume are known here. The text omits zeros.
    """

    seq: int
    local_ahead: int
    lsn: int
    remote_ahead: int

    def __str__(self) -> str:
        local = f"{self.seq}+{self.local_ahead}" if self.local_ahead else f"{self.seq}"
        remote = f"r{self.lsn}+{self.remote_ahead}" if self.remote_ahead else f"r{self.lsn}"
        return f"{local} {remote}"


class Replicas(OfContext):
    """The replicas and the local changes of one log. The caller ensures that only one thread at a time works on a
    topic.
    """

    def __init__(self, context: ArchiveContext) -> None:
        super().__init__(context)
        self._making = TopicLocks()
        self._wholes: dict[str, tuple[str, bytes]] = {}  # the newest commit that went to followers, with its key

    def pull(self, handle: Handle, forward: Forward | None = None) -> Updates:
        """Fetch the volume's new commits, and return them. `forward` is the answer of a proxy in their place.

        A writer's handle gets each commit, because a commit that is not maintenance of the volume stops the writer.
        """
        handles = self._context.handles
        return handles.fetch_updates(handle, each=handles.is_writer(handle), forward=forward)

    def fetch(self, handle: Handle) -> Updates:
        updates = self.pull(handle)
        for lsn in {handle.lsn, updates.lsn}:
            self._context.volumes.snapshot(handle.vid, lsn)
        self._context.volumes.history(handle.vid, updates.lsn)  # also fetches the boundary and the checkpoints
        return updates

    def forward(self, handle: Handle) -> Handle:
        """Pull, move the handle to the newest commit, and save the handle."""
        return self.move(handle, self.pull(handle))

    def move(self, handle: Handle, updates: Updates) -> Handle:
        """Move the handle past `updates`, which `pull` gave, and save the handle."""
        if updates.is_empty:
            return handle
        self._forget_producers(handle.name, updates)
        moved = self._context.handles.advanced(handle, updates)
        self._local.save(handle=moved)
        return moved

    def followed_from(self, name: str, since: int) -> Forward | None:
        """Return what a follower of the name needs after the LSN `since`, as a proxy answers; None without the name.

        It is what this directory knows. Only the first call for a commit may ask the store.
        """
        from catalog.format.encoding import decode_commit_at, with_checkpoint
        from catalog.format.keys import boundary_key, commit_key
        from catalog.format.small_objects import decode_boundary
        from catalog.snapshot import checkpoint_of

        handle = self._context.handles.find(name)
        if handle is None or handle.diverged_lsn is not None:
            self._wholes.pop(name, None)
            return None
        volumes, vid, lsn = self._context.volumes, handle.vid, handle.lsn
        body = self._local.object(boundary_key(vid))
        boundary = 0 if body is None else decode_boundary(body, vid).lsn
        if since >= lsn:
            return Forward(vid, lsn, boundary)
        key, run = commit_key(vid, lsn), dict[int, bytes]()
        if since >= boundary - 1 and lsn - since <= _MOST_COMMITS:
            run = self._local.commit_bodies(vid, since + 1, lsn)
        with self._making.of(name):
            known_key, whole = self._wholes.get(name, ("", b""))
            if known_key != key:
                checkpoint = checkpoint_of(volumes.snapshot(vid, lsn), now_ms=self._context.clock.now_ms())
                body = (run or self._local.commit_bodies(vid, lsn, lsn)).get(lsn) or self._context.store.get(key)
                whole = with_checkpoint(body, checkpoint, key)
                self._wholes[name] = key, whole
        is_less = len(run) == lsn - since and sum(map(len, run.values())) <= len(whole)
        if is_less and all(decode_commit_at(body, vid, at).checkpoint is None for at, body in run.items()):
            return Forward(vid, lsn, boundary, tuple(run.values()))
        return Forward(vid, lsn, boundary, (whole,))

    def _forget_producers(self, name: str, updates: Updates) -> None:
        """Forget the producers of a topic to which the log of another directory has appended (REPLICA-3)."""
        appends = self._log.known_appends(name)
        commits = (stored.commit for stored in updates.commits)
        if appends.producers and (
            updates.newest is not None
            or any(commit.kind is CommitKind.OFFLOAD and commit.load is None for commit in commits)
        ):
            self._log.mark_elsewhere(name, replace(appends, producers=()))

    def is_replica(self, name: str) -> bool:
        """Return whether the name has a handle here and no topic in the log. Reads the local disk only."""
        return not self._log.has_topic(name) and self._context.handles.find(name) is not None

    def names(self) -> list[str]:
        """Return the names of the replicas, ascending."""
        topics = {*self._log.topics()}
        return [name for name in self._local.handle_names() if name not in topics]

    def mark_all(self) -> None:
        """Let the log know what this directory does not write. A directory of an older release may not have it."""
        if self._log.is_read_only:
            return
        for name in self.names():
            if name not in self._log.elsewhere:
                self._log.mark_elsewhere(name, Elsewhere())
        for name in self._local.fenced_names():
            if name not in self._log.elsewhere:
                self._log.mark_elsewhere(name, Elsewhere(is_fenced=True))

    def changes(self, handle: Handle) -> LocalChanges:
        """Return the local changes of the handle's topic. Reads the local disk only."""
        if not self._log.has_topic(handle.name):
            return LocalChanges(0, 0)
        topic = self._log.topic(handle.name)
        return LocalChanges(
            max(0, topic.head_seq - self.common_seq(handle)),
            len(topic.inner.delete_ops()),
            len(self._context.handles.waiting_truncations(handle)),
        )

    def common_seq(self, handle: Handle) -> int:
        """Return the last seq up to which the topic in the log and the volume are the same.

        If the topic was made without the archive, it shares with the volume only the seqs before its first.
        """
        if self._log.has_topic(handle.name) and not self._context.handles.is_writer(handle):
            return self._log.topic(handle.name).first_seq - 1
        return self._context.handles.common_seq(handle)

    def state(self, handle: Handle) -> SyncState:
        """Return how far this directory and the volume differ. Reads the local disk only."""
        changes = self.changes(handle)
        return SyncState(
            seq=self.common_seq(handle),
            local_ahead=changes.records + changes.deletes + changes.truncations,
            lsn=handle.lsn,
            remote_ahead=max(0, self._local.newest_lsn(handle.vid) - handle.lsn),
        )

    def sync_state(self, name: str) -> SyncState:
        """Return the `state` of a name. A topic without a handle is a local change as a whole."""
        handle = self._context.handles.find(name)
        if handle is None:
            topic = self._log.get_topic(name)
            changes = topic.head_seq - topic.first_seq + 1 + len(topic.inner.delete_ops())
            return SyncState(topic.first_seq - 1, changes, 0, 0)
        return self.state(handle)

    def forget(self, name: str) -> None:
        """Stop following a replica. Nothing in the remote changes, and a pending commit is not sent again."""
        if self.is_replica(name):
            self._context.handles.forget(name)
            self._log.mark_elsewhere(name, None)

    def demote(self, handle: Handle) -> Handle:
        """Save and return a replica's handle at the same commit. The new handle has nothing pending and has not
        diverged.
        """
        moved = Handle(handle.name, handle.vid, handle.lsn, config=handle.config)
        self._local.save(handle=moved)
        return moved
