"""What a run drew at random: the examples of Hypothesis and the seeds of `tests/work.py`, as one hash.

Two runs of the same tests under one seed have the same hash: on each machine, in each order, in any number of
processes. So it is the hash of a sorted set of facts. A fact is a test with all that Hypothesis drew for it, or a proof
with its seed. The repr of a value counts. An address in it is left out, because it tells where the value is, not what
it is.

Hypothesis draws one value in twenty from constants, also from those of the project's modules, namely of those that this
process has imported so far. That depends on the tests before, so our runs go without the project's constants.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis.internal.conjecture import providers
from hypothesis.internal.conjecture.data import ConjectureData

__all__ = ["DRAWN", "begin", "ignore_imports", "saw_seed", "taken", "told", "watch"]

DRAWN = "drawn"  # The name of the report property that has a fact.

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_values = hashlib.sha256()
_count = 0
_facts: set[str] = set()


def watch(patch: pytest.MonkeyPatch) -> None:
    """Take note of each argument and each step that Hypothesis draws."""
    draw = ConjectureData.draw

    def noted(data: ConjectureData, *arguments: Any, **named: Any) -> Any:
        value = draw(data, *arguments, **named)
        if data.depth == 0:
            _saw(value)
        return value

    patch.setattr(ConjectureData, "draw", noted)


def ignore_imports(patch: pytest.MonkeyPatch) -> None:
    """Let Hypothesis draw the same whatever this process has imported."""
    patch.setattr(providers, "is_local_module_file", lambda _: False)


def begin() -> None:
    """Say that a test begins."""
    global _values, _count
    _values, _count = hashlib.sha256(), 0
    _facts.clear()


def _saw(value: object) -> None:
    global _count
    _count += 1
    _values.update(_ADDRESS.sub("", repr(value)).encode(errors="surrogatepass") + b"\n")


def saw_seed(proof: str, seed: int) -> None:
    """Take note of the seed of a proof."""
    _facts.add(f"seed {proof} {seed}")


def taken(test: str) -> list[str]:
    """Return the facts of the test that began last."""
    return sorted(_facts) + ([f"values {test} {_count} {_values.hexdigest()}"] if _count else [])


def told(facts: Iterable[str]) -> str:
    """Return a line with the hash of a run."""
    ordered = sorted({*facts})
    tests = sum(fact.startswith("values ") for fact in ordered)
    digest = hashlib.sha256("\n".join(ordered).encode()).hexdigest()
    return f"drawn by {tests} tests, with {len(ordered) - tests} other seeds: {digest}"
