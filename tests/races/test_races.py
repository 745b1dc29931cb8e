"""Two calls at once end as some order of the two would, whatever the order of the threads.

    routes              clients of one daemon: topics, streams, tokens that a reload takes away (tests/races/routes.py)
    archives            two data directories on one remote (tests/races/archives.py)
    schedules           one seed draws each; a failure shows the line that runs it again

Each mutant takes the mend of a fault back. The race of its seed has to find it. A schedule depends on what its process
did before, so these tests run processes of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.races.mutants import MUTANTS
from tests.races.scenes import SCENES
from tests.work import amounts, seed_of, tell

_ROOT = Path(__file__).parents[2]

#: Races that showed a fault of the shipped code once: the scene, the calls, the seed.
FOUND = (
    ("streams", "close", "fork", "6"),
    ("streams", "append", "delete", "1"),
    ("streams", "delete", "delete", "1"),
    ("archives", "undo", "delete the branch", "1690174772"),
)


def raced(*words: str) -> str:
    """Run `python -m tests.races` with the words. Return what it prints."""
    line = [sys.executable, "-m", "tests.races", *words]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(line, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@amounts(1, soak=200, part=8)
@pytest.mark.parametrize("name", SCENES)
def test_two_calls_at_once_end_as_one_after_the_other(name: str, amount: int) -> None:
    line = raced("pairs", name, str(amount), str(seed_of(f"races {name}")))
    assert line.startswith(f"races of {name}: ")
    tell(line)


def test_races_find_each_fault_whose_mend_is_taken_back() -> None:
    assert raced("mutants", *MUTANTS) == f"{len(MUTANTS)} mutants found"


@pytest.mark.parametrize("words", FOUND)
def test_a_race_that_showed_a_fault_shows_none(words: tuple[str, ...]) -> None:
    assert raced(*words).startswith("fine")
