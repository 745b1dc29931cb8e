"""The byte tables in the docstrings of format modules, as data."""

from __future__ import annotations

import importlib
import re

__all__ = ["table_of"]

_ROW = re.compile(r" {4}(\d+) +(\d+) ")


def table_of(module: str) -> list[tuple[int, int]]:
    """Return offset and size of each row that has numbers for both."""
    text = importlib.import_module(module).__doc__ or ""
    return [(int(match[1]), int(match[2])) for line in text.splitlines() if (match := _ROW.match(line))]
