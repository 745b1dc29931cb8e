"""A record acked at fsync survives kill -9, once and in order: a child appends and acks until it is shot."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import seglog
from seglog import LogSettings
from seglog.files import OsFiles

KILLS = 25
WRITERS = 3
SETTINGS = LogSettings(segment_max_events=100, wal_file_bytes=64 * 1024)

CHILD = """
import os, sys, threading
import seglog
from tests.promises.test_acked_survives_crash import SETTINGS, WRITERS, count

log = seglog.open(sys.argv[1], settings=SETTINGS)
log.create_topic("shots") if not log.has_topic("shots") else None

def write(writer):
    number = count(log, writer)
    os.write(1, b"begins %d %d\\n" % (writer, number))
    while True:
        size = number % 5 + 1
        values = [b"%d %d %s" % (writer, number + i, b"." * (number % 300)) for i in range(size)]
        log.topic("t%d" % (writer % 2)).append(values)
        number += size
        os.write(1, b"acked %d %d\\n" % (writer, number))
        if number % 50 < 5:
            log.topic("t%d" % (writer % 2)).seal()

for writer in range(WRITERS):
    threading.Thread(target=write, args=(writer,)).start()
"""


def numbers(log: seglog.Log, writer: int) -> list[int]:
    """Of the records of that writer, in the order they are in."""
    topic = log.topic(f"t{writer % 2}")
    if not topic.exists:
        return []
    return [int(record.value.split()[1]) for record in topic.read() if record.value.startswith(b"%d " % writer)]


def count(log: seglog.Log, writer: int) -> int:
    return len(numbers(log, writer))


def test_nothing_acked_is_missing_or_twice_or_out_of_order_after_kill_9(tmp_path: Path) -> None:
    chance = random.Random(1)
    acked = dict.fromkeys(range(WRITERS), 0)
    for _ in range(KILLS):
        output = _shot(tmp_path / "data", after_s=chance.uniform(0.0, 0.12))
        for line in output.split(b"\n")[:-1]:
            word, writer, number = line.split()
            if word == b"acked":
                acked[int(writer)] = int(number)
        with seglog.open(tmp_path / "data", settings=SETTINGS) as log:
            for writer, least in acked.items():
                found = numbers(log, writer)
                assert found == list(range(len(found)))
                assert len(found) >= least
                acked[writer] = len(found)
    total = sum(acked.values())
    print(f"{KILLS} kills, {total} records; lost, doubled, reordered: 0")
    assert total > 0


def _shot(directory: Path, after_s: float) -> bytes:
    """What a child told before it was killed, that long after it had begun to append."""
    root = str(Path(__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": root}
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(directory)], stdout=subprocess.PIPE, cwd=root, env=environment
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
