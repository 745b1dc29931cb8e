"""The offset of a stream: its position in each topic, as Spark writes it to the checkpoint. This module does no I/O.

    {"events@main": {"lsn": 3, "next_seq": 10, "vid": "5rMJ…"}, "orders@main": {"first_seq": 5, "lsn": 7, …}}

    next_seq   the seq that the next micro-batch begins with
    lsn        the version that the stream saw: the newest commit of the volume `vid` at that moment
    vid        the volume that the branch named at that moment
    first_seq  the seq that this micro-batch begins with, if that is not the `next_seq` before it

In a stream of changes, `next_seq` is 0, and the first micro-batch has `since`, the state before it:

    {"orders@main": {"lsn": 7, "next_seq": 0, "since": {"lsn": 3, "seq": null, "vid": "5rMJ…"}, "vid": "5rMJ…"}}

OFFSET-1  Names ascend, and no name is left out without a reason. So one position has one text.
OFFSET-2  A micro-batch of a topic has the seqs from `first_seq` up to and without `next_seq`, at version `lsn`. If the
    entry has no `first_seq`, the micro-batch begins with the `next_seq` of the offset before it.
OFFSET-3  A topic that is new to the stream, or continues elsewhere after a loss, has a `first_seq`. So the offset alone
    says what the micro-batch reads, also for the first one and after a restart.
OFFSET-4  An entry that equals the entry before it reads nothing.
OFFSET-5  A topic that the stream does not read any more keeps its entry. If it is read again, it continues there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from catalog.errors import CatalogError, InvalidName
from catalog.format.commit import ForkPoint
from catalog.format.ids import Vid
from offload.spark.pin import PinnedTopic, decode_point, encode_point
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Misuse


def invalid_offset(text: str, reason: str) -> Misuse:
    """Return the error of an offset of a stream that is not one of this source."""
    hint = "give each query a checkpointLocation of its own"
    return Misuse(f"{text!r} is no offset of a stream: {reason}", hint=hint)


@dataclass(frozen=True, slots=True)
class Position:
    """The position in one topic. `first_seq` is None if the micro-batch begins where the one before it ended.

    In a stream of changes, `next_seq` is 0, and `since` is None for all micro-batches but the first.
    """

    vid: Vid
    lsn: int
    next_seq: int
    first_seq: int | None = None
    since: ForkPoint | None = None


Offset = Mapping[str, Position]
"""The positions by `name_of`."""


@dataclass(frozen=True, slots=True)
class BatchRange:
    """The records of a topic in one micro-batch: the version, and the first and last seq, inclusive."""

    topic: PinnedTopic
    first: int
    last: int


def check_kind(offset: Offset, *, of_changes: bool) -> None:
    """Raise `Misuse` if the offset is of a stream of records, or of changes, and should be of the other kind."""
    kinds = "records", "changes"
    if any((position.next_seq == 0) is not of_changes for position in offset.values()):
        reason = f"it is of a stream of {kinds[not of_changes]}, and this one is of {kinds[of_changes]}"
        raise invalid_offset(offset_text(offset), reason)


def name_of(topic: str, branch: str) -> str:
    return f"{topic}@{branch}"


def encode_offset(offset: Offset) -> dict[str, Any]:
    """Return the offset as an object for JSON, sorted."""
    return {name: _encode(offset[name]) for name in sorted(offset)}


def offset_text(offset: Offset) -> str:
    """Return the text of the offset. pyspark writes the object of `encode_offset` alike."""
    return json.dumps(encode_offset(offset))


def decode_offset(offset: Any) -> dict[str, Position]:
    """Return the offset in an object of JSON, or in its text. Raises `Misuse`."""
    try:
        decoded = json.loads(offset) if isinstance(offset, str) else offset
        return {str(name): _decode(decoded[name]) for name in sorted(decoded.keys())}
    except (AttributeError, CatalogError, InvalidName, KeyError, RecursionError, TypeError, ValueError) as error:
        raise invalid_offset(str(offset), repr(error)) from error


def ranges(start: Offset, end: Offset) -> list[BatchRange]:
    """Return what the micro-batch between two offsets reads, ascending by topic. Raises `Misuse`."""
    spans: list[BatchRange] = []
    for name, position in end.items():
        before = start.get(name)
        if position == before:
            continue
        first = position.first_seq or (before.next_seq if before else None)
        if not first:
            raise invalid_offset(offset_text(end), f"{name} is new in it, and has no first_seq")
        if first < position.next_seq:
            topic, _, branch = name.partition("@")
            pinned = PinnedTopic(topic, branch, ForkPoint(position.vid, position.lsn))
            spans.append(BatchRange(pinned, first, position.next_seq - 1))
    return sorted(spans, key=lambda span: span.topic.topic)


def _encode(position: Position) -> dict[str, Any]:
    first = {} if position.first_seq is None else {"first_seq": position.first_seq}
    since = {} if position.since is None else {"since": encode_point(position.since)}
    return {**first, "lsn": position.lsn, "next_seq": position.next_seq, **since, "vid": str(position.vid)}


def _decode(position: Any) -> Position:
    first, next_seq, lsn = position.get("first_seq"), position["next_seq"], position["lsn"]
    numbers = [next_seq, lsn] if first is None else [first, next_seq, lsn]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(f"{position!r} has a number that is none")
    since = decode_point(position["since"]) if "since" in position else None
    return Position(Vid.parse(position["vid"]), lsn, next_seq, first, since)
