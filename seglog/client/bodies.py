"""The bodies of requests and answers that the client and the daemon share. No I/O.

application/vnd.seglog.values    many values: each is its length (u32, little-endian) and its bytes
application/vnd.seglog.lines     many values: each is a line, with a line feed at its end
application/x-ndjson             a record or a gap a line: seq, ts_ms, value or value_base64, tag, node, unterminated;
                                 or gap_from and gap_to. A line with `error` ends an answer that failed in the middle
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from seglog.values.byte_strings import byte_string, byte_strings
from seglog.values.record import Gap, Record

VALUES_TYPE: Final = "application/vnd.seglog.values"
LINES_TYPE: Final = "application/vnd.seglog.lines"
JSON_LINES_TYPE: Final = "application/x-ndjson"
_LENGTH = struct.Struct("<I")


def encode_values(values: Sequence[bytes]) -> bytes:
    return b"".join(piece for value in byte_strings(values) for piece in (_LENGTH.pack(len(value)), value))


class ChunksFailed(Exception):
    """The chunks of a caller ended with `error`, which the client raises as it is."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def chunks_of(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the chunks of a caller. Raise `ChunksFailed` for an error of theirs."""
    try:
        for chunk in chunks:
            yield byte_string(chunk, "chunks")
    except Exception as error:
        raise ChunksFailed(error) from error


async def chunks_in_loop(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks of a caller as `chunks_of` does."""
    try:
        async for chunk in chunks:
            yield byte_string(chunk, "chunks")
    except Exception as error:
        raise ChunksFailed(error) from error


@contextmanager
def errors_of_chunks() -> Iterator[None]:
    """Raise the error of the chunks itself."""
    try:
        yield
    except ChunksFailed as failed:
        raise failed.error from failed.error.__cause__


def item_of(fields: dict[str, Any]) -> Record | Gap:
    """Return the record or the gap that an object of JSON means. Raise `ValueError` or `KeyError` for another one."""
    if "gap_from" in fields:
        return Gap(int(fields["gap_from"]), int(fields["gap_to"]))
    text = fields.get("value")
    value = base64.b64decode(fields["value_base64"], validate=True) if text is None else str(text).encode()
    return Record(
        int(fields["seq"]),
        int(fields["ts_ms"]),
        value,
        fields.get("tag"),
        fields.get("node"),
        bool(fields.get("unterminated", False)),
    )


def lines_of(pieces: tuple[bytes, ...], piece: bytes) -> tuple[tuple[bytes, ...], list[bytes]]:
    """Return the pieces after the last line feed, and the lines that are whole now, each without its line feed.

    `pieces` are those that came after the line feed before.
    """
    head, feed, tail = piece.rpartition(b"\n")
    if not feed:
        return (*pieces, piece), []
    return ((tail,) if tail else ()), b"".join([*pieces, head]).split(b"\n")


def object_of(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line. Raise `ValueError` for another line."""
    parsed = json.loads(line)
    if not isinstance(parsed, dict):
        raise ValueError(f"a JSON {type(parsed).__name__} in place of an object")  # noqa: TRY004 - a value on the wire
    return parsed
