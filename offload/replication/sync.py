"""Sync: it brings a directory and a volume to the same state. Either of the two may be behind.

    here              the volume has              result
    a replica         anything                    the handle moves to the newest commit
    no changes        nothing new                 -
    changes           nothing new                 push: sealed records are offloaded, deletes are published
    any               maintenance only            the handle moves past it; then as if the volume had nothing new
    no changes        another writer's commits    the directory follows the topic from now on; nothing is lost
                                                  (offload.replication.reset)
    changes           another writer's commits    `Diverged`, or `Fenced` if that writer took the topic over
    any               been collected              `BranchCollected`
    a replica         lost its name to another    the handle moves to the other volume (offload.services.promotion)

Source: Graft RFC 0001 (Sync remote volume to local, Push Volume).
"""

from __future__ import annotations

from collections.abc import Callable

from catalog import Handle
from catalog.errors import BranchCollected, Diverged
from catalog.updates import Updates
from offload.context import ArchiveContext
from offload.replication.replica import Replicas
from offload.replication.reset import Reset
from offload.write.offloader import Offloader
from offload.write.publisher import Published, Publisher, divergence
from seglog.base.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Brought:
    """The commits of others that a sync brought: the newest record with them, and the time of the first of them.

    The time is None if not every commit was fetched.
    """

    head_seq: int
    last_ms: int
    first_commit_ms: int | None


@dataclass(frozen=True, slots=True)
class Synced:
    """The result of a sync. `commits` counts the commits of others, and `published` are this directory's own commits.

    `is_replica` says whether this directory follows the topic. `brought` is None if there was nothing new, or if the
    name moved to another volume.
    """

    name: str
    lsn: int
    commits: int
    published: tuple[Published, ...]
    is_replica: bool
    brought: Brought | None = None


class Sync:
    """Syncs topics of one log. The caller ensures that only one thread at a time works on a topic."""

    def __init__(
        self, context: ArchiveContext, replicas: Replicas, offloader: Offloader, publisher: Publisher, reset: Reset
    ) -> None:
        self._handles = context.handles
        self._replicas = replicas
        self._offloader = offloader
        self._publisher = publisher
        self._reset = reset

    def follow(self, name: str) -> Synced:
        """Sync a replica."""
        before = self._handles.follow(name)
        forward = self._handles.forward(before)
        handle = self._handles.relocate(before, must_lead=True, forward=forward)
        if handle.epoch:  # the log has no such topic: a reset stopped after step 5
            handle = self._replicas.demote(handle)
        is_about_it = forward is not None and forward.vid == handle.vid == before.vid
        updates = self._replicas.pull(handle, forward if is_about_it else None)
        moved = self._replicas.move(handle, updates)
        return Synced(name, moved.lsn, _new_commits(before, moved), (), is_replica=True, brought=_brought(updates))

    def write(self, name: str, on_bytes: Callable[[int], None]) -> Synced:
        """Sync a topic that this directory writes, and whose handle is open."""
        before = self._handles.of(name)
        try:
            self.fast_forward(name)
        except BranchCollected:
            raise
        except Diverged:
            if self._replicas.changes(self._handles.of(name)):
                raise
            self._reset.run(self._handles.of(name))
            moved = self._handles.of(name)
            return Synced(name, moved.lsn, _new_commits(before, moved), (), is_replica=True)
        lsns = self._handles.of(name).lsn - before.lsn
        published = (
            self._offloader.run(name, on_bytes=on_bytes) if self._replicas.changes(self._handles.of(name)) else []
        )
        return Synced(name, self._handles.of(name).lsn, lsns, tuple(published), is_replica=False)

    def fast_forward(self, name: str) -> None:
        """Move the handle past commits that are only maintenance.

        If there are other commits, record the divergence, and raise `Diverged` or `Fenced`.
        """
        handle = self._handles.of(name)
        if handle.diverged_lsn is not None:
            raise divergence(handle)
        self._offloader.settle(name)
        self._publisher.fast_forward(self._handles.of(name))


def _brought(updates: Updates) -> Brought | None:
    if updates.newest is not None:
        return Brought(updates.newest.bounds.head_seq, updates.newest.max_ts_ms, None)
    if not updates.commits:
        return None
    first, last = updates.commits[0].commit, updates.commits[-1].commit
    return Brought(last.bounds.head_seq, last.at_ts_ms, first.created_at_ms)


def _new_commits(before: Handle, moved: Handle) -> int:
    """Return how many commits the handle moved past. All commits of another volume are new here."""
    return moved.lsn - before.lsn if moved.vid == before.vid else moved.lsn
