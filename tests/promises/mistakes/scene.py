"""The means of the tests of mistakes: records that are acked, read back, and nothing of them lost."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import seglog
from tests import trees

__all__ = ["filled", "numbered", "tree", "values"]


def numbered(count: int, first: int = 1) -> list[bytes]:
    return [b"record %d" % number for number in range(first, first + count)]


def filled(path: Path, count: int = 10, *, seal: bool = False) -> list[bytes]:
    """A data directory at `path` with `count` records of the topic orders, acked at fsync. Returns their values."""
    with seglog.open(path) as log:
        log.topic("orders").append(numbered(count))
        if seal:
            log.topic("orders").seal()
    return numbered(count)


def values(path: Path, topic: str = "orders") -> list[bytes]:
    """The values that a fresh opening reads."""
    with seglog.open(path, create=False) as log:
        return [record.value for record in log.topic(topic).read()]


def tree(path: Path, leave_out: Iterable[str] = ("LOCK",)) -> dict[str, bytes]:
    """The content of each file below `path`, but for files with these names."""
    names = set(leave_out)
    return {name: content for name, content in trees.tree(path).items() if Path(name).name not in names}
