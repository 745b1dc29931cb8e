"""JSON with exactly one encoding for a value: UTF-8, sorted keys, no spaces. No I/O: values in, bytes out.

Any writer may have made the JSON that is decoded. `whole`, `text` and the other checks return a value that fits. They
raise `ValueError` for any other value. A whole number goes up to 2^64 - 1, as in a frame.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

_WHOLE_END = 2**64


def encode(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def decode(body: bytes) -> Any:
    """Return the decoded JSON. Raise `ValueError` for bytes that are not UTF-8 JSON, and for JSON nested too deeply."""
    try:
        return json.loads(body.decode())
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def record(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} has no keys")  # noqa: TRY004 - one error for all that does not fit
    return value


def whole(value: object, least: int = 0) -> int:
    if type(value) is not int or not least <= value < _WHOLE_END:
        raise ValueError(f"{value!r} is not a whole number from {least} on")
    return value


def wholes(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return the values, each checked as `whole` does. This takes a few operations for thousands of values."""
    numbers = tuple(values)
    if set(map(type, numbers)) - {int} or (numbers and not 0 <= min(numbers) <= max(numbers) < _WHOLE_END):
        raise ValueError("one of the whole numbers is not one")
    return numbers


def whole_or_none(value: object) -> int | None:
    return None if value is None else whole(value)


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")  # noqa: TRY004 - one error for all that does not fit
    value.encode()  # a lone surrogate is a ValueError
    return value


def text_or_none(value: object) -> str | None:
    return None if value is None else text(value)


def flag(value: object) -> bool:
    if value is not True and value is not False:
        raise ValueError(f"{value!r} is not true or false")
    return value
