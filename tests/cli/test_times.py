"""Test how times are understood that operators write: words, times without a zone, and --strict-time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from offload.cli.execution import TimeNeedsZone, understand
from offload.operations.printing import ago_text
from tests.worlds.command import Run

NOW = datetime(2026, 11, 22, 19, 0, tzinfo=UTC)  # a Sunday, 20:00 in Berlin


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("15 minutes ago", "2026-11-22T18:45:00.000Z"),
        ("2d ago", "2026-11-20T19:00:00.000Z"),
        ("2026-11-20 14:05", "2026-11-20T13:05:00.000Z"),
        ("2026-07-20T14:05:30.5", "2026-07-20T12:05:30.500Z"),
        ("yesterday 14:05", "2026-11-21T13:05:00.000Z"),
        ("21:00", "2026-11-21T20:00:00.000Z"),
        ("last friday 9am", "2026-11-20T08:00:00.000Z"),
        ("3 hours 12 minutes ago", "2026-11-22T15:48:00.000Z"),
        ("2026-11-20 14:05 UTC", "2026-11-20T14:05:00.000Z"),
    ],
)
def test_a_time_in_words_or_of_the_local_zone_becomes_one_in_utc(text: str, utc: str) -> None:
    found = understand(text, NOW, is_strict=False)
    assert found.text == utc
    assert found.note.startswith(f"{text!r} is {utc}, ")
    assert found.note.endswith(" ago")


@pytest.mark.parametrize(
    "text",
    [
        "head", "head~2", "seq:9", "seq:x", "lsn:7", "tag:yesterday", "42", "2026", "", "nonsense", "v1",
        "yesterday-ish",
        "2026-11-21T09:30:00Z", "2026-11-21T09:30:00+02:00", "999999999w ago", "0001-01-01T00:00:00",
    ],
)  # fmt: skip
def test_what_is_exact_or_no_time_stays_as_it_is(text: str) -> None:
    found = understand(text, NOW, is_strict=False)
    assert (found.text, found.note) == (text, "")


def test_a_strict_time_needs_its_zone() -> None:
    for text in ("2026-11-20 14:05", "yesterday 14:05"):
        with pytest.raises(TimeNeedsZone):
            understand(text, NOW, is_strict=True)
    for text in ("2026-11-21T09:30:00+02:00", "head", "nonsense"):
        assert understand(text, NOW, is_strict=True).text == text
    assert understand("1h ago", NOW, is_strict=True).text == "2026-11-22T18:00:00.000Z"


def test_spans_are_told_with_their_two_largest_units() -> None:
    spans = {
        0: "0 s ago",
        59: "59 s ago",
        60: "1 min ago",
        11_530: "3 h 12 min ago",
        86_460: "1 d ago",
        -3600: "in 1 h",
    }
    assert {seconds: ago_text(timedelta(seconds=seconds)) for seconds in spans} == spans


def test_a_command_takes_such_times_and_tells_them(run: Run, tmp_path: Path) -> None:
    run("init", "--remote", (tmp_path / "remote").as_uri())
    run("append", "t", stdin=b"a\n")
    run("seal", "t")
    run("offload", "t")
    for words in (("read", "t", "--since", "yesterday 14:05"), ("log", "t", "--since", "2026-01-01 00:00")):
        done = run(*words)
        assert (done.code, done.err.count("\n"), " ago" in done.err) == (0, 1, True), done.err
        assert done.out
        refused = run("--strict-time", *words)
        assert (refused.code, refused.out, "has no zone" in refused.err) == (2, b"", True)
        assert run(*words, "--strict-time").code == 2
    assert run("diff", "t:yesterday 14:05").code == 3
    assert "is 20" in run("diff", "t:yesterday 14:05").err
    assert run("log", "t", "--since", "soonish").code == 2


def test_our_own_forms_import_no_dateparser() -> None:
    code = (
        "import sys; from datetime import datetime, UTC; from offload.cli.execution import understand\n"
        "for text in ('head', '2026-11-20 14:05', '1h ago', '2026-11-21T09:30:00Z'):\n"
        "    understand(text, datetime.now(UTC), is_strict=False)\n"
        "print('dateparser' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
