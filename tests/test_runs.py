from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import runs

_HANGS = """
import pathlib, sys, time
pathlib.Path(sys.argv[1]).write_text("began")
try:
    time.sleep(600)
except KeyboardInterrupt:
    pathlib.Path(sys.argv[1]).write_text("closed what it had opened")
"""


def test_a_slice_that_takes_too_long_ends_in_order_and_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record, told = tmp_path / "last_run.json", tmp_path / "told"
    record.write_text("{}")
    monkeypatch.setattr(runs, "RECORD", record)
    monkeypatch.setattr(runs, "REPORT", tmp_path / "run.json")
    monkeypatch.setattr(runs, "LONGEST_S", 2)
    assert not runs.run(runs.Run("a slice", (sys.executable, "-c", _HANGS, str(told))))
    assert told.read_text() == "closed what it had opened"
    assert json.loads(record.read_text())["a slice"]["result"] == "failed"
