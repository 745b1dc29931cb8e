"""The records that main got after the fork, appended to the branch that becomes main: `branch promote --carry`.

    1 The directory takes the branch over, and notes in its configuration where the records come from, and the branch's
      last seq before them.
    2 It appends the live records of main above the shared seq, in order, with their tags and nodes. They get new seqs
      and the time of now, because the log assigns both. Deletes stay in the former main.
    3 It offloads the branch.

CARRY-1  A second call after a crash continues after the last record that the branch has. It compares each record that
    is there. So no record is carried twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby, islice

from catalog import Snapshot
from catalog.progress import count
from offload.context import ArchiveContext
from offload.errors import CarriedOtherwise
from offload.format.topic_config import CARRIED_FROM
from offload.services.writers import Writers
from offload.write.offloader import Offloader
from seglog import Record, Topic

__all__ = ["Carrying"]

_BATCH_RECORDS = 1024


class Carrying:
    """Carries records to a branch. The caller holds the lock of the branch."""

    def __init__(self, context: ArchiveContext, writers: Writers, offloader: Offloader) -> None:
        self._log = context.log
        self._reader = context.reader
        self._writers = writers
        self._offloader = offloader

    def run(self, main: Snapshot, shared_seq: int, branch: str) -> range:
        """Carry the live records of `main` above the shared seq to `branch`. Return their seqs there.

        Raises `CarriedOtherwise` if other records follow those of an earlier call (CARRY-1), and what the store raises.
        """
        topic = self._writers.topic(branch)
        before = self._begin(topic, f"{main.vid} {shared_seq}")
        records = self._reader.records(main, max(shared_seq + 1, main.bounds.evict_floor), main.bounds.head_seq)
        for there in topic.read(before + 1):
            if not isinstance(there, Record) or _content(there) != _content(next(records, None)):
                raise CarriedOtherwise(branch, before)
        for labels, values in _batches(records):
            tag, node, unterminated = labels
            topic.append(values, tag=tag, node=node, unterminated=unterminated)
            count("carrying", len(values), "records")
        topic.seal()
        self._offloader.run(branch)
        return range(before + 1, topic.head_seq + 1)

    def _begin(self, topic: Topic, origin: str) -> int:
        """Return the branch's last seq before the carried records. The first call puts it on record."""
        noted, _, before = topic.config.attributes.get(CARRIED_FROM, "").rpartition(" ")
        if noted == origin:
            return int(before)
        attributes = {**topic.config.attributes, CARRIED_FROM: f"{origin} {topic.head_seq}"}
        self._log.configure(topic.name, replace(topic.config, attributes=attributes))
        return topic.head_seq


def _batches(records: Iterable[Record]) -> Iterator[tuple[tuple[str | None, str | None, bool], list[bytes]]]:
    for labels, group in groupby(records, key=lambda each: (each.tag, each.node, each.unterminated)):
        while values := [each.value for each in islice(group, _BATCH_RECORDS)]:
            yield labels, values


def _content(record: Record | None) -> tuple[bytes, str | None, str | None, bool] | None:
    return None if record is None else (record.value, record.tag, record.node, record.unterminated)
