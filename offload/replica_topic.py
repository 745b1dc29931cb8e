"""A replica as a topic for readers. All its records, up to the newest that is synced, are in the cold tier."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from catalog import Snapshot
from seglog import Gap, Record, TopicConfig

if TYPE_CHECKING:
    from offload.archive import Archive
    from offload.replication.replica_follower import ReplicaFollower


class ReplicaTopic:
    """A replica. The properties show its state when this object was made. A method that asks the remote says so."""

    def __init__(self, archive: Archive, name: str) -> None:
        """May ask the remote. Raises the errors of `ReplicationService.newest`."""
        self.name = name
        self._archive = archive
        self._snapshot: Snapshot
        self.epoch, self._snapshot = archive.replication.newest(name)

    @property
    def inner(self) -> ReplicaTopic:
        """Return the replica, which has what a follower needs of `Topic.inner`."""
        return self

    @property
    def earliest_seq(self) -> int:
        """Return a lower bound: the first live record has this seq or a higher one."""
        return max(self._snapshot.bounds.first_seq, self._snapshot.before_seq)

    @property
    def head_seq(self) -> int:
        return self._snapshot.bounds.head_seq

    @property
    def hot_floor(self) -> int:
        """Return the seq after the head: no record is hot."""
        return self.head_seq + 1

    @property
    def config(self) -> TopicConfig:
        """Return the configuration as of the last sync. Reads the local disk. Raises `NoSuchTopic` once it is gone."""
        return self._archive.replication.config(self.name)

    @property
    def position(self) -> tuple[int, int]:
        """Return the epoch and the head of now."""
        epoch, snapshot = self._archive.replication.newest(self.name)
        return epoch, snapshot.bounds.head_seq

    def follower(self, start: int | None = None, *, gaps: bool = False, epoch: int | None = None) -> ReplicaFollower:
        return self._archive.replication.follower(self.name, start, gaps=gaps, epoch=epoch)

    def changed_since(self, epoch: int) -> tuple[int, int | None]:
        return self._archive.replication.changed_since(self.name, epoch)

    def renewed(self) -> ReplicaTopic:
        """Return the replica as it is now. Raises as the constructor does."""
        return ReplicaTopic(self._archive, self.name)

    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        gaps: bool = False,
    ) -> Iterator[Record | Gap]:
        """Yield records as `Topic.read` does. Asks the remote while the caller takes them."""
        snapshot = self._archive.history.snapshot(self.name)
        floor = self._archive.history.live_floor(self.name, snapshot)
        if start is not None and 1 <= start < floor and gaps:
            yield Gap(start, floor - 1)
            start = floor
        for record in self._archive.history.read_snapshot(self.name, snapshot, floor, start, end):
            if until_ms is not None and record.ts_ms > until_ms:
                return
            if since_ms is None or record.ts_ms >= since_ms:
                yield record
