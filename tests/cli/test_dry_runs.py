"""A dry run refuses what its command refuses, with the same error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worlds.command import Run


@pytest.fixture
def started(run: Run, tmp_path: Path) -> Run:
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    for value in (b"a\nb\n", b"c\nd\n"):
        run("append", "t", stdin=value)
        run("seal", "t")
        assert run("offload", "t").code == 0
    return run


def same(run: Run, code: int, *arguments: str, directory: str = "data") -> None:
    dry = run(*arguments, "--dry-run", directory=directory)
    real = run(*arguments, "--yes", directory=directory)
    assert (dry.code, dry.out, dry.err.split(". ")[0]) == (code, b"", real.err.split(". ")[0])
    assert real.code == code


def test_a_truncation_below_evicted_records_is_refused_by_both(started: Run) -> None:
    assert started("evict", "t", "--before", "3", "--yes").code == 0
    same(started, 2, "truncate", "t", "--from", "2")
    assert started("truncate", "t", "--from", "3", "--dry-run").code == 0


def test_an_eviction_by_age_with_a_wrong_clock_is_refused_by_both(
    started: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seglog.files.clock.SystemClock.now_ms", lambda _: 4_102_444_800_000)  # the year 2100
    dry = started("evict", "t", "--older-than", "1d", "--dry-run")
    assert (dry.code, dry.out) == (1, b"")
    assert "nothing of t was evicted" in dry.err


def test_an_erasure_of_a_replica_is_refused_by_both(started: Run, tmp_path: Path) -> None:
    assert started("recover", (tmp_path / "remote").as_uri(), "copy", directory=None).code == 0
    same(started, 3, "compact", "t", "--erase", directory="copy")
