"""The tables of docs/benchmarks.md, each between two marks that name its benchmark:

<!-- measured: append -->
...
<!-- end: append -->

A table that was measured in memory has a place of its own, `append on tmpfs`. There a sync costs nothing, so that our
own work stands alone.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import Report

__all__ = ["DOCUMENT", "put_in", "with_table"]

DOCUMENT = Path("docs/benchmarks.md")


def put_in(document: Path, report: Report) -> None:
    document.write_text(with_table(document.read_text(), report))


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
