"""How a directory becomes the writer of a volume that others have written: by a commit of a higher epoch.

    step                                                            what a crash after it leaves
    1 the newest commit is looked for                               a replica that knows more
    2 a commit of kind config, of the epoch after the newest one's, the same, with a pending commit: it is settled first
      goes on record, then to the volume
    3 the topic is made in the log, right after the volume's head,  a replica with a topic that fits: step 1
      with its configuration, and no time before its newest
    4 the handle is given the epoch                                 the writer

E1  From step 2 on the former writer is fenced: its next commit finds a higher epoch where it would go.
E2  Whoever loses step 2 to the writer it wants to replace tries again behind that; who loses it to another one that
    takes over is told (`Fenced`): both of them would have stopped the other without knowing.
E3  A crash costs an epoch, never a record: nothing is appended before step 3.
"""

from __future__ import annotations

from dataclasses import replace

from catalog import CommitKind, Handle, LocalCatalog, Snapshot, Volumes
from catalog.errors import Diverged, Fenced, KeyTaken
from catalog.format import keys
from offload.format.topic_config import config_of
from offload.handles import Handles
from offload.replication.replica import Replicas
from offload.write.publisher import Publisher
from seglog import Log

__all__ = ["Takeover"]

_ROUNDS = 20


class Takeover:
    """Of topics of one log. The caller sees to it that one thread at a time is at a topic."""

    def __init__(
        self,
        log: Log,
        volumes: Volumes,
        handles: Handles,
        local: LocalCatalog,
        replicas: Replicas,
        publisher: Publisher,
    ) -> None:
        self._log = log
        self._volumes = volumes
        self._handles = handles
        self._local = local
        self._replicas = replicas
        self._publisher = publisher

    def run(self, name: str) -> Handle:
        """Raises `Fenced`, `Diverged` for a topic of the log that does not fit, `OtherRemote`, and what the store does.

        Repeat it after any of them.
        """
        handle = self._handles.follow(name)
        self._handles.check_remote(handle)
        handle = self._publisher.settled(handle)
        found_epoch: int | None = None
        for _ in range(_ROUNDS):
            handle = self._replicas.forward(handle)
            snapshot = self._volumes.snapshot(handle.vid, handle.lsn)
            self._check_fits(name, snapshot)
            if found_epoch is not None and snapshot.epoch > found_epoch:
                raise Fenced(name, str(handle.vid), snapshot.lsn, snapshot.epoch)
            found_epoch = snapshot.epoch
            if snapshot.lsn == 0:
                return self._begin(handle, snapshot)  # its first commit has the epoch
            # Above 1, which a writer may have that has not committed yet, behind maintenance of epoch 0.
            epoch = max(snapshot.epoch, 1) + 1
            handle = self._claim(handle, snapshot, epoch)
            if handle.lsn > snapshot.lsn:
                return self._begin(handle, replace(snapshot, epoch=epoch))
        raise KeyTaken(keys.commit_key(handle.vid, handle.lsn + 1))

    def _claim(self, handle: Handle, snapshot: Snapshot, epoch: int) -> Handle:
        commit = self._publisher.commit(
            handle,
            self._handles.tip(handle),
            CommitKind.CONFIG,
            at_seq=snapshot.bounds.head_seq,
            at_ts_ms=snapshot.max_ts_ms,
            epoch=epoch,
            message=f"{self._publisher.writer_id} writes from here on",
        )
        return self._publisher.settled(self._publisher.prepare(handle, commit))

    def _check_fits(self, name: str, snapshot: Snapshot) -> None:
        if self._log.has_topic(name) and self._log.topic(name).first_seq != snapshot.bounds.head_seq + 1:
            raise Diverged(name, str(snapshot.vid), snapshot.lsn)

    def _begin(self, handle: Handle, snapshot: Snapshot) -> Handle:
        if not self._log.has_topic(handle.name):
            self._log.create_topic(
                handle.name,
                config_of(snapshot.config, keys.commit_key(handle.vid, handle.lsn or 1)),
                first_seq=snapshot.bounds.head_seq + 1,
                ts_floor_ms=snapshot.max_ts_ms,
            )
        topic = self._log.topic(handle.name)
        if topic.evict_floor < snapshot.bounds.evict_floor:
            topic.evict(snapshot.bounds.evict_floor)
        topic_id = topic.topic_id
        writer = replace(handle, epoch=snapshot.epoch or 1, topic_id=topic_id, diverged_lsn=None, fenced_epoch=None)
        self._local.save(handle=writer)
        return writer
