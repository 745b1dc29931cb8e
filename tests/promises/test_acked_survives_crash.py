"""A record acked at fsync survives kill -9, once and in order. A child appends and acks until the parent kills it.

Several threads write to several topics. Each record holds the hash of the writer's record before it. So a lost, doubled
or reordered record breaks the chain. The child sends the acks over a pipe to the parent, which remembers them.
The number of WAL shards changes from one opening to the next.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import seglog
from seglog.files.file_system import OsFiles
from tests.work import tell
from tests.worlds.chains import SETTINGS, WRITERS, chain_of

KILLS, SOAK_KILLS = 6, 400

CHILD = """
import os, sys, threading
from dataclasses import replace
import seglog
from tests.worlds.chains import SETTINGS, WRITERS, chain_of, link

log = seglog.open(sys.argv[1], settings=replace(SETTINGS, wal_shards=int(sys.argv[2])))
log.create_topic("shots") if not log.has_topic("shots") else None

def write(writer):
    number, last = chain_of(log, writer)
    os.write(1, b"begins %d %d\\n" % (writer, number))
    while True:
        size = number % 5 + 1
        values = []
        for i in range(size):
            last = link(writer, number + i, last)
            values.append(last)
        log.topic("t%d" % (writer % 2)).append(values)
        number += size
        os.write(1, b"acked %d %d\\n" % (writer, number))
        if number % 50 < 5:
            log.topic("t%d" % (writer % 2)).seal()

for writer in range(WRITERS):
    threading.Thread(target=write, args=(writer,)).start()
"""


def test_nothing_acked_is_missing_or_twice_or_out_of_order_after_kill_9(tmp_path: Path) -> None:
    assert _shoot(tmp_path, kills=KILLS, seed=1) > 0


@pytest.mark.soak(part=2)
def test_hundreds_of_kills(tmp_path: Path) -> None:
    assert _shoot(tmp_path, kills=SOAK_KILLS, seed=2) > 0


def _shoot(tmp_path: Path, *, kills: int, seed: int) -> int:
    """Kill so many children. Start a new directory after every fifty kills. Return the number of records."""
    chance = random.Random(seed)
    acked = dict.fromkeys(range(WRITERS), 0)
    total = shots = 0
    while shots < kills:
        if shots % 50 == 0:
            shutil.rmtree(tmp_path / "data", ignore_errors=True)
            total += sum(acked.values())
            acked = dict.fromkeys(range(WRITERS), 0)
        shots += 1
        output = _shot(tmp_path / "data", after_s=chance.uniform(0.0, 0.12), shards=chance.choice((1, 1, 2, 3)))
        for line in output.split(b"\n")[:-1]:
            word, writer, number = line.split()
            if word == b"acked":
                acked[int(writer)] = int(number)
        with seglog.open(tmp_path / "data", settings=replace(SETTINGS, wal_shards=chance.choice((1, 2, 3)))) as log:
            for writer, least in acked.items():
                found, _ = chain_of(log, writer)
                assert found >= least
                acked[writer] = found
    total += sum(acked.values())
    tell(f"{shots} kills, {total} records; lost, doubled, reordered: 0")
    return total


def _shot(directory: Path, after_s: float, shards: int) -> bytes:
    """Start a child, kill it `after_s` seconds after it began to append, and return its output."""
    root = str(Path(__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": root}
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(directory), str(shards)], stdout=subprocess.PIPE, cwd=root, env=environment
    ) as child:
        assert child.stdout is not None
        first = child.stdout.readline()
        time.sleep(after_s)
        child.send_signal(signal.SIGKILL)
        return first + child.stdout.read()


def test_what_was_acked_without_fsync_survives_the_process_too(tmp_path: Path) -> None:
    log = seglog.open(tmp_path / "data", files=OsFiles())
    log.topic("t").append([b"x"] * 10, durability="disk")
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(tmp_path / "data"), str(copy)], check=True)
    log.close()
    with seglog.open(copy) as log:
        assert len(list(log.topic("t").read())) == 10
