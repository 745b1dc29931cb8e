"""Group commit: whoever appends first leads, and takes with it what queues up meanwhile.

    a thread, under `lock`       assigns seqs, encodes, `enqueue`s
    no leader is there           it leads: takes the queue, writes it at once, syncs once if any entry wants it,
                                 publishes in queue order, wakes the others, and names the next leader
    a leader is there            it waits to be woken: done, or to lead the next group

So a lone appender never waits for another thread, and many of them share one datasync.

C1  Entries become visible in queue order, and only when they are as safe as they asked to be.
C2  Without space nothing of the group and of the queue behind it is published: what had been handed out is taken back.
C3  The first failed write or sync is final: pending and later commits raise `WriterPoisoned`. A second sync could
    succeed without the data (Linux marks the pages clean after the first failure), so it is not tried.
C4  What was written and is to be synced later (`Entry.written_ms`) is known until something has synced it:
    `unsynced_since_ms` is the time of the oldest. Who appends after the interval syncs, else a thread of the log does.

Source: topics engine architecture, sections 2.2 and 2.3.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from seglog.errors import DiskFull, LogClosed, SeglogError, WriterPoisoned
from seglog.meta import WalPosition
from seglog.wal import Wal

__all__ = ["Committer", "Entry"]

_GROUP_MAX_BYTES = 64 * 1024 * 1024


class Entry(ABC):
    """What one caller wants in the log, as a whole. `pieces` hold `frames` whole frames.

    `sync`: it is done when it is durable. `written_ms`: it is done before, and is to be durable soon after that time.
    The committer's own: `turn` wakes the caller, who then `leads` or finds it done; a caller that has `left` was
    interrupted while it waited.
    """

    __slots__ = ("error", "frames", "is_done", "leads", "left", "pieces", "sync", "turn", "written_ms")

    def __init__(self, pieces: list[bytes], frames: int, *, sync: bool, written_ms: int | None = None) -> None:
        self.pieces = pieces
        self.frames = frames
        self.sync = sync
        self.written_ms = written_ms
        self.turn: threading.Lock | None = None
        self.error: BaseException | None = None
        self.is_done = False
        self.leads = False
        self.left = False

    @abstractmethod
    def publish(self, file: int, offset: int, /) -> None:
        """Make it visible: it is at `offset` of that WAL file. Called under the lock."""


class Barrier(Entry):
    """Nothing of its own: done when all before it are, and synced."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__([], 0, sync=True)

    def publish(self, _file: int, _offset: int, /) -> None:
        pass


