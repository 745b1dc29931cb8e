"""The commits of all branches of a topic, as a graph: `seglog log --graph`.

A volume has one parent at most, so the graph is a forest. Each volume has a column. A volume stands to the right of its
parent. A commit comes after all commits that build on it, so each fork is a line that ends at its parent's commit. The
lines stand before the text of each commit:

    * | lsn 3    a commit in column 0, beside a branch in column 1
    |/           the branch forks from the next commit
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import count, dropwhile, pairwise, takewhile
from typing import TYPE_CHECKING

from offload.operations.command import with_branch
from offload.operations.commits import CommitListed, listed
from offload.operations.result_json import HIDDEN, MERGED
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    from catalog.history import History
    from offload.archive import Archive

_Place = tuple[str, int]
"""A volume and an LSN."""


@dataclass(frozen=True, slots=True)
class GraphedCommit:
    """A commit in a graph. `names` are the branches and tags that stand on it.

    The commit is in `column`. Lines run past it in the columns `others`. The lines in the columns `joins` end at it.
    """

    commit: CommitListed = field(metadata=MERGED)
    names: tuple[str, ...]
    column: int = field(metadata=HIDDEN)
    others: tuple[int, ...] = field(metadata=HIDDEN)
    joins: tuple[int, ...] = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class Line:
    """The commits of one volume, newest first. `parent` is the commit from which the volume forks, if it is kept."""

    volume: str
    parent: _Place | None
    commits: Iterator[CommitListed]


def graph(archive: Archive, topic: str) -> Iterator[GraphedCommit]:
    """Return the commits of all branches of a topic, newest first."""
    base = topic.partition("@")[0]
    main = archive.history.commits(base)
    if not main:
        return iter(())
    names = sorted((branch.branch for branch in archive.branches.list(base)), key=lambda name: (name != "main", name))
    topics = {name: with_branch(base, name) for name in names}
    pasts = {name: archive.history.commits(topic) for name, topic in topics.items()}
    longest: dict[str, tuple[int, str]] = {}
    parents: dict[str, _Place] = {}
    for name, past in pasts.items():
        places = _places(past)
        parents |= {volume: parent for (volume, _), parent in pairwise(places)}
        for volume, last_lsn in places:
            longest[volume] = max(longest.get(volume, (0, "")), (last_lsn, name), key=lambda last: last[0])
    first = archive.upkeep.erasures(base, main)

    def commits(name: str, volume: str) -> Iterator[CommitListed]:
        """Yield the commits of one volume of a history. The erasures have to see the newer commits as well."""
        erasures = archive.upkeep.erasures(topics[name], pasts[name], beside=first)
        told = (listed(stored, main, erasures) for stored in pasts[name])
        newer_left = dropwhile(lambda commit: commit.volume != volume, told)
        return takewhile(lambda commit: commit.volume == volume, newer_left)

    lines = [Line(volume, parents.get(volume), commits(name, volume)) for volume, (_, name) in longest.items()]
    return ordered(lines, _names(archive, base, pasts))


def _places(past: History) -> list[_Place]:
    return [(str(span.vid), span.last_lsn) for span in past.spans]


def _names(archive: Archive, base: str, pasts: Mapping[str, History]) -> Mapping[_Place, Sequence[str]]:
    """Return the branches and tags by the commit that they stand on."""
    names: dict[_Place, list[str]] = {}
    for name, past in pasts.items():
        for point in _places(past)[:1]:
            names.setdefault(point, []).append(name)
    for tag in archive.tags.list(base):
        names.setdefault((str(tag.tag.point.vid), tag.tag.point.lsn), []).append(f"tag:{tag.name}")
    return names


def ordered(lines: Sequence[Line], names: Mapping[_Place, Sequence[str]]) -> Iterator[GraphedCommit]:
    """Yield the commits, newest first, and each one after all commits that build on it."""
    columns = _columns(lines)
    by_column = {columns[line.volume]: line for line in lines}
    waiting = Counter(line.parent for line in lines if line.parent is not None)
    ended: dict[_Place, list[int]] = {}
    heads = {column: next(line.commits, None) for column, line in sorted(by_column.items())}
    open_columns: set[int] = set()
    while ready := [
        (commit.created_at, -column)
        for column, commit in heads.items()
        if commit is not None and not waiting[commit.volume, commit.lsn]
    ]:
        column = -max(ready)[1]
        commit = heads[column]
        assert commit is not None  # noqa: S101 - it is ready
        point = commit.volume, commit.lsn
        joins = tuple(sorted(ended.pop(point, ())))
        open_columns -= {column, *joins}
        yield GraphedCommit(commit, tuple(names.get(point, ())), column, tuple(sorted(open_columns)), joins)
        heads[column] = next(by_column[column].commits, None)
        parent = by_column[column].parent
        if heads[column] is not None or parent is not None:
            open_columns.add(column)
        if heads[column] is None and parent is not None:
            waiting[parent] -= 1
            ended.setdefault(parent, []).append(column)


def _columns(lines: Sequence[Line]) -> Mapping[str, int]:
    """Return the column of each volume. A volume stands to the right of its parent."""
    volumes = {line.volume for line in lines}
    below: dict[str | None, list[str]] = {}
    for line in lines:
        parent = line.parent[0] if line.parent and line.parent[0] in volumes else None
        below.setdefault(parent, []).append(line.volume)
    free, columns = count(), {}
    waiting = below.get(None, [])[::-1]
    while waiting:
        volume = waiting.pop()
        columns[volume] = next(free)
        waiting += below.get(volume, [])[::-1]
    return columns


def graphed(graphed_commit: GraphedCommit, text: str) -> str:
    """Return the text of a commit behind its part of the graph."""
    joins = sorted(graphed_commit.joins, reverse=True)
    lines = [
        _fork(graphed_commit.column, join, {graphed_commit.column, *graphed_commit.others, *joins[index + 1 :]})
        for index, join in enumerate(joins)
    ]
    first, *more = text.split("\n")
    names = f"  ({', '.join(graphed_commit.names)})" if graphed_commit.names else ""
    columns = {graphed_commit.column, *graphed_commit.others}
    lines.append(f"{_row(columns, graphed_commit.column)}  {first}{names}")
    lines += [f"{_row(columns)}  {line}" for line in more]
    return "\n".join(lines)


def _row(columns: Iterable[int], commit: int = -1) -> str:
    marked = set(columns)
    marks = ("*" if column == commit else "|" if column in marked else " " for column in range(max(marked) + 1))
    return " ".join(marks)


def _fork(column: int, join: int, passed: set[int]) -> str:
    """Return the line that leads from the column `join` to its parent's column, past the other columns."""
    row = list(_row({*passed, join}))
    row[2 * join] = " "
    row[2 * join - 1] = "/"
    for index in range(2 * column + 1, 2 * join - 1):
        row[index] = "_" if row[index] == " " else row[index]
    return "".join(row).rstrip()
