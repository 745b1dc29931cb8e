"""The house stays simple: a new command is one file and one line, and few files run where one would do."""

from __future__ import annotations

import ast
import asyncio
import functools
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest

import seglog
from offload import operations
from offload.cli import commands
from offload.daemon.http import make_app
from offload.daemon.http.openapi import openapi
from offload.operations import command_list
from offload.operations.command import COMMANDS, schemas
from offload.token_rights import EVERYTHING, RIGHTS_KEY
from scripts import docs
from tests.worlds.command import Run, run
from tests.worlds.services import serving

__all__ = ["run"]

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("seglog", "catalog", "offload")
_TOY = '''
from dataclasses import dataclass
from typing import Annotated

from offload.operations.command import About, Command, TopicName, always
from offload.operations.printing import lines
from seglog import Log


@dataclass(frozen=True, slots=True)
class NameRepeated:
    """The name of a topic, several times."""

    topic: str
    text: str


def echo(log: Log, topic: TopicName, times: Annotated[int, About("So many times.", least=1)] = 2) -> NameRepeated:
    """Show the name of a topic. It is a toy."""
    return NameRepeated(topic, " ".join([topic] * times))


ECHO = Command("echo", echo, lines(lambda found: f"{found.topic}: {found.text}"), reads=always, role="read")
'''

#: How many files of the product have a function that runs: of a command in a process of its own, and of one append.
MOST_FILES = {"restore": 90, "read --limit 2": 60, "topic list": 54, "append": 10}
#: Python of the product, without the generated list of commands and the generated messages of the catalog.
MOST_LINES, MOST_MODULES, LONGEST, MOST_ERRORS = 98_590, 493, 600, 141


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add the toy as a developer does: a file, a line in the list of the command line, and `make docs`."""
    (tmp_path / "toy.py").write_text(_TOY)
    monkeypatch.setattr(sys, "path", [*sys.path])  # `scripts.docs` puts the checkout there
    monkeypatch.setattr(operations, "__path__", [*operations.__path__, str(tmp_path)])
    toy = importlib.import_module("offload.operations.toy")
    monkeypatch.setattr(commands, "COMMANDS", (*commands.COMMANDS, toy.ECHO))
    monkeypatch.setitem(
        command_list.COMMANDS, "echo", next(each for each in commands.listed_commands() if each.path == "echo")
    )
    assert "'offload.operations.toy'" in docs.listing()
    yield
    del sys.modules[toy.__name__]
    delattr(operations, "toy")


@pytest.mark.usefixtures("echo")
def test_a_command_of_one_file_is_everywhere(run: Run, tmp_path: Path) -> None:
    assert run("init").code == 0
    assert run("append", "t", stdin=b"x\n").code == 0
    assert run("echo", "t", "--times", "3").text == "t: t t t\n"
    assert json.loads(run("--json", "echo", "t").text)["kind"] == "name_repeated"
    assert run("echo", "t", "--times", "0").code == 2
    helped = run("echo", "--help").text
    assert "Show the name of a topic. It is a toy." in helped
    assert "So many times." in helped
    assert "echo" in run("--help", "--all").text
    assert schemas()["name_repeated"]["properties"].keys() >= {"topic", "text"}
    document = openapi(COMMANDS)
    assert document["paths"]["/topics/{topic}/rpc/echo"]["post"]["summary"] == "Show the name of a topic. It is a toy."
    assert "echo TOPIC" in docs.commands("list")
    assert "So many times." in docs.commands("options")

    async def ask() -> httpx.Response:
        async with serving(tmp_path / "served", (tmp_path / "remote").as_uri()) as service:
            await service.log.topic("t").append([b"x"])

            async def app(scope: Any, receive: Any, send: Any) -> None:
                await make_app(service)({**scope, RIGHTS_KEY: EVERYTHING}, receive, send)

            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
                return await client.post("/topics/t/rpc/echo", json={"times": 1})

    answer = asyncio.run(ask())
    assert (answer.status_code, answer.json()["text"]) == (200, "t")


def _files_of(work: Callable[[], object]) -> int:
    """Return how many files of the product have a function that runs."""
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & 1:  # of a function: a body of a class or a module has no fast locals
            seen.add(code.co_filename)

    former = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(former)
    return sum(Path(name).is_relative_to(ROOT / package) for name in seen for package in PACKAGES)


@pytest.mark.long
def test_few_files_run_where_one_would_do(run: Run, tmp_path: Path) -> None:
    remote = (tmp_path / "remote").as_uri()
    for words in (["init", "--remote", remote], ["append", "t"], ["seal", "t"], ["offload", "t"]):
        assert run(*words, stdin=b"a\nb\nc\n").code == 0
    restore = ("restore", "t", "--to", "head", "--as", "b")

    def works(*words: str) -> None:
        assert run(*words).code == 0

    found = {
        "restore": _files_of(lambda: works(*restore)),
        "read --limit 2": _files_of(lambda: works("read", "t", "--limit", "2")),
        "topic list": _files_of(lambda: works("topic", "list")),
    }
    with seglog.open(tmp_path / "data") as log:
        log.topic("t").append([b"x"])
        found["append"] = _files_of(functools.partial(log.topic("t").append, [b"y"]))
    assert {name: files for name, files in found.items() if files > MOST_FILES[name]} == {}


def test_the_product_grows_only_where_somebody_says_so() -> None:
    generated = {ROOT / "offload/operations/command_list.py", ROOT / "catalog/schema_pb2.py"}
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py") if file not in generated]
    lengths = {file: len(file.read_text().splitlines()) for file in files}
    assert sum(lengths.values()) <= MOST_LINES
    assert len(lengths) <= MOST_MODULES
    assert {str(file.relative_to(ROOT)): lines for file, lines in lengths.items() if lines > LONGEST} == {}


@pytest.mark.long
def test_a_new_class_of_errors_needs_somebody_who_tells_it_apart() -> None:
    """Without a caller that catches it, an error is its group with a message and a hint: `raise Conflict(text)`."""
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    classes = [
        node for file in files for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ClassDef)
    ]
    bases = [(node.name, {ast.unparse(base).rpartition(".")[2] for base in node.bases}) for node in classes]
    errors, before = {"SeglogError"}, 0
    while len(errors) > before:
        before = len(errors)
        errors |= {name for name, of in bases if of & errors}
    assert sum(name in errors for name, _ in bases) <= MOST_ERRORS
