"""The parameters of a request: its query, and a body of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request

from offload.errors import InvalidOption, Misuse
from seglog.base.arguments import WHOLE_MAX

_NO_OBJECT = "the body is not a JSON object"
_NO_QUERY: Mapping[str, str] = MappingProxyType({})
_JSON_NAMES = {list: "array", str: "text", bool: "boolean", int: "number", float: "number", type(None): "null"}


def query_of(request: Request, known: Set[str] = frozenset(), several: Set[str] = frozenset()) -> Mapping[str, str]:
    """Return the query. Of the names in `several`, which may be given several times, it has the last value.

    Raises `InvalidOption` for a name that is unknown or given twice, and for a text that is no UTF-8.
    """
    raw: bytes = request.scope["query_string"]
    if not raw:
        return _NO_QUERY
    found: dict[str, str] = {}
    for name, text in parse_qsl(raw.decode("latin-1"), keep_blank_values=True, errors="surrogateescape"):
        if name not in known:
            raise InvalidOption.unknown(name.encode(errors="replace").decode(), known)
        if name in found and name not in several:
            raise InvalidOption(name, "is given twice", hint="give it once")
        if not _is_text(text):
            raise InvalidOption(name, "is no UTF-8, behind its percent signs")
        found[name] = text
    return found


def whole(query: Mapping[str, str], name: str) -> int | None:
    """Return a whole number, or None without one. Raises `InvalidOption`."""
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= WHOLE_MAX):
        raise InvalidOption(name, f"{text[:40]!r} is not a whole number from 0 to {WHOLE_MAX}")
    return int(text)


def yes(query: Mapping[str, str], name: str) -> bool:
    """Return a switch, False by default. Raises `InvalidOption`."""
    text = query.get(name, "0")
    if text not in {"0", "1", "true", "false"}:
        raise InvalidOption(name, f"{text!r} is not true or false")
    return text in {"1", "true"}


async def json_of(request: Request, hint: str) -> dict[str, Any]:
    """Return the JSON object of the body, or {} for an empty body. Raises `Misuse` with the hint."""
    body = await request.body()
    try:
        value = json.loads(body) if body else {}
    except (ValueError, RecursionError) as error:
        raise Misuse(f"{_NO_OBJECT}: {error}", hint=hint) from error
    if not isinstance(value, dict):
        raise Misuse(f"{_NO_OBJECT}: it is a JSON {_JSON_NAMES[type(value)]}", hint=hint)
    return value


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
