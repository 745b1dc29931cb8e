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
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("benchmarks", "catalog", "demo", "offload", "seglog", "tests")
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


@functools.cache
def definitions() -> list[tuple[str, Path]]:
    found = []
    for path in sources():
        docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
        found += [(code, path) for code in _DEFINITION.findall(docstring)]
    return found


@functools.cache
def remarks(path: Path) -> list[str]:
    """Return the docstrings of a source file, and its comments."""
    source = path.read_text()
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    found = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(source)) if isinstance(node, documented)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return found + [token.string for token in tokens if token.type == tokenize.COMMENT]


def cited(text: str) -> set[str]:
    return {code for code in _CODE.findall(text) if not code.startswith(_OTHERS)}


def test_every_code_is_defined_once_and_every_prefix_is_one_modules() -> None:
    defined = definitions()
    assert len(defined) > 200
    assert [code for code, times in Counter(code for code, _ in defined).items() if times > 1] == []
    modules = Counter(prefix for prefix, _ in {(code.split("-")[0], path) for code, path in defined})
    assert [prefix for prefix, count in modules.items() if count > 1] == []


def test_every_code_that_is_cited_is_defined() -> None:
    defined = {code for code, _ in definitions()}
    texts = [(path, remark) for path in sources() for remark in remarks(path)]
    texts += [(path, path.read_text()) for path in pages()]
    unknown = {(str(path.relative_to(ROOT)), code) for path, text in texts for code in cited(text) - defined}
    assert unknown == set()


def is_allowed(place: str, code: str) -> bool:
    """Return whether the text means something else: the service S3, or a fault test in a text about tests."""
    is_about_tests = place.startswith(("tests", "docs", "CONTRIBUTING"))
    return code == "S3" or (is_about_tests and code in {f"T{number}" for number in range(1, 12)})


def test_no_code_is_a_letter_and_a_number() -> None:
    bare = re.compile(r"(?<![\w./+{@-])[A-Z]\d{1,2}(?![\w-]|\.\d)")
    texts = [(path, remark) for path in sources() for remark in remarks(path)]
    texts += [(path, path.read_text()) for path in pages()]
    found = {(str(path.relative_to(ROOT)), code) for path, text in texts for code in bare.findall(text)}
    assert {each for each in found if not is_allowed(*each)} == set()


def test_no_docstring_or_comment_is_a_code_without_words() -> None:
    alone = re.compile(r"[#\s]*[A-Z]+-\d+(?:(?:, | and | to )[A-Z]+-\d+)*\.?\s*")
    bare = [(path.name, remark) for path in sources() for remark in remarks(path) if alone.fullmatch(remark)]
    assert bare == []
