"""The removal of records, here and in the remote, and of a whole topic from this directory.

A removal of records is a delete, an eviction or a truncation. It holds as soon as it is in the log. If the remote
has any of the records, the removal becomes a commit, now or with a later offload.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from catalog import CommitKind
from catalog.errors import CatalogError
from offload.context import ArchiveContext
from offload.errors import OffloadError, TopicAttached
from offload.read.deletes import count_cold, count_hot
from offload.replication.replica import Replicas
from offload.replication.reset import Reset
from offload.replication.takeover import Writers
from offload.services.remote_states import RemoteStates
from offload.services.results import Removed, TopicRemoved
from offload.write.offloader import Offloader
from seglog import ConcurrentModification, DeleteOp, Topic, TruncateOp

__all__ = ["Removal", "take_here", "truncate_here"]

_ROUNDS = 20


def take_here(topic: Topic, before: int | None, tag: str | None, act: Callable[[], DeleteOp]) -> Removed:
    """Count the records of this disk that a delete takes, and run the delete, which is `act`."""
    records = count_hot(topic, before, tag)
    act()
    return Removed(records, None)


def truncate_here(topic: Topic, seq: int) -> Removed:
    """Truncate a topic of which the remote has no record from `seq` on."""
    records = max(0, topic.head_seq - seq + 1)
    topic.truncate(seq)
    return Removed(records, None)


class Removal:
    def __init__(
        self,
        context: ArchiveContext,
        states: RemoteStates,
        writers: Writers,
        offloader: Offloader,
        replicas: Replicas,
        reset: Reset,
    ) -> None:
        self._log = context.log
        self._handles = context.handles
        self._locks = context.locks
        self._reader = context.reader
        self._states = states
        self._writers = writers
        self._offloader = offloader
        self._replicas = replicas
        self._reset = reset

    def delete(self, name: str, before: int | None, tag: str | None, message: str) -> Removed:
        return self._take(name, before, tag, lambda topic: topic.delete(before=before, tag=tag), message)

    def evict(self, name: str, before: int, message: str) -> Removed:
        return self._take(name, before, None, lambda topic: topic.evict(before), message)

    def _take(
        self, name: str, before: int | None, tag: str | None, act: Callable[[Topic], DeleteOp], message: str
    ) -> Removed:
        topic = self._log.get_topic(self._writers.topic(name).name)
        if topic.config.durability == "ephemeral":
            return take_here(topic, before, tag, lambda: act(topic))
        self._handles.keep_deletes(name)
        offloaded_seq = self._handles.offloaded_seq(name)
        hot_count = count_hot(topic, before, tag, start=offloaded_seq + 1)
        earlier = topic.delete_ops()
        op = act(topic)
        lock = self._locks.of(name)
        if not lock.acquire(blocking=False):
            return Removed(None, None, waits_for="the offload that is running")
        try:
            return self._publish_delete(name, op, earlier, offloaded_seq, hot_count, message)
        except (CatalogError, OffloadError) as error:
            return Removed(None, None, waits_for=str(error))
        finally:
            lock.release()

    def _publish_delete(
        self,
        name: str,
        op: DeleteOp,
        earlier: tuple[DeleteOp, ...],
        offloaded_seq: int,
        hot_count: int,
        message: str,
    ) -> Removed:
        """Publish `op` if its turn has come. `earlier` are the deletes that waited before it."""
        handle = self._handles.find(name)
        if handle is None:
            return Removed(hot_count, None, waits_for="the first offload")
        snapshot = self._states.newest(name)
        in_cold = replace(op, at_seq=min(op.at_seq, offloaded_seq))  # this log truncated the records above it
        records = hot_count + count_cold(in_cold, earlier, snapshot, self._reader)
        if op.at_seq > offloaded_seq:
            return Removed(records, None, waits_for="the offload of what was appended before it")
        self._writers.open(name)
        published = self._offloader.run(name, up_to=offloaded_seq, messages={op: message})
        return Removed(records, published[-1].lsn if published else None)

    def truncate(self, name: str, seq: int, message: str) -> Removed:
        topic = self._log.get_topic(self._writers.topic(name).name)
        with self._locks.of(name):
            handle = self._handles.find(name)
            if handle is None or (handle.pending_lsn is None and seq > self._handles.offloaded_seq(name)):
                return truncate_here(topic, seq)
            records = self._cut_what_is_offloaded(topic, seq)
            try:
                messages: dict[DeleteOp | TruncateOp, str] = dict.fromkeys(topic.truncate_ops()[-1:], message)
                published = self._offloader.run(name, messages=messages)
            except (CatalogError, OffloadError) as error:
                return Removed(records, None, waits_for=str(error))
            lsns = [each.lsn for each in published if each.kind is CommitKind.TRUNCATE]
            return Removed(records, lsns[-1] if lsns else None)

    def _cut_what_is_offloaded(self, topic: Topic, seq: int) -> int:
        """Offload the whole topic, then truncate it. Return the number of removed records, all of which are in the
        remote.
        """
        self._writers.open(topic.name)
        for _ in range(_ROUNDS):
            topic.seal()
            self._offloader.run(topic.name)
            position, head_seq = topic.position, topic.head_seq
            if head_seq > self._handles.offloaded_seq(topic.name) or topic.delete_ops():
                continue
            try:
                topic.truncate(seq, position=position)
            except ConcurrentModification:
                continue
            return max(0, head_seq - seq + 1)
        raise ConcurrentModification(topic.name)

    def topic(self, name: str, *, detach: bool, discard: bool, message: str) -> TopicRemoved:
        self._log.check_writable()
        with self._locks.of(name):
            if self._replicas.is_replica(name):
                lsn = self._handles.of(name).lsn
                self._replicas.forget(name)
                return TopicRemoved("unfollowed", lsn)
            topic = self._log.get_topic(name)
            if self._handles.find(name) is not None:
                if not detach:
                    raise TopicAttached(name)
                self._reset.note(name, "topic detach", message)
                if not discard:
                    self._writers.open(name)
                    topic.seal()
                    self._offloader.run(name)
                result = self._reset.run(self._handles.follow(name), discard=discard, is_offloaded=not discard)
                self._replicas.forget(name)
                kept_lsn = result.lsn if result.is_followed else None
                return TopicRemoved("detached", kept_lsn, result.changes.records, result.changes.deletes)
            self._log.reconfigure(name, lambda config: replace(config, keep_history=False))
            self._log.delete_topic(name)
            return TopicRemoved("deleted", None)
