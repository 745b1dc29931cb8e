"""The writers of a topic and its branches, their replicas and a plain model show the same, after any operations.

A branch with a ttl shows its parent's records until a record of its own is past the ttl (EXPIRY-5). Main counts every
record. Two directories hand the names to each other, promote and rename them by that, take that back,
undo and load (`branch_world.py`). Every second history has a ttl.

Not tested: a clock that is set back, and a ttl that changes. An open log lowers its expiry floor for neither
(EXPIRY-2), and a replica does.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.promises.branch_world import World
from tests.work import amounts, seed_of, tell

_MUST_HAPPEN = (
    "undone of a parent",
    "deletes of ranges",
    "repetitions",
    "refused appends",
    "loads",
    "carried",
    "promotions undone",
)


@pytest.mark.long
@amounts(16, all=40, soak=600, part=2)
def test_owner_replica_and_model_show_the_same(tmp_path: Path, amount: int) -> None:
    seed, made = seed_of("ttl of branches"), Counter[str]()
    for number in range(amount):
        world = World(tmp_path / str(number), seed + number)
        with world.stack:
            for _ in range(25):
                world.step()
        made += world.made
        shutil.rmtree(world.path)
    tell(f"{amount} histories: " + ", ".join(f"{count} {what}" for what, count in made.items()))
    assert min(made[what] for what in _MUST_HAPPEN) > 0
