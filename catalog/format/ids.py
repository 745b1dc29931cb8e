"""The ids of volumes and segments (GIDs), and the numbers of commits (LSNs).

A GID is the id of a volume (`vid`) or of a segment (`sid`).

    offset  size  meaning
    0       1     type: 0x80 volume, 0xC0 segment
    1       6     Unix time in ms, big-endian
    7       9     random; the top bit of the first byte is set

Text: base58 of the first 7 bytes (always 10 characters), `-`, base58 of the last 9 (always 13 characters).
Volumes start with `5`, segments with `8`, and text sorts by time.

An LSN counts the commits of one volume: u64, from 1, dense. Zero means "none yet".
CBE64(lsn) is the one's complement of the LSN as 16 upper-case hex digits. So a plain ascending LIST gives the newest
commit first.

Source: Graft (GID), Graft RFC 0001, "Log Sequence Numbers" and "CBE64 Encoding". The only input besides arguments is
`os.urandom`.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Annotated, ClassVar, Self, TypeAlias

from catalog.errors import InvalidKey
from seglog.base.arguments import Within
from seglog.base.dataclasses import dataclass
from seglog.base.lazy import pattern

_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_VALUE_OF = {char: value for value, char in enumerate(_ALPHABET)}
_HEAD_BYTES, _HEAD_CHARS = 7, 10
_TAIL_BYTES, _TAIL_CHARS = 9, 13
MAX_LSN = 2**64 - 1
#: The type of an LSN argument. 0 means "none yet".
LsnNumber: TypeAlias = Annotated[int, Within(0, MAX_LSN)]
_CBE64 = pattern(r"[0-9A-F]{16}")


@dataclass(frozen=True, slots=True, order=True)
class Gid:
    """16 bytes, of which the first gives the type. Use `Vid` or `Sid`."""

    raw: bytes

    TYPE: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if len(self.raw) != 16 or self.raw[0] != self.TYPE or not self.raw[7] & 0x80:
            raise InvalidKey(self.raw.hex())

    @classmethod
    def new(cls, now_ms: int) -> Self:
        random = bytearray(os.urandom(_TAIL_BYTES))
        random[0] |= 0x80
        return cls(bytes([cls.TYPE]) + now_ms.to_bytes(6, "big") + bytes(random))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the GID that `text` means.

        Raise `InvalidKey` for any text that `str()` of a GID of this kind does not produce.
        """
        head, dash, tail = text.partition("-")
        if dash != "-" or len(head) != _HEAD_CHARS or len(tail) != _TAIL_CHARS:
            raise InvalidKey(text)
        try:
            return cls(_decode(head, _HEAD_BYTES) + _decode(tail, _TAIL_BYTES))
        except (KeyError, OverflowError):
            raise InvalidKey(text) from None

    @property
    def created_ms(self) -> int:
        return int.from_bytes(self.raw[1:7], "big")

    def __str__(self) -> str:
        return f"{_encode(self.raw[:7], _HEAD_CHARS)}-{_encode(self.raw[7:], _TAIL_CHARS)}"


class Vid(Gid):
    """Id of a volume."""

    __slots__ = ()
    TYPE = 0x80


class Sid(Gid):
    """Id of a segment: one data object and its index object."""

    __slots__ = ()
    TYPE = 0xC0


@lru_cache(maxsize=8192)
def _encode(raw: bytes, width: int) -> str:
    value = int.from_bytes(raw, "big")
    digits: list[str] = []
    for _ in range(width):
        value, digit = divmod(value, 58)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))


def _decode(text: str, size: int) -> bytes:
    value = 0
    for char in text:
        value = value * 58 + _VALUE_OF[char]
    return value.to_bytes(size, "big")


def to_cbe64(lsn: int) -> str:
    """Return the CBE64 text: `1` becomes `FFFFFFFFFFFFFFFE`. Raise `ValueError` outside [1, 2^64)."""
    if not 1 <= lsn <= MAX_LSN:
        raise ValueError(f"LSN {lsn} is outside [1, 2^64)")
    return f"{MAX_LSN - lsn:016X}"


def from_cbe64(text: str) -> int:
    """Return the LSN of a CBE64 text. Raise `InvalidKey` for any text that `to_cbe64` does not produce."""
    if not _CBE64.fullmatch(text) or text == "F" * 16:
        raise InvalidKey(text)
    return MAX_LSN - int(text, 16)
