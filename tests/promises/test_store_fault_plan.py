"""T6: a store that fails in every way it can, at every call: what is told is true, and the next round completes.

All faults one at a time, then all pairs, over the port in memory. A round ends at an error, and every other plan has a
process for each. With the faults over, the round that follows has to reach the end.
"""

from __future__ import annotations

import itertools
import logging
import random
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from catalog.objects.memory import MemoryStore
from tests.faults.offloads import Figures, Life
from tests.faults.store import Fault, FaultyStore, damaged, faults_of, gone, lost, no_bucket
from tests.work import shares, tell

SINGLES, PAIRS, SOAK_PAIRS = 240, 90, 16_000
MORE_CALLS = 2  # of each kind than a life without faults makes: recovery makes some


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    monkeypatch.setattr("catalog.put_once.backoff_s", lambda _: 0.0)


def _live(directory: Path, plan: Sequence[Fault], figures: Figures, *, stays: bool = False) -> FaultyStore:
    inner = MemoryStore()
    store = FaultyStore(inner, plan)
    life = Life(directory / "data", lambda: store, inner)
    while not life.is_over and len(life.errors) <= len(plan):
        life.go_on(stays_for=len(plan) if stays else 0)
    store.land()
    life.judge_errors(
        damage_was_told=any(f.answer == "flipped" or f.error is damaged for f in store.struck),
        absence_was_told=any(f.error in {gone, no_bucket} for f in store.struck),
        refusal_was_a_lie=any((f.method, f.when) == ("put_new", "after") and f.error is not lost for f in store.struck),
    )
    if life.is_over:
        life.judge_end()
    hides_uploads = any(f.method in {"create_upload", "abort_upload", "list_uploads"} for f in store.struck)
    figures.add(" + ".join(map(str, plan)), life, len(store.struck), hides_uploads=hides_uploads)
    shutil.rmtree(directory, ignore_errors=True)
    return store


def _singles(calls: Counter[str]) -> list[Fault]:
    return [
        fault
        for method, count in sorted(calls.items())
        for nth in range(1, count + MORE_CALLS + 1)
        for fault in faults_of(method, nth)
    ]


def _run(tmp_path: Path, plans: Iterable[Sequence[Fault]]) -> Figures:
    figures = Figures()
    for number, plan in enumerate(plans):
        _live(tmp_path / f"{number}", plan, figures, stays=number % 2 == 1)
    figures.check()
    return figures


def _calls(tmp_path: Path) -> Counter[str]:
    figures = Figures()
    store = _live(tmp_path / "none", [], figures)
    assert figures.rounds == 1
    assert not any(figures.faults.values()), figures
    return store.calls


def test_every_single_fault_in_memory(tmp_path: Path) -> None:
    plans = [[fault] for fault in _singles(_calls(tmp_path))]
    random.Random(5).shuffle(plans)
    assert _run(tmp_path, plans[:SINGLES]).struck > SINGLES // 2


def test_pairs_of_faults_in_memory(tmp_path: Path) -> None:
    chance = random.Random(6)
    singles = _singles(_calls(tmp_path))
    plans = (chance.sample(singles, 2) for _ in itertools.count())
    assert _run(tmp_path, itertools.islice(plans, PAIRS)).struck > PAIRS


@shares(3, 3)
def test_many_pairs_of_faults_in_memory(tmp_path: Path, share: int) -> None:
    plans = [list(pair) for pair in itertools.combinations(_singles(_calls(tmp_path)), 2)]
    random.Random(7).shuffle(plans)
    figures = _run(tmp_path, plans[share * SOAK_PAIRS :][:SOAK_PAIRS])
    tell(f"of {len(plans)} pairs")
    assert figures.struck > SOAK_PAIRS


@pytest.mark.soak(part=3)
def test_all_single_faults_in_memory(tmp_path: Path) -> None:
    _run(tmp_path, [[fault] for fault in _singles(_calls(tmp_path))])
