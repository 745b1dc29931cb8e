"""The work of an executor in an export: the records of one task, as one Parquet file for each day.

DAY-1  Two attempts at one task write the same records to the same name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Self

from offload.spark.columns import export_schema
from offload.spark.jobs.manifest import ExportedFile, ExportTarget, target_of
from offload.spark.task import Task

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TopicPart", "write_part"]

_EPOCH = date(1970, 1, 1)
_DAY_US = 24 * 3600 * 1_000_000


@dataclass(frozen=True, slots=True)
class TopicPart:
    """A task of one topic. `name` is the topic, with its branch if that is not main."""

    name: str
    first: int
    last: int
    task: Task

    @classmethod
    def of(cls, name: str, task: Task) -> Self:
        return cls(name, task.pieces[0].first, task.pieces[-1].last, task)


def write_part(target: str, kms_key_id: str, part: TopicPart) -> list[ExportedFile]:
    """Write the files of a part, and return them. Raises the errors of the scan and of the target."""
    from offload.spark.scan import scan

    days: dict[int, list[pa.RecordBatch]] = {}
    for batch in scan(part.task, export_schema()):
        for day, records in _by_day(batch):
            days.setdefault(day, []).append(records)
    place = target_of(target, kms_key_id)
    return [_write(place, part, day, batches) for day, batches in sorted(days.items())]


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the parts of a batch, each of one day. The day counts from 1970."""
    import numpy as np
    import pyarrow as pa

    days = batch.column("timestamp").view(pa.int64()).to_numpy() // _DAY_US
    starts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
    for start, end in pairwise(starts):
        yield int(days[start]), batch.slice(start, end - start)


def _write(place: ExportTarget, part: TopicPart, day: int, batches: list[pa.RecordBatch]) -> ExportedFile:
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.Table.from_batches(batches)
    text = (_EPOCH + timedelta(days=day)).isoformat()
    name = f"day={text}/topic={part.name}/seqs-{part.first:016d}-{part.last:016d}.parquet"
    written = pa.BufferOutputStream()
    parquet.write_table(table, written)
    body = written.getvalue().to_pybytes()
    place.files.put(name, body)
    seqs = table.column("seq")
    return ExportedFile(name, part.name, text, seqs[0].as_py(), seqs[-1].as_py(), len(table), len(body))
