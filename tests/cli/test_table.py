"""Test the list of commands that the command line shows."""

from __future__ import annotations

from offload.cli.table import GROUPS, listed_commands
from offload.commands.registry import COMMANDS


def test_each_command_of_the_registry_is_on_the_command_line() -> None:
    paths = [command.path for command in listed_commands()]
    assert set(COMMANDS) <= set(paths)
    assert {path.rpartition("/")[0] for path in paths} == {"", *GROUPS}


def test_no_two_parameters_of_a_command_share_an_option() -> None:
    for command in listed_commands():
        names = [name for each in command.parameters.values() for name in each.options]
        assert len(set(names)) == len(names), command.path
