"""Group commit: one thread leads, and commits its own entry and all queued entries as one group.

    1  An appender takes `lock`, assigns seqs, encodes its frames and calls `enqueue`.
    2  If the shard has no leader, the appender becomes the leader. Otherwise it waits until a leader wakes it.
    3  The leader takes the queue, up to 64 MiB, as its group and writes the group with one call.
    4  The leader syncs once if any entry of the group needs a sync.
    5  The leader publishes the entries in queue order and wakes their callers.
    6  The leader wakes the caller of the next queued entry, which leads the next group from step 3.

So a lone appender never waits for another thread, and many appenders share one datasync. An entry is in flight from
`enqueue` until the leader publishes or refuses it.

If no entry of the shard is in flight, an appender that has one entry is alone. `enqueue_alone` makes its entry a group
at once. No other thread waits for that group, so its leader wakes no thread in step 5. Entries that come meanwhile wait
in the queue for step 6. If an interrupt or a failure ends a step early, the leader continues as with any group.

GROUP-1  Entries become visible in queue order, and each only when it is as safe as its caller asked.
GROUP-2  If space, file descriptors or offsets run out, the leader refuses its group and the queue behind it.
    It publishes none of these entries, and takes back the seqs and names that they had.
GROUP-3  The first failed write or sync is final. All commits in flight and all later ones raise `WriterPoisoned`.
    The leader does not try a second sync. That sync could succeed without the data, because Linux marks the pages clean
    after the first failure.
GROUP-4  Some entries are written now and synced later (`Entry.written_ms`).
    `unsynced_since_ms` is the time of the oldest one that no sync has covered. The first append after the interval
    syncs. Without such an append, a thread of the log syncs.
GROUP-5  An interrupt is not a failure.
    An interrupted leader finishes its group and hands over before the interrupt is raised. The entries of an
    interrupted caller are still committed, by that caller itself if no other thread leads. The assigned state always
    equals the published state plus all entries in flight (`Entry.assign`), so the committer can recompute it.
GROUP-6  The published state and `published_end` agree whenever the lock is free, with one exception.
    An interrupted leader may have published a part of its group. It releases the lock before it continues. Until then
    `is_publishing` is set, and no checkpoint uses the two.

Source: topics engine architecture, sections 2.2 and 2.3.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from seglog.base.ownership import Owned
from seglog.errors import (
    CalledWithin,
    DiskFull,
    LogClosed,
    OffsetOverflow,
    SeglogError,
    TooManyOpenFiles,
    WriterPoisoned,
)
from seglog.interrupts import Reentrant, failure_under, is_interrupt, uninterrupted
from seglog.wal.manifest import WalPosition
from seglog.wal.wal import Wal, Wals, shard_of

# After one of these errors the WAL holds nothing of the group (GROUP-2).
_HARMLESS = (DiskFull, OffsetOverflow, TooManyOpenFiles)
_GROUP_MAX_BYTES = 64 * 1024 * 1024


class Entry(ABC):
    """One caller's change, committed as a whole. `pieces` hold `frames` whole frames of one topic, `size_bytes` in all.

    If `sync` is set, the entry is done only when it is durable. If `written_ms` is set, the entry is done once it is
    written. A sync soon after the time `written_ms` makes it durable.
    The other fields belong to the committer. `owner` is the caller's thread. `turn` wakes the caller, which then finds
    its entry done, or leads. If `left` is set, an interrupt hit the caller, and it no longer waits for the entry.
    """

    __slots__ = (
        "error",
        "frames",
        "is_done",
        "left",
        "owner",
        "pieces",
        "size_bytes",
        "sync",
        "topic_id",
        "turn",
        "written_ms",
    )

    def __init__(
        self, topic_id: int, pieces: Sequence[bytes], frames: int, *, sync: bool, written_ms: int | None = None
    ) -> None:
        self.topic_id = topic_id
        self.pieces = pieces
        self.size_bytes = sum(map(len, pieces))
        self.frames = frames
        self.sync = sync
        self.written_ms = written_ms
        self.owner = 0
        self.turn: threading.Lock | None = None
        self.error: BaseException | None = None
        self.is_done = False
        self.left = False

    def assign(self) -> None:  # noqa: B027 - most entries take nothing
        """Take the seqs or the name of this entry from the assigned state.

        This runs under the lock when the entry is queued. It runs again when the committer recomputes the assigned
        state (GROUP-5).
        """

    @abstractmethod
    def publish(self, file: int, offset: int, /) -> None:
        """Make the entry visible. Its frames begin at `offset` of the WAL file `file`.

        This runs under the lock, and again after an interrupt.
        """


class Barrier(Entry):
    """An entry without frames. It is done when all earlier entries are done and synced."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(0, [], 0, sync=True)

    def publish(self, _file: int, _offset: int, /) -> None:
        pass


