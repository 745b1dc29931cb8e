"""`seglog demo` shows real commands, needs no Java, and takes no directory that is another's."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from offload.operations.demo import demo
from tests.schemas import SCHEMAS, mismatches
from tests.worlds.command import Run


def _demo(place: Path, *words: str, **variables: str) -> str:
    line = [sys.executable, "-P", "-m", "offload", "demo", *words]
    environment = {**os.environ, **variables}
    return subprocess.run(line, cwd=place, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.long
def test_the_demo_needs_no_java_and_its_last_commands_work(tmp_path: Path, run: Run) -> None:
    told = _demo(tmp_path, JAVA_HOME=str(tmp_path), SEGLOG_REMOTE="s3://not-this-one/x")
    assert "Spark reads the archive, too: pip install 'seglog[spark]'" in told
    assert re.findall(r"wc -l\n    (\d+)", told) == ["20000", "10000"]
    assert "10,000 records are back" in told
    tries = [shlex.split(line)[1:] for line in told.partition("Look around:")[2].splitlines() if "-C" in line]
    assert len(tries) == 3
    for words in tries:
        assert run(*words, directory=None).code == 0, words
    assert (
        run("-C", "demo-data/data", "read", "events", directory=None).out
        == (tmp_path / "demo-data" / "text.log").read_bytes()
    )


@pytest.mark.long
def test_the_demo_takes_a_text_and_counts_both_states_in_spark(tmp_path: Path) -> None:
    (tmp_path / "own text").write_bytes(b"one\ntwo\n\xff\nfour\nfive")
    (tmp_path / "over here").mkdir()
    lines = _demo(tmp_path, "own text", "--directory", "over here", "--json").splitlines()
    steps = [json.loads(line) for line in lines]
    assert [mismatches(step, SCHEMAS["demo_step"]) for step in steps if mismatches(step, SCHEMAS["demo_step"])] == []
    assert "5 records now\n3 records after the mistake\n" in [step["output"] for step in steps]
    assert (tmp_path / "own text").read_bytes() == b"one\ntwo\n\xff\nfour\nfive"


@pytest.mark.long
def test_a_person_is_told_of_spark_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """The commands run in this process, and Spark not at all."""
    told: list[str] = []

    def output(words: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        if words[2] == "-c":
            told.append("python")
        out = b"5" if words[2] == "-c" else run(*words[4:], directory=None).out
        return subprocess.CompletedProcess(words, 0, out)

    monkeypatch.setattr("offload.operations.demo.subprocess.run", output)
    monkeypatch.setattr("offload.operations.demo.find_spec", lambda _: object())
    monkeypatch.setattr("offload.operations.demo.shutil.which", lambda _: "java")
    (tmp_path / "text").write_bytes(b"one\ntwo\n")
    steps = [*demo(tmp_path / "demo-data", tmp_path / "text", told.append)]
    assert "straight from the archive" in steps[-2].says
    at = told.index("python")
    assert "starting Spark" in told[at - 1]
    assert "up to a minute" in told[at - 1]


def test_a_directory_that_is_not_the_demos_stays_as_it_is(tmp_path: Path, run: Run) -> None:
    kept = tmp_path / "demo-data" / "data" / "mine"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"x")
    done = run("demo", directory=None)
    assert (done.code, done.out) == (4, b"")
    assert done.err == (
        "seglog: demo-data is not empty; nothing was changed. Take a new directory for the demo with --directory\n"
    )
    assert [*(tmp_path / "demo-data").rglob("*")] == [kept.parent, kept]


def test_a_text_of_one_line_has_no_half(tmp_path: Path, run: Run) -> None:
    (tmp_path / "short").write_bytes(b"one\n")
    done = run("demo", "short", directory=None)
    assert (done.code, done.err) == (2, "seglog: short has 1 line, and the demo deletes half of the lines\n")
    assert [each.name for each in tmp_path.iterdir()] == ["short"]
