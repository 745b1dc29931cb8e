"""The writer of a log: group commit in each shard of the WAL, under one lock. See seglog.wal.group_commit and
seglog.wal.shards."""

from __future__ import annotations

from collections.abc import Callable

from seglog.errors import CalledWithin, LogClosed, SeglogError, WriterPoisoned
from seglog.process.interrupts import is_interrupt, uninterrupted
from seglog.process.own_lock import Reentrant
from seglog.process.ownership import Owned
from seglog.wal.group_commit import Barrier, Common, Entry, GroupCommit
from seglog.wal.manifest import WalPosition
from seglog.wal.shards import Wals, shard_of

__all__ = ["Committer"]


class Committer(Owned):
    """`lock` guards whatever entries assign and publish. `raw_lock` is for callers that come after `check_apart`.

    `take_back` is called under it: what has been handed out is to be what is published. What the entries on their way
    take is assigned to them once more after that.
    """

    def __init__(self, wals: Wals, lock: Reentrant, take_back: Callable[[], None]) -> None:
        self.raw_lock = lock
        self._take_back = take_back
        self._common = Common(lock, self._count_anew)
        self._shards = tuple(GroupCommit(wal, self._common) for wal in wals.each)

    @property
    def lock(self) -> Reentrant:
        """For `with`. Raises `CalledWithin` if this thread has it."""
        if self.raw_lock._is_owned():  # noqa: SLF001 - `once`, without its two calls: each read comes by
            raise CalledWithin
        return self.raw_lock

    def check_apart(self) -> None:
        """Call this before the first entry of a call. Raises `CalledWithin` within another call of this thread.

        It asks without the lock: only this thread takes it for itself, or has entries.
        """
        if self.raw_lock._is_owned():  # noqa: SLF001 - as above
            raise CalledWithin
        for shard in self._shards:
            if shard.leader is not None and shard.has_mine():
                raise CalledWithin

    @property
    def published_ends(self) -> tuple[WalPosition, ...]:
        """Of each shard. The lock is held."""
        return tuple(shard.published_end for shard in self._shards)

    @property
    def has_unsynced(self) -> bool:
        """C4 of seglog.wal.group_commit."""
        for shard in self._shards:  # noqa: SIM110 - asked after each append: `any` and its generator take three times as long
            if shard.unsynced_since_ms is not None:
                return True
        return False

    @property
    def is_poisoned(self) -> bool:
        return self._common.poison is not None

    def is_sync_due(self, topic_id: int, now_ms: int, interval_ms: int) -> bool:
        """C4, for the shard of that topic. The lock is held."""
        since_ms = self._shard(topic_id).unsynced_since_ms
        return since_ms is not None and now_ms - since_ms >= interval_ms

    def check_open(self) -> None:
        """Raises `LogClosed` or `WriterPoisoned`. The lock is held."""
        if self._common.is_closed:
            raise LogClosed
        if self._common.poison is not None:
            self.check_sound()

    def check_sound(self) -> None:
        """Raises `WriterPoisoned`."""
        poison = self._common.poison
        if poison is not None:
            raise WriterPoisoned(poison.path, poison.cause)

    def enqueue(self, entry: Entry) -> None:
        """The lock is held, `check_open` has passed; `finish` follows without it.

        If anything but an error of ours is raised in between, `abandon` has to be called.
        """
        self._shard(entry.topic_id).enqueue(entry)

    def finish(self, entry: Entry) -> None:
        """Returns when the entry is published. Raises `DiskFull` or `WriterPoisoned` when it never will be."""
        self._shard(entry.topic_id).finish(entry)

    def leave(self, error: BaseException) -> None:
        """A call ends with that error, after `check_apart`. If it is an interrupt, nobody waits for its entries."""
        if not isinstance(error, SeglogError) or is_interrupt(error):
            self.abandon()

    def abandon(self) -> None:
        """This thread was interrupted between `enqueue` and the end of `finish`: nobody waits for its entries."""
        for shard in self._shards:
            shard.abandon()

    def flush(self) -> None:
        """Everything enqueued before is durable on return."""
        self.check_apart()
        barriers = [Barrier() for _ in self._shards]
        try:
            with self.raw_lock:
                self.check_open()
                for shard, barrier in zip(self._shards, barriers, strict=True):
                    shard.enqueue(barrier)
            self._finish_all([*zip(self._shards, barriers, strict=True)])
        except BaseException as error:
            self.leave(error)
            raise

    def close(self) -> None:
        """No entry is taken any more; those enqueued before come to their end, and are synced. Idempotent.

        Nobody writes on return, nor when an interrupt is raised: that waits.
        """
        barriers = [Barrier() for _ in self._shards]
        try:
            uninterrupted(lambda: self._close(barriers))
        finally:
            for shard in self._shards:
                shard.let_go()

    def poison(self, error: BaseException) -> None:
        """Take no writes any more, because of a failure elsewhere in the directory."""
        with self.raw_lock:
            self._common.poison = self._common.poison or self._shards[0].poisoned_by(error)

    def _close(self, barriers: list[Barrier]) -> None:
        """Called again after an interrupt."""
        with self.raw_lock:
            if self._common.is_closed and not any(barrier.owner for barrier in barriers):
                return
            if not self.is_poisoned:
                for shard, barrier in zip(self._shards, barriers, strict=True):
                    if not barrier.is_done and barrier not in shard.on_their_way:
                        shard.enqueue(barrier)
            pairs = zip(self._shards, barriers, strict=True)
            waiting = [(shard, barrier) for shard, barrier in pairs if barrier in shard.on_their_way]
            self._common.is_closed = True
        self._finish_all(waiting)

    def _finish_all(self, waiting: list[tuple[GroupCommit, Barrier]]) -> None:
        """Each of them, whatever one raises: the others may wait for who leads."""
        failure: SeglogError | None = None
        for shard, barrier in waiting:
            try:
                shard.finish(barrier)
            except SeglogError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _count_anew(self) -> None:
        """What is handed out is what is published, and what the entries on their way take. The lock is held."""
        self._take_back()
        for shard in self._shards:
            for entry in shard.on_their_way:
                entry.assign()

    def _shard(self, topic_id: int) -> GroupCommit:
        shards = self._shards
        return shards[0] if len(shards) == 1 else shards[shard_of(topic_id, len(shards))]
