"""Two calls at once end as some order of the two would, whatever the order of the threads.

    routes              clients of one daemon: topics, streams, tokens that a reload takes away (tests/races/routes.py)
    schedules           one seed draws each; a failure shows the line that runs it again

Each mutant takes the mend of a fault back. The race of its seed has to find it.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.races.mutants import MUTANTS
from tests.races.scenes import SCENES, scene_of
from tests.races.serial import Judge, pairs
from tests.work import amounts, seed_of, tell

#: Races that showed a fault of the shipped code once: the scene, the calls, the seed.
FOUND = (
    ("streams", ("close", "fork"), 6),
    ("streams", ("append", "delete"), 1),
    ("streams", ("delete", "delete"), 1),
    ("archives", ("undo", "delete the branch"), 1690174772),
)


@amounts(1, soak=200, part=8)
@pytest.mark.parametrize("name", SCENES)
def test_two_calls_at_once_end_as_one_after_the_other(name: str, amount: int, tmp_path: Path) -> None:
    scene = scene_of(name, tmp_path)
    judge, seed = Judge(scene), seed_of(f"races {name}")
    drawn = 0
    every = (6 if name == "archives" else 3) if amount == 1 else 1  # the default run takes some of the pairs
    for pair in islice(pairs([*scene.calls], both_ways=name == "archives"), seed % every, None, every):
        for _ in range(amount):
            judge.check(pair, seed + drawn)
            drawn += 1
    assert judge.runs == drawn > 0
    told = f", {sum(judge.reasons.values())} of them fine for a reason on the list" if judge.reasons else ""
    tell(f"races of {name}: {drawn} schedules, {amount} of a pair{told}")


@pytest.mark.parametrize("name", MUTANTS)
def test_a_race_finds_a_fault_whose_mend_is_taken_back(name: str, tmp_path: Path) -> None:
    mutant = MUTANTS[name]
    judge = Judge(scene_of(mutant.scene, tmp_path))
    judge.check(mutant.pair, mutant.seed)
    for order in ("ab", "ba"):
        judge.serial(mutant.pair, order)
    with mutant.in_place(), pytest.raises(AssertionError, match="no order of the two calls gives this"):
        judge.check(mutant.pair, mutant.seed)


@pytest.mark.parametrize(("name", "pair", "seed"), FOUND)
def test_a_race_that_showed_a_fault_shows_none(name: str, pair: tuple[str, str], seed: int, tmp_path: Path) -> None:
    judge = Judge(scene_of(name, tmp_path))
    judge.check(pair, seed)
    assert judge.runs == 1
