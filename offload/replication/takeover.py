"""Takeover: a directory becomes the writer of a volume that others wrote, by a commit of a higher epoch.

    step                                                              state after a crash in this step
    1 The directory looks for the newest commit.                      a replica that knows more
    2 The directory prepares a commit of kind config, whose epoch     the same, with a pending commit, which the next
      is above the newest commit's. It saves the commit, and then     takeover settles first
      puts it into the volume.
    3 The directory makes the topic in the log, right after the       a replica with a topic that fits: step 1
      volume's head, with its configuration. No time in the topic
      is before the volume's newest time. The topic has the
      producers and keys that the log kept (seglog.values.written_elsewhere).
    4 The directory gives the handle the epoch.                       the writer

TAKEOVER-1  From step 2 on, the former writer is fenced: its next commit meets a higher epoch at its LSN.
TAKEOVER-2  If the former writer wins the LSN of step 2, the directory tries again after that commit. If another
    takeover wins the LSN, the directory raises `Fenced`. Otherwise, each directory would have stopped the other without
    knowing.
TAKEOVER-3  A crash costs an epoch, never a record, because the directory appends nothing before step 3.
TAKEOVER-4  A first append to a proxy begins no topic: neither one that the remote has, nor one that is new. For the
    proxy learns only later which names the remote has.
"""

from __future__ import annotations

from dataclasses import replace

from catalog import MAIN, CommitKind, Handle, Snapshot
from catalog.errors import Diverged, Fenced, KeyTaken
from catalog.format import keys
from offload.context import ArchiveContext, OfContext
from offload.format.topic_config import config_of
from offload.handles import split_name
from offload.replication.replica import Replicas
from offload.write.publisher import Publisher
from seglog import Topic, WrittenElsewhere
from seglog.values.deletes import DeleteWhere

_ROUNDS = 20


class Takeover(OfContext):
    """Takes topics of one log over. The caller ensures that only one thread at a time works on a topic."""

    def __init__(self, context: ArchiveContext, replicas: Replicas, publisher: Publisher) -> None:
        super().__init__(context)
        self._replicas = replicas
        self._publisher = publisher

    def run(self, name: str, *, is_asked: bool = True) -> Handle:
        """Take the volume over, and return the writer's handle. If nobody asked for it, stop no other writer.

        Raises `WrittenElsewhere` if another directory has written the volume and nobody asked, `Fenced`, `Diverged` for
        a topic of the log that does not fit, `OtherRemote`, and what the store raises. After an error, the caller
        repeats the call.
        """
        handle = self._handles.follow(name)
        handle = self._publisher.resolve_pending(self._handles.relocate(handle, must_lead=True))
        found_epoch: int | None = None
        for _ in range(_ROUNDS):
            handle = self._replicas.forward(handle)
            snapshot = self._volumes.snapshot(handle.vid, handle.lsn)
            self._check_fits(name, snapshot)
            if found_epoch is not None and snapshot.epoch > found_epoch:
                raise Fenced(name, str(handle.vid), snapshot.lsn, snapshot.epoch)
            found_epoch = snapshot.epoch
            if snapshot.lsn == 0:
                return self._begin(handle, snapshot)  # the first commit carries the epoch
            if not is_asked:
                raise WrittenElsewhere(name, is_fenced=False)
            epoch = snapshot.next_epoch
            handle = self._claim(handle, snapshot, epoch)
            if handle.lsn > snapshot.lsn:
                moved = self._handles.relocate(handle, must_lead=True)
                if moved.vid == handle.vid:
                    return self._begin(handle, replace(snapshot, epoch=epoch))
                handle, found_epoch = moved, None  # the name leads to another volume since (SWITCH-2)
        raise KeyTaken(keys.commit_key(handle.vid, handle.lsn + 1))

    def open(self, name: str) -> Handle:
        """Return the writer's handle for a topic of the log. If this directory is not the writer yet, take the volume
        over. The caller holds the lock of the topic.
        """
        handle = self._handles.open(name)
        return handle if self._handles.is_writer(handle) else self.run(name)

    def topic(self, name: str, *, is_asked: bool = True) -> Topic:
        """Return the topic of the log that takes appends for `name` (`Archive.open_for_append`), as `run` does."""
        self._log.check_writable()
        if not (self._context.takes_over or self._log.has_topic(name)):
            raise refusal_of_proxy(name, is_new=not self._is_to_take_over(name))
        if self._is_to_take_over(name):
            with self._locks.of(name):
                if self._is_to_take_over(name):  # it may have been detached meanwhile, or be here
                    is_replica = self._replicas.is_replica(name)
                    try:
                        self.run(name, is_asked=is_asked)
                    except BaseException:
                        if not (is_asked or is_replica):
                            self._replicas.forget(name)  # nobody asked to follow it, and the next append tries again
                        raise
        return self._log.topic(name)

    def _is_to_take_over(self, name: str) -> bool:
        if self._log.has_topic(name):
            return False
        return name in self._log.elsewhere or self._replicas.is_replica(name) or split_name(name)[1] != MAIN

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
        return self._publisher.resolve_pending(self._publisher.prepare(handle, commit))

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
                is_taken_over=True,
            )
        topic = self._log.topic(handle.name)
        if topic.inner.evict_floor < snapshot.bounds.evict_floor:
            op = topic.inner.delete(DeleteWhere(snapshot.bounds.evict_floor), evicts=True)
            topic.inner.settle_deletes(op.op)  # it comes from the remote
        topic_id = topic.inner.topic_id
        writer = replace(handle, epoch=snapshot.epoch or 1, topic_id=topic_id, diverged_lsn=None, fenced_epoch=None)
        self._local.save(handle=writer)
        return writer


def refusal_of_proxy(name: str, *, is_new: bool) -> WrittenElsewhere:
    """Return the error of an append to a proxy (TAKEOVER-4). Raises `InvalidName` for a name that is none."""
    split_name(name)
    text, way = f"follows {name}", f"`seglog takeover {name}` makes this one the writer"
    if is_new:
        text, way = f"has no topic {name} of its own", f"`seglog topic create {name}` makes it a topic of this one"
    return WrittenElsewhere.told(
        f"this daemon is a proxy, and {text}; nothing was changed",
        f"ask the daemon that writes it. {way}",
        {"topic": name, "is_fenced": False},
    )