class SharedCommitState:
    """The state that all shards share. `lock` guards all state that entries assign and publish.

    `recompute_assigned` recomputes the assigned state. It runs under the lock after a refusal (GROUP-2) or an interrupt
    (GROUP-5).
    """

    __slots__ = ("is_closed", "lock", "poison", "recompute_assigned")

    def __init__(self, lock: Reentrant, recompute_assigned: Callable[[], None]) -> None:
        self.lock = lock
        self.recompute_assigned = recompute_assigned
        self.is_closed = False
        self.poison: WriterPoisoned | None = None


class GroupCommit(Owned):
    """The group commit of one shard."""

    def __init__(self, wal: Wal, shared: SharedCommitState) -> None:
        self._published = (wal.number, wal.offset, wal.ordinal)
        #: Set while entries are published, and no position says so yet. Only an interrupt makes that visible (GROUP-6).
        self.is_publishing = False
        self.unsynced_since_ms: int | None = None
        self.lock = shared.lock
        self._shared = shared
        self.wal = wal
        self._queue: list[Entry] = []
        self.leader: int | None = None
        self._successor: Entry | None = None
        # The leader's state: its group, the ordinal after the group's last frame, whether the group needs a sync now,
        # the time from which a later sync is due, and the error that makes the leader refuse the group.
        self._group: list[Entry] = []
        self._group_end = 0
        self._group_syncs = False
        self._group_written_ms: int | None = None
        self._failure: Exception | None = None
        # Set from `enqueue_alone` until the leader begins with the group.
        self._is_alone = False

    @property
    def published_end(self) -> WalPosition:
        """Return the end of the published frames. The caller holds the lock."""
        return WalPosition(*self._published)

    @property
    def in_flight(self) -> list[Entry]:
        """Return the entries in flight, in queue order. The caller holds the lock."""
        return [entry for entry in (*self._group, *self._queue) if not entry.is_done]

    def has_mine(self) -> bool:
        """Return whether this thread leads or waits for an entry. No lock is needed: only this thread changes that."""
        owner = threading.get_ident()
        if self.leader == owner:
            return True
        # Read the queue before the group, because entries move from the queue to the group.
        return any(entry.owner == owner and not (entry.is_done or entry.left) for entry in (*self._queue, *self._group))

    def is_sync_due(self, now_ms: int, interval_ms: int) -> bool:
        """Return whether entries have waited `interval_ms` for a sync (GROUP-4). The caller holds the lock."""
        return self.unsynced_since_ms is not None and now_ms - self.unsynced_since_ms >= interval_ms

    def enqueue(self, entry: Entry) -> None:
        """Queue the entry and assign its seqs. The caller holds the lock, and `check_open` has passed.

        The caller calls `finish` next, without the lock. If an interrupt or an error other than `SeglogError` comes in
        between, the caller calls `abandon`.
        """
        entry.owner = threading.get_ident()
        if self.leader is None:
            self.leader = entry.owner
        else:
            entry.turn = threading.Lock()
            entry.turn.acquire()
        self._queue.append(entry)
        entry.assign()

    def enqueue_alone(self, entry: Entry) -> None:
        """Queue the only entry of a call, as `enqueue` does. If the shard is at rest, lead it at once.

        The entry has frames.
        """
        if self.leader is not None or self._group or self._queue:
            self.enqueue(entry)
            return
        entry.owner = threading.get_ident()
        self._group_end = self.wal.ordinal + entry.frames
        self._group_syncs, self._group_written_ms = entry.sync, entry.written_ms
        self._group, self._is_alone, self.leader = [entry], True, entry.owner
        entry.assign()

    def finish(self, entry: Entry) -> None:
        """Wait until the entry is published. After an interrupt the caller calls `abandon`, which does the rest.

        If the entry was refused, raise `DiskFull`, `TooManyOpenFiles`, `OffsetOverflow` or `WriterPoisoned`.
        """
        if entry.turn is not None and not entry.is_done and self.leader != entry.owner:
            entry.turn.acquire()
        # A second round is needed only if abandoned entries in front of this one filled the first group.
        while not entry.is_done:
            self._lead()
        if entry.error is not None:
            raise entry.error

    def abandon(self) -> None:
        """Stop waiting for this thread's entries. An interrupt hit it between `enqueue` and the end of `finish`.

        The entries are still committed. If no other thread leads, this thread leads one group now (GROUP-5). After an
        interrupt the caller calls this again.
        """
        owner = threading.get_ident()
        with self.lock:
            for entry in (*self._queue, *self._group):
                entry.left = entry.left or entry.owner == owner
            self._shared.recompute_assigned()
            self._wake_successor()  # the interrupt may have come right after this thread named it
            if self.leader is None and (self._group or self._queue):
                self.leader = owner
        if self.leader == owner:
            self._lead()

    def let_go(self) -> None:
        """End this thread's call. If the thread still leads, too many interrupts hit it, and the next caller leads."""
        if self.leader == threading.get_ident():
            self.leader = None

    def _lead(self) -> None:
        """Commit one group and name the next leader. If a step fails, refuse the group instead.

        After an interrupt the caller calls this again. The second call continues with the interrupted step.
        """
        outer = sys.exc_info()[1]
        try:
            if self._is_alone:
                self._commit_alone()
            else:
                self._commit_group()
        except CalledWithin as interrupt:
            self._failure = self._failure or failure_under(interrupt, outer)
            raise
        except Exception as error:
            # The first statement, and without a call: an interrupt must not hide the failure.
            self._failure = self._failure or error
            self._commit_group()
        except BaseException as interrupt:
            self._failure = self._failure or failure_under(interrupt, outer)
            raise

    def _commit_alone(self) -> None:
        """Write, sync and publish the group of an appender that is alone.

        If a step fails or is interrupted, `_commit_group` continues with it.
        """
        self._is_alone = False
        [entry], wal = self._group, self.wal
        wal.write(entry.pieces, entry.frames, entry.size_bytes)
        if entry.sync:
            wal.sync()
        with self.lock:
            self.is_publishing = True
            entry.publish(*wal.written_at)
            entry.is_done = True
            self._published, self.is_publishing = (wal.number, wal.offset, wal.ordinal), False
            if entry.sync:
                self.unsynced_since_ms = None
            elif self.unsynced_since_ms is None:
                self.unsynced_since_ms = entry.written_ms
            if self._queue:
                self._hand_over()
            else:
                self._group, self.leader = [], None

    def _commit_group(self) -> None:
        with self.lock:
            if self._successor is not None:
                self._wake_successor()
            if self.leader != threading.get_ident():
                return
            if not self._group:
                self._take_group()
        if self._failure is None:
            self._write()
        with self.lock:
            if self._failure is None:
                self._publish()
            else:
                self._give_up(self._failure)
            for entry in self._group:
                if entry.turn is not None and entry.turn.locked():
                    entry.turn.release()
            self._hand_over()

    def _take_group(self) -> None:
        size, count, frames = 0, 0, 0
        syncs, written_ms = False, None
        for entry in self._queue:
            size += entry.size_bytes
            if count and size > _GROUP_MAX_BYTES:
                break
            frames += entry.frames
            count += 1
            syncs = syncs or entry.sync
            written_ms = entry.written_ms if written_ms is None else written_ms
        self._group_end = self.wal.ordinal + frames
        self._group_syncs, self._group_written_ms = syncs, written_ms
        self._group, self._queue = self._queue[:count], self._queue[count:]

    def _write(self) -> None:
        """Write and sync the group."""
        frames = self._group_end - self.wal.ordinal
        if frames > 0:
            group = self._group
            is_lone = len(group) == 1
            pieces = group[0].pieces if is_lone else [piece for entry in group for piece in entry.pieces]
            self.wal.write(pieces, frames, sum(entry.size_bytes for entry in group))
        if self._group_syncs:
            self.wal.sync()

    def _publish(self) -> None:
        """Publish the group in queue order (GROUP-1). The caller holds the lock."""
        file, offset = self.wal.written_at
        self.is_publishing = True
        for entry in self._group:
            if not entry.is_done:
                entry.publish(file, offset)
                entry.is_done = True
            offset += entry.size_bytes
        self._published, self.is_publishing = (self.wal.number, self.wal.offset, self.wal.ordinal), False
        if self._group_syncs:
            self.unsynced_since_ms = None
        elif self.unsynced_since_ms is None:
            self.unsynced_since_ms = self._group_written_ms

    def _give_up(self, error: Exception) -> None:
        """Refuse the group and the queue behind it, whose seqs would otherwise leave a gap (GROUP-2).

        If the error is not one of `_HARMLESS`, the writer is poisoned too (GROUP-3). The caller holds the lock.
        """
        if not isinstance(error, _HARMLESS) and self._shared.poison is None:
            self._shared.poison = self.poisoned_by(error)
        self._group, self._queue = [*self._group, *self._queue], []
        for entry in self._group:
            if not entry.is_done:
                entry.error = self._refusal(error)
                entry.is_done = True
        self._shared.recompute_assigned()

    def _refusal(self, error: Exception) -> SeglogError:
        """Return a new exception for one caller. Threads that raise one shared exception mix up its traceback."""
        refusal: SeglogError = self.poisoned_by(error)
        if isinstance(error, (DiskFull, TooManyOpenFiles)):
            refusal = type(error)(error.path)
        if self._shared.poison is not None:
            refusal = WriterPoisoned(self._shared.poison.path, self._shared.poison.cause)
        elif isinstance(error, OffsetOverflow):
            refusal = OffsetOverflow(error.path, error.limit_bytes)
        refusal.__cause__ = error
        return refusal

    def _hand_over(self) -> None:
        """End the group and name the next leader. The caller holds the lock."""
        successor = next((entry for entry in self._queue if not entry.left), None) if self._queue else None
        leader = None if successor is None else successor.owner
        # One statement, because an interrupt hits only between calls. If one hits next, `_lead` wakes the successor.
        self._group, self._failure, self._successor, self.leader = [], None, successor, leader
        if successor is not None:
            self._wake_successor()

    def _wake_successor(self) -> None:
        """Wake the caller of the next leader's entry. The caller of this method holds the lock."""
        if self._successor is not None and self._successor.turn is not None and self._successor.turn.locked():
            self._successor.turn.release()

    def poisoned_by(self, error: BaseException) -> WriterPoisoned:
        return WriterPoisoned(self.wal.file(self.wal.end.file).path, str(error) or type(error).__name__)


class Committer(Owned):
    """The writer of a log: the group commits of all shards, under one lock.

    `lock` guards all state that entries assign and publish. `raw_lock` is the same lock without the check for a call
    within a call. Callers use it after `check_apart`. `reset_assigned` runs under the lock and resets the assigned
    state to the published state. After that the committer assigns every entry in flight again.
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
