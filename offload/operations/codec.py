"""A result as bytes, for a client that gets the same dataclass: the command line gets the daemon's results like this.

    body     length of the head (u32, big-endian) · head · the values of type bytes, one after the other
    head     JSON: [name of the result's class, its fields]
    fields   a list, in the order of the class. A dataclass in it is a list as well, a bytes value is its length

Client and daemon are of one version: each reads `seglog.sock` of the other only.
"""

from __future__ import annotations

import enum
import io
import json
import struct
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from offload.operations.command import hints_of
from offload.operations.lines import RecordBatch
from seglog import Gap, Record

__all__ = ["decode", "encode"]

_HEAD = struct.Struct(">I")


def encode(result: Any) -> bytes:
    blobs: list[bytes] = []
    head = json.dumps([type(result).__name__, _plain(result, blobs)]).encode()
    return b"".join([_HEAD.pack(len(head)), head, *blobs])


def decode(body: bytes, kinds: Mapping[str, type]) -> Any:
    """Return the result. `kinds` are the classes that it may have, by name."""
    stream = io.BytesIO(body)
    [length] = _HEAD.unpack(stream.read(_HEAD.size))
    name, plain = json.loads(stream.read(length))
    return _whole(kinds[name], plain, stream)


def _plain(value: Any, blobs: list[bytes]) -> Any:
    if isinstance(value, bytes):
        blobs.append(value)
        return len(value)
    if isinstance(value, RecordBatch):
        return [value.counts, *_plain_batch(value.items, blobs)]
    if is_dataclass(value):
        return [_plain(getattr(value, field.name), blobs) for field in fields(value)]
    if isinstance(value, Mapping):
        return {key: _plain(item, blobs) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, blobs) for item in value]
    return value


def _plain_batch(items: Sequence[Record | Gap], blobs: list[bytes]) -> list[Any]:
    """Return the gaps, each with its place, and the records by columns. A column of equal values has one item.

    Work for each record would double the time of a read.
    """
    gaps = [(place, item.gap_from, item.gap_to) for place, item in enumerate(items) if isinstance(item, Gap)]
    columns = list(zip(*(item for item in items if isinstance(item, Record)), strict=True))
    if not columns:
        return [gaps]
    seqs, times, values, *labels = columns
    blobs.extend(values)
    return [gaps, seqs, times, list(map(len, values)), *(each[:1] if len(set(each)) == 1 else each for each in labels)]


def _whole(kind: Any, plain: Any, blobs: io.BytesIO) -> Any:
    if plain is None or kind is Any:
        return plain
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        [kind] = [each for each in inner if each is not type(None)]
        return _whole(kind, plain, blobs)
    if origin is tuple:
        kinds = inner[:1] * len(plain) if inner[1:] == (...,) else inner
        return tuple(_whole(each, item, blobs) for each, item in zip(kinds, plain, strict=True))
    if origin is not None:
        return {key: _whole(inner[1], item, blobs) for key, item in plain.items()}
    if kind is bytes:
        return blobs.read(plain)
    if kind is RecordBatch:
        counts, *columns = plain
        return RecordBatch(tuple(_batch(columns, blobs)), None if counts is None else tuple(counts))
    if is_dataclass(kind):
        return _made(kind, plain, blobs)
    return kind(plain) if issubclass(kind, (enum.Enum, int)) else plain


def _made(kind: Any, plain: Any, blobs: io.BytesIO) -> Any:
    hints = hints_of(kind)
    named = zip(fields(kind), plain, strict=True)
    return kind(**{field.name: _whole(hints[field.name], item, blobs) for field, item in named})


def _batch(plain: list[Any], blobs: io.BytesIO) -> list[Record | Gap]:
    gaps, *columns = plain
    items: list[Record | Gap] = []
    if columns:
        seqs, times, lengths, *labels = columns
        full = (each * len(seqs) if len(each) == 1 else each for each in labels)
        items += map(Record, seqs, times, map(blobs.read, lengths), *full)
    for place, first, last in gaps:
        items.insert(place, Gap(first, last))
    return items
