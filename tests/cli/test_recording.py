"""The recording of a bad delete that is put back: its commands are few, are those of the script, and still do it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from scripts.recording import BEFORE, CAST, STEPS
from tests.worlds.command import Run

MOST_COMMANDS, MOST_S = 4, 60


def test_the_recording_has_at_most_four_commands_and_sixty_seconds() -> None:
    header, *events = map(json.loads, CAST.read_text().splitlines())
    assert header["version"] == 2
    assert all(len(each) == 3 and each[1] in {"o", "m"} and isinstance(each[2], str) for each in events)
    times = [each[0] for each in events]
    assert times == sorted(times)
    assert times[-1] <= MOST_S
    assert tuple(text for _, kind, text in events if kind == "m") == STEPS
    assert len(STEPS) <= MOST_COMMANDS
    assert "order 1\r\norder 2\r\norder 3\r\n" in "".join(text for _, kind, text in events if kind == "o")


def test_its_commands_still_put_the_delete_back(run: Run, tmp_path: Path) -> None:
    for line, data in BEFORE:
        assert run(*line.format(here=tmp_path).split(), stdin=data).code == 0
    assert run("read", "orders").text.splitlines()[0] == "order 900"
    for step in STEPS:
        name, *words = shlex.split(step)
        assert name == "seglog"
        done = run(*words)
        assert done.code == 0, f"{step}: {done.err}"
    assert done.text == "order 1\norder 2\norder 3\n"
    assert run("read", "orders").text.splitlines() == [f"order {number}" for number in range(1, 1001)]
