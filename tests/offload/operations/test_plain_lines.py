"""A read without conditions writes the same bytes by lines and by records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.calls import count_calls
from catalog.objects.memory import MemoryStore
from offload.archive import Archive
from offload.operations.command import COMMANDS, Directory
from offload.operations.pruning import ReadStats
from offload.operations.record_text import RecordBatch, RecordLines, to_line
from seglog import Gap, Log
from tests.offload.replicas import opened


class _Host:
    serves_others = False

    def __init__(self, *, takes_lines: bool) -> None:
        self.takes_lines = takes_lines

    def check_listener(self) -> None:
        pass


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[tuple[Log, Archive]]:
    with opened(tmp_path / "data", MemoryStore()) as (log, archive):
        topic = archive.open_for_append("t")
        for number in range(6):
            topic.append([b"%d, %d" % (number, place) for place in range(40)], tag=f"tag{number % 2}")
            topic.append([b"no end"], unterminated=True)
            topic.seal()
            archive.offload("t", drop_hot=number == 3)
        archive.delete("t", tag="tag1", before=100)
        archive.evict("t", 12)
        archive.restore("t", to="lsn:3", name="b")
        topic.append([b"", b"tail\n", b"\xff"])
        yield log, archive


def _results(directory: tuple[Log, Archive | None], *, takes_lines: bool, **given: Any) -> list[Any]:
    command, host = COMMANDS["read"], _Host(takes_lines=takes_lines)
    place = Directory(lambda: directory, host)  # type: ignore[arg-type]
    return list(command.run(place, command.arguments({"topic": "t", **given})))


def _printed(results: list[Any]) -> tuple[bytes, list[Gap | ReadStats]]:
    """Return the bytes for standard output, and what standard error tells."""
    lines, told = [], []
    for found in results:
        if isinstance(found, RecordLines):
            lines.append(found.data)
        elif isinstance(found, ReadStats):
            told.append(found)
        else:
            assert isinstance(found, RecordBatch)
            told += [item for item in found.items if isinstance(item, Gap)]
            lines += [to_line(item) for item in found.items if not isinstance(item, Gap)]
    return b"".join(lines), told


GIVEN: list[dict[str, Any]] = [
    {},
    {"start": 1},
    {"start": 5, "end": 15},
    {"start": 100, "end": 210},
    {"at": "lsn:2"},
    {"at": "head~1", "start": 60},
    {"at": "seq:90"},
    {"topic": "t@b"},
    {"branch": "b", "end": 50},
    {"limit": 3},
    {"tag": "tag0"},
    {"tag": "tag*", "grep": "1$"},
    {"grep": "no end", "fixed": True, "start": 20},
    {"stats": True},
    {"since": "2020-01-01T00:00Z"},
]


@pytest.mark.parametrize("given", GIVEN, ids=str)
def test_the_bytes_and_the_gaps_are_the_same(directory: tuple[Log, Archive], given: dict[str, Any]) -> None:
    records = _results(directory, takes_lines=False, **given)
    assert not any(isinstance(found, RecordLines) for found in records)
    lines = _results(directory, takes_lines=True, **given)
    assert _printed(lines) == _printed(records)
    is_plain = not set(given) & {"limit", "tag", "grep", "stats", "since"}
    assert any(isinstance(found, RecordLines) for found in lines) == is_plain


def test_without_a_remote_and_with_a_wrong_start(directory: tuple[Log, Archive]) -> None:
    log, _ = directory
    start = log.topic("t").inner.hot_floor
    found = [_printed(_results((log, None), takes_lines=each, start=start)) for each in (True, False)]
    assert found[0] == found[1]
    for given in ({"start": 999}, {"start": 999, "at": "lsn:2"}, {"start": 3, "at": "head"}, {"topic": "none"}):
        errors = []
        for takes_lines in (True, False):
            with pytest.raises(Exception) as caught:
                _results(directory, takes_lines=takes_lines, **given)
            errors.append((type(caught.value), str(caught.value)))
        assert errors[0] == errors[1]


def test_the_calls_for_each_record_are_few(directory: tuple[Log, Archive]) -> None:
    _, archive = directory
    topic = archive.open_for_append("many")
    topic.append([b"x" * 100] * 8_000)
    topic.seal()
    archive.offload("many", drop_hot=True)
    lines, records = (
        count_calls(lambda each=each: _results(directory, takes_lines=each, topic="many"))  # type: ignore[misc]
        for each in (True, False)
    )
    assert lines < 4 * 8_000 < records
