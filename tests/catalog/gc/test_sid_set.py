"""A set of segment ids that may be large."""

from __future__ import annotations

import random

import pytest

from catalog.gc.sid_set import SidSet
from tests.catalog.samples import sid
from tests.seams.limits import Limit, set_limit


@pytest.mark.parametrize("recent", [1, 7, 16_384])
def test_it_holds_what_was_added_in_order_and_nothing_else(recent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limit(monkeypatch, Limit.RECENT_SIDS, recent)
    numbers = random.Random(1).sample(range(10_000), 1_000)
    found = SidSet()
    for number in [*numbers, *numbers[:100]]:
        found.add(sid(number))
        assert sid(number) in found
    assert all((sid(number) in found) == (number in set(numbers)) for number in range(10_000))
    assert list(found) == sorted(map(sid, numbers))
    assert len(found) == 1_000


def test_an_empty_one_has_nothing() -> None:
    assert len(SidSet()) == 0
    assert sid(1) not in SidSet()
    assert list(SidSet()) == []


@pytest.mark.parametrize("recent", [1, 7, 16_384])
def test_an_id_keeps_its_first_value(recent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limit(monkeypatch, Limit.RECENT_SIDS, recent)
    numbers = random.Random(2).sample(range(1_000), 100)
    found = SidSet(value_bytes=2)
    for number in numbers:
        found.add(sid(number), number.to_bytes(2, "big"))
        found.add(sid(number), b"no")
    assert list(found.items()) == [(sid(number), number.to_bytes(2, "big")) for number in sorted(numbers)]
    assert list(found) == sorted(map(sid, numbers))
    assert all((sid(number) in found) == (number in set(numbers)) for number in range(1_000))
