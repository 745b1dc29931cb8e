"""Each (volume, LSN) has at most one commit. Of two writers one wins, the other gets an error, and nothing is lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import offload
import seglog
from catalog import Branches, Volumes
from catalog.errors import Diverged
from offload.wiring import open_store
from tests.seams.archive import context_of
from tests.worlds.remotes import s3_is_long

_ROOT = Path(__file__).parents[2]


@s3_is_long
def test_two_processes_that_offload_the_same_range(tmp_path: Path, remote: str) -> None:
    with seglog.open(tmp_path / "one") as log, offload.attach(log, remote) as archive:
        log.topic("t").append([b"a"])
        log.topic("t").seal()
        archive.offload("t")
        log.topic("t").append([b"b"])
        log.topic("t").seal()
    shutil.copytree(tmp_path / "one", tmp_path / "two")

    command = [sys.executable, "-m", "offload", "--remote", remote, "-C"]
    processes = [
        subprocess.Popen(
            [*command, str(tmp_path / name), "offload", "t", "--drop-hot"], cwd=_ROOT, stderr=subprocess.PIPE
        )
        for name in ("one", "two")
    ]
    errors = [process.communicate(timeout=120)[1].decode() for process in processes]
    codes = [process.returncode for process in processes]
    assert sorted(codes) == [0, 4], errors
    loser = codes.index(4)
    assert "t has diverged: lsn 2" in errors[loser]

    store = open_store(remote)
    assert sum("/log/" in key for key in store.list("")) == 2
    for name, lost in (("one", loser == 0), ("two", loser == 1)):
        with seglog.open(tmp_path / name) as log, offload.attach(log, remote) as archive:
            assert [record.value for record in log.topic("t").read()] == [b"a", b"b"]
            status = archive.status.topic("t")
            assert status.diverged_lsn == (2 if lost else None)
            assert status.hot_first_seq == (1 if lost else 3)  # the loser keeps the records that it could not commit
            if lost:
                with pytest.raises(Diverged):
                    archive.offload("t")


def test_a_topic_whose_name_is_taken_by_another_history_is_told(tmp_path: Path, remote: str) -> None:
    for name in ("one", "two"):
        with seglog.open(tmp_path / name) as log, offload.attach(log, remote) as archive:
            log.topic("t").append([name.encode()])
            log.topic("t").seal()
            if name == "one":
                archive.offload("t")
                continue
            with pytest.raises(Diverged) as caught:
                archive.offload("t")
            assert caught.value.exit_code == 4
            assert [record.value for record in log.topic("t").read()] == [b"two"]


@s3_is_long
def test_processes_that_race_commits_to_one_volume(tmp_path: Path, remote: str) -> None:
    """No LSN appears twice, no LSN is missing, every acked commit is there, and the chain is whole.

    Five processes race. Over S3 there are three, because each imports its client.
    """
    racers, commits = 3 if remote.startswith("s3:") else 5, 8
    with seglog.open(tmp_path / "data") as log, offload.attach(log, remote) as archive:
        vid = Branches(context_of(archive).volumes).create("race", now_ms=0)
    command = [sys.executable, "-m", "tests.faults.racer", remote, str(vid), str(commits)]
    processes = [
        subprocess.Popen(
            [*command, f"racer-{number}"], cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for number in range(racers)
    ]
    answers = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0] * racers, [error for _, error in answers]
    acked = [line.split() for out, _ in answers for line in out.splitlines()]
    assert sorted(int(lsn) for lsn, _ in acked) == list(range(1, racers * commits + 1))

    volumes = Volumes(open_store(remote))
    stored = volumes.commits(vid, 1, volumes.newest_lsn(vid))
    assert {each.commit.lsn: each.hash.hex() for each in stored} == {int(lsn): digest for lsn, digest in acked}
    for name in {each.commit.writer_id for each in stored}:
        numbers = [each.commit.created_at_ms for each in stored if each.commit.writer_id == name]
        assert numbers == list(range(commits))
