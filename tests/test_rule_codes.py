"""A rule has a code that is unique over the project. The module that keeps the rule defines its code, as `WAL-3`.

A definition is a line of a module's docstring: the code, two spaces, the rule. T1 to T11 are names of fault tests, not
codes of rules.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("benchmarks", "catalog", "offload", "seglog", "tests")
_DEFINITION = re.compile(r"^ *([A-Z]+-\d+)  \S", re.MULTILINE)
_CODE = re.compile(r"(?<![\w-])([A-Z]{2,}-\d+)(?![\w-])")
_OTHERS = ("CRC", "PIP", "RFC", "SHA", "UTF")  # documents and algorithms, which have numbers of their own


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not path.stem.endswith("_pb2"):
                yield path


def pages() -> Iterator[Path]:
    yield from ROOT.glob("*.md")
    yield from (ROOT / "docs").rglob("*.md")
    yield from (ROOT / "benchmarks" / "results").glob("*.md")


@functools.cache
def text_of(path: Path) -> str:
    return path.read_text()


@functools.cache
def definitions() -> list[tuple[str, Path]]:
    found = []
    for path in sources():
        if _DEFINITION.search(text_of(path)):
            docstring = ast.get_docstring(ast.parse(text_of(path))) or ""
            found += [(code, path) for code in _DEFINITION.findall(docstring)]
    return found


@functools.cache
def remarks(path: Path) -> list[str]:
    """Return the docstrings of a source file, and its comments."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    tree = ast.parse(text_of(path))
    found = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)]
    tokens = tokenize.generate_tokens(io.StringIO(text_of(path)).readline)
    return found + [token.string for token in tokens if token.type == tokenize.COMMENT]


def cited(text: str) -> set[str]:
    return {code for code in _CODE.findall(text) if not code.startswith(_OTHERS)}


@pytest.mark.long
def test_every_code_is_defined_once_and_every_prefix_is_one_modules() -> None:
    defined = definitions()
    assert len(defined) > 200
    assert [code for code, times in Counter(code for code, _ in defined).items() if times > 1] == []
    modules = Counter(prefix for prefix, _ in {(code.split("-")[0], path) for code, path in defined})
    assert [prefix for prefix, count in modules.items() if count > 1] == []


def texts(suspect: Callable[[Path, str], bool]) -> Iterator[tuple[Path, str]]:
    """Yield the docstrings and comments of each source file that `suspect` accepts as a whole, and the pages.

    To take a file apart costs a hundred times as much as to look at its text.
    """
    for path in sources():
        if suspect(path, text_of(path)):
            yield from ((path, remark) for remark in remarks(path))
    yield from ((path, text_of(path)) for path in pages())


def test_every_code_that_is_cited_is_defined() -> None:
    defined = {code for code, _ in definitions()}
    found = texts(lambda _, text: bool(cited(text) - defined))
    unknown = {(str(path.relative_to(ROOT)), code) for path, text in found for code in cited(text) - defined}
    assert unknown == set()


def is_allowed(place: str, code: str) -> bool:
    """Return whether the text means a service (S3, S2, R2, B2), a band of the scheduler, or a fault test."""
    is_about_tests = place.startswith(("tests", "docs", "CONTRIBUTING"))
    is_plain = code in {"S2", "S3", "R2", "B0", "B1", "B2", "B3", "B4"}
    return is_plain or (is_about_tests and code in {f"T{number}" for number in range(1, 12)})


def test_no_code_is_a_letter_and_a_number() -> None:
    bare = re.compile(r"(?<![\w./+{@-])[A-Z]\d{1,2}(?![\w-]|\.\d)")

    def wrong(path: Path, text: str) -> set[tuple[str, str]]:
        place = str(path.relative_to(ROOT))
        return {(place, code) for code in bare.findall(text) if not is_allowed(place, code)}

    found = texts(lambda path, text: bool(wrong(path, text)))
    assert {each for path, text in found for each in wrong(path, text)} == set()


def test_no_docstring_or_comment_is_a_code_without_words() -> None:
    alone = r"[A-Z]+-\d+(?:(?:, | and | to )[A-Z]+-\d+)*\.?\s*"
    remark_alone = re.compile(rf"[#\s]*{alone}")
    line_alone = re.compile(rf"(?:#|\"\"\"|^)[#\s]*{alone}(?:$|\"\"\")", re.MULTILINE)
    found = [
        (path.name, remark)
        for path in sources()
        if line_alone.search(text_of(path))
        for remark in remarks(path)
        if remark_alone.fullmatch(remark)
    ]
    assert found == []
    assert line_alone.search("x = 1  # WAL-3, WAL-4.\n")
    assert line_alone.search('    """WAL-3."""\n')
