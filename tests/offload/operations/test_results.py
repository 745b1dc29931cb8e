"""Test the two forms of a result: JSON for people's scripts, and bytes for the client that gets the result back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from offload.moment import Moment
from offload.operations.codec import decode, encode
from offload.operations.command import COMMANDS
from offload.operations.lines import RecordBatch
from offload.operations.results import HIDDEN, MERGED, OPTIONAL, json_line, to_json
from seglog import Gap, Record


@dataclass(frozen=True, slots=True)
class Inner:
    name: str
    at: Moment


@dataclass(frozen=True, slots=True)
class Outer:
    count: int
    inner: tuple[Inner, ...]
    body: bytes = field(metadata=HIDDEN)
    more: bytes = field(metadata=HIDDEN)
    ahead_ms: int | None = field(metadata=OPTIONAL)
    state: Inner = field(metadata=MERGED)
    config: Mapping[str, int] = field(metadata=MERGED)


@dataclass(frozen=True, slots=True)
class Remark:
    text: str = field(metadata=HIDDEN)


WHOLE = Outer(1, (Inner("a", Moment(0)),), b"\xff\x00", b"more", None, Inner("b", Moment(1)), {"cap": 2})


RECORDS = RecordBatch((Gap(1, 4), Record(5, 0, b"\xff"), Record(6, 1, b"", "tag", "nöde", unterminated=True)))


def test_the_metadata_of_a_field_changes_its_place_in_json() -> None:
    at = "1970-01-01T00:00:00.00"
    assert to_json(WHOLE) == {
        "count": 1,
        "inner": [{"name": "a", "at": f"{at}0Z"}],
        "name": "b",
        "at": f"{at}1Z",
        "cap": 2,
    }
    assert json_line(Inner("ä", Moment(0))) == (
        f'{{"schema": 1, "kind": "inner", "name": "\\u00e4", "at": "{at}0Z"}}\n'
    )
    assert json_line(Remark("for people")) == ""
    assert [json.loads(line) for line in json_line(RECORDS).splitlines()] == [
        {"schema": 1, "kind": "gap", "gap_from": 1, "gap_to": 4},
        {"schema": 1, "kind": "record", "seq": 5, "ts_ms": 0, "value_base64": "/w=="},
        {"schema": 1, "kind": "record", "seq": 6, "ts_ms": 1, "tag": "tag", "node": "nöde"}
        | {"unterminated": True, "value": ""},
    ]


@pytest.mark.parametrize("result", [WHOLE, Inner("ä\n", Moment(2**63)), Remark(""), RECORDS])
def test_a_client_gets_the_result_back(result: object) -> None:
    back = decode(encode(result), {type(result).__name__: type(result)})
    assert back == result
    assert repr(back) == repr(result)


@pytest.mark.parametrize("path", COMMANDS)
def test_the_types_of_a_command_tell_what_it_takes_and_gives(path: str) -> None:
    command = COMMANDS[path]
    assert command.works_on.__name__ in {"Log", "Archive", "Directory"}
    assert command.help
    assert all(each.about.help for each in command.parameters.values())
    assert all(kind.__dataclass_params__.frozen for kind in command.results.values())  # type: ignore[attr-defined]
