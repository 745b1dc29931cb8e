"""The contents of a file or an object: `seglog inspect`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from catalog.errors import NoSuchObject
from catalog.format import keys
from catalog.format.keys import Key
from catalog.objects.object_store import ObjectStore
from offload.errors import no_such_file
from offload.read.inspection import inspect_bytes
from offload.read.ledger import OffloadedLedgers, open_ledgers
from offload.wiring import open_store, path_of
from seglog.base.dataclasses import dataclass

_INDEX_ENDINGS = ("-index", ".index")  # Pulsar's, and ours


@dataclass(frozen=True, slots=True)
class Inspected:
    """The contents of a file or an object. Their keys depend on what it is."""

    contents: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ShownEntry:
    """An entry of a data object. `ledger` is None if the object names no ledger."""

    ledger: int | None
    entry: int
    length: int
    data_base64: bytes


def inspect(target: str) -> Inspected:
    """Return the contents of a file or an object. `target` is a path or a URL.

    Raises `Misuse`, `Missing`, `NoSuchObject`.
    """
    return Inspected(inspect_bytes(_read(target), target))


def entries(target: str, index: str | None, first: int, last: int | None) -> Iterator[ShownEntry]:
    """Yield the entries of a data object. `index` names an index object elsewhere.

    Raises `Missing`, `NoSuchObject`.
    """
    store, key = _place(target)
    with closing(store):
        for entry in _open(store, key, index).entries(first, last):
            yield ShownEntry(entry.ledger_id, entry.entry_id, len(entry.data), entry.data)


def _read(target: str) -> bytes:
    if not target.startswith("s3://"):
        path = _path(target)
        try:
            return path.read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise no_such_file(path) from None
    store, key = _place(target)
    with closing(store):
        return store.get(key)


def _place(target: str) -> tuple[ObjectStore, Key]:
    """Return the store and the key of an object. `target` is a path or a URL. Raises `Missing`."""
    if target.startswith("s3://"):
        bucket, _, key = target.removeprefix("s3://").partition("/")
        return open_store(f"s3://{bucket}"), keys.check_key(key)
    path = _path(target)
    if not path.is_file():
        raise no_such_file(path)
    path = path.absolute()
    return open_store(path.parent.as_uri()), keys.check_key(path.name)


def _path(target: str) -> Path:
    return path_of(target.removeprefix("file://")) if target.startswith("file://") else Path(target)


def _open(store: ObjectStore, key: Key, index: str | None) -> OffloadedLedgers:
    """Return the ledgers of a data object. `index` names an index object elsewhere. Raises `NoSuchObject`."""
    if index is not None:
        index_store, index_key = _place(index)
        with closing(index_store):
            return open_ledgers(store, key, index_store.get(index_key), index_key)
    pulsars, ours = (keys.check_key(key + ending) for ending in _INDEX_ENDINGS)
    try:
        return open_ledgers(store, key, store.get(pulsars), pulsars)
    except NoSuchObject:
        return open_ledgers(store, key, store.get(ours), ours)
