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
    is_same = _java(changed) == _java(text) if mutant.is_java else _is_same_python(text, changed)
    if is_same:
        raise ValueError(f"{mutant.name}: it changes no code")
    return changed


def _is_same_python(text: str, changed: str) -> bool:
    """Return whether two texts have the same syntax tree. Statements with the same text have the same tree."""
    before, after = _known_statements(text), _statements(changed)
    return len(before) == len(after) and all(
        old == new or ast.dump(one) == ast.dump(other) for (old, one), (new, other) in zip(before, after, strict=True)
    )


def _statements(text: str) -> list[tuple[str, ast.stmt]]:
    """Return the statements of a module, each with its text, which begins at its first decorator."""
    lines, found = text.split("\n"), []
    for node in ast.parse(text).body:
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
        found.append(("\n".join(lines[first - 1 : node.end_lineno]), node))
    return found


def _java(text: str) -> str:
    """Return a Java text without comments and white space."""
    return " ".join(_COMMENT.sub(" ", text).split())


_known_statements = functools.cache(_statements)
