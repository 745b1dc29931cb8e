"""The data source that Spark knows as `seglog`.

SPARK-1  load() pins the head, once. Every action on a DataFrame, and every DataFrame made of it, sees the same commits.
    A new load() sees newer commits. Spark keeps the fields that `schema` sets. If the user gives the schema, Spark does
    not call `schema`, and keeps the fields that `reader` sets. Spark loses the fields that `partitions` sets.
SPARK-2  `pushFilters` is not overridden. Spark uses the plan that it narrowed for one query for the next query, too.
    So a reader that narrows its partitions gives wrong counts.
SPARK-3  This module imports nothing heavy and makes no client, because every worker loads it.
    Spark pickles plain values only: the source, the reader, the partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

from offload.errors import InvalidOption
from offload.spark.options import ReadOptions, parse_options

if TYPE_CHECKING:
    import pyarrow as pa

    from catalog.format.commit import ForkPoint

__all__ = ["SCHEMA", "SeglogDataSource", "SeglogReader"]

SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("seq", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("node", StringType()),
        StructField("tag", StringType()),
        StructField("value", BinaryType()),
        StructField("lsn", LongType()),  # of the commit that added the record's segment
    ]
)


class SeglogDataSource(DataSource):  # type: ignore[misc]  # pyspark's types are not followed
    """The records of one topic at one version: `spark.read.format("seglog")`. For options see offload.spark.options."""

    _pin: ForkPoint | None = None

    @classmethod
    def name(cls) -> str:
        return "seglog"

    def schema(self) -> StructType:
        self._pinned()
        return SCHEMA

    def reader(self, schema: StructType) -> SeglogReader:
        return SeglogReader(parse_options(self.options), self._pinned(), schema)

    def _pinned(self) -> ForkPoint:
        if self._pin is None:
            from offload.spark.plan import pin  # imported late (SPARK-3)

            self._pin = pin(parse_options(self.options))
        return self._pin


class SeglogReader(DataSourceReader):  # type: ignore[misc]  # pyspark's types are not followed
    def __init__(self, options: ReadOptions, pin: ForkPoint, schema: StructType) -> None:
        """`schema` may ask for some of the columns, in any order. The reader makes only these columns."""
        self._options = options
        self._pin = pin
        self._schema = schema
        offered = [_as_text(field) for field in SCHEMA.fields]
        for field in schema.fields:
            if _as_text(field) not in offered:
                raise InvalidOption("schema", f"there is no column {_as_text(field)}", hint=f"use {', '.join(offered)}")

    def partitions(self) -> Sequence[InputPartition]:
        from offload.spark.plan import plan  # imported late (SPARK-3)

        return plan(self._options, self._pin)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        from offload.spark.plan import ChunkRange
        from offload.spark.scan import scan

        if not isinstance(partition, ChunkRange):  # Spark's own, in place of an empty list
            return iter(())
        return scan(partition, to_arrow_schema(self._schema, timezone="UTC"))


def _as_text(field: StructField) -> str:
    return f"{field.name} {field.dataType.simpleString()}"
