"""Three kinds of bodies that daemon and client share. No I/O.

application/vnd.seglog.values    many values: each is its length (u32, little-endian) and its bytes
application/vnd.seglog.values.seqs
                                 many records: each is its seq (u64, little-endian), the length of its value (u32,
                                 little-endian), and the bytes of its value
application/vnd.seglog.lines     many values: each is a line, with a line feed at its end
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from offload.errors import InvalidInput, TooManyRecords
from seglog.client.bodies import LINES_TYPE, VALUES_TYPE, encode_values
from seglog.format.lines import Lines

__all__ = [
    "LINES_TYPE",
    "SEQS_TYPE",
    "VALUES_TYPE",
    "decode_lines",
    "decode_seqs",
    "decode_values",
    "encode_seqs",
    "encode_values",
]

SEQS_TYPE: Final = "application/vnd.seglog.values.seqs"
_LENGTH = struct.Struct("<I")
_SEQ_LENGTH = struct.Struct("<QI")

_VALUE_HINT = "a value is its length (u32, little-endian), and then so many bytes"
_RECORD_HINT = "a record is its seq (u64) and the length of its value (u32), both little-endian, and then the value"
_LINE_HINT = "a body of lines has a line feed behind each, also the last"


def decode_values(body: bytes, skipped: int = 0, most: int | None = None) -> list[bytes]:
    """Return the values of a body. The caller has taken `skipped` values before.

    Raises `InvalidInput` with the number of the value that is cut off, and `TooManyRecords` if there are more than
    `most`.
    """
    values: list[bytes] = []
    offset, size_bytes, unpack_from = 0, len(body), _LENGTH.unpack_from
    end_count = size_bytes if most is None else most  # a value has four bytes at least
    while offset < size_bytes:
        if len(values) >= end_count:
            raise TooManyRecords(end_count)
        end = offset + 4
        behind = end + unpack_from(body, offset)[0] if end <= size_bytes else end
        if behind > size_bytes:
            raise InvalidInput(skipped + len(values) + 1, "is cut off", noun="value", hint=_VALUE_HINT)
        values.append(body[end:behind])
        offset = behind
    return values


def encode_seqs(records: Iterable[tuple[int, bytes]]) -> bytes:
    return b"".join(piece for seq, value in records for piece in (_SEQ_LENGTH.pack(seq, len(value)), value))


def decode_seqs(body: bytes) -> list[tuple[int, bytes]]:
    """Return the seqs and values of a body. Raises `InvalidInput` with the number of the record that is cut off."""
    records: list[tuple[int, bytes]] = []
    offset = 0
    while offset < len(body):
        begin = offset + _SEQ_LENGTH.size
        seq, length = _SEQ_LENGTH.unpack_from(body, offset) if begin <= len(body) else (0, 0)
        if begin + length > len(body):
            raise InvalidInput(len(records) + 1, "is cut off", noun="record", hint=_RECORD_HINT)
        records.append((seq, body[begin : begin + length]))
        offset = begin + length
    return records


def decode_lines(body: bytes, skipped: int = 0) -> Sequence[bytes]:
    """Return the values of a body of lines. The caller has taken `skipped` lines before.

    Raises `InvalidInput` with the number of the line that has no line feed.
    """
    if body and not body.endswith(b"\n"):
        raise InvalidInput(skipped + body.count(b"\n") + 1, "has no line feed at its end", hint=_LINE_HINT)
    return Lines.of(body) if body else []
