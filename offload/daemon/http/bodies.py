"""Bodies of records, taken apart as they come (sans I/O).

    Content-Type                    a record                                    a part ends behind
    application/octet-stream        the whole body                              the body
    application/x-ndjson            a JSON object, as `append --format jsonl`   a line
    application/vnd.seglog.values   length (u32, little-endian) and bytes       a value
    application/vnd.seglog.lines    a line, without its line feed               a line

A part is a piece of the body that the log gets at once. Its records are one batch for each run of equal labels, and at
most 65,536 of them.

BODY-1  A part has at most 1 MiB, or one record that is longer. So memory does not grow with the body.
BODY-2  A record that is too long is refused by its length, or by as many bytes. The rest of it never comes to memory.
BODY-3  A part is checked whole before the log gets its first record.
BODY-4  A body that is taken as a whole, or is encoded, has few records for its bound in bytes (`max_body_records`). So
    a few KiB of an encoding, or of empty values, never become millions of frames.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from offload.daemon.http.parameters import yes
from offload.errors import InvalidInput, InvalidOption, Refused, too_many_records
from offload.operations.record_text import Batch, json_batches
from offload.settings import RECORD_ROOM_BYTES
from seglog import RecordTooLarge
from seglog.base.dataclasses import dataclass
from seglog.client.bodies import LINES_TYPE, VALUES_TYPE
from seglog.format.lines import Lines, longest_bytes

_JSON_LINES_TYPE = "application/x-ndjson"
BYTES_TYPE = "application/octet-stream"
PART_BYTES = 1024 * 1024
_PART_RECORDS = 65_536
_LENGTH = struct.Struct("<I")
_VALUE_HINT = "a value is its length (u32, little-endian), and then so many bytes"
_LINE_HINT = "a body of lines has a line feed behind each, also the last"

# A text may have six bytes in JSON for each of its own. Labels and other keys take some, too.
_JSON_GROWTH, _JSON_KEYS_BYTES = 6, 64 * 1024


@dataclass(frozen=True, slots=True)
class BodyForm:
    """The content type of a body, and the labels of its records."""

    kind: str
    tag: str | None
    node: str | None
    unterminated: bool

    @property
    def has_parts(self) -> bool:
        return self.kind != BYTES_TYPE


class Part(NamedTuple):
    """The batches of a piece of a body, and the size of the piece."""

    batches: list[Batch]
    size_bytes: int

    @property
    def record_room_bytes(self) -> int:
        """Return the room of the part's records beside their values. The log gets one batch at a time."""
        return RECORD_ROOM_BYTES * max((len(batch.values) for batch in self.batches), default=0)


def form_of(content_type: str, query: Mapping[str, str]) -> BodyForm:
    """Return the form of a body. Raises `Refused` with 415, and `InvalidOption`."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in {BYTES_TYPE, _JSON_LINES_TYPE, VALUES_TYPE, LINES_TYPE}:
        hint = f"send Content-Type: {BYTES_TYPE} for one value, {_JSON_LINES_TYPE} for JSON lines"
        told = f"{kind[:100]} is not a content type of records" if kind else "the request has no Content-Type"
        raise Refused(415, "type", told, hint=hint)
    return BodyForm(kind, query.get("tag"), query.get("node"), yes(query, "unterminated"))


def batches_of(form: BodyForm, text: bytes, longest: int, skipped: int = 0, *, most: int | None = None) -> list[Batch]:
    """Return the batches of a body, or of a part of it behind `skipped` records or lines.

    Raises `InvalidInput`, `RecordTooLarge` for a value of more than `longest` bytes, and `Refused` for more than
    `most` records or lines.
    """
    has_lines = form.kind in {_JSON_LINES_TYPE, LINES_TYPE}
    if most is not None and has_lines and text.count(b"\n") > most:
        raise too_many_records(most)
    if form.kind == _JSON_LINES_TYPE:
        found = list(json_batches(io.BytesIO(text), form.tag, form.node, skipped=skipped))
    else:
        values: Sequence[bytes]
        if form.kind == VALUES_TYPE:
            values = decode_values(text, skipped, most)
        else:
            values = decode_lines(text, skipped) if form.kind == LINES_TYPE else [text]
        found = [Batch(values, len(text), len(values), form.tag, form.node, form.unterminated)]
    for batch in found:
        if (size_bytes := longest_bytes(batch.values)) > longest:
            raise RecordTooLarge(size_bytes, longest, is_alone=not skipped)
    return found


def joined(batches: list[Batch]) -> Batch:
    """Return all batches as one, for an append that is all or none. Raises `InvalidOption` if their labels differ."""
    if len(batches) == 1:
        return batches[0]
    if len({(batch.tag, batch.node, batch.unterminated) for batch in batches}) > 1:
        raise InvalidOption("tag", "the lines of an append that is all or none have the same tag, node and end")
    if not batches:
        return Batch([], 0, 0)
    values = [value for batch in batches for value in batch.values]
    return replace(batches[0], values=values, size_bytes=sum(batch.size_bytes for batch in batches))


def whole_part(form: BodyForm, text: bytes, longest: int) -> Part:
    """Return a body of at most `PART_BYTES` as one part. Raises what `batches_of` does."""
    return Part([*_in_small(batches_of(form, text, longest))], len(text))


class PartReader:
    """The parts of one body. The caller feeds bytes while `is_full` is False. Not thread-safe.

    A body of more than `most` records or lines is refused.
    """

    def __init__(self, form: BodyForm, longest: int, most: int | None = None) -> None:
        self._form = form
        self._longest = longest
        self._most = most
        self._cut: _Cut = _Values(longest) if form.kind == VALUES_TYPE else _Lines(form.kind, longest)
        self._held = bytearray()
        self._done = 0  # records or lines
        self._wanted_bytes = PART_BYTES

    @property
    def held_bytes(self) -> int:
        """Return the bytes that no part has taken yet."""
        return len(self._held)

    @property
    def is_full(self) -> bool:
        """Return whether `take` may return a part."""
        return len(self._held) >= self._wanted_bytes

    def feed(self, data: bytes) -> None:
        self._held += data

    def take(self) -> Part:
        """Return the next part; an empty one if the reader needs more bytes for it. Raises what `end` does."""
        size_bytes, needed_bytes = self._cut.find(self._held)
        self._wanted_bytes = max(PART_BYTES, needed_bytes - size_bytes)
        return self._taken(size_bytes) if size_bytes else Part([], 0)

    def end(self) -> Part:
        """Return the last part. Raises `InvalidInput`, `RecordTooLarge` and `Refused`."""
        return self._taken(len(self._held))

    def _taken(self, size_bytes: int) -> Part:
        with memoryview(self._held) as held, held[:size_bytes] as part:
            text = bytes(part)
        del self._held[:size_bytes]
        found = batches_of(self._form, text, self._longest, self._done)
        is_json = self._form.kind == _JSON_LINES_TYPE
        self._done += text.count(b"\n") if is_json else sum(len(batch.values) for batch in found)
        if self._most is not None and self._done > self._most:
            raise too_many_records(self._most)
        return Part([*_in_small(found)], len(text))


def _in_small(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield batches of few records, because a frame takes up to 46 times the room of an empty record."""
    for batch in batches:
        count = len(batch.values)
        if count <= _PART_RECORDS:
            yield batch
            continue
        values = batch.values
        for start in range(0, count, _PART_RECORDS):
            stop = min(start + _PART_RECORDS, count)
            piece = values.part(start, stop) if isinstance(values, Lines) else values[start:stop]
            yield replace(batch, values=piece, line_count=stop - start)


