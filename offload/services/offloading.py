"""The calls of an archive that offload a topic, release its hot copies, and delete or evict its records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from catalog import MAIN
from catalog.errors import CatalogError
from offload.errors import OffloadError
from offload.format.topic_config import PAUSED
from offload.handles import split_name
from offload.read.deletes import count_cold, count_hot
from offload.services.status import StatusCalls
from offload.write.publisher import Published
from seglog import DeleteOp, Topic
from seglog.arguments import checked

__all__ = ["Deleted", "OffloadCalls", "OffloadResult"]


@dataclass(frozen=True, slots=True)
class OffloadResult:
    """The result of `offload`. `released_seq` is the last seq whose hot copy was deleted; 0 if none was."""

    published: tuple[Published, ...]
    released_seq: int
    offloaded_seq: int
    unsealed_records: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """The result of `delete` and `evict`. `records` counts the deleted records. `lsn` is the commit that publishes the
    delete.

    While the commit is not published, `lsn` is None and `waits_for` gives the reason. `records` is None if the records
    in the cold tier could not be counted.
    """

    op: DeleteOp
    records: int | None
    lsn: int | None
    waits_for: str | None = None


class OffloadCalls(StatusCalls):
    """A mixin of `offload.archive.Archive`."""

    @checked
    def offload(
        self,
        name: str,
        *,
        up_to: int | None = None,
        drop_hot: bool = False,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> OffloadResult:
        """Upload the sealed segments of a topic, publish the deletes that follow them, and release the hot copies that
        are due.

        `up_to` stops the offload at the last segment that ends at or before that seq. `drop_hot` waives the deletion
        lag for the published segments, never the read-back. The unsealed tail stays; `Topic.seal` prepares it for the
        next offload. The offload calls `on_bytes` now and then with the number of frame bytes that it has just read.

        Raises `NoSuchTopic`, `Diverged`, and what the store raises. After an error, the caller repeats the call to
        resume.
        """
        self._log.check_writable()
        topic = self._log.get_topic(name)
        with self._turn(name):
            self._open(name)
            published = self._offloader.run(name, up_to=up_to, on_bytes=on_bytes)
            released = self._offloader.release(name, at_once=drop_hot)
        return OffloadResult(
            published=tuple(published),
            released_seq=released,
            offloaded_seq=self._handles.offloaded_seq(name),
            unsealed_records=topic.head_seq - topic.sealed_seq,
        )

    @checked
    def release(self, name: str, *, at_once: bool = False) -> int:
        """Delete the hot copies that are due, after reading the remote copies back. Return the last released seq, or 0.

        `at_once` waives the deletion lag. If the read-back fails, the call raises its error and the hot copy stays.
        """
        with self._turn(name):
            handle = self._handles.find(name)
            is_writer = handle is not None and self._handles.is_writer(handle)
            return self._offloader.release(name, at_once=at_once) if is_writer else 0

    @checked
    def pause(self, name: str, *, paused: bool = True) -> None:
        """Make the daemon leave the topic alone, or with `paused=False` end that. Durable on return.

        An `offload` by hand works as before.
        """
        config = self._log.get_topic(name).config
        attributes = {key: text for key, text in config.attributes.items() if key != PAUSED}
        if paused:
            attributes[PAUSED] = "yes"
        self._log.configure(name, replace(config, attributes=attributes))

    @checked
    def writable(self, name: str) -> Topic:
        """Return the topic of the log that takes appends for `name`.

        If `name` is a replica, or a branch that is only in the remote, the call first takes it over
        (offload.replication.takeover).

        Raises `NoSuchBranch` if the branch does not exist. If a plain topic does not exist, its first append creates
        it.
        """
        self._log.check_writable()
        if self._log.has_topic(name) or not (self.is_replica(name) or split_name(name)[1] != MAIN):
            return self._log.topic(name)
        with self._turn(name):
            if not self._log.has_topic(name):
                self._takeover.run(name)
        return self._log.topic(name)

    @checked
    def delete(self, name: str, *, before: int | None = None, tag: str | None = None) -> Deleted:
        """Delete the records below seq `before`, or the records with `tag`. Readers stop seeing them at once.

        If the caller passes both, a record must match both. A `*` at the end of `tag` matches any rest. Once every
        record appended before the delete is offloaded, the delete becomes a commit of its own. The state before that
        commit can be restored.

        The delete holds as soon as it is in the log. If the remote cannot be reached now, the call still succeeds, and
        the next `offload` publishes the delete.
        """
        return self._take(name, before, tag, lambda topic: topic.delete(before=before, tag=tag))

    @checked
    def evict(self, name: str, before: int) -> Deleted:
        """Evict the records below seq `before`, also from the archive, where retention takes nothing.

        Readers get a notice that the records are lost. In all else the call is like `delete`: the state before it can
        be restored.
        """
        return self._take(name, before, None, lambda topic: topic.evict(before))

    def _take(self, name: str, before: int | None, tag: str | None, act: Callable[[Topic], DeleteOp]) -> Deleted:
        topic = self._log.get_topic(self.writable(name).name)
        if topic.config.durability == "ephemeral":
            taken = count_hot(topic, before, tag)
            return Deleted(act(topic), taken, None)
        self._handles.keep_deletes(name)
        offloaded_seq = self._handles.offloaded_seq(name)
        hot_count = count_hot(topic, before, tag, start=offloaded_seq + 1)
        earlier = topic.delete_ops()
        op = act(topic)
        turn = self._turn(name)
        if not turn.acquire(blocking=False):
            return Deleted(op, None, None, waits_for="the offload that is running")
        try:
            return self._publish_delete(name, op, earlier, offloaded_seq, hot_count)
        except (CatalogError, OffloadError) as error:
            return Deleted(op, None, None, waits_for=str(error))
        finally:
            turn.release()

    def _publish_delete(
        self, name: str, op: DeleteOp, earlier: tuple[DeleteOp, ...], offloaded_seq: int, hot_count: int
    ) -> Deleted:
        """Publish `op` if its turn has come. `earlier` are the deletes that waited before it."""
        handle = self._handles.find(name)
        if handle is None:
            return Deleted(op, hot_count, None, waits_for="the first offload")
        snapshot = self._newest(name)
        in_cold = replace(op, at_seq=min(op.at_seq, offloaded_seq))  # this log truncated the records above it
        records = hot_count + count_cold(in_cold, earlier, snapshot, self._reader)
        if op.at_seq > offloaded_seq:
            return Deleted(op, records, None, waits_for="the offload of what was appended before it")
        self._open(name)
        published = self._offloader.run(name, up_to=offloaded_seq)
        return Deleted(op, records, published[-1].lsn if published else None)
