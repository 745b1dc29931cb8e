"""The numbers of requests that docs/requests.md promises."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["documented"]

PAGE = Path(__file__).parents[2] / "docs" / "requests.md"


def documented(table: int = 0) -> dict[str, int]:
    """Return the requests of each operation from a table of the page, the first one by default."""
    section = PAGE.read_text().split("| --- | --- | --- |")[1 + table]
    rows = re.findall(r"^\| ([^|]+?) \| (\d+) \|", section.partition("\n\n")[0], re.MULTILINE)
    return {operation: int(requests) for operation, requests in rows}
