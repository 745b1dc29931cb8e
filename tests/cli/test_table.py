"""Test the list of commands that the command line shows."""

from __future__ import annotations

from offload.cli.table import GROUPS, listed_commands
from offload.commands.registry import COMMANDS
from tests.cli.conftest import Run


def test_each_command_of_the_registry_is_on_the_command_line() -> None:
    paths = [command.path for command in listed_commands()]
    assert set(COMMANDS) <= set(paths)
    assert {path.rpartition("/")[0] for path in paths} == {"", *GROUPS}


def test_no_two_parameters_of_a_command_share_an_option() -> None:
    for command in listed_commands():
        names = [name for each in command.parameters.values() for name in each.options]
        assert len(set(names)) == len(names), command.path


def test_no_flag_has_a_form_that_turns_it_off() -> None:
    names = [name for command in listed_commands() for each in command.parameters.values() for name in each.options]
    assert [name for name in names if "--no-" in name] == []


def test_each_help_names_its_arguments_in_capitals(run: Run) -> None:
    for command in listed_commands():
        [usage, *_] = run(*command.path.split("/"), "--help").text.split("\n\n")
        arguments = usage.partition("[OPTIONS]")[2]
        assert arguments == arguments.upper(), usage
