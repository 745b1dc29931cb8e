"""The pairs of each scene in slices. A process runs each, because a schedule depends on what its process did before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.work import seed_of

_ROOT = Path(__file__).parents[2]

#: Of each scene, the slices of its pairs: `make test` runs one of the first number (0 is none), `make test-all` each of
#: the second (30 s each at most), and the soak each of the third (5 minutes each at most). `make test-all` has 5
#: schedules of a pair, the soak 200. Pairs of commands are many, so `make test-all` has one of each.
SLICES = {
    "topics": (120, 4, 12),
    "streams": (0, 1, 4),
    "tokens": (0, 1, 1),
    "commands": (400, 4, 48),
    "archives": (0, 5, 15),
}


def races(*names: str) -> Iterator[Any]:
    """Yield each of the scenes with the schedules of a pair, and a slice of its pairs."""
    for name in names:
        few, more, most = SLICES[name]
        if few:
            yield pytest.param(name, 1, f"{seed_of(f'slice of {name}') % few}/{few}", id=f"{name}-1")
        few_of_each = 1 if name == "commands" else 5
        for amount, slices, mark in ((few_of_each, more, pytest.mark.long), (200, most, pytest.mark.soak(part=8))):
            for number in range(slices):
                yield pytest.param(name, amount, f"{number}/{slices}", marks=mark, id=f"{name}-{amount}-{number}")


def raced(*words: str) -> str:
    """Run `python -m tests.races` with the words. Return what it prints."""
    line = [sys.executable, "-m", "tests.races", *words]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(line, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def raced_slice(name: str, amount: int, part: str) -> str:
    """Run a slice of a scene, and return what it tells."""
    line = raced("pairs", name, str(amount), str(seed_of(f"races {name}")), part)
    assert line.startswith(f"races of {name}, slice {part}: ")
    return line
