"""The two text formats of `append` and `read`. No byte is lost on the way to records and back.

    lines   A record is the bytes between two line feeds. Every other byte (CR, NUL, invalid UTF-8) is part of it. A
            last line without a line feed becomes a record marked `unterminated`. `read` writes it without a line feed.
    jsonl   A record is a JSON object with `value` (text) or `value_base64`, and optionally `tag`, `node` and
            `unterminated`. `append` accepts the output of `seglog --json read`, and so ignores its `schema`, `kind` and
            `seq`, and keeps its `ts_ms` if the caller says so. It refuses any other key, and one that a line has twice.

This module opens no files: the caller passes streams.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, BinaryIO

from offload.errors import InvalidInput, Misuse
from seglog import Gap, Record, RecordTooLarge
from seglog.base.arguments import WHOLE_MAX
from seglog.base.dataclasses import dataclass
from seglog.format.lines import Lines
from seglog.values.record import LABEL_MAX_BYTES

SCHEMA = 1
"""The version of the JSON forms of results (`offload.operations.result_json`)."""

_READ_BYTES = 8 * 1024 * 1024
_BATCH_LINES = 65_536
_BATCH_RECORDS = 8192
_BATCH_BYTES = 8 * 1024 * 1024
_KEYS = frozenset({"value", "value_base64", "tag", "node", "unterminated"})
_READ_KEYS = frozenset({"schema", "kind", "seq", "ts_ms"})

# Below this size, a list of lines is ready before numpy is imported.
_FEW_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Batch:
    """Records to append together. They take `size_bytes` and `line_count` lines of the input, with its blank lines.

    `times_ms` are those that lines of JSON have.
    """

    values: Sequence[bytes]
    size_bytes: int
    line_count: int
    tag: str | None = None
    node: str | None = None
    unterminated: bool = False
    times_ms: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Records and gaps that a reader gets together. In JSON each is a line of its own.

    If the read counts its work, `counts` are the fields of `ReadStats` up to the end of the batch.
    """

    items: tuple[Record | Gap, ...]
    counts: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class RecordLines:
    """The lines of many records."""

    data: bytes = field(metadata={"json": "hidden"})


def line_batches(stream: BinaryIO, tag: str | None, node: str | None, longest: int) -> Iterator[Batch]:
    """Yield batches of whole lines, in order. Memory holds a few reads and a rest of at most `longest` bytes.

    Raises `RecordTooLarge` for an unfinished line of more than `longest` bytes.
    """
    rest = b""
    while block := stream.read(_READ_BYTES):
        end = block.rfind(b"\n") + 1
        text = b"".join((rest, memoryview(block)[:end])) if end else b""
        rest = block[end:] if end else rest + block
        del block  # a long line may be in each of these
        if len(rest) > longest:
            raise RecordTooLarge(len(rest), longest)
        if text:
            for values, size_bytes in _values_of(text):
                yield Batch(values, size_bytes, len(values), tag, node)
    if rest:
        yield Batch([rest], len(rest), 1, tag, node, unterminated=True)


def _values_of(text: bytes) -> Iterator[tuple[Sequence[bytes], int]]:
    """Yield the lines of a text that ends with a line feed, with their size in the text."""
    if len(text) < _FEW_BYTES:
        yield text.split(b"\n")[:-1], len(text)
        return
    lines = Lines.of(text)
    for start in range(0, len(lines), _BATCH_LINES):
        part = lines.part(start, start + _BATCH_LINES) if len(lines) > _BATCH_LINES else lines
        yield part, len(part.text)


def longest_line(stream: BinaryIO, at_least: int = 0) -> int:
    """Return the length in bytes of the longest line, without its line feed; `at_least` if no line is longer.

    A line that is not longer ends within `at_least` bytes. So the search jumps that far, and looks backwards.
    """
    longest, at = at_least, 0
    while block := stream.read(_READ_BYTES):
        # A line begins at `at`. If it began in an earlier block, `at` is negative.
        while (end := block.rfind(b"\n", max(at, 0), at + longest + 1)) >= 0 or at + longest < len(block):
            if end < 0:
                end = block.find(b"\n", at + longest + 1)
                longest = (end if end >= 0 else len(block)) - at
            if end < 0:
                break
            at = end + 1
        at -= len(block)
    return longest


