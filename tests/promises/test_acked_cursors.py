"""Kill -9 while cursors are acked: no acked position is lost. A child serves a directory, and acks until it dies.

Several readers share two cursors. The child says each ack that was answered.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import seglog
from seglog.delivery.cursor import TOPIC
from seglog.delivery.cursor_states import CursorStates
from tests.work import tell

KILLS, SOAK_KILLS = 6, 125
KILLS_A_DIRECTORY = 25
CURSORS = ("billing", "audit")

CHILD = """
import asyncio, os, random, sys
from pathlib import Path
from offload.operations.command import Directory
from offload.operations.cursor import create, loaded_states
from tests.worlds.services import serving

async def run():
    chance = random.Random(int(sys.argv[2]))
    async with serving(Path(sys.argv[1]), "") as service:
        topic = service.log.topic("orders")
        await topic.append([b"x"] * 400)
        states = loaded_states(service.sync, None)
        for name in ("billing", "audit"):
            if not states.has("orders", name):
                create(Directory(lambda: (service.sync, None), None), "orders", name, "earliest")
        epoch = topic.sync.epoch
        os.write(1, b"begins\\n")

        async def read(name):
            while True:
                position = await service.cursors.position("orders", name)
                head_seq, count = topic.sync.head_seq, chance.randint(1, 3)
                seqs = [min(head_seq, position.seq + chance.randint(1, 9)) for _ in range(count)]
                await service.cursors.ack("orders", name, seqs, epoch)
                os.write(1, b"acked %s %s\\n" % (name.encode(), b",".join(b"%d" % seq for seq in seqs)))
                await asyncio.sleep(0)

        async def fill():
            while True:
                await topic.append([b"y"] * 20)
                await asyncio.sleep(0.001)

        await asyncio.gather(fill(), *(read(name) for name in ("billing", "audit") for _ in range(3)))

asyncio.run(run())
"""


@pytest.mark.long
def test_no_acked_position_is_lost_after_kill_9(tmp_path: Path) -> None:
    assert _shoot(tmp_path, KILLS, seed=1) > 0


@pytest.mark.soak(part=2)
@pytest.mark.parametrize("seed", range(8))
def test_a_thousand_kills_in_eight_parts(tmp_path: Path, seed: int) -> None:
    assert _shoot(tmp_path, SOAK_KILLS, seed=seed + 2) > 0


def _shoot(tmp_path: Path, kills: int, seed: int) -> int:
    """Kill so many children. Return the number of acks that were answered."""
    chance = random.Random(seed)
    count = 0
    acked: dict[str, set[int]] = {name: set() for name in CURSORS}
    for shot in range(kills):
        if shot % KILLS_A_DIRECTORY == 0:
            shutil.rmtree(tmp_path / "data", ignore_errors=True)
            acked = {name: set() for name in CURSORS}
        for line in _shot(tmp_path / "data", chance).split(b"\n")[:-1]:
            if line.startswith(b"acked "):
                _, name, seqs = line.decode().split()
                acked[name] |= {int(seq) for seq in seqs.split(",")}
                count += 1
        with seglog.open(tmp_path / "data") as log:
            states = CursorStates.of(log)
            states.load(log.topic(TOPIC).read)
            for name, seqs in acked.items():
                cursor = states.find("orders", name)
                assert not {seq for seq in seqs if seq > cursor.floor and seq not in cursor.acked_above}
                assert cursor.floor <= log.topic("orders").head_seq
    tell(f"{kills} kills, {count} acks of cursors; lost: 0")
    return count


def _shot(directory: Path, chance: random.Random) -> bytes:
    """Start a child, kill it soon after it began to ack, and return its output."""
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(directory), str(chance.randrange(2**32))],
        stdout=subprocess.PIPE,
        cwd=root,
        env=os.environ | {"PYTHONPATH": root},
    ) as child:
        assert child.stdout is not None
        first = child.stdout.readline()
        assert first == b"begins\n"
        time.sleep(chance.uniform(0.0, 0.2))
        child.send_signal(signal.SIGKILL)
        return first + child.stdout.read()
