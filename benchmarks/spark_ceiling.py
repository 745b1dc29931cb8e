"""The ceiling of Spark's Python API: a source that reads nothing and decodes nothing.

Each task makes one Arrow batch of about 1 MiB, and yields it again and again. So a query over this source costs only
what the API itself costs. The batches go to the JVM, and Spark copies all their columns into rows. No reader in Python
is faster. The values are log lines, so that a write of Parquet compresses as it does for real records.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Ceiling"]

_BATCH_BYTES = 1 << 20
_TASK_BYTES = 128 << 20
_TYPES = {
    "topic": "string",
    "seq": "bigint",
    "timestamp": "timestamp",
    "node": "string",
    "tag": "string",
    "value": "binary",
    "lsn": "bigint",
}


class Ceiling(DataSource):  # type: ignore[misc]  # pyspark's types are not followed
    """Options: `rows` in all, `size` of a value in bytes, `columns` with commas; all columns by default."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> str:
        names = self.options.get("columns", ",".join(_TYPES)).split(",")
        return ", ".join(f"{name} {_TYPES[name]}" for name in names)

    def reader(self, schema: StructType) -> CeilingReader:
        return CeilingReader(tuple(schema.names), int(self.options["rows"]), int(self.options["size"]))


class CeilingReader(DataSourceReader):  # type: ignore[misc]  # pyspark's types are not followed
    def __init__(self, columns: tuple[str, ...], rows: int, size_bytes: int) -> None:
        self._columns = columns
        self._rows = rows
        self._size_bytes = size_bytes

    def partitions(self) -> Sequence[InputPartition]:
        """Return tasks of 128 MiB of values, at least two."""
        count = max(2, self._rows * self._size_bytes // _TASK_BYTES)
        ends = [self._rows * number // count for number in range(count + 1)]
        return [InputPartition(end - start) for start, end in pairwise(ends)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = _batch(self._columns, self._size_bytes)
        whole, rest = divmod(partition.value, batch.num_rows)
        for _ in range(whole):
            yield batch
        yield batch.slice(0, rest)


@functools.cache
def _batch(columns: tuple[str, ...], size_bytes: int) -> pa.RecordBatch:
    """Return the batch. A worker process makes it once."""
    import pyarrow as pa

    from benchmarks.lines import log_lines

    count = _BATCH_BYTES // size_bytes
    made = {
        "topic": lambda: pa.repeat("bench", count),
        "seq": lambda: pa.array(range(count), pa.int64()),
        "timestamp": lambda: pa.array(range(count), pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        "node": lambda: pa.nulls(count, pa.string()),
        "tag": lambda: pa.array([f"tag-{number % 100:03}" for number in range(count)]),
        "value": lambda: pa.array(log_lines(count, size_bytes), pa.binary()),
        "lsn": lambda: pa.repeat(pa.scalar(1, pa.int64()), count),
    }
    return pa.RecordBatch.from_pydict({name: made[name]() for name in columns})
