"""Test the decoders of blocks, index objects and trailers on any bytes.

A decoder returns a value or raises a located error. It never crashes, hangs or allocates without bound.

The targets run in another process, since a fault in a C extension would take pytest with it. The default run mutates
valid objects, with a seed. `make soak` adds a coverage-guided fuzzer.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.offload.fuzz_targets import SEEDS, TARGETS, run
from tests.offload.mutated import MUTATIONS
from tests.work import tell

ROOT = Path(__file__).parents[2]
FUZZ_RUNS = 1_000_000


def test_the_seeds_are_valid_so_that_changes_of_them_get_far() -> None:
    assert SEEDS.keys() == TARGETS.keys()
    for name in TARGETS:
        assert any(run(name, seed) for seed in SEEDS[name]), name


@pytest.fixture(scope="module")
def mutations() -> tuple[dict[str, int], str]:
    """Return the accepted inputs of each target that ended, and the error of the one at which the process ended."""
    code = (
        "from tests.offload.fuzz_targets import TARGETS\nfrom tests.offload.mutated import MUTATIONS, run_mutations\n"
        "for name in TARGETS:\n"
        "    print(name, run_mutations(name, MUTATIONS, 11), flush=True)"
    )
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    return {name: int(taken) for name, taken in map(str.split, done.stdout.splitlines())}, done.stderr


@pytest.mark.long
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
