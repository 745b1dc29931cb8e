"""Writes the golden list of what users hold: `python -m tests.golden.make_surface`.

It has each command with its parameters, each route with its roles, each setting, and each public name with its
signature. Whoever changes a line of it changes what a program, a script or an operator relies on.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import tempfile
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, is_typeddict

import offload
import seglog
from offload.cli.commands import listed_commands
from offload.daemon.http.openapi import openapi
from offload.operations.command import COMMANDS
from offload.settings import SETTINGS
from seglog.topic_reads import TopicReads

__all__ = ["GOLDEN", "make"]

GOLDEN = Path(__file__).parent / "surface.txt"
PACKAGES = (
    "seglog",
    "seglog.aio",
    "seglog.client",
    "seglog.journal.journal",
    "offload",
    "offload.load",
    "offload.spark",
    "offload.wiring",
    "catalog",
    "catalog.objects",
)


def make() -> str:
    lines = [*_commands(), *_routes(), *_settings(), *_names()]
    return "".join(f"{line}\n" for line in lines)


def _commands() -> Iterator[str]:
    for command in listed_commands():
        yield f"command {command.name}"
        for each in command.parameters:
            words = " ".join(each.options) or each.word
            form = f"{each.kind} = {json.dumps(each.default)}" if each.options else each.kind
            yield f"command {command.name}: {words}: {form}"


def _routes() -> Iterator[str]:
    for path, methods in openapi(COMMANDS)["paths"].items():
        for method, operation in methods.items():
            named = sorted(each.get("name") or each["$ref"] for each in operation.get("parameters", ()))
            statuses = " ".join(sorted(operation["responses"]))
            yield f"route {method.upper()} {path} ({', '.join(named)}): {statuses}"


def _settings() -> Iterator[str]:
    for setting in SETTINGS:
        yield f"setting {setting.name} = {setting.default_text}: {setting.allowed}; {setting.variable}"


def _names() -> Iterator[str]:
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in sorted(module.__all__):
            yield from _told(f"{package}.{name}", getattr(module, name))
    with (
        tempfile.TemporaryDirectory() as place,
        seglog.open(Path(place) / "data") as log,
        offload.attach(log, (Path(place) / "remote").as_uri()) as archive,
    ):
        for name, member in sorted(vars(offload.Archive).items()):
            if not (name.startswith("_") or inspect.isfunction(member) or name == "url"):
                yield from _members(f"offload.Archive.{name}", type(getattr(archive, name)))


def _told(name: str, thing: Any) -> Iterator[str]:
    if not isinstance(thing, type):
        yield f"name {name}{_signature(thing)}"
        return
    bases = ", ".join(each.__name__ for each in thing.__mro__[1:-1])
    is_made_by_us = issubclass(thing, (BaseException, Enum)) or getattr(thing, "_is_protocol", False)
    # The look at `__init__` compiles it, where a class left that for later.
    made = "" if is_made_by_us or "__init__" not in _held(thing) else _signature(thing.__init__)
    yield f"name {name}: class{made}{bases and f' of {bases}'}"
    if not issubclass(thing, BaseException):
        yield from _members(name, thing)


def _members(name: str, thing: type) -> Iterator[str]:
    if is_typeddict(thing):
        for own, hint in thing.__annotations__.items():
            yield f"name {name}.{own}: {hint.__forward_arg__}"
        return
    for own, member in sorted(_held(thing).items()):
        if not own.startswith("_"):
            yield f"name {name}.{own}{_signature(member)}"


def _held(thing: type) -> dict[str, Any]:
    """Return what a class has of its own, and what it has from its reads, which no program names."""
    return {**(vars(TopicReads) if issubclass(thing, TopicReads) else {}), **vars(thing)}


def _signature(thing: Any) -> str:
    called = thing.__func__ if isinstance(thing, (classmethod, staticmethod)) else thing
    text = str(inspect.signature(called)) if inspect.isfunction(called) else ""
    return re.sub(r"<function \S+( at 0x\w+)?>", "...", text)


if __name__ == "__main__":
    GOLDEN.write_text(make())
