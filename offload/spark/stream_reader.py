"""The stream reader in Python. Spark 4.2 and newer have what it needs.

SREAD-1  Spark makes the reader in a process of its own, which lives as long as the query. There `latestOffset` and
    `partitions` share one remote. Workers get a pickled reader that has none.
SREAD-2  Spark knows one limit at a time. The reader names one, and then keeps all that the options give. If Spark asks
    for all that is available, no limit counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from offload.spark.source import read_partition
from offload.spark.stream_options import StreamOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from offload.spark.pin import Pin
    from offload.spark.query_plan import Remote
    from offload.spark.stream import Stream


class SeglogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # as in source
    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._opened: tuple[Remote, Stream] | None = None
        self._target: Pin | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        options = self._options
        if options.max_records is not None:
            return ReadMaxRows(options.max_records)
        return ReadAllAvailable() if options.max_bytes is None else ReadMaxBytes(options.max_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        from offload.spark.offsets import decode_offset, encode_offset  # imported late, as in source (SPARK-3)

        remote, stream = self._stream()
        limited = not isinstance(limit, ReadAllAvailable)
        return encode_offset(stream.latest(remote, decode_offset(start), self._target, limited=limited))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        remote, _ = self._stream()
        self._target = remote.pin(self._options.read)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        from offload.spark.messages import encode_task
        from offload.spark.offsets import decode_offset
        from offload.spark.query_plan import Query

        remote, stream = self._stream()
        query = Query(frozenset(self._schema.names))
        plan = stream.plan(remote, decode_offset(start), decode_offset(end), query)
        return [InputPartition(encode_task(task)) for task in plan.tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._schema)

    def stop(self) -> None:
        if self._opened is not None:
            self._opened[0].close()
            self._opened = None

    def _stream(self) -> tuple[Remote, Stream]:
        if self._opened is None:
            from offload.spark.change_feed_stream import stream_of
            from offload.spark.query_plan import Remote

            self._opened = Remote.open(self._options.read.url), stream_of(self._options)
        return self._opened
