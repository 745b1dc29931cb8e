"""Test the list of commands that the command line shows, and the front door's copy of it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from offload.cli.commands import listed_commands
from offload.cli.help import help_text
from offload.cli.top import GROUPS
from offload.operations.command import COMMANDS
from offload.operations.command_list import COMMANDS as LISTED
from offload.operations.command_list import VERSION

ROOT = Path(__file__).resolve().parents[2]


def test_each_command_of_the_registry_is_on_the_command_line() -> None:
    paths = [command.path for command in listed_commands()]
    assert set(COMMANDS) <= set(paths)
    assert {path.rpartition("/")[0] for path in paths} == {"", "gc", *GROUPS}


def test_no_two_parameters_of_a_command_share_an_option() -> None:
    for command in listed_commands():
        names = [name for each in command.parameters for name in each.options]
        assert len(set(names)) == len(names), command.path


def test_no_flag_has_a_form_that_turns_it_off() -> None:
    names = [name for command in listed_commands() for each in command.parameters for name in each.options]
    assert [name for name in names if "--no-" in name or "/" in name] == []


def test_each_help_names_its_arguments_in_capitals() -> None:
    for path in LISTED:
        [usage, *_] = help_text(path, 200).splitlines()
        arguments = usage.partition("[OPTIONS]")[2]
        assert arguments == arguments.upper(), usage


def test_the_front_doors_list_is_current() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from scripts.docs import LISTING, listing; assert LISTING.read_text() == listing()"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"run `make docs`: {done.stderr}"
    assert list(LISTED) == [command.path for command in listed_commands()]
    assert version("seglog") == VERSION
