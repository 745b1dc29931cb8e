"""T6: a store fails in every way it can, at every call. Each answer is true, and the next round completes.

The tests try each fault alone, and then pairs, over the port in memory. A round ends at an error. In half of the plans
each round is a new process. In the other half one process makes all rounds. Half of both delete the oldest records,
and half delete a range. After the faults, the next round must complete.
"""

from __future__ import annotations

import itertools
import logging
import random
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.objects.memory import MemoryStore
from tests.faults.offloads import Figures, Life
from tests.faults.store import Fault, FaultyStore, damaged, denied, faults_of, gone, lost, no_bucket, unreachable
from tests.faults.stride import every
from tests.faults.verdicts import wrong_answers
from tests.work import shares, tell

SINGLES, PAIRS, SOAK_PAIRS = 24, 8, 4_000
MORE_CALLS = 2  # calls of each kind that recovery adds to those of a life without faults


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    monkeypatch.setattr("catalog.objects.settled_writes.backoff_s", lambda _: 0.0)


def _live(
    directory: Path, plan: Sequence[Fault], figures: Figures, *, stays: bool = False, deletes_range: bool = False
) -> FaultyStore:
    inner = MemoryStore()
    store = FaultyStore(inner, plan)
    life = Life(directory / "data", lambda: store, inner, deletes_range=deletes_range)
    while not life.is_over and len(life.errors) <= len(plan):
        life.go_on(stays_for=len(plan) if stays else 0)
    store.land()
    life.judge_errors(
        damage_was_told=any(f.answer == "flipped" or f.error is damaged for f in store.struck),
        absence_was_told=any(f.error in {gone, no_bucket} for f in store.struck),
        lied_about={
            kind
            for fault, key in zip(store.struck, store.struck_at, strict=True)
            for kind, mark in (("commit", "/log/"), ("ref", "refs/"))
            if fault.is_lie and mark in key
        },
    )
    if len(store.struck) == 1:
        life.wrong += wrong_answers(store.struck[0], store.struck_at[0], life.errors, life.put_off)
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


def _each_kind_first(faults: Sequence[Fault]) -> list[Fault]:
    """Return the faults in random order, but one of each kind before a second one of any kind.

    So a prefix that is long enough has all kinds.
    """
    shuffled = random.Random(5).sample(faults, len(faults))
    ranks: Counter[Fault] = Counter()
    ranked = []
    for fault in shuffled:
        kind = replace(fault, nth=None)
        ranked.append((ranks[kind], fault))
        ranks[kind] += 1
    return [fault for _, fault in sorted(ranked, key=lambda each: each[0])]


def _run(tmp_path: Path, plans: Iterable[Sequence[Fault]]) -> Figures:
    figures = Figures()
    for number, plan in enumerate(plans):
        _live(tmp_path / f"{number}", plan, figures, stays=number % 2 == 1, deletes_range=number % 4 > 1)
    figures.check()
    return figures


def _calls(tmp_path: Path) -> Counter[str]:
    """Return the calls of a life without faults: the most of each kind, whatever it deletes."""
    figures = Figures()
    stores = [_live(tmp_path / "none", [], figures, deletes_range=deletes_range) for deletes_range in (False, True)]
    assert figures.rounds == 2
    assert not any(figures.faults.values()), figures
    return stores[0].calls | stores[1].calls


def test_every_single_fault_in_memory(tmp_path: Path) -> None:
    plans = [[fault] for fault in _each_kind_first(_singles(_calls(tmp_path)))]
    assert _run(tmp_path, plans[:SINGLES]).struck > SINGLES // 2


def test_pairs_of_faults_in_memory(tmp_path: Path) -> None:
    chance = random.Random(6)
    singles = _singles(_calls(tmp_path))
    plans = (chance.sample(singles, 2) for _ in itertools.count())
    assert _run(tmp_path, itertools.islice(plans, PAIRS)).struck > PAIRS


@every(5, part=3)
def test_the_question_after_each_write_without_an_answer_fails(tmp_path: Path, every: int) -> None:
    """The write gets no answer, and the check for its object fails.

    Then the caller cannot know whether the object is there. A call that says "not written" is wrong, and so is "done".
    """
    calls = _calls(tmp_path)
    plans = [
        [Fault(nth, when, lost, method), Fault(error=error, is_next=True)]
        for method in ("put_new", "complete_upload")
        for nth in range(1, calls[method] + 1)
        for when, error in (("before", unreachable), ("after", unreachable), ("after", denied))
    ]
    figures = Figures()
    for number, plan in enumerate(plans[::every]):
        store = _live(tmp_path / f"{number}", plan, figures, stays=number % 2 == 1, deletes_range=number % 4 > 1)
        assert len(store.struck) == len(plan), plan
    figures.check()


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
