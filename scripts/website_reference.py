"""The pages of the site that come from the code: each operation of the HTTP API, and the public names of Python."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["http_pages", "python_pages", "reference"]

#: The pages about Python: the module, what it is for, and the names that come first.
_MODULES = {
    "seglog": ("A log on the local disk: open it, append, read, follow.", ("open", "Log", "Topic", "connect")),
    "offload": ("A log with its history in object storage: offload, restore, branches.", ("attach", "Archive")),
    "seglog.client": ("A daemon's log from another machine, as `seglog.connect` gives it.", ("connect", "Client")),
    "seglog.aio": ("The same log for asyncio programs.", ()),
    "offload.spark": ("Topics as data frames.", ("register",)),
}
_PYTHON = """# Python

What a program imports, made from the docstrings. The errors have [a page of their own](../../errors.md).
"""
_HTTP = """# HTTP operations

What a daemon answers, made from the OpenAPI document that it serves at `/openapi.json`. [The HTTP API](../../http.md)
shows calls with their answers, and says what holds for all of them.
"""


def reference() -> dict[str, str]:
    """Return the text of each page that the code makes, by its path."""
    from offload.daemon.http.openapi import openapi
    from offload.operations.command import COMMANDS

    return http_pages(openapi(COMMANDS)) | python_pages()


def python_pages() -> dict[str, str]:
    """Return a page for each public module, and one that lists them. mkdocstrings puts the docstrings there."""
    rows = [[f"[`{name}`]({name}.md)", about] for name, (about, _) in _MODULES.items()]
    made = {"docs/reference/python/README.md": _PYTHON + _table(["module", "for"], rows)}
    for name, (about, first) in _MODULES.items():
        module = importlib.import_module(name)
        names = [*first, *(each for each in module.__all__ if each not in first and not _is_error(module, each))]
        blocks = "".join(f"\n::: {name}.{each}\n" for each in names if each in module.__all__)
        made[f"docs/reference/python/{name}.md"] = f"# Python: {name}\n\n{about}\n{blocks}"
    return made


def _is_error(module: object, name: str) -> bool:
    kind = getattr(module, name)
    return name == "errors" or (isinstance(kind, type) and issubclass(kind, BaseException))


def http_pages(document: Mapping[str, Any]) -> dict[str, str]:
    """Return a page for each tag of an OpenAPI document, with its operations, and one that lists them."""
    made, rows = {}, []
    for tag in document["tags"]:
        found = [
            (method.upper(), path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if tag["name"] in operation["tags"] and not path.startswith("/topics/{topic}/rpc/")
        ]
        text = "".join(_operation(document, *each) for each in found)
        made[f"docs/reference/http/{tag['name']}.md"] = f"# HTTP: {tag['name']}\n\n{tag['description']}\n{text}"
        rows.append([f"[{tag['name']}]({tag['name']}.md)", tag["description"], str(len(found))])
    overview = _HTTP + _table(["operations", "for", "number"], rows)
    return {"docs/reference/http/README.md": overview, **made}


def _operation(document: Mapping[str, Any], method: str, path: str, operation: Mapping[str, Any]) -> str:
    text = f"\n## {method} {path}\n\n{operation['summary']}\n"
    if about := operation.get("description"):
        text += f"\n{about}\n"
    under = path.replace("/rpc/", "/topics/{topic}/rpc/", 1)
    if under != path and under in document["paths"]:
        text += f"\nAlso as `{method} {under}`, with the topic in the path.\n"
    rows = [
        [
            f"`{each['name']}`",
            each["in"],
            _kind(each["schema"]),
            _must(each.get("required")),
            each.get("description", ""),
        ]
        for each in operation.get("parameters", [])
    ]
    text += _table(["parameter", "in", "type", "required", "meaning"], rows)
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        text += f"\n**Body**, `{kind}`{_example(body)}\n"
        schema = body.get("schema", {})
        required = schema.get("required", [])
        rows = [
            [f"`{name}`", _kind(each), _must(name in required), each.get("description", "")]
            for name, each in schema.get("properties", {}).items()
        ]
        text += _table(["field", "type", "required", "meaning"], rows)
    rows = []
    for status, answer in operation["responses"].items():
        told = document["components"]["responses"][status] if "$ref" in answer else answer
        kinds = ", ".join(f"`{kind}`{_shapes(each)}" for kind, each in told.get("content", {}).items())
        rows.append([status, told["description"], kinds])
    return text + _table(["status", "meaning", "answer"], rows)


def _shapes(body: Mapping[str, Any]) -> str:
    """Return the kinds of objects of an answer, with links to their schemas."""
    schema = body.get("schema", {})
    names = [each["$ref"].rpartition("/")[2] for each in (schema, *schema.get("anyOf", [])) if "$ref" in each]
    return f" ({', '.join(f'`{name}`' for name in names)})" if names else ""


def _example(body: Mapping[str, Any]) -> str:
    example = body.get("example")
    if example is None:
        return ""
    return f", as in\n\n```json\n{example if isinstance(example, str) else json.dumps(example)}\n```"


def _kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(f"`{each}`" for each in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"array of {_kind(schema.get('items', {}))}"
    kind = schema.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _must(is_required: object) -> str:
    return "yes" if is_required else "no"


def _table(heads: list[str], rows: Iterable[list[str]]) -> str:
    lines = [*_rows([heads, ["---"] * len(heads), *rows])]
    return "\n" + "".join(lines) if len(lines) > 2 else ""


def _rows(rows: Iterable[list[str]]) -> Iterator[str]:
    for row in rows:
        cells = (" ".join(cell.split()).replace("|", "\\|") for cell in row)
        yield f"| {' | '.join(cells)} |\n"
