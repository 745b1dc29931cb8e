"""Takes the Python examples out of README and docs, so that mypy and the tests see what a reader copies.

    python scripts/snippets.py DIR    writes one program a page to DIR; `make check` then runs mypy on them

The blocks of a page are one program: a later one may use the names of an earlier one. `make check` reads them with
`mypy --strict` and none of our settings, as a reader would. `tests/test_pages.py`, `tests/offload/spark/test_pages.py`
and `tests/cli/test_stories.py` run each block.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

__all__ = ["ROOT", "programs"]

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(r"^ *```python\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def programs() -> dict[str, list[str]]:
    """Return the blocks of each page that has any, by the page's path from the root."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = {page: [textwrap.dedent(block) for block in _BLOCK.findall(page.read_text())] for page in pages}
    return {page.relative_to(ROOT).as_posix(): blocks for page, blocks in found.items() if blocks}


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("*.py"):
        old.unlink()
    for page, blocks in programs().items():
        name = re.sub(r"\W", "_", page.removesuffix(".md"))
        (directory / f"{name}.py").write_text("\n".join(blocks))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
