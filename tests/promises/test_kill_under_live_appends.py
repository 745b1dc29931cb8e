"""Kill -9 in a loop, while a process appends and offloads at once: no acked record is missing or there twice."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest

import offload
import seglog
from catalog import CommitKind
from offload import Archive
from offload.wiring import open_store
from tests.faults.busy_way import TOPIC, value
from tests.faults.front import Front
from tests.faults.offloads import SMALL_BLOCKS, SMALL_LOG
from tests.s3_server import AS_HARNESS
from tests.work import tell

KILLS, SOAK_KILLS = 2, 150
KILLS_A_DIRECTORY = 10
MOST_EFFECTS = 40
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Place:
    """A remote. If the remote is an S3 server, children reach it through `front`."""

    url: str
    front: Front | None

    def settle(self) -> None:
        """Wait until the requests of a killed process have had their effect."""
        if self.front is not None:
            self.front.await_left()


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    if request.param == "file":
        (tmp_path / "remote").mkdir()
        yield Place((tmp_path / "remote").as_uri(), None)
        return
    endpoint = request.getfixturevalue("moto_endpoint")
    request.getfixturevalue("s3_environment")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    bucket = f"busy-{uuid.uuid4().hex[:12]}"
    client = boto3.client("s3", **AS_HARNESS)
    client.create_bucket(Bucket=bucket)
    client.close()
    with Front(endpoint) as front:
        yield Place(f"s3://{bucket}/acme", front)


def _shot(directory: Path, place: Place, remote: str, step: str, after_s: float) -> int:
    """Return the last seq that a child saw acked before it died.

    The child kills itself at `step`, or the test kills it `after_s` seconds after its first record.
    """
    environment = os.environ | ({} if place.front is None else {"AWS_ENDPOINT_URL": place.front.url})
    with subprocess.Popen(
        [sys.executable, "-m", "tests.faults.busy_way", str(directory), remote, step],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=_ROOT, env=environment,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stderr is not None
        first = child.stdout.readline()
        shooter = threading.Timer(after_s, child.send_signal, [signal.SIGKILL])
        shooter.start()
        acked = [int(line.split()[1]) for line in (first + child.stdout.read()).splitlines() if line.count(b" ")]
        complaint = child.stderr.read().decode()
        shooter.cancel()
    assert child.returncode == -signal.SIGKILL, complaint
    place.settle()
    return max(acked, default=0)


def _read_all(log: seglog.Log) -> int:
    """Return the number of records. Assert that each record follows the one before it."""
    number = 0
    for number, record in enumerate(log.topic(TOPIC).read(), start=1):
        assert (record.seq, record.value) == (number, value(number))
    return number


def _check_finished(archive: Archive, remote: str) -> None:
    """Assert that every run is in exactly one commit, and that the store holds nothing else."""
    runs = [past.commit for past in archive.history.commits(TOPIC)][::-1]
    assert {commit.kind for commit in runs} <= {CommitKind.OFFLOAD}
    segments = [segment for commit in runs for segment in commit.segments]
    assert [segment.first_seq for segment in segments] == [1, *(segment.last_seq + 1 for segment in segments[:-1])]
    status = archive.status.topic(TOPIC)
    assert (status.pending_lsn, status.unfinished_attempts, status.diverged_lsn) == (None, 0, None)
    with closing(open_store(remote)) as store:
        objects = {key.rpartition("/")[2].removesuffix(".index") for key in store.list("") if "/segments/" in key}
        assert objects == {str(segment.sid) for segment in segments}
        assert list(store.list_uploads("")) == []


def _shoot(tmp_path: Path, place: Place, *, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    shots = total = 0
    while shots < kills:
        directory, remote = tmp_path / f"{shots}", f"{place.url}/{shots}"
        acked = 0
        for _ in range(min(KILLS_A_DIRECTORY, kills - shots)):
            shots += 1
            step = chance.choice(["none", f"before:{chance.randint(1, MOST_EFFECTS)}"])
            step = step.replace("before", chance.choice(["before", "after"]))
            acked = max(acked, _shot(directory, place, remote, step, after_s=chance.uniform(0.0, 1.5)))
            with (
                seglog.open(directory, settings=SMALL_LOG) as log,
                offload.attach(log, remote, settings=offload.Settings().with_parts(SMALL_BLOCKS)),
            ):
                if log.has_topic(TOPIC):
                    assert _read_all(log) >= acked
        with (
            seglog.open(directory, settings=SMALL_LOG) as log,
            offload.attach(log, remote, settings=offload.Settings().with_parts(SMALL_BLOCKS)) as archive,
        ):
            log.topic(TOPIC).seal()
            archive.offload(TOPIC, drop_hot=True)
            assert log.topic(TOPIC).inner.hot_floor == log.topic(TOPIC).head_seq + 1
            total += _read_all(log)
            _check_finished(archive, remote)
        shutil.rmtree(directory)
    tell(f"{shots} kills, {total} records; lost, doubled, orphaned: 0")
    assert total > 0


def test_a_few_kills_while_it_offloads(tmp_path: Path, place: Place) -> None:
    _shoot(tmp_path, place, kills=KILLS, seed=12)


@pytest.mark.soak(part=8)
def test_many_kills_while_it_offloads(tmp_path: Path, place: Place) -> None:
    _shoot(tmp_path, place, kills=SOAK_KILLS, seed=13)
