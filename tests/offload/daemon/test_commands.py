"""Test the parameters of commands that the daemon runs for clients.

The daemon refuses a wrong type or range and names the parameter.
"""

from __future__ import annotations

import enum
import math
from pathlib import Path

import pytest

from offload.client import DaemonClient
from offload.errors import InvalidOption
from offload.operations.command import COMMANDS, Parameter
from seglog import InvalidArgument


def _wrong_for(parameter: Parameter) -> list[object]:
    """Return wrong values for the parameter, of the types that JSON has."""
    if parameter.kind is bool:
        return [0, 1, "true", 1.0, [], {}]
    if parameter.kind is int:
        too_low = -251 if parameter.name == "priority" else -1
        return ["1", 1.5, 1.0, True, too_low, 2**63, 2**200, math.nan, math.inf, [1], {}]
    if parameter.kind is float:
        return ["1", True, -1, -0.5, 2**200, math.nan, math.inf, [1], {}]
    if issubclass(parameter.kind, enum.Enum):
        return ["nothing of it", 1, True, [], {}]
    return [1, 1.5, True, ["x"], {}]


@pytest.mark.parametrize("path", COMMANDS)
def test_a_wrong_parameter_is_refused_by_its_name(path: str) -> None:
    command = COMMANDS[path]
    fit = {name: "t" for name, each in command.parameters.items() if each.default is ... and each.kind is str}
    fit |= {name: 1 for name, each in command.parameters.items() if each.default is ... and each.kind is int}
    for name, parameter in command.parameters.items():
        for value in [*_wrong_for(parameter), *([] if parameter.default is None else [None])]:
            with pytest.raises(InvalidOption, match=f"option {command.shown_name(parameter)}:"):
                command.arguments({**fit, name: value})


def test_a_parameter_has_the_name_of_its_option_too() -> None:
    restore, read = COMMANDS["restore"], COMMANDS["read"]
    given = {"topic": "t", "to": "head", "as": "b"}
    assert restore.arguments(given) == restore.arguments({"topic": "t", "to": "head", "as_branch": "b"})
    assert (read.arguments({"topic": "t", "from": 3, "to": 5})["start"]) == 3
    assert (read.arguments({"topic": "t", "from": 3, "to": 5})["end"]) == 5
    with pytest.raises(InvalidOption, match="given twice"):
        read.arguments({"topic": "t", "from": 3, "start": 3})
    for command in COMMANDS.values():
        shown = [command.shown_name(each) for each in command.parameters.values()]
        assert len(set(shown)) == len(shown), command.path
        own = {name for name, each in command.parameters.items() if command.shown_name(each) != name}
        assert not own & set(shown), command.path


@pytest.mark.parametrize(
    ("argument", "values"),
    {
        "values": [b"x", "x", 7, ["x"], [None], {b"x": b"x"}],
        "tag": [7, b"x", True, ["x"], "\ud800"],
        "node": [7, b"x", True],
        "unterminated": [1, "1", None],
        "durability": [7, b"fsync", True],
    }.items(),
)
def test_the_client_refuses_it_before_it_asks_the_daemon(tmp_path: Path, argument: str, values: list[object]) -> None:
    topic = DaemonClient(f"unix:{tmp_path}").topic("t")
    for value in values:
        with pytest.raises(InvalidArgument, match=argument):
            topic.append(**{"values": [b"x"], argument: value})  # type: ignore[arg-type]
