"""The tables of benchmarks/results, a page for each benchmark, and each table between two marks that name it:

<!-- measured: append -->
...
<!-- end: append -->

A table that was measured in memory has a place of its own, `append on tmpfs`. There a sync costs nothing, so that our
own work stands alone.
"""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.machine import Machine
from benchmarks.report import Report, Row

__all__ = ["RESULTS", "page_of", "put_in", "table", "tables", "with_table"]

RESULTS = Path("benchmarks/results")

_TABLE = re.compile(r"<!-- measured: ([\w -]+) -->\n\n```text\n(.*?)\n```\n\n<!-- end: \1 -->\n", re.DOTALL)
_SPREAD = re.compile(r"([\d.e+-]+) to ([\d.e+-]+)")
_AIM = re.compile(r"([\d,.e+-]+)x?: (met|missed|not measured)")


def page_of(name: str, results: Path = RESULTS) -> Path:
    return results / f"{name}.md"


def put_in(results: Path, report: Report) -> None:
    page = page_of(report.name, results)
    page.write_text(with_table(page.read_text(), report))


def with_table(text: str, report: Report) -> str:
    """Return `text` with the report in place of the earlier table.

    Raises `ValueError` if `text` has no place for it.
    """
    name = f"{report.name} on tmpfs" if report.machine.file_system.startswith("tmpfs") else report.name
    begin, end = f"<!-- measured: {name} -->\n", f"<!-- end: {name} -->\n"
    before, begin_found, rest = text.partition(begin)
    _, end_found, after = rest.partition(end)
    if not begin_found or not end_found:
        raise ValueError(f"no place for the table of {name}")
    return f"{before}{begin}\n{report.as_markdown()}\n\n{end}{after}"


def tables(text: str) -> dict[str, str]:
    """Return the tables of a page by their marks, as `Report.as_text` made them."""
    return dict(_TABLE.findall(text))


def table(text: str) -> Report:
    """Return the report whose `as_text` is `text`, as exact as its digits are. Raises `ValueError` for another text."""
    head, _, *lines, last = text.splitlines()
    name, _, measured = head.partition(": ")
    rounds, _, machine = last.partition(" rounds; ")
    processor, cores, system, python, file_system, date = machine.rsplit(", ", 5)
    described = Machine(
        processor, int(cores.removesuffix(" cores")), system, python.removeprefix("Python "), file_system, date
    )
    report = Report(name, measured, tuple(map(_row, lines)), described, int(rounds))
    if report.as_text() != text:
        raise ValueError(f"the table of {name} is not as a report writes it")
    return report


def _row(line: str) -> Row:
    """Return the row of a line. Two spaces or more stand between its cells, and an empty cell is more space."""
    what, figure, *others = re.split(r" {2,}", line.strip())
    ours, unit = _figure(figure)
    aim, met = None, None
    if others and (found := _AIM.fullmatch(others[-1])):
        aim, met = _value(found[1]), {"met": True, "missed": False}.get(found[2])
        others.pop()
    if not others:
        return Row(what, unit, ours, aim=aim, met=met)
    yardstick, told, *ratios = others
    if not ratios:
        return Row(what, unit, ours, yardstick, missing=told, aim=aim, met=met)
    ratio, between = ratios
    if not (spread := _SPREAD.fullmatch(between)):
        raise ValueError(f"{between} is no spread")
    least, most = float(spread[1]), float(spread[2])
    return Row(
        what, unit, ours, yardstick, _figure(told)[0], float(ratio.removesuffix("x")), (least, most), None, aim, met
    )


def _figure(text: str) -> tuple[float, str]:
    number, _, unit = text.partition(" ")
    return _value(number), unit


def _value(text: str) -> float:
    return float(text.replace(",", ""))
