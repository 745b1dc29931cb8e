"""Tests and benchmarks use public names of the product. `tests/seams` alone reaches into private ones.

`tests/simulation/mutants.py` and `tests/races/mutants.py` are seams too: they put mistakes into the shipped modules.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
_SEAMS = ("tests/seams/", "tests/simulation/mutants.py", "tests/races/mutants.py")
_PRIVATE = re.compile(r"_[^_]\w*")
# Public names of the standard library that begin with an underscore.
_PUBLIC = {"_asdict", "_exit", "_fields", "_get_running_loop", "_getframe", "_replace", "_set_running_loop"}
_PATCHES = {"delattr", "object", "patch", "setattr"}


def sources() -> Iterator[Path]:
    for folder in ("benchmarks", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not str(path.relative_to(ROOT)).startswith(_SEAMS):
                yield path


def is_private(name: str) -> bool:
    return _PRIVATE.fullmatch(name) is not None and name not in _PUBLIC


def is_named(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def is_own(node: ast.AST) -> bool:
    """Return whether a value is `self`, `cls` or `super()`."""
    return is_named(node, "self", "cls") or (isinstance(node, ast.Call) and is_named(node.func, "super"))


def own_names(nodes: list[ast.AST]) -> set[str]:
    """Return the private names that the classes and functions of a file define for themselves."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_named(node.value, "self"):
            names.add(node.attr)
    return names


def private_uses(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each private attribute, import or patch of another's code."""
    nodes = list(ast.walk(ast.parse(source)))
    own = own_names(nodes)
    for node in nodes:
        if isinstance(node, ast.Attribute):
            if is_private(node.attr) and not is_own(node.value) and node.attr not in own:
                yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, each.name) for each in node.names if is_private(each.name))
        elif isinstance(node, ast.Call) and called(node.func) in _PATCHES:
            texts = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            yield from ((node.lineno, text) for text in texts if is_private(text.rpartition(".")[2]))


def called(function: ast.AST) -> str:
    """Return the last name of a function that is called: `object` for `mock.patch.object`."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("log._engine.close()", ["_engine"]),
        ("from seglog.log import _PATIENCE_S", ["_PATIENCE_S"]),
        ("monkeypatch.setattr(checkpointer, '_INLINE_BYTES', 0)", ["_INLINE_BYTES"]),
        ("mock.patch('catalog.local_catalog._connect', None)", ["catalog.local_catalog._connect"]),
        ("os._exit(0)\nself._log = info._replace(first_seq=1)\nlog.__class__", []),
        ("class A:\n    def _b(self): ...\n    def c(self, other): other._b()", []),
    ],
)
def test_each_kind_of_private_use_is_found(source: str, found: list[str]) -> None:
    assert [name for _, name in private_uses(source)] == found


@pytest.mark.long
def test_only_seams_reach_into_private_parts() -> None:
    uses = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sources()
        for line, name in private_uses(path.read_text())
    ]
    assert uses == []
