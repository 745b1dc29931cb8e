"""The JSON form of a result, as `--json` prints it and as the daemon answers it, and its JSON Schema. Also of an error.

Each object begins with `schema`, the version of all these forms, and `kind`. The kind of a result is the name of its
class: `records_deleted` for `RecordsDeleted`. `make docs` writes the schema of each kind to docs/schema.

A key is the name of a field. The metadata of a field changes that:

    HIDDEN      the field is for people only, and has no key. A result whose fields are all hidden has no JSON form
    OPTIONAL    None has no key
    MERGED      the keys of the value (a dataclass, a mapping or None) take the place of the field's own key

A client that shows results to people gets all fields, also the hidden ones (`message`), and makes the result of them
(`result_of`). The command line gets the results of a daemon like this.

The type of a field becomes a schema:

    Moment                      a text: the time in UTC
    bytes                       a text: base64
    X | None                    X or null
    tuple[X, ...]               an array
    a mapping                   an object with any keys
    a dataclass                 an object with these properties
"""

from __future__ import annotations

import base64
import enum
import functools
import json
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any, Final

from offload.errors import OffloadError
from offload.moment import Moment
from offload.operations.command import hints_of, result_types
from offload.operations.record_text import SCHEMA, RecordBatch, RecordLines, decode_records, encode_records
from offload.operations.record_text import to_json as record_json
from seglog.errors import DaemonError

HIDDEN: Final = MappingProxyType({"json": "hidden"})
OPTIONAL: Final = MappingProxyType({"json": "optional"})
MERGED: Final = MappingProxyType({"json": "merged"})
PROGRESS: Final = "progress"
"""The kind of a line that is no result, and tells how far a command is."""


def to_json(value: Any, *, whole: bool = False) -> Any:
    """Return the JSON form of a result, or of a value in it. With `whole`, the hidden fields have keys too."""
    if isinstance(value, Moment):
        return str(value)
    if is_dataclass(value):
        members: dict[str, Any] = {}
        for field in fields(value):
            name, inner, form = field.name, getattr(value, field.name), field.metadata.get("json")
            if form == "merged":
                members.update(to_json(inner, whole=whole) or {})
            elif form is None or (form == "optional" and inner is not None) or (form == "hidden" and whole):
                members[name] = to_json(inner, whole=whole)
        return members
    if isinstance(value, Mapping):
        return {key: to_json(item, whole=whole) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item, whole=whole) for item in value]
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value


def json_line(result: Any) -> str:
    """Return a result as one line of JSON with its line feed, or "" if it has no JSON form. Records are a line each."""
    if isinstance(result, RecordBatch):
        return "".join(record_json(item) + "\n" for item in result.items)
    members = to_json(result)
    return _line(result, members) if members else ""


def _line(result: Any, members: Mapping[str, Any]) -> str:
    return json.dumps({"schema": SCHEMA, "kind": kind_of(type(result)), **members}) + "\n"


def message(result: Any) -> bytes:
    """Return a result as a line of JSON with all its fields. Many records are one line, with their values behind it."""
    if isinstance(result, RecordBatch | RecordLines):
        return encode_records(result)
    return _line(result, to_json(result, whole=True)).encode()


def progress_line(title: str, total: int | None, done: int, unit: str) -> bytes:
    """Return the progress of an operation: the total or None, and the part done so far, of bytes or of a noun."""
    facts = {"schema": SCHEMA, "kind": PROGRESS, "title": title, "total": total, "done": done, "unit": unit}
    return json.dumps(facts).encode() + b"\n"


def result_of(kind: type, head: Mapping[str, Any], behind: Callable[[int], bytes]) -> Any:
    """Return the result of a line that `message` made. `behind` returns so many bytes behind the line."""
    if kind in (RecordBatch, RecordLines):
        return decode_records(kind, head, behind)
    return _made(kind, {key: value for key, value in head.items() if key not in ("schema", "kind")})


def _from_json(kind: Any, encoded: Any) -> Any:
    """Return the value of a type that has this JSON form, with the hidden fields."""
    kind, _ = _without_none(kind)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if encoded is None or kind is Any:
        return encoded
    if origin is tuple:
        kinds = inner[:1] * len(encoded) if inner[1:] == (...,) else inner
        return tuple(map(_from_json, kinds, encoded))
    if origin is not None:
        return {key: _from_json(inner[1], item) for key, item in encoded.items()}
    if is_dataclass(kind):
        return _made(kind, encoded)
    if kind is Moment:
        return Moment.of(encoded)
    if kind is bytes:
        return base64.b64decode(encoded)
    return kind(encoded) if issubclass(kind, (enum.Enum, int)) else encoded


def _made(kind: Any, encoded: Mapping[str, Any]) -> Any:
    """Return the dataclass that has these keys. Those that no other field has belong to the merged mapping."""
    values: dict[str, Any] = {}
    for name, hint, form in _fields(kind):
        inner, can_be_none = _without_none(hint)
        if form != "merged":
            values[name] = _from_json(hint, encoded.get(name))
        elif not is_dataclass(inner):
            values[name] = _from_json(inner, {key: encoded[key] for key in encoded if key not in _keys(kind)})
        else:
            is_none = can_be_none and _keys(inner).isdisjoint(encoded)  # type: ignore[arg-type]
            values[name] = None if is_none else _made(inner, encoded)
    return kind(**values)


@functools.cache
def _keys(kind: Any) -> frozenset[str]:
    """Return the keys of a dataclass, without those of a merged mapping."""
    keys = {name for name, _, form in _fields(kind) if form != "merged"}
    for inner in (_without_none(hint)[0] for _, hint, form in _fields(kind) if form == "merged"):
        keys |= _keys(inner) if is_dataclass(inner) else set()  # type: ignore[arg-type]
    return frozenset(keys)


