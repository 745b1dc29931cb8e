"""LSNs and their CBE64 text.

An LSN counts the commits of one volume: u64, from 1, dense. Zero means "none yet".
CBE64(lsn) is the one's complement of the LSN as 16 upper-case hex digits. So a plain ascending LIST gives the newest
commit first.

Source: Graft RFC 0001, "Log Sequence Numbers" and "CBE64 Encoding". This module does no I/O.
"""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

from catalog.errors import InvalidKey
from seglog.base.arguments import Within

__all__ = ["MAX_LSN", "LsnNumber", "from_cbe64", "to_cbe64"]

MAX_LSN = 2**64 - 1
#: The type of an LSN argument. 0 means "none yet".
LsnNumber: TypeAlias = Annotated[int, Within(0, MAX_LSN)]
_CBE64 = re.compile(r"[0-9A-F]{16}")


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
