"""Prove with drawn loads that no topic waits too long, and that each step of pressure is entered and left."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.offload.daemon.scheduler.loads import STEPS, Load
from tests.work import amounts, seed_of, tell

_BOUND_S = 10.0


@pytest.mark.long
@amounts(1000, soak=200_000, part=8, slices=40)
def test_no_topic_waits_over_10_s_unless_it_is_paused(amount: int) -> None:
    draw = random.Random(seed_of("loads of the scheduler"))
    longest_s, pages, entered, left = 0.0, 0, Counter[str](), Counter[str]()
    for _ in range(amount):
        seed = draw.getrandbits(64)
        seen = Load(seed).run()
        assert seen.longest_s <= _BOUND_S, f"Load({seed})"
        assert seen.entered == seen.left, f"Load({seed})"
        longest_s, pages = max(longest_s, seen.longest_s), pages + seen.pages
        entered, left = entered + seen.entered, left + seen.left
    assert set(entered) == set(left) == set(STEPS)
    tell(f"{amount} loads of the scheduler with {pages} pages: the longest wait without a pause was {longest_s:.1f} s")
