"""The JSON Schema of each kind of result, from its dataclass. `make docs` writes them to docs/schema.

A field becomes a property, as `offload.operations.results` says. Its type becomes a schema:

    Moment                      a text: the time in UTC
    bytes                       a text: base64
    X | None                    X or null
    tuple[X, ...]               an array
    a mapping                   an object with any keys
    a dataclass                 an object with these properties
"""

from __future__ import annotations

import enum
import importlib
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from offload.moment import Moment
from offload.operations.lines import SCHEMA, RecordBatch
from offload.operations.parameters import hints_of, result_types
from offload.operations.registry import COMMANDS
from offload.operations.results import kind_of

__all__ = ["ERROR", "GAP", "RECORD", "schema_of", "schemas", "schemas_of"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: Mapping[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_UNLISTED = (
    "init.init",
    "append.append",
    "bisect.bisect",
    "export.export",
    "export.verify",
    "follow.follow",
    "inspect.inspect",
    "inspect.entries",
    "verify.verify",
    "verify.verify_remote",
    "verify.verify_part",
    "doctor.doctor",
    "doctor.doctor_directory",
    "tenant.delete",
    "tenant.preview",
    "token.new",
    "tenant.listed",
    "tenant.policy",
    "tenant.policy_of_bucket",
    "tenant.check",
    "tenant.credentials",
)
"""The use cases that are not in the registry, because they need no open data directory."""

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


def schemas() -> dict[str, Any]:
    """Return the schema of each kind."""
    found = {"error": ERROR}
    for command in COMMANDS.values():
        found |= schemas_of(command.function)
    for place in _UNLISTED:
        module, _, name = place.rpartition(".")
        found |= schemas_of(getattr(importlib.import_module(f"offload.operations.{module}"), name))
    return dict(sorted(found.items()))


def schemas_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the schemas of the results of a use case by their kinds. A result for people only has none."""
    found: dict[str, Any] = {}
    for result in result_types(function).values():
        if result is RecordBatch:
            found |= {"record": RECORD, "gap": GAP}
        elif list(_shown(result)):
            found[kind_of(result)] = schema_of(result)
    return found


def schema_of(result: type) -> dict[str, Any]:
    """Return the schema of a class of results."""
    properties, required, is_open = _properties(result)
    return _object(kind_of(result), _about(result), properties, required, is_open=is_open)  # type: ignore[no-any-return]


def _about(result: type) -> str:
    """Return the first paragraph of a class's docstring, or "" if it is about a field without a JSON form."""
    text = " ".join((inspect.getdoc(result) or "").split("\n\n")[0].split())
    hidden = {field.name for field in fields(result)} - {name for name, _, _ in _shown(result)}
    is_generated = text.startswith(f"{result.__name__}(")
    return "" if is_generated or any(f"`{name}`" in text for name in hidden) else text.replace(" None", " null")


def _shown(kind: type) -> Iterator[tuple[str, Any, str | None]]:
    """Yield the fields with a JSON form: name, type and form."""
    hints = hints_of(kind)
    for field in fields(kind):
        form = field.metadata.get("json")
        if form != "hidden":
            yield field.name, hints[field.name], form


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
        kinds = [each for each in typing.get_args(hint) if each is not type(None)]
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
        return {"enum": [each.value for each in hint]}
    return {"type": _PLAIN[hint]}
