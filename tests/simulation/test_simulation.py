"""T8: one seed interleaves all tasks that share a store. The store fails, and the tasks crash and sleep for days.

The writers are whole data directories (`tests/simulation/directory.py`), which run the code that ships. If a schedule
breaks a promise, the test prints its seed: `python -m tests.simulation.run SEED` repeats the schedule.
"""

from __future__ import annotations

import functools
import logging
import os
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from itertools import chain, count
from pathlib import Path

import pytest

from catalog.errors import CatalogError
from offload.errors import OffloadError
from seglog import SeglogError
from tests.simulation.model import Broken
from tests.simulation.mutants import MUTANTS, PROMOTION_MUTANTS, UNDO_MUTANTS
from tests.simulation.run import PROMOTIONS, UNDOS, simulate
from tests.work import shares, tell

SCHEDULES, SOAK_SCHEDULES = 6, 1_200
PROMOTING, SOAK_PROMOTING = 3, 800
UNDOING, SOAK_UNDOING = 2, 800
FOUND_WITHIN = 60
# Each of these mistakes takes twenty schedules or more to find. Tests of their own find them in the default run:
# test_volume_deletion.py, which tries every order, test_promotion.py, test_rebase.py, test_reset.py, test_undo_plan.py
# and test_collector.py.
RARE = {
    "a LIST of names is late for gc",
    "a commit below the boundary counts",
    "a name leaves its volume closing",
    "a promotion does not compare",
    "a rebase drops a delete",
    "a reset does not look what came meanwhile",
    "an undo brings back what later commits took",
    "an unknown answer is a good one",
    "gc keeps too little",
}
# The schedule that finds each of these mistakes. It runs first, because schedule 0 does not find them.
FOUND_BY = {
    "a checkpoint forgets deletes": 2,
    "a clock that is behind is believed": 23,
    "a commit below the boundary counts": 63,
    "a fenced writer goes on": 5,
    "a mark comes before its checkpoint": 15,
    "a pending commit is made anew": 6,
    "a promotion does not compare": 85,
    "a promotion fences nobody": 15,
    "a refusal is a lost race": 15,
    "a reset forgets an attempt": 1,
    "a reset saves nothing": 1,
    "a takeover keeps the epoch": 3,
    "an undo brings back what later commits took": 22,
    "an undo does not compare": 97,
    "an undo drops what comes meanwhile": 4,
    "gc closes without a look": 4,
    "gc looks once": 4,
    "gc raises no boundary": 2,
    "gc shuts nobody out": 32,
    "what is cut meanwhile is sent": 9,
}
_ROOT = Path(__file__).parents[2]
_simulated = functools.cache(simulate)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def _simulate(first: int, schedules: int, more: str = "") -> Counter[str]:
    totals: Counter[str] = Counter()
    for seed in range(first, first + schedules):
        try:
            outcome = _simulated(seed, more)
        except Exception as error:
            pytest.fail(f"seed {seed}: {error!r}\nagain with: python -m tests.simulation.run {more} {seed}")
        totals += Counter({name: value for name, value in asdict(outcome).items() if isinstance(value, int)})
    counts = ", ".join(f"{value} {name}" for name, value in totals.items())
    tell(f"{schedules} schedules from seed {first}: {counts}")
    return totals


def test_what_is_promised_holds_whoever_is_next() -> None:
    totals = _simulate(0, SCHEDULES)
    assert totals["acked"] > 10 * SCHEDULES
    assert totals["checked"] > 20 * SCHEDULES
    for name in ("deletes", "truncations", "merges", "takeovers", "resets", "collections", "crashes"):
        assert totals[name] > SCHEDULES // 4, name


@shares(4, 4, 5, 5)
def test_what_is_promised_holds_for_long(share: int) -> None:
    totals = _simulate(1_000_000 + share * SOAK_SCHEDULES, SOAK_SCHEDULES)
    assert totals["acked"] > 10 * SOAK_SCHEDULES


@pytest.mark.long
def test_what_is_promised_holds_whatever_branch_is_main() -> None:
    totals = _simulate(15, PROMOTING, PROMOTIONS)  # schedule 15 takes one back
    assert totals["acked"] > 5 * PROMOTING
    assert min(totals[name] for name in ("promotions", "promotions_taken_back", "collections", "crashes")) > 0


@pytest.mark.soak(part=5)
def test_what_is_promised_holds_whatever_branch_is_main_for_long() -> None:
    totals = _simulate(2_000_000, SOAK_PROMOTING, PROMOTIONS)
    assert min(totals[name] for name in ("promotions", "promotions_taken_back")) > SOAK_PROMOTING


@pytest.mark.long
def test_what_is_promised_holds_whatever_is_undone() -> None:
    totals = _simulate(36, UNDOING, UNDOS)  # schedule 36 undoes an inherited commit
    assert totals["acked"] > 5 * UNDOING
    happens = ("undos", "undos_of_parents", "undos_of_waiting", "deletes", "truncations", "collections", "crashes")
    assert min(totals[name] for name in happens) > 0


@pytest.mark.soak(part=5)
def test_what_is_promised_holds_whatever_is_undone_for_long() -> None:
    totals = _simulate(3_000_000, SOAK_UNDOING, UNDOS)
    assert totals["undos"] > SOAK_UNDOING
    assert totals["undos_of_parents"] > SOAK_UNDOING // 20


@pytest.mark.long
def test_the_same_seed_gives_the_same_trace() -> None:
    here = _simulated(5, "")
    assert simulate(5) == here
    assert _simulated(4, "").trace_hash != here.trace_hash
    there = subprocess.run(
        [sys.executable, "-m", "tests.simulation.run", "5"],
        cwd=_ROOT,
        env={**os.environ, "PYTHONHASHSEED": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert there.stdout == f"5 {here}\n"


@pytest.mark.long
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(each, marks=pytest.mark.soak(part=4)) if each in RARE else each
        for each in (*MUTANTS, *PROMOTION_MUTANTS, *UNDO_MUTANTS)
    ],
)
def test_a_mistake_is_found(mutant: str) -> None:
    within = 10 * FOUND_WITHIN if mutant in RARE else FOUND_WITHIN
    known = [FOUND_BY[mutant]] if mutant in FOUND_BY else []
    for tried, seed in enumerate(chain(known, count()), 1):
        try:
            with (MUTANTS | PROMOTION_MUTANTS | UNDO_MUTANTS)[mutant]():
                simulate(seed, PROMOTIONS if mutant in PROMOTION_MUTANTS else UNDOS if mutant in UNDO_MUTANTS else "")
        except (Broken, CatalogError, OffloadError, SeglogError) as error:
            print(f"{mutant}: found by schedule {seed}, number {tried}: {error}")
            return
        assert tried < within, f"not found by {within} schedules: {mutant}"
