"""Test the two forms of a result: JSON for scripts, and all fields for a client that makes the result of them."""

from __future__ import annotations

import enum
import io
import itertools
import json
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import pytest

from offload.moment import Moment
from offload.operations.command import COMMANDS, hints_of
from offload.operations.record_text import RecordBatch, RecordLines
from offload.operations.result_json import HIDDEN, MERGED, OPTIONAL, json_line, kind_of, message, result_of, to_json
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


@pytest.mark.parametrize("result", [WHOLE, Inner("ä\n", Moment(2**63)), Remark(""), RECORDS, RecordLines(b"a\n\xff")])
def test_a_client_gets_the_result_back(result: object) -> None:
    _check_it_comes_back(result)


def _check_it_comes_back(result: object) -> None:
    stream = io.BytesIO(message(result) + b"behind")
    said = json.loads(stream.readline())
    back = result_of(type(result), said, stream.read)
    assert (said["schema"], said["kind"]) == (1, kind_of(type(result)))
    assert back == result
    assert repr(back) == repr(result)
    assert stream.read() == b"behind"


@pytest.mark.parametrize("path", COMMANDS)
@pytest.mark.parametrize("is_full", [True, False])
def test_a_client_gets_each_result_of_a_command_back(path: str, *, is_full: bool) -> None:
    for kind in COMMANDS[path].results.values():
        if kind is not RecordBatch:
            _check_it_comes_back(_sample(kind, itertools.count(1), is_full=is_full))


def _sample(hint: Any, numbers: Iterator[int], *, is_full: bool) -> Any:
    """Return a value of a type, with another number at each place; without `is_full`, None where it may be None."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if type(None) in inner:
        [hint] = set(inner) - {type(None)}
        return _sample(hint, numbers, is_full=True) if is_full else None
    if origin is tuple:
        kinds = inner[:1] * (2 if is_full else 0) if inner[1:] == (...,) else inner
        return tuple(_sample(each, numbers, is_full=is_full) for each in kinds)
    if origin is not None:
        return {f"key {next(numbers)}": _sample(inner[1], numbers, is_full=is_full)}
    if hint is Any:
        return [next(numbers), "text", None]
    if is_dataclass(hint):
        hints = hints_of(hint)
        return hint(**{each.name: _sample(hints[each.name], numbers, is_full=is_full) for each in fields(hint)})
    if issubclass(hint, enum.Enum):
        return [*hint][next(numbers) % len(hint)]
    number = next(numbers)
    return b"%d\xff" % number if hint is bytes else hint(number)


@pytest.mark.parametrize("path", COMMANDS)
def test_the_types_of_a_command_tell_what_it_takes_and_gives(path: str) -> None:
    command = COMMANDS[path]
    assert command.works_on.__name__ in {"Log", "Archive", "Directory"}
    assert command.help
    assert all(each.about.help for each in command.parameters.values())
    assert all(kind.__setattr__ is not object.__setattr__ for kind in command.results.values())  # they are frozen
