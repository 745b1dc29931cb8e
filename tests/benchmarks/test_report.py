from __future__ import annotations

import pytest

from benchmarks.document import with_table
from benchmarks.machine import Machine
from benchmarks.report import Aim, Report, Row, alone, compare
from benchmarks.runner import Rounds

MACHINE = Machine("a processor", 2, "Linux 6", "3.11.7", "ext4 on /dev/vda", "2026-11-21")
ROUNDS = Rounds(
    {"seglog": [{"rate": 20.0}, {"rate": 30.0}, {"rate": 60.0}], "raw": [{"rate": 20.0}] * 3}, {"lmdb": "not installed"}
)


def _report(*rows: Row) -> Report:
    return Report("append", "appends", rows, MACHINE, 3)


def test_a_row_has_the_spread_of_its_ratio_and_says_whether_its_aim_is_met() -> None:
    aims = (Aim(2, "raw"), Aim(25))
    alone_row, raw, lmdb = compare(ROUNDS, "what", "records/s", "rate", "raw", "lmdb", more_is_better=True, aims=aims)
    assert (alone_row.ours, alone_row.yardstick, alone_row.aim, alone_row.met) == (30, None, 25, True)
    assert (raw.ratio, raw.spread, raw.aim, raw.met) == (1.5, (1.0, 3.0), 2, False)
    assert (lmdb.theirs, lmdb.missing, lmdb.met) == (None, "not installed", None)
    text = _report(alone_row, raw, lmdb).as_text()
    assert "2x: missed" in text
    assert "25: met" in text
    assert "1 to 3" in text
    assert "not installed" in text
    assert text.splitlines()[-1] == "3 rounds; " + MACHINE.line()


def test_a_count_is_met_when_it_is_not_more() -> None:
    assert alone("files", "files", 10, at_most=10).met is True
    assert alone("files", "files", 11, at_most=10).met is False
    assert alone("files", "files", 11).met is None


def test_a_table_takes_the_place_of_the_one_before() -> None:
    text = "# One\n\n<!-- measured: append -->\nold\n<!-- end: append -->\nafter\n"
    report = _report(alone("x", "s", 1))
    once = with_table(text, report)
    assert "old" not in once
    assert once.startswith("# One\n")
    assert once.endswith("<!-- end: append -->\nafter\n")
    assert report.as_text() in once
    assert with_table(once, report) == once
    with pytest.raises(ValueError, match="append"):
        with_table("# Nothing\n", report)
