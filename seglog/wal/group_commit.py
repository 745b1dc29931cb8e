"""Group commit: whoever appends first leads, and takes with it what queues up meanwhile.

    a thread, under `lock`       assigns seqs, encodes, `enqueue`s
    no leader is there           it leads: takes the queue, writes it at once, syncs once if any entry wants it,
                                 publishes in queue order, wakes the others, and names the next leader
    a leader is there            it waits to be woken: done, or to lead the next group

So a lone appender never waits for another thread, and many of them share one datasync.

C1  Entries become visible in queue order, and only when they are as safe as they asked to be.
C2  Without space, descriptors or offsets, nothing of the group and of the queue behind it is published: what had been
    handed out is taken back.
C3  The first failed write or sync is final: pending and later commits raise `WriterPoisoned`. A second sync could
    succeed without the data (Linux marks the pages clean after the first failure), so it is not tried.
C4  What was written and is to be synced later (`Entry.written_ms`) is known until something has synced it:
    `unsynced_since_ms` is the time of the oldest. Who appends after the interval syncs, else a thread of the log does.
C5  An interrupt is no failure. A leader goes on with its group where it was hit, hands over, and is interrupted then;
    what an interrupted caller has enqueued is committed, by itself if nobody else leads. What is handed out is at any
    time what is published and what the entries on their way take (`Entry.assign`), so it can be counted anew.

Source: topics engine architecture, sections 2.2 and 2.3.
"""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from seglog.errors import CalledWithin, DiskFull, OffsetOverflow, SeglogError, TooManyOpenFiles, WriterPoisoned
from seglog.process.interrupts import failure_under, uninterrupted
from seglog.process.own_lock import Reentrant
from seglog.process.ownership import Owned
from seglog.wal.manifest import WalPosition
from seglog.wal.wal import Wal

__all__ = ["Barrier", "Common", "Entry", "GroupCommit"]

# Nothing was written when they are raised (C2).
_HARMLESS = (DiskFull, OffsetOverflow, TooManyOpenFiles)
_GROUP_MAX_BYTES = 64 * 1024 * 1024


class Entry(ABC):
    """What one caller wants in the log, as a whole. `pieces` hold `frames` whole frames, of one topic; together they
    are `size_bytes`.

    `sync`: it is done when it is durable. `written_ms`: it is done before, and is to be durable soon after that time.
    The committer's own: `owner` is the caller's thread, `turn` wakes it: to find the entry done, or to lead. A caller
    that has `left` was interrupted, and does not wait for it.
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
        self, topic_id: int, pieces: list[bytes], frames: int, *, sync: bool, written_ms: int | None = None
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

    def assign(self) -> None:  # noqa: B027 - most take nothing
        """Take what it is to have: seqs, a name. Called under the lock when it is enqueued, and again (C5)."""

    @abstractmethod
    def publish(self, file: int, offset: int, /) -> None:
        """Make it visible: it is at `offset` of that WAL file. Called under the lock, and again after an interrupt."""


class Barrier(Entry):
    """Nothing of its own: done when all before it are, and synced."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(0, [], 0, sync=True)

    def publish(self, _file: int, _offset: int, /) -> None:
        pass


class Common:
    """What the shards share. `lock` guards whatever entries assign and publish.

    `count_anew` is called under it when entries were given up, or their caller was interrupted (C5).
    """

    __slots__ = ("count_anew", "is_closed", "lock", "poison")

    def __init__(self, lock: Reentrant, count_anew: Callable[[], None]) -> None:
        self.lock = lock
        self.count_anew = count_anew
        self.is_closed = False
        self.poison: WriterPoisoned | None = None


