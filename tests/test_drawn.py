"""The same seed draws the same, whatever this process has imported, and the hash of a run tells a difference."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from hypothesis import core, given, seed, settings
from hypothesis import strategies as st

from tests import drawn, work


def examples(number: int) -> list[tuple[int, str]]:
    """Return what Hypothesis draws for that seed."""
    found = []

    @seed(number)
    @settings(max_examples=100)
    @given(st.integers(), st.text())
    def note(whole: int, text: str) -> None:
        found.append((whole, text))

    note()
    return found


def facts_of(number: int) -> list[str]:
    drawn.begin()
    assert len(examples(number)) == 100
    return drawn.taken("this")


def test_each_test_draws_by_the_seed_of_the_run(request: pytest.FixtureRequest) -> None:
    """With `derandomize`, Hypothesis would draw the same for each seed, and so in each run of the soak."""
    assert core.global_force_seed == work.seed_of(f"examples of {request.node.nodeid}")
    assert not settings().derandomize


def test_an_import_changes_no_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = examples(1)
    constants = "\n".join(f"a{each} = {each * 7919}, 'text {each}'" for each in range(400))
    (tmp_path / "a_module_of_constants.py").write_text(constants)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("a_module_of_constants")
    after = examples(1)
    del sys.modules["a_module_of_constants"]
    assert after == before
    assert examples(2) != before


def test_the_hash_is_that_of_the_examples_and_the_seeds_in_any_order() -> None:
    first, second = facts_of(1), facts_of(2)
    assert first == facts_of(1) != second
    assert drawn.told([*first, *second]) == drawn.told([*second, *first, *first])
    drawn.begin()
    work.seed_of("a proof")
    assert len(drawn.taken("this")) == 1
    hashes = [drawn.told(each).partition(": ")[2] for each in (first, second, [*first, *second], drawn.taken("this"))]
    assert len({*hashes}) == len(hashes)
