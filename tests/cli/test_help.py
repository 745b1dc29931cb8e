"""Test the help of all commands against golden files, which `make docs` writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from offload.cli.help import help_text, summary
from offload.cli.top import GROUPS
from offload.operations.command_list import COMMANDS, VERSION
from offload.operations.listed_command import SECTIONS
from tests.golden.make_help import WIDTHS, make, place
from tests.worlds.command import Run


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_help_is_the_golden_one(columns: int) -> None:
    assert make(columns) == place(columns).read_text()


def test_no_line_is_wider_than_the_terminal() -> None:
    for columns in (60, 80, 100, 200):
        for path in ("", *GROUPS, *COMMANDS):
            for is_full in (False, True):
                assert max(map(len, help_text(path, columns, is_full=is_full).splitlines())) < min(columns, 120)


def _sections(text: str) -> dict[str, list[str]]:
    """Return the commands below each head of a help text, with their other names."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            found[line] = names = []
        elif line.startswith("  ") and line[2] != " " and found:
            names += line[2:].partition("  ")[0].split(", ")
    return found


def test_each_command_is_in_one_section_of_the_help() -> None:
    found = _sections(help_text("", 80, is_full=True).partition("\nOptions:")[0])
    listed = [path for path in (*COMMANDS, *GROUPS) if "/" not in path]
    aliases = [alias for command in COMMANDS.values() for alias in command.aliases]
    assert list(found) == [f"{section.capitalize()}:" for section in SECTIONS]
    assert sorted(name for names in found.values() for name in names) == sorted([*listed, *aliases])


def test_the_help_of_the_top_has_six_sections_of_one_line_a_command_on_one_screen() -> None:
    text, full = help_text("", 80), _sections(help_text("", 80, is_full=True))
    found = _sections(text.rpartition("\n\n")[0])
    assert found == {head: full[head] for head in list(full)[:6]}
    assert text.count("\n") <= 50
    assert len(text.split()) <= 295
    for each in (*COMMANDS.values(), *GROUPS.values()):
        assert len(summary(each)) <= 55, each.path


def test_the_words_that_people_try_first_work(run: Run) -> None:
    run("init")
    run("append", "t", stdin=b"a\nb\n")
    assert run("-h").text == run("help").text == run("--help").text == help_text("", 80)
    assert run("help", "--all").text == run("--help", "--all").text == help_text("", 80, is_full=True)
    for words in (["help", "read"], ["read", "-h"], ["help", "cat"], ["cat", "--help"]):
        assert run(*words).text == help_text("read", 80)
    assert "Also: seglog cat\n" in help_text("read", 80)
    assert run("help", "topic", "list").text == run("ls", "-h").text == help_text("topic/list", 80)
    assert run("help", "topic").text == help_text("topic", 80)
    assert run("version").text == run("--version").text
    assert VERSION in run("version").text
    assert run("cat", "t").out == run("read", "t").out == b"a\nb\n"
    assert run("ls", "--json").text == run("topic", "list", "--json").text
    wrong = run("help", "raed")
    assert (wrong.code, wrong.err.count("there is no command raed (similar: read")) == (2, 1)


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
