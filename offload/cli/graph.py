"""The lines of `seglog log --graph`, which stand before the text of each commit.

* | lsn 3    a commit in column 0, beside a branch in column 1
|/           the branch forks from the next commit
"""

from __future__ import annotations

from collections.abc import Iterable

from offload.operations.graph import GraphedCommit

__all__ = ["graphed"]


def graphed(found: GraphedCommit, text: str) -> str:
    """Return the text of a commit behind its part of the graph."""
    joins = sorted(found.joins, reverse=True)
    lines = [
        _fork(found.column, join, {found.column, *found.others, *joins[place + 1 :]})
        for place, join in enumerate(joins)
    ]
    first, *rest = text.split("\n")
    names = f"  ({', '.join(found.names)})" if found.names else ""
    columns = {found.column, *found.others}
    lines.append(f"{_row(columns, found.column)}  {first}{names}")
    lines += [f"{_row(columns)}  {line}" for line in rest]
    return "\n".join(lines)


def _row(columns: Iterable[int], commit: int = -1) -> str:
    there = set(columns)
    marks = ("*" if each == commit else "|" if each in there else " " for each in range(max(there) + 1))
    return " ".join(marks)


def _fork(column: int, join: int, others: set[int]) -> str:
    """Return the line that leads from the column `join` to its parent's column, past the other columns."""
    row = list(_row({*others, join}))
    row[2 * join] = " "
    row[2 * join - 1] = "/"
    for place in range(2 * column + 1, 2 * join - 1):
        row[place] = "_" if row[place] == " " else row[place]
    return "".join(row).rstrip()
