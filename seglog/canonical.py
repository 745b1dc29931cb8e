"""JSON with one spelling for a value: UTF-8, sorted keys, no spaces. No I/O: values in, bytes out."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["decode", "encode"]


def encode(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def decode(body: bytes) -> Any:
    """Raises `ValueError` for what is not UTF-8 JSON."""
    return json.loads(body.decode())
