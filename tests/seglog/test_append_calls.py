"""An append makes few function calls. The counts are exact, so no slow machine fails these tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.append_calls import (
    AIMS,
    calls_of_a_batch,
    calls_of_a_key,
    calls_of_a_producer,
    calls_of_a_task,
)
from seglog.format.lines import Lines

ROOM = 1.1
VALUE = b"x" * 200


# Batches make fewer calls than the aim allows. So the counts that were reached are held.
@pytest.mark.parametrize(("records", "most"), [(1, AIMS["alone"]), (32, 2.85), (64, 1.46), (1_024, 0.1)])
def test_an_append_makes_few_calls_for_each_record(tmp_path: Path, records: int, most: float) -> None:
    assert calls_of_a_batch(tmp_path / "data", [VALUE] * records) <= most * ROOM


def test_an_append_with_an_identity_makes_few_calls(tmp_path: Path) -> None:
    assert calls_of_a_producer(tmp_path / "producer", VALUE) <= AIMS["producer"]
    assert calls_of_a_key(tmp_path / "key", VALUE) <= AIMS["key"]


def test_the_lines_of_a_text_make_no_call_for_each_line(tmp_path: Path) -> None:
    assert calls_of_a_batch(tmp_path / "data", Lines.of((VALUE + b"\n") * 8_192)) <= AIMS["lines"] * ROOM


def test_tasks_make_few_calls_for_each_record(tmp_path: Path) -> None:
    assert calls_of_a_task(tmp_path / "data", 256, VALUE) <= AIMS["tasks"] * ROOM
