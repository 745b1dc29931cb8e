"""The archive deletes a hot copy only after its commit is visible and its objects have been read back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import offload
import seglog
from catalog.errors import CatalogError
from offload.errors import OffloadError
from offload.write.attempt import AttemptState
from seglog import Log
from tests.seams.archive import context_of
from tests.worlds.clock import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def log(tmp_path: Path, clock: HandClock) -> Log:
    with seglog.open(tmp_path / "data", clock=clock) as log:
        log.topic("t").append([b"a", b"b"])
        log.topic("t").seal()
        yield log


def test_the_lag_is_waited_for(log: Log, remote: str, clock: HandClock) -> None:
    with offload.attach(log, remote, clock=clock) as archive:
        assert archive.offload("t").released_seq == 0
        clock.ms += 4 * 3600 * 1000 - 1
        assert archive.offload("t").released_seq == 0
        assert log.topic("t").inner.hot_floor == 1
        clock.ms += 1
        assert archive.offload("t").released_seq == 2
        assert log.topic("t").inner.hot_floor == 3


def test_a_clock_that_goes_back_releases_nothing(log: Log, remote: str, clock: HandClock) -> None:
    with offload.attach(log, remote, clock=clock) as archive:
        archive.offload("t")
        clock.ms -= 10 * 24 * 3600 * 1000
        assert archive.offload("t").released_seq == 0


@pytest.mark.parametrize("state", [None, AttemptState.PLANNED, AttemptState.PREPARED])
def test_a_hot_copy_stays_if_one_before_it_was_not_read_back(
    log: Log, tmp_path: Path, state: AttemptState | None
) -> None:
    """This directory has lost its record of the first offload, or the record of its publication."""
    with offload.attach(log, f"file://{tmp_path}/archive") as archive:
        archive.offload("t")
        log.topic("t").append([b"c"])
        log.topic("t").seal()
        archive.offload("t")
        first, second = context_of(archive).local.attempts("t")
        if state is None:
            context_of(archive).local.delete_attempt(first.sid)
        else:
            context_of(archive).local.save(attempt=replace(first, state=state))
        assert archive.release("t", at_once=True) == 0
        assert log.topic("t").inner.hot_floor == 1
        context_of(archive).local.save(attempt=first)
        assert archive.release("t", at_once=True) == second.last_seq == 3


def test_retention_waives_the_lag_up_to_the_last_record_that_is_due(log: Log, tmp_path: Path) -> None:
    with offload.attach(log, f"file://{tmp_path}/archive") as archive:
        log.configure("t", replace(log.topic("t").config, keep_history=True, cap_records=1))
        archive.offload("t")
        log.topic("t").append([b"c"])
        log.topic("t").seal()
        assert log.topic("t").inner.due_seq == 2
        assert archive.offload("t").released_seq == 2
        assert log.topic("t").inner.hot_floor == 3


@pytest.mark.parametrize("part", ["data", "index", "commit"])
@pytest.mark.parametrize("how", ["flipped", "cut", "gone"])
def test_a_remote_copy_that_is_not_what_was_sent_keeps_the_hot_one(
    part: str, how: str, log: Log, tmp_path: Path
) -> None:
    with offload.attach(log, f"file://{tmp_path}/archive") as archive:
        archive.offload("t")
        pattern = "*/log/*" if part == "commit" else "*/segments/*"
        found = (tmp_path / "archive").glob(pattern)
        [path] = [path for path in found if part == "commit" or (path.suffix == ".index") == (part == "index")]
        whole = path.read_bytes()
        if how == "gone":
            path.unlink()
        else:
            path.write_bytes(whole[:-1] if how == "cut" else whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
        with pytest.raises((CatalogError, OffloadError)):
            archive.offload("t", drop_hot=True)
        assert log.topic("t").inner.hot_floor == 1
        assert [record.value for record in log.topic("t").read()] == [b"a", b"b"]
        path.write_bytes(whole)
        assert archive.offload("t", drop_hot=True).released_seq == 2
