"""The rows that a reader shows, in whichever form, and the error that ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from seglog import Gap, Record, RecordArrays
from seglog.format.frame import HAS_NODE, HAS_TAG, UNTERMINATED

__all__ = ["rows_of", "rows_of_arrays", "seen"]


def rows_of_arrays(found: RecordArrays) -> list[Record]:
    columns = (found.headers[name].tolist() for name in ("seq", "ts_ms", "flags"))
    places = (each.tolist() for each in found.places())
    return [
        Record(
            seq,
            ts_ms,
            bytes(found.buffer[value:end]),
            str(found.buffer[tag:value], "utf-8") if flags & HAS_TAG else None,
            str(found.buffer[node:tag], "utf-8") if flags & HAS_NODE else None,
            bool(flags & UNTERMINATED),
        )
        for seq, ts_ms, flags, node, tag, value, end in zip(*columns, *places, strict=True)
    ]


def rows_of(items: Iterable[Any], *, with_ends: bool = True) -> list[Record | Gap]:
    """Return records and gaps. Batches of Arrow know no `unterminated`, so without `with_ends` no record has it."""
    rows: list[Record | Gap] = []
    for item in items:
        if isinstance(item, RecordArrays):
            assert len(item)
            rows += rows_of_arrays(item)
        elif isinstance(item, Record | Gap):
            rows.append(item)
        else:
            assert len(item)
            rows += [
                Record(row["seq"], round(row["timestamp"].timestamp() * 1000), row["value"], row["tag"], row["node"])
                for row in item.to_pylist()
            ]
    if with_ends:
        return rows
    return [row._replace(unterminated=False) if isinstance(row, Record) else row for row in rows]


def seen(read: Callable[[], Iterable[Any]], *, with_ends: bool = True) -> tuple[list[Record | Gap], str]:
    """Return the rows before the error, and the error with its text; "" if there is none."""
    items: list[Any] = []
    try:
        for item in read():
            items.append(item)  # noqa: PERF402 - what comes before an error counts
    except Exception as error:
        return rows_of(items, with_ends=with_ends), f"{type(error).__name__}: {error}"
    return rows_of(items, with_ends=with_ends), ""
