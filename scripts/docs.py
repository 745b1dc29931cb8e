"""Fills in the generated parts of docs/: `make docs`.

A part stands between `<!-- include: NAME -->` and `<!-- end -->`, and everything between the two is made anew. NAME is

    seglog.frame           a module: its docstring, read without importing it
    catalog/schema.proto   a path: the file as it is

So a format is written down once, at the top of the code that reads and writes it. `--check` changes nothing and fails
when a part is not current.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path

__all__ = ["filled", "included"]

ROOT = Path(__file__).resolve().parent.parent
PART = re.compile(r"(<!-- include: (?P<name>[\w./]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def included(name: str) -> str:
    """The Markdown for one NAME. Raises `OSError` for a missing file, `ValueError` for a missing docstring."""
    if "/" in name:
        path = ROOT / name
        return f"```{path.suffix.lstrip('.')}\n{path.read_text().rstrip()}\n```\n"
    module = ROOT / (name.replace(".", "/") + ".py")
    docstring = ast.get_docstring(ast.parse(module.read_text()))
    if docstring is None:
        raise ValueError(f"{module} has no docstring")
    return f"```text\n{docstring}\n```\n"


def filled(text: str) -> str:
    return PART.sub(lambda part: f"{part[1]}{included(part['name'])}{part[3]}", text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, fail if a part is not current")
    check = parser.parse_args().check
    stale = 0
    for page in sorted((ROOT / "docs").rglob("*.md")):
        before = page.read_text()
        after = filled(before)
        if after == before:
            continue
        if check:
            print(f"{page.relative_to(ROOT)} is not current: run `make docs`", file=sys.stderr)
            stale += 1
        else:
            page.write_text(after)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
