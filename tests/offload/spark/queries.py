"""Queries without Spark: the plan, and the scan of its tasks in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from offload.spark.columns import arrow_schema_of, columns_of
from offload.spark.messages import decode_task, encode_task
from offload.spark.options import ReadOptions, parse_options
from offload.spark.pin import Pin
from offload.spark.query_plan import Plan, Query, pin, plan
from offload.spark.scan import scan
from offload.spark.task import Filter

__all__ = ["arrow_schema", "planned", "read", "rows_of"]


def arrow_schema(options: ReadOptions, columns: Iterable[str] | None = None) -> pa.Schema:
    """Return the Arrow schema of some columns, by default all that the options give."""
    whole = {column.name: (column.name, column.type, True) for column in columns_of(options)}
    return arrow_schema_of(whole[name] for name in columns or whole)


def planned(
    options: ReadOptions,
    filters: Iterable[Filter] = (),
    columns: Iterable[str] | None = None,
    *,
    limit: int | None = None,
    at: Pin | None = None,
) -> Plan:
    wanted = frozenset(arrow_schema(options, columns).names)
    return plan(options, at or pin(options), Query(wanted, tuple(filters), limit))


def rows_of(
    options: ReadOptions,
    filters: Iterable[Filter] = (),
    columns: Iterable[str] | None = None,
    *,
    limit: int | None = None,
    at: Pin | None = None,
) -> list[dict[str, Any]]:
    """Return the rows of a query. Its tasks pass through their message."""
    schema = arrow_schema(options, columns)
    tasks = [decode_task(encode_task(task)) for task in planned(options, filters, columns, limit=limit, at=at).tasks]
    return [row for task in tasks for batch in scan(task, schema) for row in batch.to_pylist()]


def read(url: str, **options: object) -> list[dict[str, Any]]:
    """Return the rows of a read with `options`, of the topic `orders` unless they name another."""
    texts = {name: str(value) for name, value in options.items()}
    return rows_of(parse_options({"path": url, **({} if "subscribe" in texts else {"topic": "orders"}), **texts}))
