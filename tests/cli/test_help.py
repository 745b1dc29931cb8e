"""Test the help of all commands against golden files, which `make docs` writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from offload.cli.help import help_text
from offload.cli.top import GROUPS
from offload.operations.listing import COMMANDS
from tests.golden.make_help import WIDTHS, make, place
from tests.worlds.command import Run


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_help_is_the_golden_one(columns: int) -> None:
    assert make(columns) == place(columns).read_text()


def test_no_line_is_wider_than_the_terminal() -> None:
    for columns in (60, 80, 100, 200):
        for path in ("", *GROUPS, *COMMANDS):
            assert max(map(len, help_text(path, columns).splitlines())) < min(columns, 120)


def test_the_help_has_every_word_of_the_command() -> None:
    for path, command in COMMANDS.items():
        shown = " ".join(help_text(path, 80).split())
        for text in (command.help, *(each.help for each in command.parameters)):
            assert " ".join(text.split()) in shown, path
        for name in [name for each in command.options for name in each.options]:
            assert f" {name}" in shown, path


def test_without_a_command_the_help_goes_to_standard_error_and_the_exit_code_is_2(run: Run) -> None:
    for words in ((), ("topic",)):
        done = run(*words)
        assert (done.code, done.out) == (2, b"")
        assert done.err == help_text("".join(words), 80)
        assert run(*words, "--help").text == done.err


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    command = f"'{sys.executable}' -m offload --help | true"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == ""
