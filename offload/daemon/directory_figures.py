"""The figures of one data directory, for its metrics: those of its topics, replicas, workers and caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from offload.archive import Archive
from offload.daemon.background.topic_work import TopicWorks
from offload.daemon.figures import ReplicaFigures, TopicFigures
from offload.worker.pool import WorkerPool
from seglog import Log, NoSuchTopic

__all__ = ["DirectoryFigures"]


@dataclass(frozen=True, slots=True)
class DirectoryFigures:
    """A `FigureSource` that asks the local disk only."""

    log: Log
    archive: Archive | None
    works: TopicWorks
    workers: WorkerPool | None
    replicas: Callable[[], Iterator[ReplicaFigures]]
    now_ms: Callable[[], int]

    def wal_bytes(self) -> int:
        return self.log.wal_bytes

    def topics(self) -> Iterator[TopicFigures]:
        for name in self.log.topics():
            try:
                yield self._topic(name)
            except NoSuchTopic:  # deleted meanwhile
                continue

    def live_workers(self) -> int:
        return 0 if self.workers is None else self.workers.live

    def cache_counts(self) -> Iterator[tuple[str, int, int]]:
        return iter(()) if self.archive is None else self.archive.cache_counts()

    def _topic(self, name: str) -> TopicFigures:
        topic, status = self.log.topic(name), None if self.archive is None else self.archive.status
        offloaded_seq = topic.head_seq if status is None else status.offloaded_seq_here(name)
        is_known, above_seq = offloaded_seq is not None, offloaded_seq or 0
        waiting = [each for each in topic.segments() if each.sealed and each.last_seq > above_seq]
        lag_ms = self.now_ms() - waiting[0].min_ts_ms if waiting else 0
        return TopicFigures(
            topic=name,
            earliest_seq=topic.earliest_seq,
            head_seq=topic.head_seq,
            hot_bytes=topic.bytes_hot,
            forgotten_producers=topic.forgotten_producers,
            keys=topic.known_keys,
            lag_bytes=sum(segment.data_bytes for segment in waiting) if is_known else None,
            lag_s=max(0, lag_ms) / 1000 if is_known else None,
            is_paused=status is not None and status.is_paused(name),
            is_diverged=status is not None and status.is_diverged(name),
            offloaded_at_ms=self.works.succeeded_at_ms(name),
            kept_from_ms=None if status is None else status.kept_from_ms(name),
        )
