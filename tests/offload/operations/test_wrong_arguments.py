"""Test that a command refuses arguments that do not go together before it uses the data directory."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from offload.operations.command import COMMANDS, Directory
from seglog import SeglogError

_WRONG: list[tuple[str, dict[str, Any]]] = [
    ("read", {"topic": "t", "follow": True, "end": 7}),
    ("read", {"topic": "t", "follow": True, "until": "2026-01-01T00:00:00Z"}),
    ("read", {"topic": "t", "follow": True, "at": "head"}),
    ("read", {"topic": "t", "since": "seq:7"}),
    ("read", {"topic": "t", "until": "soon"}),
    ("delete", {"topic": "t"}),
    ("delete", {"topic": "t", "before": 2}),
    ("evict", {"topic": "t", "before": 2}),
    ("branch/delete", {"topic": "t", "name": "b"}),
    ("compact", {"topic": "t", "erase": True}),
    ("compact", {"topic": "t", "dry_run": True}),
    ("reset", {"topic": "t", "discard": True}),
    ("reset", {"topic": "t", "dry_run": True}),
    ("evict", {"topic": "t"}),
    ("evict", {"topic": "t", "before": 7, "older": "7d"}),
    ("evict", {"topic": "t", "older": "none"}),
    ("evict", {"topic": "t", "older": "7 years"}),
    ("truncate", {"topic": "t", "start": 7}),
    ("offload", {}),
    ("offload", {"topic": "t", "every": True}),
    ("compact", {}),
    ("compact", {"topic": "t", "every": True}),
    ("cost", {"prices": "currency = 7"}),
    ("gc", {"retain": "none"}),
    ("gc/plan", {"retain": "none"}),
    ("gc/plan", {"number": 7, "dry_run": True}),
    ("gc/plan", {"number": 7, "retain": "1d"}),
    ("gc/apply", {"number": 7, "retain": "none"}),
    ("gc/apply", {"number": 7, "grace": "none"}),
    ("gc/explain", {"key": "refs/t/main", "retain": "none"}),
    ("gc", {"grace": "long"}),
    ("reset", {"topic": "t", "as_branch": "b", "discard": True}),
    ("uploads", {"older_than": "long"}),
    ("uploads", {"older_than": "none"}),
    ("topic/create", {"topic": "t@b"}),
    ("topic/create", {"topic": "t", "codec": "lz4"}),
    ("topic/set", {"topic": "t"}),
    ("topic/set", {"topic": "t", "ttl": "long"}),
    ("topic/set", {"topic": "t", "cap_records": "0"}),
    ("topic/set", {"topic": "t", "cap_bytes": "much"}),
    ("topic/set", {"topic": "t", "window": "none"}),
    ("topic/set", {"topic": "t", "offload_after": "soon"}),
    ("topic/set", {"topic": "t", "offload_after": "none"}),
    ("topic/set", {"topic": "t", "tail_interval": "none"}),
    ("topic/delete", {"topic": "t"}),
    ("topic/delete", {"topic": "t", "yes": True, "discard": True}),
]


def _unusable() -> NoReturn:
    pytest.fail("the command used the data directory")


@pytest.mark.parametrize(("path", "given"), _WRONG)
def test_wrong_arguments_are_refused_before_the_directory_is_used(path: str, given: dict[str, Any]) -> None:
    command = COMMANDS[path]
    assert command.works_on is Directory
    host: Any = None
    with pytest.raises(SeglogError) as raised:
        list(command.run(Directory(_unusable, host), command.arguments(given)))
    assert raised.value.exit_code == 2