def kind_of(result: type) -> str:
    """Return the kind of a class of results: `would_take` for `WouldTake`."""
    return _in_lower_case(result.__name__)


@functools.cache
def _in_lower_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class PartlyDone(OffloadError):
    """An error ended a command, and a part of its work is done."""

    def __init__(self, message: str, exit_code: int, *, hint: str) -> None:
        self._tell(message, hint=hint)
        self.exit_code = exit_code  # type: ignore[misc]


def problem(error: BaseException) -> dict[str, Any]:
    """Return the report of an error: its name, its message, a hint what to do, and the command's exit code."""
    is_ours = hasattr(error, "exit_code") or isinstance(error, OSError)
    message = str(error) if is_ours else f"{type(error).__name__}: {error}"
    name = (isinstance(error, DaemonError) and error.title) or type(error).__name__
    report = {"error": name, "message": message, "exit_code": getattr(error, "exit_code", 1)}
    hint = getattr(error, "hint", None)
    return {**report, "hint": hint} if hint else report


_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: Mapping[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}

_SEQ, _TEXT = {"type": "integer", "minimum": 1}, {"type": "string"}


def _object(kind: str, about: str, properties: Mapping[str, Any], required: list[str], *, is_open: bool) -> Any:
    own = {"schema": {"const": SCHEMA}, "kind": {"const": kind}}
    if own.keys() & properties.keys():
        raise ValueError(f"{kind}: `schema` and `kind` are not free as keys")
    return {
        "$schema": _DIALECT,
        "title": kind,
        **({"description": about} if about else {}),
        "type": "object",
        "properties": {**own, **properties},
        "required": [*own, *required],
        "additionalProperties": is_open,
    }


RECORD = _object(
    "record",
    "A record. A value that is not UTF-8 is in `value_base64`. If `unterminated`, no line feed followed it.",
    {
        "seq": _SEQ, "ts_ms": {"type": "integer"}, "tag": _TEXT, "node": _TEXT, "unterminated": {"type": "boolean"},
        "value": _TEXT, "value_base64": _TEXT,
    },
    ["seq", "ts_ms"],
    is_open=False,
)  # fmt: skip
GAP = _object(
    "gap",
    "A range of seqs whose records were evicted.",
    {"gap_from": _SEQ, "gap_to": _SEQ},
    ["gap_from", "gap_to"],
    is_open=False,
)
ERROR = _object(
    "error",
    "The error that ended a command, on standard error. `error` is the name of its class.",
    {"error": _TEXT, "message": _TEXT, "hint": {"anyOf": [_TEXT, {"type": "null"}]}, "exit_code": {"type": "integer"}},
    ["error", "message", "hint", "exit_code"],
    is_open=False,
)


def schemas_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the schemas of the results of a use case by their kinds. A result for people only has none."""
    schemas: dict[str, Any] = {}
    for result in result_types(function).values():
        if result is RecordBatch:
            schemas |= {"record": RECORD, "gap": GAP}
        elif list(_shown(result)):
            schemas[kind_of(result)] = schema_of(result)
    return schemas


def schema_of(result: type) -> dict[str, Any]:
    """Return the schema of a class of results."""
    properties, required, is_open = _properties(result)
    return _object(kind_of(result), _about(result), properties, required, is_open=is_open)  # type: ignore[no-any-return]


def _about(result: type) -> str:
    """Return the first paragraph of a class's docstring, or "" if it is about a field without a JSON form."""
    from inspect import getdoc

    text = " ".join((getdoc(result) or "").split("\n\n")[0].split())
    hidden = {field.name for field in fields(result)} - {name for name, _, _ in _shown(result)}
    is_generated = text.startswith(f"{result.__name__}(")
    return "" if is_generated or any(f"`{name}`" in text for name in hidden) else text.replace(" None", " null")


def _shown(kind: type) -> Iterator[tuple[str, Any, str | None]]:
    """Yield the fields with a JSON form: name, type and form."""
    return (field for field in _fields(kind) if field[2] != "hidden")


def _fields(kind: type) -> Iterator[tuple[str, Any, str | None]]:
    hints = hints_of(kind)
    return ((field.name, hints[field.name], field.metadata.get("json")) for field in fields(kind))


def _properties(kind: type) -> tuple[dict[str, Any], list[str], bool]:
    """Return the properties of a dataclass, the required ones, and whether there may be others."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    is_open = False
    for name, hint, form in _shown(kind):
        if form != "merged":
            properties[name] = _schema(hint)
            required += [name] if form is None else []
            continue
        inner, can_be_none = _without_none(hint)
        if not is_dataclass(inner):
            is_open = True
            continue
        more, needed, is_inner_open = _properties(inner)  # type: ignore[arg-type]
        properties |= more
        required += [] if can_be_none else needed
        is_open |= is_inner_open
    return properties, required, is_open


def _without_none(hint: Any) -> tuple[Any, bool]:
    if isinstance(hint, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        if len(kinds) == 1:
            return kinds[0], True
    return hint, False


def _schema(hint: Any) -> dict[str, Any]:
    inner, can_be_none = _without_none(hint)
    if can_be_none:
        return {"anyOf": [_schema(inner), {"type": "null"}]}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return {"type": "array", "items": _schema(arguments[0])}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1])}
    if hint is Any:
        return {}
    if is_dataclass(hint):
        properties, required, is_open = _properties(hint)  # type: ignore[arg-type]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": is_open}
    if issubclass(hint, Moment):
        return {"type": "string", "description": "a time in UTC"}
    if issubclass(hint, bytes):
        return {"type": "string", "contentEncoding": "base64"}
    if issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    return {"type": _PLAIN[hint]}