def skip(stream: BinaryIO, line_count: int) -> None:
    """Read that many lines of a stream. Raises `Misuse` if it has fewer."""
    for number in range(line_count):
        line = stream.readline(_READ_BYTES)
        if not line:
            raise Misuse(f"--skip-lines {line_count}: the input has only {number} lines")
        while line and not line.endswith(b"\n"):
            line = stream.readline(_READ_BYTES)


def json_batches(
    stream: BinaryIO, tag: str | None, node: str | None, *, skipped: int = 0, times_from: int | None = None
) -> Iterator[Batch]:
    """Yield batches of adjacent records with the same tag, node and end. The caller has read `skipped` lines before.

    With `times_from`, each line has a `ts_ms`, that or later, and none is below one before it. Raises `InvalidInput`
    with the line's number.
    """
    values: list[bytes] = []
    times: list[int] = []
    size_bytes, done = 0, skipped
    labels = (tag, node, False)
    number = skipped
    for number, line in enumerate(stream, skipped + 1):
        if line.strip():
            value, own_tag, own_node, unterminated, ts_ms = _parse(line, number)
            own = (tag if own_tag is None else own_tag, node if own_node is None else own_node, unterminated)
            if times_from is not None:
                times_from = _time(ts_ms, times_from, number)
            if values and (own != labels or len(values) == _BATCH_RECORDS or size_bytes > _BATCH_BYTES):
                yield Batch(values, size_bytes, number - 1 - done, *labels, times)
                values, times, size_bytes, done = [], [], 0, number - 1
            labels = own
            values.append(value)
            if ts_ms is not None:
                times.append(ts_ms)
        size_bytes += len(line)
    if values:
        yield Batch(values, size_bytes, number - done, *labels, times)


def to_line(record: Record) -> bytes:
    return record.value if record.unterminated else record.value + b"\n"


def to_json(record: Record | Gap) -> str:
    """Return a record or a gap as one line of JSON. A value that is not UTF-8 becomes base64."""
    if isinstance(record, Gap):
        gap = {"schema": SCHEMA, "kind": "gap", "gap_from": record.gap_from, "gap_to": record.gap_to}
        return json.dumps(gap)
    body: dict[str, Any] = {"schema": SCHEMA, "kind": "record", "seq": record.seq, "ts_ms": record.ts_ms}
    if record.tag is not None:
        body["tag"] = record.tag
    if record.node is not None:
        body["node"] = record.node
    if record.unterminated:
        body["unterminated"] = True
    try:
        body["value"] = record.value.decode("utf-8")
    except UnicodeDecodeError:
        body["value_base64"] = base64.b64encode(record.value).decode("ascii")
    return json.dumps(body, ensure_ascii=False)


def encode_records(batch: RecordBatch | RecordLines) -> bytes:
    """Return many records as one line of JSON, and behind it the bytes of their values, whose sizes the line has.

    A column has an item for each record, or one item for all: work for each record would double the time of a read.
    """
    if isinstance(batch, RecordLines):
        return _with_values({"kind": "record_lines"}, [batch.data])
    gaps = [(index, item.gap_from, item.gap_to) for index, item in enumerate(batch.items) if isinstance(item, Gap)]
    records = [item for item in batch.items if isinstance(item, Record)]
    seqs, times, values, *labels = zip(*records, strict=True) if records else [()] * len(Record._fields)
    tags, nodes, ends = (column[:1] if len(set(column)) == 1 else column for column in labels)
    columns = {"seqs": seqs, "ts_ms": times, "tags": tags, "nodes": nodes, "unterminated": ends}
    return _with_values({"kind": "record_batch", "counts": batch.counts, "gaps": gaps, **columns}, values)


