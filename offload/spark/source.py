"""The data source that Spark knows as `seglog`, in Python.

SPARK-1  load() pins the versions, once. Every action on a DataFrame, and every DataFrame made of it, sees the same
    commits. A new load() sees newer commits. Spark keeps the fields that `schema` sets. If the user gives the schema,
    Spark does not call `schema`, and keeps the fields that `reader` sets. It loses the fields that `partitions` sets.
SPARK-2  `pushFilters` is not overridden. Spark uses the plan that it narrowed for one query for the next query, too.
    So a reader that narrows its partitions gives wrong counts. The options narrow a whole load() instead.
SPARK-3  This module imports nothing heavy and makes no client, because every worker loads it.
    Spark pickles plain values only: the source, the reader, the partitions.
SPARK-4  Spark trusts a schema's NOT NULL without a check. So the reader refuses it for a column that may have nulls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from offload.errors import InvalidOption
from offload.spark.columns import NEVER_NULL, NEVER_NULL_IN_A_FEED, arrow_schema_of, columns_of
from offload.spark.options import ReadOptions, parse_options
from offload.spark.stream_options import parse_any_options, parse_stream_options

if TYPE_CHECKING:
    import pyarrow as pa

    from offload.spark.pin import Pin
    from offload.spark.stream_reader import SeglogStreamReader
    from offload.spark.writer import SeglogStreamWriter, SeglogWriter

_PYTHON_NAME = "seglog_python"  # the jar has it, too: SeglogProvider.PYTHON

_TYPES: dict[str, type[DataType]] = {
    "string": StringType,
    "bigint": LongType,
    "int": IntegerType,
    "timestamp": TimestampType,
    "binary": BinaryType,
}


def schema_of(options: ReadOptions) -> StructType:
    """Return the schema that a read with `options` has. Raises `InvalidOption`."""
    return StructType([StructField(column.name, _TYPES[column.type]()) for column in columns_of(options)])


class SeglogDataSource(DataSource):  # type: ignore[misc]  # pyspark's types are not followed
    """The records of topics: `format("seglog")` of `spark.read`, at one version, and of `spark.readStream`.

    For options see offload.spark.options and offload.spark.stream_options.
    """

    _pin: Pin | None = None

    @classmethod
    def name(cls) -> str:
        return "seglog"

    def schema(self) -> StructType:
        """Return the columns. Spark does not tell whether a read or a stream follows."""
        options = _served(parse_any_options(self.options))
        schema = schema_of(options)
        self._pinned(options)
        return schema

    def reader(self, schema: StructType) -> SeglogReader:
        options = _served(parse_options(self.options))
        return SeglogReader(options, self._pinned(options), schema)

    def streamReader(self, schema: StructType) -> SeglogStreamReader:  # noqa: N802 - Spark's name
        from offload.spark.stream_reader import SeglogStreamReader  # imported late: an older Spark lacks its needs

        options = parse_stream_options(self.options)
        _check_schema(_served(options.read), schema)
        return SeglogStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> SeglogWriter:
        from offload.spark.writer import SeglogWriter  # imported late (SPARK-3)

        return SeglogWriter(dict(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> SeglogStreamWriter:  # noqa: N802 - Spark's name
        from offload.spark.writer import SeglogStreamWriter

        return SeglogStreamWriter(dict(self.options), schema, overwrite=overwrite)

    def _pinned(self, options: ReadOptions) -> Pin:
        if self._pin is None:
            from offload.spark.query_plan import pin  # imported late (SPARK-3)

            self._pin = pin(options)
        return self._pin


class PythonDataSource(SeglogDataSource):
    """The same under a name that the jar does not have, so that the jar can hand loads and writes to it."""

    @classmethod
    def name(cls) -> str:
        return _PYTHON_NAME


class SeglogReader(DataSourceReader):  # type: ignore[misc]  # pyspark's types are not followed
    def __init__(self, options: ReadOptions, pin: Pin, schema: StructType) -> None:
        """`schema` may ask for some of the columns, in any order. The reader makes only these columns."""
        self._options = options
        self._pin = pin
        self._schema = schema
        _check_schema(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        from offload.spark.messages import encode_task  # imported late (SPARK-3)
        from offload.spark.query_plan import Query, plan

        planned = plan(self._options, self._pin, Query(frozenset(self._schema.names)))
        return [InputPartition(encode_task(task)) for task in planned.tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._schema)


def _check_schema(options: ReadOptions, schema: StructType) -> None:
    """Raise `InvalidOption` if a user's schema has a column that the read lacks, or a wrong NOT NULL (SPARK-4)."""
    offered = [_as_text(field) for field in schema_of(options).fields]
    never_null = NEVER_NULL_IN_A_FEED if options.feed else NEVER_NULL
    for field in schema.fields:
        if _as_text(field) not in offered:
            raise InvalidOption("schema", f"there is no column {_as_text(field)}", hint=f"use {', '.join(offered)}")
        if not field.nullable and field.name not in never_null:
            hint = "leave out NOT NULL"
            raise InvalidOption("schema", f"{field.name} is NOT NULL, but records may lack it", hint=hint)


def read_partition(partition: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Return the rows of a task, in the columns of `schema`. Raises as `offload.spark.scan.scan`."""
    if partition is None or partition.value is None:  # Spark's own, in place of an empty list
        return iter(())
    from offload.spark.messages import decode_task
    from offload.spark.scan import scan

    columns = ((field.name, field.dataType.simpleString(), field.nullable) for field in schema.fields)
    return scan(decode_task(partition.value), arrow_schema_of(columns))


def _served(options: ReadOptions) -> ReadOptions:
    if options.reader == "jvm":
        hint = "leave the option out, and the reader in Python serves"
        raise InvalidOption("reader", "the JVM reader is not in this session", hint=hint)
    return options


def _as_text(field: StructField) -> str:
    return f"{field.name} {field.dataType.simpleString()}"
