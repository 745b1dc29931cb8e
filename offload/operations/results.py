"""The JSON form of a result, as `--json` prints it and as the daemon answers it. The report of an error.

Each object begins with `schema`, the version of all these forms, and `kind`. The kind of a result is the name of its
class: `records_deleted` for `RecordsDeleted`. `offload.operations.schemas` describes each kind.

A key is the name of a field. The metadata of a field changes that:

    HIDDEN      the field is for people only, and has no key. A result whose fields are all hidden has no JSON form
    OPTIONAL    None has no key
    MERGED      the keys of the value (a dataclass, a mapping or None) take the place of the field's own key
"""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any, Final

from offload.moment import Moment
from offload.operations.lines import SCHEMA, RecordBatch
from offload.operations.lines import to_json as record_json
from seglog.errors import DaemonError

__all__ = ["HIDDEN", "MERGED", "OPTIONAL", "json_line", "kind_of", "problem", "to_json"]

HIDDEN: Final = MappingProxyType({"json": "hidden"})
OPTIONAL: Final = MappingProxyType({"json": "optional"})
MERGED: Final = MappingProxyType({"json": "merged"})


def to_json(value: Any) -> Any:
    """Return the JSON form of a result, or of a value in it."""
    if isinstance(value, Moment):
        return str(value)
    if is_dataclass(value):
        found: dict[str, Any] = {}
        for field in fields(value):
            _add(found, field.name, getattr(value, field.name), field.metadata.get("json"))
        return found
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value


def _add(found: dict[str, Any], name: str, value: Any, form: str | None) -> None:
    if form == "merged":
        found.update(to_json(value) or {})
    elif form is None or (form == "optional" and value is not None):
        found[name] = to_json(value)


def json_line(result: Any) -> str:
    """Return a result as one line of JSON with its line feed, or "" if it has no JSON form. Records are a line each."""
    if isinstance(result, RecordBatch):
        return "".join(record_json(item) + "\n" for item in result.items)
    found = to_json(result)
    return json.dumps({"schema": SCHEMA, "kind": kind_of(type(result)), **found}) + "\n" if found else ""


def kind_of(result: type) -> str:
    """Return the kind of a class of results: `would_take` for `WouldTake`."""
    return _in_lower_case(result.__name__)


@functools.cache
def _in_lower_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def problem(error: BaseException) -> dict[str, Any]:
    """Return the report of an error: its name, its message, a hint what to do, and the command's exit code."""
    is_ours = hasattr(error, "exit_code") or isinstance(error, OSError)
    message = str(error) if is_ours else f"{type(error).__name__}: {error}"
    name = (isinstance(error, DaemonError) and error.title) or type(error).__name__
    said = {"error": name, "message": message, "exit_code": getattr(error, "exit_code", 1)}
    hint = getattr(error, "hint", None)
    return {**said, "hint": hint} if hint else said
