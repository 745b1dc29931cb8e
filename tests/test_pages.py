"""The Python examples of pages in docs/ do what they say, with a directory in the place of the bucket."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import seglog
from tests.daemons import served

PAGES = Path(__file__).resolve().parent.parent / "docs"


def run_blocks(page: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run all Python blocks of a page as one program in `directory`."""
    blocks = re.findall(r"^```python\n(.*?)^```", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    program = "".join(blocks).replace("s3://my-bucket/acme", f"{directory.as_uri()}/remote")
    monkeypatch.chdir(directory)
    exec(compile(program, page, "exec"), {})  # noqa: S102


def test_the_example_of_the_journal_finds_its_items_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_blocks("journal.md", tmp_path, monkeypatch)
    got, *replayed, sections = capsys.readouterr().out.splitlines()
    assert got == "b'job 7 begins'"
    assert [re.sub(r" \d+ ", " ", line, count=1) for line in replayed] == [
        "1 b'job 7 begins'",
        "1 b'job 7 is done'",
        "2 b'job 8 begins'",
    ]
    assert sections == "[2]"


def test_the_example_of_cold_segments_reads_what_went_to_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_blocks("warm-segments.md", tmp_path, monkeypatch)
    assert capsys.readouterr().out == "3500 records\n"
    moved = sorted((tmp_path / "remote" / "cold" / "machine-1").rglob("*.data"))
    assert moved
    assert not (tmp_path / "data" / "topics" / "00000001" / moved[0].name).exists()


def test_the_example_of_the_client_appends_and_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seglog.open(tmp_path / "data").close()
    with served(tmp_path / "data", ""):
        run_blocks("client.md", tmp_path, monkeypatch)
    assert capsys.readouterr().out.splitlines() == [
        "range(1, 3) False",
        "1000 records are in",
        "1 b'one'",
        "2 b'two'",
        "1002",
    ]
