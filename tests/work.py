"""How much work a proof does, where its seeds come from, and the line that reports the work.

Bounds are numbers of images, faults, schedules and histories, never seconds. So a proof does the same on every machine.

    make test      the little that a newcomer waits for; no mark
    make test-all  30 s of a core for a proof; `@pytest.mark.long`
    make soak      a test says its part by `@pytest.mark.soak(part=n)`; a slice of it takes 5 minutes at most
    seeds          `seed_of` derives a proof's seed from SEGLOG_TEST_SEED, and each test's for Hypothesis. `make test`
                   sets 30, so that only a change of the code makes a test fail. Without a value, as in `make soak`,
                   each run draws a new one
    lines          `tell` takes one line; the end of the run shows the lines of all proofs
    counts         `count` adds to a number of the whole run, which the end of the run shows
"""

from __future__ import annotations

import os
import random
import zlib
from collections import Counter

import pytest

from tests import drawn

__all__ = [
    "COUNT",
    "LINE",
    "PARTS",
    "SEED",
    "amounts",
    "begin_slice",
    "count",
    "counted",
    "run_seed",
    "seed_of",
    "shares",
    "taken",
    "tell",
]

SEED = "SEGLOG_TEST_SEED"
LINE = "work"  # The name of the report property that has the line.
COUNT = "count"  # The name of the property that has a name and a number.

PARTS = {
    1: "crash images: one directory, a warm store, shards",
    2: "calls of the file system that fail, the corruption matrix, kill -9, the topic model",
    3: "T6: pairs of faults of a store, single faults over HTTP; the cost of requests",
    4: "T8: the first half of the schedules, and the rare mistakes",
    5: "T8: the second half of the schedules, promotions",
    6: "T9: the first half of the histories",
    7: "T9: the second half of the histories",
    8: "T5: the catalog's model; directories that share a topic; commands that meet; crashes of reset, rebase; fuzzers",
    9: "Spark: streams, writers and drivers that are killed, histories, logs, a cluster, damaged bytes, benchmarks",
}

_slice = ""
_told: list[str] = []
_counted: Counter[str] = Counter()


def amounts(default: int, *, all: int | None = None, soak: int, part: int, slices: int = 1) -> pytest.MarkDecorator:  # noqa: A002
    """Parametrize the argument `amount` of a test: `default`, more of it in `make test-all`, and `soak` in that part.

    `slices` cuts the amount of the soak into so many tests. Each has seeds of its own (`seed_of`).
    """
    more = [] if all is None else [pytest.param(all, marks=pytest.mark.long)]
    share = -(-soak // slices)
    names = [f"{share}-{each}" if slices > 1 else f"{soak}" for each in range(slices)]
    marks = [pytest.mark.soak(part=part, slice=each) for each in range(slices)]
    soaked = [pytest.param(share, marks=mark, id=name) for mark, name in zip(marks, names, strict=True)]
    return pytest.mark.parametrize("amount", [default, *more, *soaked])


def shares(*parts: int) -> pytest.MarkDecorator:
    """Parametrize the argument `share` of a test: 0, 1, 2, each in its part of the soak."""
    return pytest.mark.parametrize(
        "share", [pytest.param(share, marks=pytest.mark.soak(part=part)) for share, part in enumerate(parts)]
    )


def run_seed() -> int:
    """Return the seed of this run, the same in all its processes. Draw it if the environment has none."""
    return int(os.environ.setdefault(SEED, str(random.SystemRandom().randrange(1 << 31))))


def seed_of(proof: str) -> int:
    """Return the seed of that proof in this run, and in this slice of the soak."""
    seed = zlib.crc32(f"{run_seed()} {proof}{_slice}".encode())
    drawn.saw_seed(proof + _slice, seed)
    return seed


def begin_slice(number: int) -> None:
    """Say which slice of a soak test begins. Without slices, the number is 0."""
    global _slice
    _slice = f" {number}" if number else ""


def tell(line: str) -> None:
    """Record a line about the work of the running test. The end of the run shows it."""
    _told.append(line)


def taken() -> list[str]:
    """Return the lines since the last call."""
    lines, _told[:] = _told.copy(), []
    return lines


def count(what: str, number: int) -> None:
    """Add to a number of the whole run. The end of the run shows its sum over all processes."""
    _counted[what] += number


def counted() -> list[tuple[str, int]]:
    """Return the numbers since the last call."""
    numbers = list(_counted.items())
    _counted.clear()
    return numbers


if __name__ == "__main__":
    for number, what in PARTS.items():
        print(f"  make soak PART={number}  {what}")
