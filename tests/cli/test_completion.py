"""Test the words that a shell offers."""

from __future__ import annotations

import pytest

from offload.cli.completion import candidates
from offload.cli.door import run


def words(*typed: str) -> list[str]:
    return [word for word, _ in candidates(typed)]


def test_commands_and_groups_complete() -> None:
    assert words("re") == ["read", "reset", "resume", "retry", "restore", "recover"]
    assert words("topic", "") == ["create", "set", "show", "delete", "list"]
    assert "branch" in words("")
    assert words("nonsense", "") == []


def test_options_of_the_command_complete() -> None:
    assert words("read", "t", "--f") == ["--from", "--follow"]
    assert words("--re") == ["--remote"]
    assert words("topic", "list", "--") == ["--json", "--help"]


def test_the_values_of_a_choice_complete_and_no_others() -> None:
    assert words("append", "t", "--format", "") == ["lines", "jsonl"]
    assert words("read", "t", "--from", "") == []
    assert words("-C", "read", "to") == ["topic"]


def test_the_command_prints_them_with_their_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["__complete", "topic", "li"], {}, lambda *_, **__: None) == 0
    assert capsys.readouterr().out == "list\tList the topics of this data directory.\n"
