"""Reads of a range, in steps that run in threads. Each step returns bytes of the answer.

RANGE-1  A step looks at no more than 8,192 records, and returns about a MiB at most. So readers of long ranges take
    turns in the threads, also readers whose filter fits few records.
RANGE-2  `next_seq` is the first seq that neither the answer nor its filters have passed. A read from there on
    continues the answer exactly. It is None until the reader knows it.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from offload.daemon.http.read_request import Form, RangeQuery
from offload.daemon.past_topic import PastTopic
from offload.errors import Refused
from offload.operations.record_text import to_json
from offload.replica_topic import ReplicaTopic
from seglog import Evicted, Gap, Record, Topic, arrow_schema
from seglog.base.lazy import LazyModule

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa, pc = LazyModule("pyarrow"), LazyModule("pyarrow.compute")

STEP_BYTES = 1024 * 1024
_STEP_RECORDS = 512
_STEP_LOOKS = 8192
_HEAD = struct.Struct("<QI")


class _RangeRead(Protocol):
    """A read that has begun, when the topic ended at `head`. `next_seq` is as RANGE-2 says."""

    head: int
    next_seq: int | None

    def step(self) -> tuple[bytes, bool]:
        """Return the next bytes, which may be none, and whether the answer ends with them. Raises as a read does."""


def open_range(topic: Topic | ReplicaTopic | PastTopic, query: RangeQuery, form: Form) -> _RangeRead:
    """Begin a read up to the head of now.

    Raises `NoSuchTopic`, `SeqOutOfRange`, and 406 for a replica or a past state in Arrow.
    """
    head = topic.head_seq
    last = head if query.end is None else min(query.end, head)
    start = query.start if query.tail is None else query.begin(topic.earliest_seq, head)
    if form is Form.ARROW:
        if not isinstance(topic, Topic):
            kind = "a replica" if isinstance(topic, ReplicaTopic) else "read as it was"
            raise Refused(406, "accept", f"{topic.name} is {kind}: its records do not come in Arrow")
        return _ArrowRead(topic, query, start, last, head)
    return _RecordsRead(_items(topic, query, start, last), query, last, head, form)


def _items(
    topic: Topic | ReplicaTopic | PastTopic, query: RangeQuery, start: int | None, last: int
) -> Iterator[Record | Gap]:
    since_ms = query.choice.since_ms
    if query.tail is None:
        return topic.read(start, last, since_ms=since_ms, until_ms=query.until_ms, gaps=query.gaps)
    found = topic.read(start, last, since_ms=since_ms, until_ms=query.until_ms, gaps=True)
    return found if query.gaps else _without_first_gap(topic.name, found)


def _without_first_gap(name: str, items: Iterable[Record | Gap]) -> Iterator[Record]:
    """Yield the records of a tail. It may begin with evicted ones, which its reader did not ask for by number."""
    has_begun = False
    for item in items:
        if isinstance(item, Record):
            has_begun = True
            yield item
        elif has_begun:
            raise Evicted(name, item.gap_from, item.gap_to)


class _RecordsRead:
    """A read of records one by one, as JSON lines or as seqs with values."""

    def __init__(self, items: Iterator[Record | Gap], query: RangeQuery, last: int, head: int, form: Form) -> None:
        self.head = head
        self.next_seq = None if query.is_cut else last + 1
        self._items = items
        self._query = query
        self._last = last
        self._form = form
        self._count = self._bytes = 0

    def step(self) -> tuple[bytes, bool]:
        taken: list[Record | Gap] = []
        room, looks = STEP_BYTES, 0
        for item in islice(self._items, _STEP_LOOKS):
            looks += 1
            if isinstance(item, Gap):
                taken.append(item)
            elif self._query.choice.takes(item):
                if self._ends_before(item):
                    return self._end(taken, item.seq)
                taken.append(item)
                room -= len(item.value)
                if self._count == self._query.limit:
                    return self._end(taken, item.seq + 1)
            if room <= 0 or len(taken) == _STEP_RECORDS:
                return self._encoded(taken), False
        return (self._encoded(taken), False) if looks == _STEP_LOOKS else self._end(taken, self._last + 1)

    def _ends_before(self, record: Record) -> bool:
        """Count a record, unless `max_bytes` has no room for it. The first record always fits."""
        most, size_bytes = self._query.max_bytes, self._bytes + len(record.value)
        if most is not None and self._count and size_bytes > most:
            return True
        self._count, self._bytes = self._count + 1, size_bytes
        return False

    def _end(self, taken: list[Record | Gap], next_seq: int) -> tuple[bytes, bool]:
        self.next_seq = next_seq
        return self._encoded(taken), True

    def _encoded(self, taken: list[Record | Gap]) -> bytes:
        if self._form is Form.SEQS:
            records = [item for item in taken if isinstance(item, Record)]
            return b"".join(part for seq, _, value, *_ in records for part in (_HEAD.pack(seq, len(value)), value))
        return "".join(f"{to_json(item)}\n" for item in taken).encode()


class _ArrowRead:
    """A read as batches of Apache Arrow, which begin with their schema and end with an end-of-stream mark."""

    def __init__(self, topic: Topic, query: RangeQuery, start: int | None, last: int, head: int) -> None:
        choice = query.choice
        self.head = head
        self.next_seq = None if query.is_cut else last + 1
        self._batches = topic.read_arrow(start, last, since_ms=choice.since_ms, until_ms=query.until_ms, tag=choice.tag)
        self._excluded = sorted(choice.excluded)
        self._last = last
        self._count_left, self._bytes_left = query.limit, query.max_bytes
        self._is_first = True
        self._out = io.BytesIO()
        self._writer = pa.ipc.new_stream(self._out, arrow_schema())

    def step(self) -> tuple[bytes, bool]:
        batch = next(self._batches, None)
        next_seq = self._last + 1
        if batch is not None:
            whole = self._chosen(batch)
            part = whole.slice(0, self._room(whole))
            self._writer.write_batch(part)
            self._count_left = None if self._count_left is None else self._count_left - len(part)
            self._is_first = self._is_first and not len(part)
            if len(part) == len(whole) and self._count_left != 0:
                return self._taken(), False
            next_seq = part["seq"][-1].as_py() + 1 if self._count_left == 0 else whole["seq"][len(part)].as_py()
        self.next_seq = next_seq
        self._writer.close()
        return self._taken(), True

    def _chosen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self._excluded:
            return batch
        is_excluded = pc.is_in(batch["node"], value_set=pa.array(self._excluded, pa.string()))
        return batch.filter(pc.invert(is_excluded))

    def _room(self, batch: pa.RecordBatch) -> int:
        """Return the number of rows that still fit. The first row of an answer always fits."""
        rows = len(batch) if self._count_left is None else min(len(batch), self._count_left)
        if self._bytes_left is None:
            return rows
        fitting = 0
        for size_bytes in pc.binary_length(batch["value"]).to_pylist()[:rows]:
            if size_bytes > self._bytes_left and not (self._is_first and not fitting):
                break
            fitting += 1
            self._bytes_left -= size_bytes
        return fitting

    def _taken(self) -> bytes:
        found = self._out.getvalue()
        self._out.seek(0)
        self._out.truncate()
        return found
