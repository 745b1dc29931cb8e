"""Follow the records of a replica: its epochs, and a follower that sleeps until a sync brings a commit.

    epoch = the last 21 bits of the volume's id, then 32 bits for an LSN

The LSN of an epoch is the one with which it began here. The id of an event has the LSN at which its record was read.
Both say the same to a client that comes again: its records are those of that LSN.

EPOCH-1  While a replica has one epoch, each seq means the same record. A commit that truncates, or another volume under
    the name, begins the next one. The 64 names that were used last keep their epochs; the epochs of any other name
    begin again at its next use, as after a restart.
EPOCH-2  A client of another LSN gets the lowest seq that a truncation since then took. If the commits since then are
    here, that is exact. Otherwise the segments of both states decide: from the first seq that lies in another segment,
    records may be others. Without the state of that LSN, the seq is 1.
EPOCH-3  A follower never moves back. A client of a later LSN, or of a seq after the head, as another proxy may know
    them, has to ask again.
EPOCH-4  Each change of the name's handle wakes the followers: a sync, a takeover, and a deletion of the name. So a
    follower that waits looks at nothing in intervals.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from catalog import Snapshot, Vid
from catalog.errors import NoSuchObject, StoreUnreachable
from catalog.format.encoding import decode_commit_at
from offload.context import ArchiveContext
from offload.errors import Stopping
from offload.read.cold_reader import ColdReader
from offload.replication.replica import Replicas
from seglog import Gap, Record
from seglog.errors import Evicted, NoSuchTopic, SeqOutOfRange, Truncated

_LSN_BITS = 32
_VOLUME_BITS = 21  # so that an epoch is a whole number in JavaScript, too
_MOST_COMMITS = 1024
_FORMER = 4
_MOST_NAMES = 64


class Epochs:
    """The epochs of the replicas of one archive, since it was attached. For several threads.

    `state` returns the newest state of a name that this directory knows, and `live_floor` the seq below which all of
    its records are lost.
    """

    def __init__(
        self,
        context: ArchiveContext,
        replicas: Replicas,
        state: Callable[[str], Snapshot],
        live_floor: Callable[[str, Snapshot], int],
    ) -> None:
        self.live_floor = live_floor
        self.local = context.local
        self._context = context
        self._replicas = replicas
        self._state = state
        self._newest: dict[str, dict[int, Snapshot]] = {}  # the newest state of each epoch, by name
        self._lock = threading.Lock()

    def newest(self, name: str) -> tuple[int, Snapshot]:
        """Return the epoch, and the newest state that this directory knows.

        Raises `NoSuchTopic` once the name is gone, `Stopping` once this directory writes it, and what the store raises.
        """
        if not self._replicas.is_replica(name):
            with self._lock:
                self._newest.pop(name, None)
            raise Stopping if self._context.log.has_topic(name) else NoSuchTopic(name)
        found = self._state(name)
        while True:
            with self._lock:
                states = self._newest.pop(name, None) or {epoch_of(found.vid, found.lsn): found}
                self._newest[name] = states  # the last one in use
                if len(self._newest) > _MOST_NAMES:
                    del self._newest[next(iter(self._newest))]
                [*_, (epoch, known)] = states.items()
            if found.vid == known.vid and found.lsn <= known.lsn:
                return epoch, known
            is_cut = self._cut(known, found) is not None
            with self._lock:
                if self._newest.get(name) is not states or states.get(epoch) is not known or [*states][-1] != epoch:
                    continue  # another thread took a state in, or the name has gone
                if is_cut:
                    epoch = epoch_of(found.vid, found.lsn)
                states[epoch] = found
                for former in list(states)[:-_FORMER]:
                    del states[former]
                return epoch, found

    def changed_since(self, name: str, epoch: int) -> tuple[int, int | None]:
        """Return the epoch of now, and the lowest seq that may mean another record than in `epoch`, or None (EPOCH-2).

        Raises as `newest` does, and `StoreUnreachable` if `epoch` is of a later LSN (EPOCH-3).
        """
        now, newest = self.newest(name)
        with self._lock:
            known = self._newest.get(name, {}).get(epoch)
        if epoch == now:
            return now, None
        if known is not None:
            return now, self._cut(known, newest)
        lsn = epoch - epoch_of(newest.vid, 0)
        if not 0 <= lsn < 1 << _LSN_BITS:
            return now, 1
        if lsn > newest.lsn:
            raise self._behind(name, f"lsn {newest.lsn}", f"lsn {lsn}")
        exact = self._truncated(newest.vid, lsn, newest.lsn)
        if exact is not None:
            return now, min(exact, default=None)
        try:
            return now, self._cut(self._context.volumes.snapshot(newest.vid, lsn), newest)
        except NoSuchObject:
            return now, 1

    def follower(self, name: str, start: int | None, *, gaps: bool, epoch: int | None) -> ReplicaFollower:
        """Return a follower that begins at `start`, or with the first record that is not lost.

        Raises `Truncated` if records below `start` are others than in `epoch`, and `SeqOutOfRange`. If a client of
        `epoch` has records after the head, raises `StoreUnreachable` (EPOCH-3).
        """
        while True:
            now, cut = self.changed_since(name, epoch) if epoch is not None else (self.newest(name)[0], None)
            if start is not None and cut is not None and cut < start:
                raise Truncated(name, cut, now)
            newest, snapshot = self.newest(name)
            if newest == now:
                break
        bounds = snapshot.bounds
        if start is None:
            start = max(bounds.first_seq, self.live_floor(name, snapshot))
        if epoch is not None and start > bounds.head_seq + 1:
            raise self._behind(name, f"seq {bounds.head_seq}", f"seq {start - 1}")
        if not 1 <= start <= bounds.head_seq + 1:
            raise SeqOutOfRange(name, start, 1, bounds.head_seq)
        return ReplicaFollower(self, self._context.reader, name, start, now, bounds.head_seq, gaps=gaps)

    def _behind(self, name: str, known_here: str, known_there: str) -> StoreUnreachable:
        return StoreUnreachable.told(
            f"this daemon knows {name} up to {known_here}, and the client knows {known_there}",
            "send the request again in some seconds",
            {"url": self._context.store.url, "cause": "it is behind"},
        )

    def _cut(self, before: Snapshot, after: Snapshot) -> int | None:
        exact = self._truncated(before.vid, before.lsn, after.lsn) if before.vid == after.vid else None
        return _first_change(before, after) if exact is None else min(exact, default=None)

    def _truncated(self, vid: Vid, lsn: int, last_lsn: int) -> list[int] | None:
        """Return the seqs from which the commits after `lsn` truncate; None if not all of them are here."""
        if last_lsn - lsn > _MOST_COMMITS or not self.local.has_commits(vid, lsn + 1, last_lsn):
            return None
        bodies = self.local.commit_bodies(vid, lsn + 1, last_lsn)
        cuts = [decode_commit_at(body, vid, at).commit.truncate_from for at, body in bodies.items()]
        return [cut for cut in cuts if cut is not None]


class ReplicaFollower:
    """The position of a reader in a replica, as `seglog.reading.follow.Follower` is that in a topic of the log.

    `read_epoch` has the LSN at which the last items were read, and `head_seq` is the head of the state it began with.
    """

    def __init__(
        self, epochs: Epochs, reader: ColdReader, name: str, seq: int, epoch: int, head_seq: int, *, gaps: bool
    ) -> None:
        self.seq = seq
        self.head_seq = head_seq
        self.epoch = self.read_epoch = epoch
        self._epochs = epochs
        self._reader = reader
        self._name = name
        self._gaps = gaps

    def new_items(self) -> Iterator[Record | Gap]:
        """Yield the records from `seq` on. Raises what a read raises, and `Truncated` in another epoch."""
        snapshot = self._newest()
        if snapshot is None:
            raise Truncated(self._name, self.seq, self.epoch)
        self.read_epoch = epoch_of(snapshot.vid, snapshot.lsn)
        head = snapshot.bounds.head_seq
        if self.seq > head:
            return
        floor = self._epochs.live_floor(self._name, snapshot)
        if self.seq < floor:
            if not self._gaps:
                raise Evicted(self._name, self.seq, floor - 1)
            first, self.seq = self.seq, floor
            yield Gap(first, floor - 1)
        for record in self._reader.records(snapshot, self.seq, head):
            self.seq = record.seq + 1
            yield record
        self.seq = max(self.seq, head + 1)

    def poll(self, waiter: Callable[[], None]) -> bool:
        """Return whether record `seq` exists, or the epoch is another one. If not, register `waiter` (EPOCH-4).

        Raises as `Epochs.newest` does.
        """
        local = self._epochs.local
        while True:
            version = local.versions.of(self._name)
            snapshot = self._newest()
            if snapshot is None or snapshot.bounds.head_seq >= self.seq:
                return True
            if local.versions.wait(self._name, version, waiter):
                return False

    def forget(self, waiter: Callable[[], None]) -> None:
        self._epochs.local.versions.forget(self._name, waiter)

    def _newest(self) -> Snapshot | None:
        epoch, snapshot = self._epochs.newest(self._name)
        return snapshot if epoch == self.epoch else None


def epoch_of(vid: Vid, lsn: int) -> int:
    """Return the number of a state, for the epoch that begins with it and for the ids of its records."""
    return (int.from_bytes(vid.raw[-4:], "big") & (1 << _VOLUME_BITS) - 1) << _LSN_BITS | lsn


def _first_change(before: Snapshot, after: Snapshot) -> int | None:
    """Return the first seq up to the head of `before` that lies in another segment in `after`, or None.

    A seq that only one of the two has was deleted, or is shown again. A merge gives other segments, too.
    """
    changes = [after.bounds.head_seq + 1] if after.bounds.head_seq < before.bounds.head_seq else []
    views = iter(after.segments)
    view = next(views, None)
    for former in before.segments:
        while view is not None and view.last < former.first:
            view = next(views, None)
        while view is not None and view.first <= former.last:
            if view.ref.sid != former.ref.sid:
                return min([*changes, max(view.first, former.first)])
            if view.last > former.last:
                break
            view = next(views, None)
    return min(changes, default=None)
