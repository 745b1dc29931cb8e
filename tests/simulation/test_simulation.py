"""T8: all who share a store, as one seed interleaves them, and the store fails, and they crash and sleep for days.

`make soak` runs tens of thousands of schedules. One that breaks a promise is told by its seed:
`python -m tests.simulation.run SEED` does it again.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict
from itertools import count
from pathlib import Path

import pytest

from catalog.errors import CatalogError
from tests.simulation.model import Broken
from tests.simulation.mutants import MUTANTS
from tests.simulation.run import simulate

SCHEDULES, MOST_S = 300, 8
SOAK_PARTS, SOAK_SCHEDULES, SOAK_S = 4, 12_500, 3600
SOAK_LEAST = 5_000  # of each part: tens of thousands in all
FOUND_WITHIN = 100
# One schedule in fifty or a hundred finds these: for the default run, tests/catalog/test_closing.py goes through every
# order of the one, and test_volume.py tries the other.
RARE = {"a name leaves its volume closing", "a commit below the boundary counts"}
_ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def _simulate(seeds: range, most_s: float) -> Counter[str]:
    until = time.monotonic() + most_s
    totals: Counter[str] = Counter()
    for seed in seeds:
        try:
            outcome = simulate(seed)
        except Exception as error:
            pytest.fail(f"seed {seed}: {error!r}\nagain with: python -m tests.simulation.run {seed}")
        totals += Counter({name: value for name, value in asdict(outcome).items() if isinstance(value, int)})
        totals["schedules"] += 1
        if time.monotonic() > until:
            break
    print(", ".join(f"{value} {name}" for name, value in totals.items()))
    return totals


def test_what_is_promised_holds_whoever_is_next() -> None:
    totals = _simulate(range(SCHEDULES), MOST_S)
    assert totals["schedules"] > 2
    assert totals["acked"] > 20
    assert totals["checked"] > 20


@pytest.mark.soak
@pytest.mark.timeout(SOAK_S + 300)
@pytest.mark.parametrize("part", range(SOAK_PARTS))
def test_what_is_promised_holds_for_long(part: int) -> None:
    first = 1_000_000 + part * SOAK_SCHEDULES
    totals = _simulate(range(first, first + SOAK_SCHEDULES), SOAK_S)
    assert totals["schedules"] >= SOAK_LEAST


def test_the_same_seed_gives_the_same_trace() -> None:
    here = simulate(5)
    assert simulate(5) == here
    assert simulate(6).trace_hash != here.trace_hash
    for hash_seed in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-m", "tests.simulation.run", "5"],
            cwd=_ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        )
        assert there.stdout == f"5 {here}\n"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "mutant", [pytest.param(each, marks=pytest.mark.soak) if each in RARE else each for each in MUTANTS]
)
def test_a_mistake_is_found(mutant: str) -> None:
    within = 10 * FOUND_WITHIN if mutant in RARE else FOUND_WITHIN
    for seed in count():
        try:
            with MUTANTS[mutant]():
                simulate(seed)
        except (Broken, CatalogError) as error:
            print(f"{mutant}: found by schedule {seed + 1}: {error}")
            return
        assert seed + 1 < within, f"not found by {within} schedules: {mutant}"