class GroupCommit(Owned):
    """Of one shard."""

    def __init__(self, wal: Wal, common: Common) -> None:
        self.published_end: WalPosition = wal.end
        self.unsynced_since_ms: int | None = None
        self.lock = common.lock
        self._common = common
        self._wal = wal
        self._queue: list[Entry] = []
        self.leader: int | None = None
        self._is_stranded = False
        self._successor: Entry | None = None
        # The leader's: what it has taken from the queue, the frame that ends it, whether it is synced, or is to be
        # soon after that time, and why it gives it up.
        self._group: list[Entry] = []
        self._group_end = 0
        self._group_syncs = False
        self._group_written_ms: int | None = None
        self._failure: Exception | None = None

    @property
    def on_their_way(self) -> list[Entry]:
        """In their order. The lock is held."""
        return [entry for entry in (*self._group, *self._queue) if not entry.is_done]

    def has_mine(self) -> bool:
        """Whether this thread leads, or waits for an entry. It asks without the lock: only the thread changes that."""
        owner = threading.get_ident()
        # The queue first: entries go from there to the group.
        if self.leader == owner:
            return not self._is_stranded
        return any(entry.owner == owner and not (entry.is_done or entry.left) for entry in (*self._queue, *self._group))

    def enqueue(self, entry: Entry) -> None:
        """The lock is held, `check_open` has passed; `finish` follows without it.

        If anything but an error of ours is raised in between, `abandon` has to be called.
        """
        entry.owner = threading.get_ident()
        if self.leader is None:
            self.leader = entry.owner
        else:
            entry.turn = threading.Lock()
            entry.turn.acquire()
        self._queue.append(entry)
        entry.assign()

    def finish(self, entry: Entry) -> None:
        """Returns when the entry is published. Raises `DiskFull` or `WriterPoisoned` when it never will be."""
        if entry.turn is not None and not entry.is_done and self.leader != entry.owner:
            entry.turn.acquire()
        # More than once only if those before it, that nobody waits for, filled a group.
        while not entry.is_done:
            uninterrupted(self._lead)
        if entry.error is not None:
            raise entry.error

    def abandon(self) -> None:
        """This thread was interrupted between `enqueue` and the end of `finish`: nobody waits for its entries (C5)."""
        try:
            uninterrupted(self._abandon)
        finally:
            self.let_go()

    def let_go(self) -> None:
        """This thread ends its call. If it still leads, there were too many interrupts: a `close` may go on."""
        self._is_stranded = self.leader == threading.get_ident()

    def _abandon(self) -> None:
        owner = threading.get_ident()
        with self.lock:
            for entry in (*self._queue, *self._group):
                entry.left = entry.left or entry.owner == owner
            self._common.count_anew()
            if self.leader is None and self._queue:
                self.leader = owner
            leads = self.leader == owner
        if leads:
            self._lead()

    def _lead(self) -> None:
        """One group, and the next leader. Called again after an interrupt, it goes on where that hit."""
        owner = threading.get_ident()
        with self.lock:
            if self._successor is not None:
                self._wake_successor()
            if self.leader != owner:
                return
            if not self._group:
                self._take_group()
        if self._failure is None:
            self._write()
        with self.lock:
            self._settle()
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
        self._group_end = self._wal.ordinal + frames
        self._group_syncs, self._group_written_ms = syncs, written_ms
        self._group, self._queue = self._queue[:count], self._queue[count:]

    def _write(self) -> None:
        """Written and synced, or `_failure`. What an interrupt has kept from being told is done again."""
        outer = sys.exc_info()[1]
        try:
            frames = self._group_end - self._wal.ordinal
            if frames > 0:
                group = self._group
                is_lone = len(group) == 1
                pieces = group[0].pieces if is_lone else [piece for entry in group for piece in entry.pieces]
                self._wal.write(pieces, frames)
            if self._group_syncs:
                self._wal.sync()
        except CalledWithin as interrupt:
            self._failure = failure_under(interrupt, outer)
            raise
        except Exception as error:
            self._failure = error
        except BaseException as interrupt:
            self._failure = failure_under(interrupt, outer)
            raise

    def _settle(self) -> None:
        """Published, or given up. The lock is held."""
        if self._failure is None:
            try:
                self._publish()
            except CalledWithin:
                raise  # an interrupt
            except Exception as error:
                self._failure = error
        if self._failure is not None:
            self._give_up(self._failure)

    def _publish(self) -> None:
        """C1. The lock is held."""
        file, offset = self._wal.written_at
        for entry in self._group:
            if not entry.is_done:
                entry.publish(file, offset)
                entry.is_done = True
            offset += entry.size_bytes
        self.published_end = self._wal.end
        if self._group_syncs:
            self.unsynced_since_ms = None
        elif self.unsynced_since_ms is None:
            self.unsynced_since_ms = self._group_written_ms

    def _give_up(self, error: Exception) -> None:
        """C2 and C3. The lock is held. The queue behind goes too: its seqs would leave a gap."""
        if not isinstance(error, _HARMLESS) and self._common.poison is None:
            self._common.poison = self.poisoned_by(error)
        self._group, self._queue = [*self._group, *self._queue], []
        for entry in self._group:
            if not entry.is_done:
                entry.error = self._refusal(error)
                entry.is_done = True
        self._common.count_anew()

    def _refusal(self, error: Exception) -> SeglogError:
        """One for each caller: an exception that several threads raise would mix up their tracebacks."""
        refusal: SeglogError = self.poisoned_by(error)
        if isinstance(error, (DiskFull, TooManyOpenFiles)):
            refusal = type(error)(error.path)
        if self._common.poison is not None:
            refusal = WriterPoisoned(self._common.poison.path, self._common.poison.cause)
        elif isinstance(error, OffsetOverflow):
            refusal = OffsetOverflow(error.path, error.limit_bytes)
        refusal.__cause__ = error
        return refusal

    def _hand_over(self) -> None:
        """The lock is held."""
        successor = next((entry for entry in self._queue if not entry.left), None) if self._queue else None
        leader = None if successor is None else successor.owner
        # Together: an interrupt comes between calls only. `_lead` wakes the successor, if this does not get to it.
        self._group, self._failure, self._successor, self.leader = [], None, successor, leader
        self._is_stranded = False
        if successor is not None:
            self._wake_successor()

    def _wake_successor(self) -> None:
        """The lock is held."""
        if self._successor is not None and self._successor.turn is not None and self._successor.turn.locked():
            self._successor.turn.release()

    def poisoned_by(self, error: BaseException) -> WriterPoisoned:
        return WriterPoisoned(self._wal.file(self._wal.end.file).path, str(error) or type(error).__name__)
