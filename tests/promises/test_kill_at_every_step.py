"""Kill -9 at each step of a record's way: no acked record is missing or twice, and no partial object is visible."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import offload
import seglog
from catalog import CommitKind
from catalog.format import keys
from offload.wiring import open_store
from seglog import Log
from tests.faults.stride import every
from tests.faults.way import RECORDS, SETTINGS, TOPIC, run, values
from tests.worlds.remotes import s3_is_long


def _run(directory: Path, remote: str, step: str) -> tuple[int, int]:
    """Return the child's exit code, and the last seq that it saw acked."""
    code, acked = run(directory, remote, step)
    assert code in {0, -signal.SIGKILL}, code
    return code, acked


def _read(log: Log) -> Iterator[bytes]:
    return (record.value for record in log.topic(TOPIC).read())


def _check_after_kill(directory: Path, remote: str) -> None:
    """Check what a restarted process finds, before and after it has finished the job."""
    with (
        seglog.open(directory, settings=SETTINGS) as log,
        offload.attach(log, remote, settings=offload.Settings().with_parts(_settings())) as archive,
    ):
        assert list(_read(log)) == values()
        before = archive.status.topic(TOPIC)
        committed = _commits(remote)
        assert before.lsn in {committed, committed - 1}  # a commit whose answer was lost does not count as done
        assert before.head_seq == RECORDS
        if before.hot_first_seq > RECORDS:
            assert before.offloaded_seq == RECORDS

        log.topic(TOPIC).seal()
        archive.offload(TOPIC, drop_hot=True)
        after = archive.status.topic(TOPIC)
        assert (after.offloaded_seq, after.hot_first_seq) == (RECORDS, RECORDS + 1)
        assert (after.pending_lsn, after.unfinished_attempts, after.diverged_lsn) == (None, 0, None)
        assert list(_read(log)) == values()
        history = [*archive.history.commits(TOPIC)]
        assert [past.commit.kind for past in history] == [CommitKind.OFFLOAD]
        _check_no_leftovers(remote, {str(segment.sid) for segment in history[0].commit.segments})


def _settings() -> offload.OffloadSettings:
    return offload.OffloadSettings(block_size=5 * 1024 * 1024, codec="none")


def _commits(remote: str) -> int:
    store = open_store(remote)
    return sum("/log/" in key for key in store.list(""))


def _check_no_leftovers(remote: str, sids: set[str]) -> None:
    store = open_store(remote)
    objects = {key.rpartition("/")[2].removesuffix(".index") for key in store.list("") if "/segments/" in key}
    assert objects == sids
    assert list(store.list_uploads("")) == []
    assert sum(key.startswith(keys.refs_prefix()) for key in store.list("")) == 1


@pytest.mark.parametrize("remote", ["file"], indirect=True)
@pytest.mark.parametrize("step", ["appended", "sealed", "released"])
def test_kill_after_a_local_step(step: str, tmp_path: Path, remote: str) -> None:
    assert _run(tmp_path / "data", remote, step) == (-signal.SIGKILL, RECORDS)
    _check_after_kill(tmp_path / "data", remote)


@every(7, part=2)
@s3_is_long
@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.long)])
def test_kill_before_and_after_each_effect_on_the_store(when: str, tmp_path: Path, remote: str, every: int) -> None:
    """The effects: control, oplog entry, ref, upload begun, three parts, upload completed, index object, commit.

    By default the test kills before every other effect, and after the effects between. Over S3 each kill takes a second
    or more, so the test makes half as many. It kills before the first, the fifth and so on, and after the third, the
    seventh and so on.
    """
    (tmp_path / "remote").mkdir()
    by = every if remote.startswith("s3:") else -(-every // 2)
    first = 1 + (when == "after") * (by // 2)
    for effect in range(first, 50, by):
        directory, prefix = tmp_path / str(effect), f"{remote}/{effect}"
        code, acked = _run(directory, prefix, f"{when}:{effect}")
        assert acked == RECORDS
        _check_after_kill(directory, prefix)
        if code == 0:
            break
    assert 11 <= effect < 11 + by, "ten effects, then a run that was not killed"


@pytest.mark.long
@s3_is_long
def test_a_second_kill_while_recovering_changes_nothing(tmp_path: Path, remote: str) -> None:
    for effect in (4, 7, 9):
        _run(tmp_path / "data", remote, f"after:{effect}")
    _check_after_kill(tmp_path / "data", remote)
