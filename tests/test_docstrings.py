"""The docstrings of public calls: their examples print what they show, and their lists name what is there."""

from __future__ import annotations

import builtins
import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_type_hints, is_typeddict

import pytest

import offload
import seglog
from offload.services.collection import CollectionService
from offload.services.history import HistoryService
from offload.services.names import BranchService, PinService, TagService
from offload.services.previews import PreviewService
from offload.services.replication import ReplicationService
from offload.services.status import StatusService
from offload.services.upkeep import UpkeepService
from seglog.base.errors import ERROR_MODULES
from seglog.client import RemoteTopic
from seglog.client.archive import RemoteArchive, RemoteBranches
from seglog.client.client import Client
from seglog.topic_reads import TopicReads

_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_SECTION = re.compile(r"^(Args|Raises):\n((?:    .*\n|\n(?=    ))+)", re.MULTILINE)
_ITEM = re.compile(r"^    (\w[\w, ]*): ", re.MULTILINE)
_LOG = [seglog.Log, seglog.Topic, TopicReads]
_ARCHIVE = [
    offload.Archive,
    BranchService,
    CollectionService,
    HistoryService,
    PinService,
    PreviewService,
    ReplicationService,
    StatusService,
    TagService,
    UpkeepService,
]
_CLIENT = [Client, RemoteTopic, RemoteArchive, RemoteBranches]


def _calls() -> Iterator[tuple[str, Any]]:
    for function in (seglog.open, seglog.connect, offload.attach):
        yield function.__name__, function
    for kind in (*_LOG, *_ARCHIVE, *_CLIENT):
        yield kind.__name__, kind
        for name, value in vars(kind).items():
            call = value.fget if isinstance(value, property) else value
            if not name.startswith("_") and callable(call):
                yield f"{kind.__name__}.{name}", call


CALLS = dict(_calls())
EXAMPLES = [name for name, call in CALLS.items() if ">>>" in (inspect.getdoc(call) or "")]


@pytest.mark.long
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_it_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples have an open `log` and its topic `orders`; those of an archive, too, and three records in the remote."""
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        log = stack.enter_context(seglog.open("log"))
        names = {"seglog": seglog, "offload": offload, "log": log, "orders": log.topic("orders")}
        if CALLS[name].__module__.startswith("offload") and name != "attach":
            archive = stack.enter_context(offload.attach(log, (tmp_path / "remote").as_uri()))
            for value, tag in ((b"book", "eu"), (b"lamp", "us"), (b"desk", "eu")):
                log.topic("orders").append([value], tag=tag)
            log.topic("orders").seal()
            archive.offload("orders")
            names["archive"] = archive
        parsed = doctest.DocTestParser().get_doctest(inspect.getdoc(CALLS[name]) or "", names, name, None, None)
        told: list[str] = []
        doctest.DocTestRunner(optionflags=_FLAGS).run(parsed, out=told.append)
        assert "".join(told) == ""


@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if _SECTION.search(f"{inspect.getdoc(call)}\n")])
def test_the_lists_of_a_docstring_name_what_is_there(name: str) -> None:
    call = CALLS[name]
    lists = {head: _names(body) for head, body in _SECTION.findall(f"{inspect.getdoc(call)}\n")}
    assert set(lists.get("Args", ())) <= _parameters(call)
    homes = [builtins, *map(importlib.import_module, ERROR_MODULES)]
    assert [error for error in lists.get("Raises", ()) if not any(hasattr(home, error) for home in homes)] == []


def _names(body: str) -> list[str]:
    return [name for found in _ITEM.findall(body) for name in found.split(", ")]


def _parameters(call: Any) -> set[str]:
    """Return the names of what a call takes, with those that a `TypedDict` gives to its options."""
    found = set()
    for name, parameter in inspect.signature(call).parameters.items():
        found.add(name)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            options = re.sub(r"Unpack\[(\w+)\]", r"\1", str(parameter.annotation))
            kind = getattr(importlib.import_module("seglog.values.protocols"), options)
            assert is_typeddict(kind)
            found |= get_type_hints(kind).keys()
    return found
