"""The calls of an archive that take records from an end of a topic, with what the remote has of them."""

from __future__ import annotations

from dataclasses import dataclass

from catalog import CommitKind
from catalog.errors import CatalogError
from offload.errors import OffloadError
from offload.services.offloading import OffloadCalls
from seglog import Topic, TopicMoved
from seglog.arguments import checked

__all__ = ["CutCalls", "Truncated"]

_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Truncated:
    """`records` were removed, of those that the topic had. `lsn` is the commit that tells the remote.

    It is None if the remote had none of them, and while it waits for the commit: `waits_for` says what for.
    """

    records: int
    lsn: int | None
    waits_for: str | None = None


class CutCalls(OffloadCalls):
    """Mixed into `offload.archive.Archive`."""

    @checked
    def truncate(self, name: str, seq: int) -> Truncated:
        """Remove the records from `seq` on: later appends use their seqs again.

        If the remote has any of them, the others are offloaded first, and the truncation is a commit: the state before
        it can be restored. Of records that only this log has, nothing is left. It holds from the moment it is in the
        log, so that a remote that cannot be reached any more by then is no error: the next `offload` publishes it.
        Raises `NoSuchTopic`, `NotTruncatable`, `SeqOutOfRange`, `TopicMoved` if appends go on all the time, and what
        `offload` raises: nothing was removed.
        """
        topic = self._log.existing(self.writable(name).name)
        with self._turn(name):
            handle = self._handles.find(name)
            if handle is None or (handle.pending_lsn is None and seq > self._handles.offloaded_seq(name)):
                records = max(0, topic.head_seq - seq + 1)
                topic.truncate(seq)
                return Truncated(records, None)
            records = self._cut_what_is_offloaded(topic, seq)
            try:
                published = self._offloader.run(name)
            except (CatalogError, OffloadError) as error:
                return Truncated(records, None, waits_for=str(error))
            lsns = [each.lsn for each in published if each.kind is CommitKind.TRUNCATE]
            return Truncated(records, lsns[-1] if lsns else None)

    def _cut_what_is_offloaded(self, topic: Topic, seq: int) -> int:
        """How many records went, all of which are in the remote."""
        self._open(topic.name)
        for _ in range(_ROUNDS):
            topic.seal()
            self._offloader.run(topic.name)
            position, head_seq = topic.position, topic.head_seq
            if head_seq > self._handles.offloaded_seq(topic.name) or topic.delete_ops():
                continue
            try:
                topic.truncate(seq, position=position)
            except TopicMoved:
                continue
            return max(0, head_seq - seq + 1)
        raise TopicMoved(topic.name)
