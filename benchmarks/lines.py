"""Records for measurements: access-log lines of an exact length, the same ones every time.

Random bytes would make compression look useless, and repeated bytes would make it look free. These lines compress about
as well as real logs do.
"""

from __future__ import annotations

import random

__all__ = ["log_lines"]

_METHODS = ("GET", "GET", "GET", "POST", "PUT", "DELETE")
_PATHS = ("/", "/login", "/api/orders", "/api/orders/items", "/static/app.js", "/search", "/health", "/cart")
_STATUSES = (200, 200, 200, 304, 404, 500)
_AGENTS = ("Mozilla/5.0 (X11; Linux x86_64)", "curl/8.5.0", "okhttp/4.12.0", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1)")


def log_lines(count: int, size_bytes: int, *, seed: int = 1) -> list[bytes]:
    """Return `count` lines of exactly `size_bytes` bytes, without line ends."""
    source = random.Random(seed)
    return [_line(source, number, size_bytes) for number in range(count)]


def _line(source: random.Random, number: int, size_bytes: int) -> bytes:
    parts: list[str] = []
    length = 0
    while length < size_bytes:
        part = (
            f"10.{source.randrange(4)}.{source.randrange(256)}.{source.randrange(256)} - - "
            f"[21/Nov/2026:{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02} +0000] "
            f'"{source.choice(_METHODS)} {source.choice(_PATHS)}?id={source.randrange(10**6)} HTTP/1.1" '
            f'{source.choice(_STATUSES)} {source.randrange(50_000)} "-" "{source.choice(_AGENTS)}" '
        )
        parts.append(part)
        length += len(part)
    return "".join(parts).encode("ascii")[:size_bytes]
