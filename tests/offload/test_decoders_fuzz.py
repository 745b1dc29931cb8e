"""Test the decoders of blocks, index objects and trailers on any bytes.

A decoder returns a value or raises a located error. It never crashes, hangs or allocates without bound.

The targets run in another process, since a fault in a C extension would take pytest with it. The default run mutates
valid objects, with a seed. `make soak` adds a coverage-guided fuzzer.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tracemalloc
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.offload.fuzz_targets import SEEDS, TARGETS, run
from tests.work import tell

ROOT = Path(__file__).parents[2]
MUTATIONS = 600
FUZZ_RUNS = 1_000_000
ALLOCATION_FIXED, ALLOCATION_FACTOR = 4 << 20, 400
NUMBERS = (0, 1, 127, 128, 255, 1 << 15, (1 << 16) - 1, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1)


def mutated(seed: bytes, random: Random) -> bytes:
    """Return the bytes with one to four changes.

    A change is a bit, a byte, a number in any width and order, a cut, or a piece doubled, removed or moved.
    """
    data = bytearray(seed)
    for _ in range(random.randint(1, 4)):
        place = random.randrange(len(data) + 1)
        match random.randrange(7):
            case 0 if place < len(data):
                data[place] ^= 1 << random.randrange(8)
            case 1 if place < len(data):
                data[place] = random.randrange(256)
            case 2:
                width = random.choice((1, 2, 4, 8))
                number = random.choice(NUMBERS) % (1 << 8 * width)
                data[place : place + width] = number.to_bytes(width, random.choice(("big", "little")))
            case 3:
                del data[place:]
            case 4:
                data[place:place] = data[place : place + random.randrange(1, 64)]
            case 5:
                del data[place : place + random.randrange(1, 64)]
            case 6:
                start = random.randrange(len(data) + 1)
                data[place : place + 16] = data[start : start + 16]
    return bytes(data)


def run_mutations(name: str, count: int, seed: int) -> int:
    """Return the number of accepted inputs. Raise for a fault, and for an allocation out of proportion."""
    random = Random(seed)
    taken = 0
    tracemalloc.start()
    for _ in range(count):
        data = mutated(random.choice(SEEDS[name]), random)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        taken += run(name, data)
        used = tracemalloc.get_traced_memory()[1] - before
        if used > ALLOCATION_FIXED + ALLOCATION_FACTOR * len(data):
            raise AssertionError(f"{len(data)} bytes made it take {used}: {data.hex()}")
    return taken


def test_the_seeds_are_valid_so_that_changes_of_them_get_far() -> None:
    assert SEEDS.keys() == TARGETS.keys()
    for name in TARGETS:
        assert any(run(name, seed) for seed in SEEDS[name]), name


@pytest.fixture(scope="module")
def mutations() -> tuple[dict[str, int], str]:
    """Return the accepted inputs of each target that ended, and the error of the one at which the process ended."""
    code = (
        "import sys\nfrom tests.offload.test_decoders_fuzz import *\nfor name in TARGETS:\n"
        "    print(name, run_mutations(name, MUTATIONS, 11), flush=True)"
    )
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    return {name: int(taken) for name, taken in map(str.split, done.stdout.splitlines())}, done.stderr


@pytest.mark.parametrize("name", TARGETS)
def test_changed_objects_are_refused_with_their_place_or_read(name: str, mutations: tuple[dict[str, int], str]) -> None:
    taken, error = mutations
    assert name in taken, error[-3000:]
    assert taken[name] < MUTATIONS


@settings(max_examples=400)
@given(name=st.sampled_from(sorted(TARGETS)), data=st.binary(max_size=300))
def test_any_bytes_are_refused_with_their_place(name: str, data: bytes) -> None:
    if name != "index_bitmaps":  # a process of its own tests that target
        run(name, data)


@pytest.mark.soak(part=8)
@pytest.mark.parametrize("name", TARGETS)
def test_a_coverage_guided_fuzzer_finds_nothing(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris has no build for this Python and machine; the mutations ran")
    done = subprocess.run(
        [sys.executable, "-m", "tests.offload.fuzz", name, str(FUZZ_RUNS), str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    last = [line for line in done.stderr.splitlines() if line.startswith(("#", "Done"))][-1:]
    tell(" ".join(last))
    assert done.returncode == 0, done.stderr[-3000:]
