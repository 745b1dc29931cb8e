"""Two calls at once end as some order of the two would, whatever the order of the threads.

    topics, streams, tokens   clients of one daemon, also beside a reload (tests/races/routes.py)
    commands                  each command of the daemon (tests/races/commands.py)
    archives                  two data directories on one remote (tests/races/archives.py)
    schedules                 one seed draws each; a failure shows the line that runs it again

Each mutant takes the mend of a fault back, or is a mistake that the simulation finds, too. The race of its seed has to
find it. A schedule depends on what its process did before, so these tests run processes of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from offload.operations.command import COMMANDS as REGISTRY
from tests.races.commands import COMMANDS, paths_of
from tests.races.mutants import MUTANTS
from tests.races.routes import TOPICS
from tests.races.scenes import SCENES
from tests.work import seed_of, tell

_ROOT = Path(__file__).parents[2]

#: Races that showed a fault of the shipped code once: the scene, the calls, the seed.
FOUND = (
    ("streams", "close", "fork", "6"),
    ("streams", "append", "delete", "1"),
    ("streams", "delete", "delete", "1"),
    ("streams", "close", "look", "1690175066"),
    ("tokens", "revoke", "wait for records", "268"),
    ("archives", "rename the branch", "rename the branch", "1442"),
    ("commands", "promote and carry", "read", "702692"),
    ("commands", "undo a commit", "read the past", "703000"),
    ("commands", "append", "topic/delete", "484637398"),
    ("commands", "reset", "resolve and pin", "484642162"),
    ("commands", "branch/promote", "topic/set", "484643773"),
    ("commands", "branch/promote", "topic/delete", "700002630"),
    ("commands", "undo a commit", "topic/set", "700002992"),
    ("commands", "undo a commit", "topic/set", "44"),
    ("commands", "pause", "topic/set", "107"),
    ("commands", "branch/rename", "undo", "484643607"),
    ("archives", "rename the branch", "promote another", "100"),
    ("commands", "promote and carry", "diff", "484643966"),
    ("commands", "promote and carry", "branch/diff", "700002716"),
    ("commands", "evict", "read", "484638261"),
    ("commands", "delete", "topic/delete", "2000000772"),
    ("commands", "branch/delete", "branch/delete", "2000006045"),
    ("commands", "topic/delete", "topic/delete", "2000007800"),
    ("commands", "branch/promote", "status", "2000006608"),
    ("commands", "tag/delete", "tag/delete", "3100001392"),
    ("commands", "gc", "gc", "484637764"),
    ("commands", "retry", "branch/promote", "484638069"),
    ("commands", "gc", "gc/apply", "484637766"),
    ("commands", "pause", "branch/promote", "484638048"),
    ("commands", "evict", "promote and carry", "484637407"),
    ("topics", "read one", "truncate by laminarmq", "2868423212"),
    ("topics", "delete topic", "probes", "2868421104"),
    ("topics", "truncate", "read one", "2868420867"),
)


def raced(*words: str) -> str:
    """Run `python -m tests.races` with the words. Return what it prints."""
    line = [sys.executable, "-m", "tests.races", *words]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(line, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


#: Of each scene, the slices of its pairs: `make test` runs one of the first number (0 is none), `make test-all` each of
#: the second (30 s each at most), and the soak each of the third (5 minutes each at most). `make test-all` has 5
#: schedules of a pair, the soak 200. Pairs of commands are many, so `make test-all` has one of each.
SLICES = {
    "topics": (120, 4, 12),
    "streams": (0, 1, 4),
    "tokens": (0, 1, 1),
    "commands": (400, 4, 48),
    "archives": (0, 5, 15),
}


def races() -> Iterator[Any]:
    """Yield each scene with the schedules of a pair, and a slice of its pairs."""
    for name, (few, more, most) in SLICES.items():
        if few:
            yield pytest.param(name, 1, f"{seed_of(f'slice of {name}') % few}/{few}", id=f"{name}-1")
        few_of_each = 1 if name == "commands" else 5
        for amount, slices, mark in ((few_of_each, more, pytest.mark.long), (200, most, pytest.mark.soak(part=8))):
            for number in range(slices):
                yield pytest.param(name, amount, f"{number}/{slices}", marks=mark, id=f"{name}-{amount}-{number}")


@pytest.mark.parametrize(("name", "amount", "part"), [*races()])
def test_two_calls_at_once_end_as_one_after_the_other(name: str, amount: int, part: str) -> None:
    line = raced("pairs", name, str(amount), str(seed_of(f"races {name}")), part)
    assert line.startswith(f"races of {name}, slice {part}: ")
    tell(line)


@pytest.mark.long
def test_races_find_each_fault_whose_mend_is_taken_back() -> None:
    assert raced("mutants", *MUTANTS) == f"{len(MUTANTS)} mutants found"


@pytest.mark.long
def test_races_that_showed_faults_show_none() -> None:
    lines = raced(*chain.from_iterable(FOUND)).splitlines()
    assert [line.split()[0] for line in lines] == ["fine"] * len(FOUND)


def test_each_command_and_each_scene_has_races() -> None:
    assert set(SLICES) == set(SCENES)
    assert paths_of({**COMMANDS, **TOPICS}) == set(REGISTRY)
