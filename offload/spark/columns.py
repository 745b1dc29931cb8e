"""The columns of the Spark source. This module does no I/O.

    column     type       meaning
    topic      string     the topic, without a branch
    seq        bigint     the record's number in the topic, from 1
    timestamp  timestamp  when the log took the record
    node       string     the record's node, or null
    tag        string     the record's tag, or null
    value      binary     the record's bytes
    lsn        bigint     the commit that added the record's segment

With `readChangeFeed`, which makes every column except topic and seq null in the row of a removal:

    _change    string     append, delete, undelete, truncate or evict
    _lsn       bigint     the commit that made the change

With `includeMetadata`:

    segment    string     the id of the segment
    block      int        the block of the data object, from 1: its multipart part
    offset     bigint     the place of the record's chunk in the data object, as errors name it
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from offload.errors import InvalidOption
from offload.spark.options import ReadOptions
from seglog.base.dataclasses import dataclass
from seglog.values.arrow import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `type` is Spark's simple name of its type."""

    name: str
    type: str


_COLUMNS = (
    Column("topic", "string"),
    Column("seq", "bigint"),
    Column("timestamp", "timestamp"),
    Column("node", "string"),
    Column("tag", "string"),
    Column("value", "binary"),
    Column("lsn", "bigint"),
)
_OF_CHANGES = (Column("_change", "string"), Column("_lsn", "bigint"))
_METADATA = (Column("segment", "string"), Column("block", "int"), Column("offset", "bigint"))
ALL_COLUMNS = _COLUMNS + _OF_CHANGES + _METADATA
NEVER_NULL_IN_A_FEED = frozenset({"topic", "seq", "_change", "_lsn"})
NEVER_NULL = frozenset(column.name for column in ALL_COLUMNS) - {"node", "tag"}
WITHOUT_DATA = frozenset({"lsn", "segment", "block", "offset"}) | NEVER_NULL_IN_A_FEED
EXPORT_COLUMNS = ("seq", "timestamp", "node", "tag", "value", "lsn")
"""The columns of a Parquet file of an export, by Spark and by the command line."""


def export_schema() -> pa.Schema:
    """Return the Arrow schema of `EXPORT_COLUMNS`."""
    import pyarrow as pa

    schema = arrow_schema().append(pa.field("lsn", pa.int64()))
    return pa.schema([schema.field(name) for name in EXPORT_COLUMNS])


def arrow_schema_of(columns: Iterable[tuple[str, str, bool]]) -> pa.Schema:
    """Return the Arrow schema that Spark expects of columns: a name, Spark's simple name of the type, and nullable."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "binary": pa.binary(),
    }
    return pa.schema([pa.field(name, types[kind], nullable) for name, kind, nullable in columns])


def columns_of(options: ReadOptions) -> tuple[Column, ...]:
    """Return the columns that a read with `options` has, in order. Raises `InvalidOption`."""
    offered = _COLUMNS + (_OF_CHANGES if options.feed else ()) + (_METADATA if options.include_metadata else ())
    if options.columns is None:
        return offered
    by_name = {column.name: column for column in offered}
    for name in options.columns:
        if name not in by_name:
            raise InvalidOption("columns", f"there is no column {name}", hint=f"use {', '.join(by_name)}")
    return tuple(by_name[name] for name in options.columns)