def _with_values(facts: Mapping[str, Any], values: Sequence[bytes]) -> bytes:
    head = json.dumps({"schema": SCHEMA, **facts, "sizes": [*map(len, values)]})
    return b"".join([head.encode(), b"\n", *values])


def decode_records(
    kind: type[RecordBatch | RecordLines], head: Mapping[str, Any], behind: Callable[[int], bytes]
) -> RecordBatch | RecordLines:
    """Return the records of a line. `behind` returns so many bytes behind it."""
    data = behind(sum(head["sizes"]))
    if kind is RecordLines:
        return RecordLines(data)
    seqs, values = head["seqs"], map(io.BytesIO(data).read, head["sizes"])
    labels = (head[name] * (len(seqs) if len(head[name]) == 1 else 1) for name in ("tags", "nodes", "unterminated"))
    items: list[Record | Gap] = [*map(Record, seqs, head["ts_ms"], values, *labels)]
    for index, first, last in head["gaps"]:
        items.insert(index, Gap(first, last))
    return RecordBatch(tuple(items), None if head["counts"] is None else tuple(head["counts"]))


def _time(ts_ms: object, least_ms: int, number: int) -> int:
    """Return the time of a line. Raises `InvalidInput`."""
    if type(ts_ms) is not int or not 0 <= ts_ms <= WHOLE_MAX:
        raise InvalidInput(number, "has no `ts_ms` to keep, a whole number")
    if ts_ms < least_ms:
        raise InvalidInput(number, f"has the `ts_ms` {ts_ms}, and a record before it has {least_ms}")
    return ts_ms


def _parse(line: bytes, number: int) -> tuple[bytes, str | None, str | None, bool, Any]:
    try:
        body = _DECODER.decode(line.decode(json.detect_encoding(line), "surrogatepass"))
        if not isinstance(body, dict):
            raise InvalidInput(number, "is not a JSON object")
        _check_keys(body, number)
        if isinstance(body.get("value"), str):
            value = body["value"].encode("utf-8")
        elif isinstance(body.get("value_base64"), str):
            value = base64.b64decode(body["value_base64"], validate=True)
        else:
            raise InvalidInput(number, "has neither a text `value` nor a `value_base64`")
    except _KeyTwice as twice:
        raise InvalidInput(number, f"has the key `{twice}` twice") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(number, f"is not valid: {error}") from None
    unterminated = body.get("unterminated", False)
    if not isinstance(unterminated, bool):
        raise InvalidInput(number, "has an `unterminated` that is neither true nor false")
    return value, _label(body, "tag", number), _label(body, "node", number), unterminated, body.get("ts_ms")


class _KeyTwice(Exception):
    """A JSON object has a key twice. The decoder would take the last value."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise _KeyTwice(next(name for name in names if names.count(name) > 1)[:100])
    return members


_DECODER = json.JSONDecoder(object_pairs_hook=_object)


def _check_keys(body: dict[str, Any], number: int) -> None:
    """Raise `InvalidInput` for a key that no line has, and for two values."""
    if not body.keys() <= _KEYS:
        for key in body.keys() - _KEYS - _READ_KEYS:
            raise InvalidInput(number, f"has the unknown key {key[:100]!r}; the keys are {', '.join(sorted(_KEYS))}")
    if "value" in body and "value_base64" in body:
        raise InvalidInput(number, "has both `value` and `value_base64`")


def _label(body: dict[str, Any], key: str, number: int) -> str | None:
    """Return a label of a line. Raises `InvalidInput`, before the lines above in the same batch are appended."""
    text = body.get(key)
    if text is None:
        return None
    if not isinstance(text, str):
        raise InvalidInput(number, f"has a `{key}` that is not text")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidInput(number, f"has a `{key}` that cannot be written as UTF-8") from None
    if size > LABEL_MAX_BYTES:
        raise InvalidInput(number, f"has a `{key}` of {size} bytes, and {LABEL_MAX_BYTES} is the most")
    return text
