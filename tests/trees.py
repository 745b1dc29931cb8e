"""The files below a directory, for a comparison before and after."""

from __future__ import annotations

import hashlib
from pathlib import Path

__all__ = ["tree"]

_WHOLE_BYTES = 4096


def tree(directory: Path) -> dict[str, bytes]:
    """Return the content of each file below `directory`, by its path from there.

    A file above 4 KiB is given as its length and digest. When two trees differ, pytest compares the contents line by
    line, and a WAL file of 64 MiB has four million lines.
    """
    return {str(path.relative_to(directory)): _content(path) for path in sorted(directory.rglob("*")) if path.is_file()}


def _content(path: Path) -> bytes:
    body = path.read_bytes()
    return body if len(body) <= _WHOLE_BYTES else f"{len(body)} bytes, {hashlib.sha256(body).hexdigest()}".encode()
