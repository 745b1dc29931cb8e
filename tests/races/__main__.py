"""Run races in a process of their own, which no other test has changed.

python -m tests.races SCENE FIRST SECOND SEED           one race again; more of them by four words each
python -m tests.races pairs SCENE AMOUNT SEED SLICE     schedules of the pairs of a scene: one line with their counts
python -m tests.races mutants NAME ...                  the race of each mutant finds it

SLICE is `1/12`: the second of twelve parts of the pairs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from tests.races.mutants import MUTANTS
from tests.races.scenes import scene_of
from tests.races.serial import Judge, pairs

_FOUND_WITHIN = 300  # the seed of a mutant comes first, but other code may move the schedule that finds it


def run_pairs(name: str, amount: int, seed: int, part: str, folder: Path) -> None:
    """Run `amount` schedules of each pair of that part."""
    scene = scene_of(name, folder)
    judge, drawn = Judge(scene), 0
    share, shares = map(int, part.split("/"))
    for number, pair in enumerate(pairs([*scene.calls], both_ways=name == "archives")):
        if number % shares == share:
            check_all(judge, pair, range(seed + number * amount, seed + (number + 1) * amount))
            drawn += amount
    assert judge.runs == drawn > 0
    told = f", {sum(judge.reasons.values())} of them fine for a reason on the list" if judge.reasons else ""
    print(f"races of {name}, slice {part}: {drawn} schedules, {amount} of a pair{told}")


def check_all(judge: Judge, pair: tuple[str, str], seeds: range) -> None:
    for seed in seeds:
        judge.check(pair, seed)


def find(name: str, folder: Path) -> None:
    """Run the race of a mutant without it, and with it. Raise `AssertionError` if it is not found."""
    mutant = MUTANTS[name]
    judge = Judge(scene_of(mutant.scene, folder))
    judge.check(mutant.pair, mutant.seed)
    for order in ("ab", "ba"):
        judge.serial(mutant.pair, order)
    with mutant.in_place(), pytest.raises(AssertionError, match="no order of the two calls gives this"):
        check_all(judge, mutant.pair, range(mutant.seed, mutant.seed + _FOUND_WITHIN))


def main(words: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if words[0] == "pairs":
            run_pairs(words[1], int(words[2]), int(words[3]), words[4], Path(folder))
        elif words[0] == "mutants":
            for name in words[1:]:
                find(name, Path(tempfile.mkdtemp(dir=folder)))
            print(f"{len(words) - 1} mutants found")
        else:
            for number in range(0, len(words), 4):
                name, first, second, seed = words[number : number + 4]
                judge = Judge(scene_of(name, Path(folder)))
                judge.check((first, second), int(seed))
                print("fine", judge.reasons or "")


if __name__ == "__main__":
    main(sys.argv[1:])
