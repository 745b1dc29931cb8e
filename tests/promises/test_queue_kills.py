"""Kill -9 while jobs are claimed and acked: no acked job comes again, and no job is lost. A child serves and works."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import seglog
from seglog.delivery.queue import TOPIC
from seglog.delivery.queue_states import QueueStates
from tests.work import tell

KILLS, SOAK_KILLS = 6, 125

CHILD = """
import asyncio, os, random, sys
from pathlib import Path
from offload.operations.command import Directory
from offload.operations.queue import create, loaded_states
from tests.worlds.services import serving

async def run():
    chance = random.Random(int(sys.argv[2]))
    async with serving(Path(sys.argv[1]), "") as service:
        topic, queues = service.log.topic("orders"), service.queues
        await topic.append([b"x"] * 50)
        if not loaded_states(service.sync, None).has("orders", "billing"):
            create(Directory(lambda: (service.sync, None), None), "orders", "billing", lease="50ms", dead_letter="dead",
                   max_deliver=3, max_dead_per_minute=1000000)
        os.write(1, b"begins\\n")

        async def work():
            while True:
                jobs = await queues.claim("orders", "billing", chance.randint(1, 5), 0.05)
                ids = [(job.record.seq, job.lease_id) for job in jobs]
                os.write(1, b"got %s\\n" % b",".join(b"%d" % seq for seq, _ in ids))
                kind = chance.random()
                if ids and kind < 0.7:
                    try:
                        settled = await queues.ack("orders", "billing", ids)
                    except Exception:
                        continue
                    os.write(1, b"acked %s\\n" % b",".join(b"%d" % seq for seq in settled.done))
                elif ids and kind < 0.85:
                    try:
                        await queues.nack("orders", "billing", ids)
                    except Exception:
                        continue

        async def fill():
            while True:
                await topic.append([b"y"] * 5)
                await asyncio.sleep(0.002)

        await asyncio.gather(fill(), *(work() for _ in range(4)))

asyncio.run(run())
"""


@pytest.mark.long
def test_no_job_is_lost_or_comes_again_after_kill_9(tmp_path: Path) -> None:
    assert _shoot(tmp_path, KILLS, seed=1) > 0


@pytest.mark.soak(part=2)
@pytest.mark.parametrize("seed", range(8))
def test_a_thousand_kills_of_workers_in_eight_parts(tmp_path: Path, seed: int) -> None:
    assert _shoot(tmp_path, SOAK_KILLS, seed=seed + 2) > 0


def _shoot(tmp_path: Path, kills: int, seed: int) -> int:
    """Kill so many children. Return the number of jobs that were acked."""
    chance, acked = random.Random(seed), set[int]()
    for _ in range(kills):
        begun = {*acked}
        for line in _shot(tmp_path / "data", chance).split(b"\n")[:-1]:
            kind, _, seqs = line.partition(b" ")
            jobs = {int(seq) for seq in seqs.split(b",")} if seqs else set()
            if kind == b"acked":
                acked |= jobs
            elif kind == b"got":
                assert not jobs & begun, "an acked job came again"
        with seglog.open(tmp_path / "data") as log:
            states = QueueStates.of(log)
            states.load(log.topic(TOPIC).read)
            queue = states.find("orders", "billing")
            above = queue.cursor.acked_above
            now = {seq for seq in range(1, queue.next_seq) if seq <= queue.cursor.floor or seq in above}
            assert acked <= now
            for seq in range(1, queue.next_seq):
                assert (seq in queue.jobs) + (seq in queue.waiting) + (seq in queue.dying) + (seq in now) == 1
            letters = [record.node for record in log.topic("dead").read()] if log.has_topic("dead") else []
            assert len(letters) == len({*letters}), "a letter is there twice"
            assert len(now - acked) >= len(letters) - len(queue.dying)
    tell(f"{kills} kills, {len(acked)} jobs acked; lost: 0, again: 0")
    return len(acked)


def _shot(directory: Path, chance: random.Random) -> bytes:
    """Start a child, kill it soon after it began to work, and return its output."""
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
        time.sleep(chance.uniform(0.05, 0.3))
        child.send_signal(signal.SIGKILL)
        return first + child.stdout.read()
