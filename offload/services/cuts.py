"""The call of an archive that truncates a topic: it removes the newest records from the log and from the remote."""

from __future__ import annotations

from dataclasses import dataclass

from catalog import CommitKind
from catalog.errors import CatalogError
from offload.errors import OffloadError
from offload.services.offloading import OffloadCalls
from seglog import ConcurrentModification, Topic
from seglog.arguments import checked

__all__ = ["CutCalls", "Truncated"]

_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Truncated:
    """The result of `truncate`. `records` counts the removed records. `lsn` is the commit that publishes the
    truncation.

    `lsn` is None if the remote had none of the removed records. It is also None while the commit is not published yet.
    Then `waits_for` gives the reason.
    """

    records: int
    lsn: int | None
    waits_for: str | None = None


class CutCalls(OffloadCalls):
    """A mixin of `offload.archive.Archive`."""

    @checked
    def truncate(self, name: str, seq: int) -> Truncated:
        """Remove the records from `seq` on. Later appends use these seqs again.

        If the remote has any of these records, the call first offloads the records that the remote lacks. The
        truncation then becomes a commit, and the state before it can be restored. If only this log has the records, no
        copy of them remains.

        The truncation holds as soon as it is in the log. If the remote cannot be reached after that, the call still
        succeeds, and the next `offload` publishes the commit.

        Raises `NoSuchTopic`, `NotTruncatable`, `SeqOutOfRange`, `ConcurrentModification` if appends never pause, and
        what `offload` raises. After an error, nothing was removed.
        """
        topic = self._log.get_topic(self.writable(name).name)
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
        """Offload the whole topic, then truncate it. Return the number of removed records, all of which are in the
        remote.
        """
        self._open(topic.name)
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
