"""The command searches for cycles late, because its imports make many objects, and as usual once it runs long."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from offload.main import main
from tests.children import in_child


@pytest.mark.long
def test_a_command_that_makes_many_objects_searches_for_cycles_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    def thresholds() -> tuple[int, int]:
        gc.unfreeze()
        with pytest.raises(SystemExit):
            main()
        before = gc.get_threshold()[0]
        kept = [[number] for number in range(2 * before)]
        return before, gc.get_threshold()[0] + len(kept) - 2 * before

    monkeypatch.setattr(sys, "argv", ["seglog", "--version"])
    before, after = in_child(thresholds)
    assert before == 100_000
    assert after == 1000


def test_the_callbacks_of_a_program_around_the_command_stay() -> None:
    code = (
        "import atexit, gc, sys\n"
        "from offload.main import main\n"
        "phases = []\n"
        "def note(phase, told): phases.append(phase)\n"
        "def first(phase, told): pass\n"
        "gc.callbacks.append(first)\n"
        "atexit.register(lambda: print(gc.callbacks == [first, note], phases[:4]))\n"
        "sys.argv = ['seglog', '--version']\n"
        "for _ in range(2):\n"
        "    try:\n        main()\n    except SystemExit:\n        pass\n"
        "gc.callbacks.append(note)\n"
        "gc.collect(), gc.collect()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True ['start', 'stop', 'start', 'stop']"
    assert done.stderr == ""
