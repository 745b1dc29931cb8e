"""The command `seglog inspect`."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offload.cli.session import Session, emit, session_of

if TYPE_CHECKING:
    from catalog.format.keys import Key
    from catalog.objects.base import ObjectStore
    from offload.read.ledger import LedgerEntry, OffloadedLedgers

__all__ = ["inspect"]

_INDEX_ENDINGS = ("-index", ".index")  # Pulsar's, and ours
_SHOWN_BYTES = 48


def inspect(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="OBJECT", help="A path, or s3://bucket/key of an object.")],
    with_entries: Annotated[
        bool, typer.Option("--entries", help="The entries of a data object, of Apache Pulsar or of ours.")
    ] = False,
    index: Annotated[
        str | None,
        typer.Option(
            metavar="OBJECT",
            help="With --entries: its index object.",
            show_default="OBJECT-index, as Pulsar names it, or OBJECT.index, as we do",
        ),
    ] = None,
    first: Annotated[int, typer.Option("--from", min=0, help="With --entries: the first entry id.")] = 0,
    last: Annotated[
        int | None, typer.Option("--to", min=0, help="With --entries: the last entry id.", show_default=False)
    ] = None,
) -> None:
    """Print what a file or object of ours says: commits, refs, index and data objects, segments, WAL files.

    Objects that Apache Pulsar's tiered storage wrote are told too. Nothing is changed, and no data directory is needed.
    With --entries: a line each, with ledger, entry id, length and how the data begins; with --json an object each, with
    all of it as base64.
    Examples: seglog inspect s3://my-bucket/acme/refs/orders/main;
    seglog inspect --entries s3://pulsar/2f6c0d9e-ledger-1234
    """
    session = session_of(context)
    if with_entries:
        _write_entries(session, target, index, first, last)
        return
    from offload.read.inspection import inspect_bytes

    found = inspect_bytes(_read(target), target)
    emit(session, found, "\n".join(_lines(found)))


def _read(target: str) -> bytes:
    if not target.startswith("s3://"):
        return Path(target.removeprefix("file://")).read_bytes()
    store, key = _place(target)
    with closing(store):
        return store.get(key)


def _place(target: str) -> tuple[ObjectStore, Key]:
    """Return the store and the key of an object. `target` is a path or a URL."""
    from catalog.format import keys
    from offload.wiring import open_store

    if target.startswith("s3://"):
        bucket, _, key = target.removeprefix("s3://").partition("/")
        return open_store(f"s3://{bucket}"), keys.check_key(key)
    path = Path(target.removeprefix("file://")).absolute()
    return open_store(path.parent.as_uri()), keys.check_key(path.name)


def _write_entries(session: Session, target: str, index: str | None, first: int, last: int | None) -> None:
    store, key = _place(target)
    with closing(store):
        for entry in _open(store, key, index).entries(first, last):
            sys.stdout.write((_entry_json(entry) if session.as_json else _entry_line(entry)) + "\n")


def _open(store: ObjectStore, key: Key, index: str | None) -> OffloadedLedgers:
    """Return the ledgers of a data object. `index` names an index object elsewhere. Raises `NoSuchObject`."""
    from catalog.errors import NoSuchObject
    from catalog.format import keys
    from offload.read.ledger import open_ledgers

    if index is not None:
        index_store, index_key = _place(index)
        with closing(index_store):
            return open_ledgers(store, key, index_store.get(index_key), index_key)
    pulsars, ours = (keys.check_key(key + ending) for ending in _INDEX_ENDINGS)
    try:
        return open_ledgers(store, key, store.get(pulsars), pulsars)
    except NoSuchObject:
        return open_ledgers(store, key, store.get(ours), ours)


def _entry_json(entry: LedgerEntry) -> str:
    return json.dumps(
        {
            "ledger": entry.ledger_id,
            "entry": entry.entry_id,
            "length": len(entry.data),
            "data_base64": base64.b64encode(entry.data).decode("ascii"),
        }
    )


def _entry_line(entry: LedgerEntry) -> str:
    shown = entry.data[:_SHOWN_BYTES].hex() + ("…" if len(entry.data) > _SHOWN_BYTES else "")
    ledger = "" if entry.ledger_id is None else f"{entry.ledger_id}:"
    return f"{ledger}{entry.entry_id} {len(entry.data)} {shown}".rstrip()


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