class Committer:
    """`lock` guards whatever entries assign and publish. `take_back` is called under it when entries were given up."""

    def __init__(self, wal: Wal, lock: threading.Lock, take_back: Callable[[], None]) -> None:
        self.lock = lock
        self.published_end: WalPosition = wal.end
        self.unsynced_since_ms: int | None = None
        self._wal = wal
        self._take_back = take_back
        self._queue: list[Entry] = []
        self._has_leader = False
        self._is_closed = False
        self._poison: WriterPoisoned | None = None

    def check_open(self) -> None:
        """Raises `LogClosed` or `WriterPoisoned`. The lock is held."""
        if self._is_closed:
            raise LogClosed
        self.check_sound()

    def check_sound(self) -> None:
        """Raises `WriterPoisoned`."""
        if self._poison is not None:
            raise WriterPoisoned(self._poison.path, self._poison.cause)

    def enqueue(self, entry: Entry) -> None:
        """The lock is held, `check_open` has passed; `finish` follows without it."""
        self._queue.append(entry)
        if self._has_leader:
            entry.turn = threading.Lock()
            entry.turn.acquire()
        else:
            self._has_leader = entry.leads = True

    def finish(self, entry: Entry) -> None:
        """Returns when the entry is published. Raises `DiskFull` or `WriterPoisoned` when it never will be."""
        if entry.turn is not None:
            self._wait(entry, entry.turn)
        # More than once only if those before it, that nobody waits for, filled a group.
        while not entry.is_done:
            self._lead()
        if entry.error is not None:
            raise entry.error

    def flush(self) -> None:
        """Everything enqueued before is durable on return."""
        barrier = Barrier()
        with self.lock:
            self.check_open()
            self.enqueue(barrier)
        self.finish(barrier)

    def close(self) -> None:
        """No entry is taken any more; those enqueued before come to their end, and are synced. Idempotent."""
        barrier = Barrier()
        with self.lock:
            if self._is_closed:
                return
            self._is_closed = True
            if self._poison is not None:
                return
            self.enqueue(barrier)
        self.finish(barrier)

    def poison(self, error: BaseException) -> None:
        """Take no writes any more, because of a failure elsewhere in the directory."""
        with self.lock:
            self._poison = self._poison or self._poisoned_by(error)

    def is_sync_due(self, now_ms: int, interval_ms: int) -> bool:
        """C4. The lock is held."""
        return self.unsynced_since_ms is not None and now_ms - self.unsynced_since_ms >= interval_ms

    @property
    def is_poisoned(self) -> bool:
        return self._poison is not None

    def _wait(self, entry: Entry, turn: threading.Lock) -> None:
        try:
            turn.acquire()
        except BaseException:
            # An interrupt: the entry is committed by somebody, but its caller will not lead.
            with self.lock:
                entry.left = True
                must_lead = entry.leads and not entry.is_done
            if must_lead:
                self._lead()
            raise

    def _lead(self) -> None:
        """One group, and the next leader. Whatever happens in between, nobody is left waiting."""
        group: list[Entry] = []
        failure: BaseException | None = None
        try:
            with self.lock:
                group = self._take_group()
            place = self._write(group)
            with self.lock:
                self._publish(group, place)
                successor = self._name_leader()
        except BaseException as error:
            failure = error
            with self.lock:
                self._give_up(group, error)
                successor = self._name_leader()
        for entry in group:
            if entry.turn is not None and not entry.leads:
                entry.turn.release()
        if successor is not None and successor.turn is not None:
            successor.turn.release()
        if failure is not None and not isinstance(failure, (SeglogError, OSError)):
            raise failure

    def _take_group(self) -> list[Entry]:
        size, count = 0, 0
        for entry in self._queue:
            size += sum(map(len, entry.pieces))
            if count and size > _GROUP_MAX_BYTES:
                break
            count += 1
        group = self._queue[:count]
        del self._queue[:count]
        return group

    def _write(self, group: list[Entry]) -> tuple[int, int]:
        pieces = [piece for entry in group for piece in entry.pieces]
        place = self._wal.write(pieces, sum(entry.frames for entry in group)) if pieces else (0, 0)
        if any(entry.sync for entry in group):
            self._wal.sync()
        return place

    def _publish(self, group: list[Entry], place: tuple[int, int]) -> None:
        """C1. The lock is held."""
        file, offset = place
        for entry in group:
            entry.publish(file, offset)
            entry.is_done = True
            offset += sum(map(len, entry.pieces))
        self.published_end = self._wal.end
        if any(entry.sync for entry in group):
            self.unsynced_since_ms = None
        elif self.unsynced_since_ms is None:
            self.unsynced_since_ms = next((entry.written_ms for entry in group if entry.written_ms is not None), None)

    def _give_up(self, group: list[Entry], error: BaseException) -> None:
        """C2 and C3. The lock is held. The queue behind goes too: its seqs would leave a gap."""
        if not isinstance(error, DiskFull) and self._poison is None:
            self._poison = self._poisoned_by(error)
        group += self._queue
        self._queue.clear()
        for entry in group:
            if not entry.is_done:
                entry.error = self._refusal(error)
                entry.is_done = True
        self._take_back()

    def _refusal(self, error: BaseException) -> SeglogError:
        """One for each caller: an exception that several threads raise would mix up their tracebacks."""
        if self._poison is not None:
            return WriterPoisoned(self._poison.path, self._poison.cause)
        return DiskFull(error.path) if isinstance(error, DiskFull) else self._poisoned_by(error)

    def _name_leader(self) -> Entry | None:
        """The lock is held. It is to be woken without."""
        successor = next((entry for entry in self._queue if not entry.left), None)
        self._has_leader = successor is not None
        if successor is not None:
            successor.leads = True
        return successor

    def _poisoned_by(self, error: BaseException) -> WriterPoisoned:
        return WriterPoisoned(self._wal.file(self._wal.end.file).path, str(error) or type(error).__name__)
