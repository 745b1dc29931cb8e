"""T5: a log with its archive does what a plain model says (`tests/worlds/catalog_model.py`).

The seed of the run decides the histories (`tests/work.py`).
"""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from tests.work import amounts, seed_of, tell
from tests.worlds.catalog_model import CatalogModel

_HAPPENS = (
    "deletes of ranges",
    "evictions",
    "kills",
    "loads",
    "names undone",
    "pins",
    "promotions",
    "promotions undone",
    "renamed",
    "repetitions",
    "tags",
    "takeovers",
    "truncations",
    "truncations of what only the log has",
    "undeleted",
    "undone",
)
_HAPPENS_SELDOM = ("restored by who died", "undone of a parent")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    monkeypatch.setattr("catalog.objects.settled_writes.backoff_s", lambda _: 0.0)


def _run(drawn: int, histories: int, steps: int) -> Counter[str]:
    counts = Counter[str]()
    for number in range(histories):
        history = CatalogModel()
        history.run(f"{drawn} {number}", steps)
        counts += history.counts
    tell(", ".join(f"{count} {what}" for what, count in counts.items()))
    return counts


@amounts(8, all=60, soak=1_000, part=8, slices=8)
def test_an_archive_is_what_the_model_says(amount: int) -> None:
    counts = _run(seed_of("T5"), amount, steps=40 if amount < 125 else 80)
    assert counts["states read"] > 20 * amount
    if amount >= 60:
        assert min(counts[what] for what in _HAPPENS) > amount // 50
    if amount >= 125:
        assert min(counts[what] for what in _HAPPENS_SELDOM) > 0
