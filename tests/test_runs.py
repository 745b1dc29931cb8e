from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from tests import runs

_ROOT = Path(__file__).parent.parent
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


def test_slices_that_run_side_by_side_keep_their_own_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = tmp_path / "last_run.json"
    record.write_text("{}")
    monkeypatch.setattr(runs, "RECORD", record)
    monkeypatch.setattr(runs, "REPORT", tmp_path / "run.json")
    tells = "import os, pathlib, sys; pathlib.Path(os.environ['TESTS_REPORT']).write_text(sys.argv[1])"
    waiting = [runs.Run(f"slice {n}", (sys.executable, "-c", tells, f'{{"passed": {n}}}')) for n in range(8)]
    waiting.append(runs.Run("mutants seglog 0", (sys.executable, "-c", tells, '{"killed": 20}')))
    assert runs.nightly(waiting, time.monotonic() + 600)
    kept = json.loads(record.read_text())
    assert {name: (last.get("passed"), last.get("killed")) for name, last in kept.items()} == {
        **{f"slice {n}": (n, None) for n in range(8)},
        "mutants seglog 0": (None, 20),
    }
    assert not [*tmp_path.glob("run*.json")]
    assert runs.nightly(waiting, time.monotonic())
    assert json.loads(record.read_text()) == kept


def test_each_file_of_tests_is_run_by_one_group() -> None:
    files = {str(path.relative_to(_ROOT)) for path in _ROOT.glob("tests/**/test_*.py")}
    assert all((_ROOT / place).exists() for group in runs.GROUPS.values() for place in group.tests)
    run = [file for name in runs.GROUPS for file in files if _runs(name, file)]
    assert sorted(run) == sorted(files)
    assert all(_runs(runs.group_of(file), file) for file in files)


def _runs(name: str, file: str) -> bool:
    """Return whether the command of a group takes the file."""
    words = runs.group_run(name).command
    if words[0] == "make":
        return any(file.startswith(f"{place}/") for place in runs.GROUPS[name].tests)
    ignored = [word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")]
    places = [word for word in words if word.startswith("tests")]
    return _is_in(file, places) and not _is_in(file, ignored)


def _is_in(file: str, places: list[str]) -> bool:
    return any(file == place or file.startswith(f"{place}/") for place in places)


def test_who_changes_a_proof_or_what_it_proves_runs_its_group() -> None:
    assert runs.touched(["tests/promises/test_crash_images.py"]) == {"crashes", "core"}
    assert runs.touched(["tests/promises/mistakes/test_clocks.py"]) == {"promises", "core"}
    assert runs.touched(["tests/simulation/run.py"]) == {"simulation", "core"}
    assert {"races", "simulation", "crashes", "promises", "catalog"} <= runs.touched(["catalog/volume.py"])
