"""The list of mutants: small mistakes in the product, each with the tests that must notice it.

A person chooses each mutant: a mistake that changes an outcome. If one survives, the missing test belongs beside the
module. The tests of a mutant are the narrowest ones that kill it. A time-out kills no mutant, because a slow machine
may run into it too.

A list is a TOML file beside this one. Each `[[mutant]]` has

    file         the module, from the root of the project
    old, new     the text that the mistake replaces, which stands once in the module, and its replacement
    tests        arguments to pytest: files, node ids, and `-k` with its words
    mistake      the mistake, in a few words
    equivalent   only for a mutant that no test can notice: the reason

`java.toml` has mistakes in the Java sources.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "Mutant", "all_mutants", "mutated"]

ROOT = Path(__file__).resolve().parents[2]
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake. `name` is its list and its number in it, such as `seglog-12`."""

    name: str
    file: str
    old: str
    new: str
    mistake: str
    tests: tuple[str, ...]
    equivalent: str = ""

    @property
    def is_java(self) -> bool:
        return self.file.endswith(".java")


def all_mutants() -> list[Mutant]:
    """Return every mutant of every list. Raises TypeError for a field that a mutant lacks or does not have."""
    found = []
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        for number, fields in enumerate(tomllib.loads(path.read_text())["mutant"], start=1):
            found.append(Mutant(f"{path.stem}-{number}", **(fields | {"tests": tuple(fields["tests"])})))
    return found


def mutated(mutant: Mutant, root: Path = ROOT) -> str:
    """Return the module's text with the mistake in it. Raises ValueError if it does not apply, or changes no code.

    A mistake in Python has to be Python. Only the runner finds out whether javac takes one in Java.
    """
    text = (root / mutant.file).read_text()
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: its text stands {text.count(mutant.old)} times in {mutant.file}, not once")
    changed = text.replace(mutant.old, mutant.new)
    is_same = _java(changed) == _java(text) if mutant.is_java else _is_same_python(text, mutant.old, mutant.new)
    if is_same:
        raise ValueError(f"{mutant.name}: it changes no code")
    return changed


def _is_same_python(text: str, old: str, new: str) -> bool:
    """Return whether a module has the same syntax tree with `new` in the place of `old`.

    Only the function or statement around it is parsed again, because a module is some hundred times as long.
    """
    first = text[: text.index(old)].count("\n") + 1
    last = first + old.count("\n")
    for begin, end, head, part in _known_parts(text):
        if begin <= first and last <= end:
            return _known_tree(head + part) == _tree(head + part.replace(old, new))
    return _known_tree(text) == _tree(text.replace(old, new))


def _parts(text: str) -> list[tuple[int, int, str, str]]:
    """Return the members of classes, then the statements of a module: first and last line, head, and text.

    A text begins at its first decorator. A member of a class is parsed below a head of its own.
    """
    lines, members, statements = text.split("\n"), [], []
    for node in ast.parse(text).body:
        statements.append(_part(lines, node, ""))
        if isinstance(node, ast.ClassDef):
            members += [_part(lines, each, "class _:\n") for each in node.body]
    return [*members, *statements]


def _part(lines: list[str], node: ast.stmt, head: str) -> tuple[int, int, str, str]:
    begin = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
    end = node.end_lineno or begin
    return begin, end, head, "\n".join(lines[begin - 1 : end])


def _tree(text: str) -> str:
    return ast.dump(ast.parse(text))


def _java(text: str) -> str:
    """Return a Java text without comments and white space."""
    return " ".join(_COMMENT.sub(" ", text).split())


_known_parts = functools.cache(_parts)
_known_tree = functools.cache(_tree)
