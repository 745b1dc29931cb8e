"""Test that the lists of a narrow terminal fit it, with relative times and without ids, and that -v shows all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.terminals import Shown, on_terminal, without_styles
from tests.worlds.command import Run

__all__ = ["on_terminal"]

_TOPIC = "nginx-access-log-of-frankfurt"
_BRANCH = "before-the-import-of-november"
_WHY = "the import of the partner wrote all of the records twice, so we go back to what was there before it began"
_LISTS = (
    ("log", _TOPIC),
    ("log", _TOPIC, "--stat"),
    ("log", f"{_TOPIC}@{_BRANCH}", "--stat"),
    ("log", _TOPIC, "--graph"),
    ("log", _TOPIC, "--graph", "--stat"),
    ("oplog",),
    ("branch", "list", _TOPIC),
    ("pin", "list"),
    ("tag", "list", _TOPIC),
    ("topic", "list"),
    ("ls",),
    ("segments", _TOPIC),
    ("points", _TOPIC),
    ("status",),
)
_ID = re.compile(r"\b[0-9a-f]{12}\b|\b[0-9A-Za-z]{10}-[0-9A-Za-z]{4,}")
_FULL_TIME = re.compile(r"\d{4}-\d\d-\d\dT")


@pytest.fixture
def filled(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr("offload.context.host_name", lambda: "ip-10-20-30-40.eu-central-1.compute.internal")
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    for number in range(12):
        assert run("append", _TOPIC, stdin=b"GET /\n" * 1000).code == 0
        assert run("seal", _TOPIC).code == 0
        if number % 3 == 2:
            assert run("offload", _TOPIC).code == 0
    for step in (
        ["delete", _TOPIC, "--before", "1001", "--yes", "-m", _WHY],
        ["restore", _TOPIC, "--to", "lsn:2", "--as", _BRANCH, "-m", _WHY],
        ["append", f"{_TOPIC}@{_BRANCH}"],
        ["seal", f"{_TOPIC}@{_BRANCH}"],
        ["offload", f"{_TOPIC}@{_BRANCH}"],
        ["tag", "create", _TOPIC, "release-2026.11.21-candidate-2", "-m", _WHY],
        ["resolve", _TOPIC, "--to", "lsn:1", "--pin", "12h"],
        ["append", _TOPIC],
        ["append", "orders"],
    ):
        done = run(*step, stdin=b"GET /\n")
        assert done.code == 0, done.err
    return run


def test_no_line_of_a_list_is_wider_than_80_columns(
    filled: Run, on_terminal: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in _LISTS:
        lines = without_styles(on_terminal(*words)).splitlines()
        lines = lines[1:] if words == ("status",) else lines  # the directory and the URL of the remote
        assert len(lines) > 1, words
        assert max(map(len, lines)) <= 80, (words, max(lines, key=len))
        text = "\n".join(lines)
        assert words[:2] in (("pin", "list"), ("ls",)) or not _ID.search(text), (
            words,
            text,
        )  # a pin is named by its id
        assert words[0] == "points" or not _FULL_TIME.search(text), (words, text)  # its first line says what GC keeps


def test_a_list_has_ids_and_full_times_with_v_and_in_a_pipe(filled: Run, on_terminal: Shown) -> None:
    for words in _LISTS:
        piped = filled(*words).text
        assert on_terminal(*words, "--plain") == piped
        if words[0] in ("log", "branch"):
            assert _ID.search(without_styles(on_terminal(*words, "-v"))), words
            assert _ID.search(piped), words
        if words[-1] != "list" and words[0] not in ("ls", "segments"):
            assert _FULL_TIME.search(piped), words


def test_a_commit_of_the_parent_is_marked_and_v_shows_its_whole_name(filled: Run, on_terminal: Shown) -> None:
    name = f"{_TOPIC}@{_BRANCH}"
    own, fork, *inherited = without_styles(on_terminal("log", name)).splitlines()
    assert re.match(r"lsn 1 +\d+ (s|min) ago  ", own)
    assert fork == "-- forked from its parent; -v shows the whole names"
    assert [line.split()[1] for line in inherited] == ["2@…", "1@…"]
    assert without_styles(on_terminal("log", name, "-v")).count("lsn 2@") == 1