class _Cut(Protocol):
    def find(self, held: bytearray) -> tuple[int, int]:
        """Return the size of the next part, 0 if it is not there yet, and the bytes to hold for the part behind it.

        Raises `RecordTooLarge`.
        """


class _Values:
    """The values of a part: the lengths say where they end."""

    def __init__(self, longest: int) -> None:
        self._longest = longest

    def find(self, held: bytearray) -> tuple[int, int]:
        end = 0
        while end + _LENGTH.size <= len(held):
            length: int = _LENGTH.unpack_from(held, end)[0]
            if length > self._longest:
                raise RecordTooLarge(length, self._longest, is_alone=False)
            behind = end + _LENGTH.size + length
            if end and behind > PART_BYTES:
                return end, 0
            if behind > len(held):
                return end, behind
            end = behind
        return end, 0


class _Lines:
    """The lines of a part. `_searched` bytes of the first one have no line feed."""

    def __init__(self, kind: str, longest: int) -> None:
        self._longest = longest
        is_json = kind == _JSON_LINES_TYPE
        self._longest_line = longest * _JSON_GROWTH + _JSON_KEYS_BYTES if is_json else longest
        self._searched = 0

    def find(self, held: bytearray) -> tuple[int, int]:
        end = 0 if self._searched else held.rfind(b"\n", 0, PART_BYTES) + 1
        if not end:
            end = held.find(b"\n", max(PART_BYTES, self._searched)) + 1
        self._searched = 0 if end else len(held)
        size_bytes = end - 1 if end else len(held)
        if size_bytes > max(self._longest_line, PART_BYTES):
            raise RecordTooLarge(size_bytes, self._longest, is_cut=not end, is_alone=False)
        return end, 0 if end else len(held) + 1


def decode_values(body: bytes, skipped: int = 0, most: int | None = None) -> list[bytes]:
    """Return the values of a body. The caller has taken `skipped` values before.

    Raises `InvalidInput` with the number of the value that is cut off, and `Refused` if there are more than
    `most`.
    """
    values: list[bytes] = []
    offset, size_bytes, unpack_from = 0, len(body), _LENGTH.unpack_from
    end_count = size_bytes if most is None else most  # a value has four bytes at least
    while offset < size_bytes:
        if len(values) >= end_count:
            raise too_many_records(end_count)
        end = offset + 4
        behind = end + unpack_from(body, offset)[0] if end <= size_bytes else end
        if behind > size_bytes:
            raise InvalidInput(skipped + len(values) + 1, "is cut off", noun="value", hint=_VALUE_HINT)
        values.append(body[end:behind])
        offset = behind
    return values


def decode_lines(body: bytes, skipped: int = 0) -> Sequence[bytes]:
    """Return the values of a body of lines. The caller has taken `skipped` lines before.

    Raises `InvalidInput` with the number of the line that has no line feed.
    """
    if body and not body.endswith(b"\n"):
        raise InvalidInput(skipped + body.count(b"\n") + 1, "has no line feed at its end", hint=_LINE_HINT)
    return Lines.of(body) if body else []
