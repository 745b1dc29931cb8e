from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from queue import Queue
from types import SimpleNamespace

import pytest

from tests.hangs import Watch

_ROOT = Path(__file__).parent.parent
_TESTS = """
import threading, time

def test_ends(): pass

def test_hangs(): waits_for_nobody()

def waits_for_nobody(): threading.Event().wait(60)

def test_is_not_reached(): pass
"""


def test_what_runs_beyond_its_time_is_ended_and_what_has_finished_is_not() -> None:
    ended: Queue[tuple[str, SimpleNamespace]] = Queue()
    watch = Watch(lambda *those: ended.put(those), look_s=0.001)
    over, long = SimpleNamespace(timeout=0.0), SimpleNamespace(timeout=600.0)
    watch.begin("finished", long)
    watch.finish()
    watch.begin("within its time", long)
    watch.begin("hangs", over)
    assert ended.get(timeout=60) == ("hangs", over)
    watch.begin("hangs as well", over)
    assert ended.get(timeout=60) == ("hangs as well", over)


@pytest.mark.long
def test_a_run_that_hangs_ends_and_shows_where(tmp_path: Path) -> None:
    file = tmp_path / "test_slow.py"
    file.write_text(_TESTS)
    words = ("-p", "tests.hangs", "-c", _ROOT / "pyproject.toml", "-o", "timeout=0.1", file)
    run = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=_ROOT, capture_output=True, text=True)
    assert run.returncode == 1
    assert "waits_for_nobody" in run.stdout + run.stderr
    assert "Timeout" in run.stdout + run.stderr
    assert "passed" not in run.stdout
