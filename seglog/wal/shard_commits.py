"""The writer of a log. It runs group commit in each shard of the WAL, under one lock.

See seglog.wal.group_commit and seglog.wal.wal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from seglog.base.ownership import Owned
from seglog.errors import CalledWithin, LogClosed, SeglogError, WriterPoisoned
from seglog.interrupts import Reentrant, is_interrupt, uninterrupted
from seglog.wal.group_commit import Barrier, Entry, GroupCommit, SharedCommitState
from seglog.wal.manifest import WalPosition
from seglog.wal.wal import Wals, shard_of


class Committer(Owned):
    """The group commits of all shards. `lock` guards all state that entries assign and publish.

    `raw_lock` is the same lock without the check for a call within a call. Callers use it after `check_apart`.
    `reset_assigned` runs under the lock and resets the assigned state to the published state. After that the committer
    assigns every entry in flight again.
    """

    def __init__(self, wals: Wals, lock: Reentrant, reset_assigned: Callable[[], None]) -> None:
        self.raw_lock = lock
        self._reset_assigned = reset_assigned
        self._shared = SharedCommitState(lock, self._recompute_assigned)
        self._shards = tuple(GroupCommit(wal, self._shared) for wal in wals.each)
        self._only = self._shards[0] if len(wals) == 1 else None

    @property
    def lock(self) -> Reentrant:
        """Return the lock for a `with` statement. Raises `CalledWithin` if this thread holds the lock."""
        if self.raw_lock._is_owned():  # noqa: SLF001 - `once`, inlined, because every read runs this
            raise CalledWithin
        return self.raw_lock

    def check_apart(self) -> None:
        """Raise `CalledWithin` if this thread is within another call. Call this before the first entry of a call.

        The check needs no lock: only this thread can take the lock for itself or add entries of its own.
        """
        if self.raw_lock._is_owned():  # noqa: SLF001 - for the reason in `lock`
            raise CalledWithin
        for shard in self._shards:
            if shard.leader is not None and shard.has_mine():
                raise CalledWithin

    @property
    def published_ends(self) -> tuple[WalPosition, ...]:
        """Return the end of the published WAL in each shard. The caller holds the lock."""
        return tuple(shard.published_end for shard in self._shards)

    @property
    def is_publishing(self) -> bool:
        """Return whether an interrupted leader has published a part of its group (GROUP-6). The caller holds the lock.

        `flush` returns when the group is complete.
        """
        return any(shard.is_publishing for shard in self._shards)

    @property
    def has_unsynced(self) -> bool:
        """Return whether any shard has written entries that a later sync covers (GROUP-4)."""
        return any(shard.unsynced_since_ms is not None for shard in self._shards)

    @property
    def is_at_rest(self) -> bool:
        """Return whether no thread leads in any shard. No lock is needed for a hint."""
        return all(shard.leader is None for shard in self._shards)

    @property
    def is_poisoned(self) -> bool:
        return self._shared.poison is not None

    def check_open(self) -> None:
        """Raise `LogClosed` or `WriterPoisoned` if the writer takes no entries. The caller holds the lock."""
        if self._shared.is_closed:
            raise LogClosed
        if self._shared.poison is not None:
            self.check_sound()

    def check_sound(self) -> None:
        """Raise `WriterPoisoned` if the writer is poisoned."""
        poison = self._shared.poison
        if poison is not None:
            raise WriterPoisoned(poison.path, poison.cause)

    def shard(self, topic_id: int) -> GroupCommit:
        """Return the group commit of the topic's shard."""
        return self._only or self._shards[shard_of(topic_id, len(self._shards))]

    def open_shard(self, topic_id: int) -> GroupCommit:
        """Return the group commit of the topic's shard, to enqueue an entry. The caller holds the lock.

        Raise `LogClosed` or `WriterPoisoned` if the writer takes no entries.
        """
        if self._shared.is_closed or self._shared.poison is not None:
            self.check_open()
        return self._only or self.shard(topic_id)

    def enqueue(self, entry: Entry) -> None:
        """Queue the entry in the shard of its topic. The caller holds the lock, and `check_open` has passed.

        The caller calls `finish` next, without the lock. If an interrupt or an error other than `SeglogError` comes in
        between, the caller calls `abandon`.
        """
        self.shard(entry.topic_id).enqueue(entry)

    def finish(self, entry: Entry) -> None:
        """Wait until the entry is published.

        If the entry was refused, raise `DiskFull`, `TooManyOpenFiles`, `OffsetOverflow` or `WriterPoisoned`.
        """
        self.shard(entry.topic_id).finish(entry)

    def leave(self, error: BaseException) -> None:
        """Handle the error that ends a call after `check_apart`.

        If the error is an interrupt or no `SeglogError`, the call abandons its entries.
        """
        if not isinstance(error, SeglogError) or is_interrupt(error):
            self.abandon()

    def settle(self, error: BaseException) -> None:
        """Handle the error as `leave` does. After an interrupt, return when the entries of the call are done.

        A caller that holds another lock for the sake of its entry calls this before it releases that lock.
        """
        self.leave(error)
        if not isinstance(error, SeglogError) or is_interrupt(error):
            with contextlib.suppress(SeglogError):  # a closed or poisoned writer has none in flight
                uninterrupted(self.flush)

    def abandon(self) -> None:
        """Stop waiting for this thread's entries. An interrupt hit it between `enqueue` and the end of `finish`.

        The entries are still committed (GROUP-5).
        """
        try:
            uninterrupted(self._abandon)
        finally:
            for shard in self._shards:
                shard.let_go()

    def _abandon(self) -> None:
        for shard in self._shards:
            shard.abandon()

    def flush(self) -> None:
        """Make every entry durable that was enqueued before this call."""
        self.check_apart()
        self._flush(self.check_open)

    def close(self) -> None:
        """Refuse new entries, then finish and sync the earlier ones. Idempotent.

        After an interrupt the caller calls this again. When `close` returns or fails, no thread writes any more.
        """
        self._flush(self._refuse_entries)

    def poison(self, error: BaseException) -> None:
        """Refuse all later writes, because another part of the directory failed."""
        with self.raw_lock:
            self._shared.poison = self._shared.poison or self._shards[0].poisoned_by(error)

    def _refuse_entries(self) -> None:
        self._shared.is_closed = True

    def _flush(self, begin: Callable[[], None]) -> None:
        """Call `begin` under the lock, then finish all entries in flight. If the writer is poisoned, none is."""
        waiting: list[tuple[GroupCommit, Barrier]] = []
        try:
            with self.raw_lock:
                begin()
                if not self.is_poisoned:
                    waiting += ((shard, Barrier()) for shard in self._shards)
                for shard, barrier in waiting:
                    shard.enqueue(barrier)
            self._finish_all(waiting)
        except BaseException as error:
            self.leave(error)
            raise

    def _finish_all(self, waiting: list[tuple[GroupCommit, Barrier]]) -> None:
        """Finish every barrier, then raise the first error, or an interrupt if there was one.

        One error must not skip the other barriers: other threads may wait for this thread to lead their shard. After an
        interrupt, that is up to `abandon`.
        """
        failure: SeglogError | None = None
        for shard, barrier in waiting:
            try:
                shard.finish(barrier)
            except SeglogError as error:
                failure = error if is_interrupt(error) else failure or error
        if failure is not None:
            raise failure

    def _recompute_assigned(self) -> None:
        """Recompute the assigned state: the published state plus all entries in flight. The caller holds the lock."""
        self._reset_assigned()
        for shard in self._shards:
            for entry in shard.in_flight:
                entry.assign()
