"""The parameters of a request: its query, and a body of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from starlette.requests import Request

from offload.errors import InvalidBody, InvalidOption, UnsupportedOption
from seglog.arguments import WHOLE_MAX

__all__ = ["json_of", "query_of", "whole", "yes"]


_NO_QUERY: Mapping[str, str] = MappingProxyType({})


def query_of(request: Request, known: set[str]) -> Mapping[str, str]:
    """Return the query. Raises `UnsupportedOption` for a name that is not known."""
    if not request.scope["query_string"]:
        return _NO_QUERY
    for name in request.query_params:
        if name not in known:
            raise UnsupportedOption(name, known)
    return request.query_params


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


async def json_of(request: Request) -> dict[str, Any]:
    """Return the JSON object of the body, or {} for an empty body. Raises `InvalidBody`."""
    body = await request.body()
    try:
        value = json.loads(body) if body else {}
    except (ValueError, RecursionError) as error:
        raise InvalidBody(str(error)) from error
    if not isinstance(value, dict):
        raise InvalidBody(f"it is a JSON {type(value).__name__}")
    return value
