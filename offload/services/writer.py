"""The calls of an archive that change a topic: offload, release, the removal of records, and of a whole topic from this
directory.

A removal of records is a delete, an eviction or a truncation. It holds as soon as it is in the log. If the remote
has any of the records, the removal becomes a commit, now or with a later offload.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from catalog import CommitKind
from catalog.errors import CatalogError
from offload.errors import OffloadError, TopicAttached
from offload.read.delete_effects import count_cold, count_hot
from offload.services.archive_parts import OfArchive
from offload.services.results import OffloadResult, Removed, TopicRemoved
from seglog import ConcurrentModification, DeleteOp, Topic, TruncateOp
from seglog.values.deletes import DeleteWhere

_ROUNDS = 20


def take_here(topic: Topic, where: DeleteWhere, act: Callable[[], DeleteOp]) -> Removed:
    """Count the records of this disk that a delete takes, and run the delete, which is `act`."""
    records = count_hot(topic, where)
    return Removed(records, None, number=act().op or None)


def truncate_here(topic: Topic, seq: int) -> Removed:
    """Truncate a topic of which the remote has no record from `seq` on."""
    records = max(0, topic.head_seq - seq + 1)
    topic.truncate(seq)
    return Removed(records, None)


class Writer(OfArchive):
    """Changes topics of one archive, each under the lock of its topic."""

    def offload(
        self,
        name: str,
        *,
        up_to: int | None = None,
        drop_hot: bool = False,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> OffloadResult:
        self._log.check_writable()
        topic = self._log.get_topic(name)
        with self._locks.of(name):
            self._parts.takeover.open(name)
            published = self._parts.offloader.run(name, up_to=up_to, on_bytes=on_bytes)
            released = self._parts.offloader.release(name, at_once=drop_hot)
        return OffloadResult(
            published=tuple(published),
            released_seq=released,
            offloaded_seq=self._handles.offloaded_seq(name),
            unsealed_records=topic.head_seq - topic.inner.sealed_seq,
        )

    def release(self, name: str, *, at_once: bool = False) -> int:
        """Return the last released seq, or 0. A topic that this directory does not write is left alone."""
        with self._locks.of(name):
            handle = self._handles.find(name)
            is_writer = handle is not None and self._handles.is_writer(handle)
            return self._parts.offloader.release(name, at_once=at_once) if is_writer else 0

    def delete(self, name: str, where: DeleteWhere, message: str) -> Removed:
        return self._take(name, where, lambda topic: topic.inner.delete(where), message)

    def evict(self, name: str, before: int, message: str) -> Removed:
        where = DeleteWhere(before)
        return self._take(name, where, lambda topic: topic.inner.delete(where, evicts=True), message)

    def _take(self, name: str, where: DeleteWhere, act: Callable[[Topic], DeleteOp], message: str) -> Removed:
        topic = self._log.get_topic(self._parts.takeover.topic(name).name)
        if where.is_none and where.epoch in (None, topic.epoch):
            return Removed(0, None)
        if topic.config.durability == "ephemeral":
            return take_here(topic, where, lambda: act(topic))
        self._handles.keep_deletes(name)
        offloaded_seq = self._handles.offloaded_seq(name)
        hot_count = count_hot(topic, where, start=offloaded_seq + 1)
        earlier = topic.inner.delete_ops()
        lock = self._locks.of(name)
        is_free = lock.acquire(blocking=False)  # before the delete, which a background offload would publish first
        try:
            op = act(topic)
            if not is_free:
                return Removed(None, None, "the offload that is running", op.op)
            try:
                done = self._publish_delete(name, op, earlier, offloaded_seq, hot_count, message)
                return replace(done, number=op.op if done.lsn is None else None)
            except (CatalogError, OffloadError) as error:
                return Removed(None, None, str(error), op.op)
        finally:
            if is_free:
                lock.release()

    def _publish_delete(
        self, name: str, op: DeleteOp, earlier: tuple[DeleteOp, ...], offloaded_seq: int, hot_count: int, message: str
    ) -> Removed:
        """Publish `op` if its turn has come. `earlier` are the deletes that waited before it."""
        handle = self._handles.find(name)
        if handle is None:
            return Removed(hot_count, None, waits_for="the first offload")
        snapshot = self._parts.states.newest(name)
        in_cold = replace(op, at_seq=min(op.at_seq, offloaded_seq))  # this log truncated the records above it
        records = hot_count + count_cold(in_cold, earlier, snapshot, self._reader)
        if op.at_seq > offloaded_seq:
            return Removed(records, None, waits_for="the offload of what was appended before it")
        self._parts.takeover.open(name)
        published = self._parts.offloader.run(name, up_to=offloaded_seq, messages={op: message})
        return Removed(records, published[-1].lsn if published else None)

    def truncate(self, name: str, seq: int, message: str) -> Removed:
        topic = self._log.get_topic(self._parts.takeover.topic(name).name)
        with self._locks.of(name):
            handle = self._handles.find(name)
            if handle is None or (handle.pending_lsn is None and seq > self._handles.offloaded_seq(name)):
                return truncate_here(topic, seq)
            records = self._cut_what_is_offloaded(topic, seq)
            try:
                messages: dict[DeleteOp | TruncateOp, str] = dict.fromkeys(topic.inner.truncate_ops()[-1:], message)
                published = self._parts.offloader.run(name, messages=messages)
            except (CatalogError, OffloadError) as error:
                return Removed(records, None, waits_for=str(error))
            lsns = [commit.lsn for commit in published if commit.kind is CommitKind.TRUNCATE]
            return Removed(records, lsns[-1] if lsns else None)

    def _cut_what_is_offloaded(self, topic: Topic, seq: int) -> int:
        """Offload the whole topic, then truncate it. Return the number of removed records, all of which are in the
        remote.
        """
        self._parts.takeover.open(topic.name)
        for _ in range(_ROUNDS):
            topic.seal()
            self._parts.offloader.run(topic.name)
            position, head_seq = topic.inner.position, topic.head_seq
            if head_seq > self._handles.offloaded_seq(topic.name) or topic.inner.delete_ops():
                continue
            try:
                topic.inner.truncate(seq, position=position)
            except ConcurrentModification:
                continue
            return max(0, head_seq - seq + 1)
        raise ConcurrentModification(topic.name)

    def delete_topic(self, name: str, *, detach: bool, discard: bool, message: str) -> TopicRemoved:
        self._log.check_writable()
        with self._locks.of(name):
            if self._parts.replicas.is_replica(name):
                lsn = self._handles.of(name).lsn
                self._parts.replicas.forget(name)
                return TopicRemoved("unfollowed", lsn)
            topic = self._log.get_topic(name)
            if self._handles.find(name) is not None:
                if not detach:
                    raise TopicAttached(name)
                self._parts.reset.note(name, "topic detach", message)
                if not discard:
                    self._parts.takeover.open(name)
                    topic.seal()
                    self._parts.offloader.run(name)
                result = self._parts.reset.run(self._handles.follow(name), discard=discard, is_offloaded=not discard)
                self._parts.replicas.forget(name)
                kept_lsn = result.lsn if result.is_followed else None
                return TopicRemoved("detached", kept_lsn, result.changes.records, result.changes.deletes)
            self._log.reconfigure(name, lambda config: replace(config, keep_history=False))
            self._log.delete_topic(name)
            return TopicRemoved("deleted", None)
