"""`seglog inspect`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from offload.cli.session import emit, session_of

__all__ = ["inspect"]


def inspect(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="OBJECT", help="A path, or s3://bucket/key of an object.")],
) -> None:
    """Print what a file or object of ours says: commits, refs, index and data objects, segments, WAL files.

    Objects that Apache Pulsar's tiered storage wrote are told too. Nothing is changed, and no data directory is needed.
    Example: seglog inspect s3://my-bucket/acme/refs/orders/main
    """
    from offload.inspection import inspect_bytes

    session = session_of(context)
    found = inspect_bytes(_read(target), target)
    emit(session, found, "\n".join(_lines(found)))


def _read(target: str) -> bytes:
    if not target.startswith("s3://"):
        return Path(target.removeprefix("file://")).read_bytes()
    from catalog import keys
    from offload.wiring import open_store

    bucket, _, key = target.removeprefix("s3://").partition("/")
    with closing(open_store(f"s3://{bucket}")) as store:
        return store.get(keys.check_key(key))


def _lines(value: dict[str, Any], indent: str = "") -> Iterator[str]:
    for key, item in value.items():
        if isinstance(item, dict):
            yield f"{indent}{key}:"
            yield from _lines(item, indent + "  ")
        elif isinstance(item, list) and item and isinstance(item[0], dict):
            yield f"{indent}{key}: {len(item)}"
            yield from (f"{indent}  {json.dumps(each)}" for each in item)
        else:
            yield f"{indent}{key}: {item if isinstance(item, str) else json.dumps(item)}"
