"""Kill -9 while a chain of three routers copies: the last topic has each record once. A child serves a directory.

The child appends to `a`, from which routers copy to `b`, `c` and `d`, and truncates, pauses and makes routers anew. It
says each append that was answered. The machine is lost, too: then the directory comes from its bucket alone.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import offload
import seglog
from offload.operations.router import list_routers, resume
from offload.recovery import Recovered, recover
from tests.work import tell
from tests.worlds.services import directory_of, serving, until

KILLS, SOAK_KILLS = 6, 63
KILLS_A_DIRECTORY = 21
CHAIN = ("a", "b", "c", "d")

CHILD = """
import asyncio, os, random, sys
from pathlib import Path
from offload.daemon import routers
from offload.operations.router import create, list_routers, pause, resume
from tests.worlds.services import directory_of, serving

async def run():
    routers.COLLECT_S = random.Random(int(sys.argv[2])).choice([0.0, 0.0, 0.25])
    chance, begin = random.Random(int(sys.argv[2])), int(sys.argv[3])
    async with serving(Path(sys.argv[1]), sys.argv[4], LOG_PRODUCER_KEEP_S=sys.argv[5]) as service:
        topic, place = service.log.topic("a"), directory_of(service)
        await topic.append([b"%08d" % begin])
        names = {each.router for each in await asyncio.to_thread(lambda: [*list_routers(place)])}
        for name, source, destination in (("x", "a", "b"), ("y", "b", "c"), ("z", "c", "d")):
            if name not in names:
                await asyncio.to_thread(create, place, name, source, destination)
        os.write(1, b"begins\\n")

        async def fill():
            number = begin + 1
            while True:
                count = chance.randint(1, 20)
                values = [b"%08d" % each for each in range(number, number + count)]
                tag, durability = chance.choice([None, "t", "u"]), chance.choice(["fsync", "memory"])
                await topic.append(values, tag=tag, durability=durability)
                number += count
                os.write(1, b"appended %d\\n" % number)
                await asyncio.sleep(chance.choice([0, 0.001]))

        async def disturb():
            while True:
                await asyncio.sleep(chance.uniform(0.01, 0.05))
                name = chance.choice("xyz")
                await asyncio.to_thread(pause, place, name)
                await asyncio.to_thread(resume, place, name)

        await asyncio.gather(fill(), disturb())

asyncio.run(run())
"""


@pytest.mark.long
@pytest.mark.parametrize("keep_s", [604_800, 1])
def test_each_record_is_copied_once_after_kill_9(tmp_path: Path, keep_s: int) -> None:
    assert _shoot(tmp_path, KILLS, seed=1, keep_s=keep_s) > 0


@pytest.mark.long
def test_each_record_is_copied_once_after_kill_9_and_a_recovery(tmp_path: Path) -> None:
    assert _shoot(tmp_path, KILLS, seed=2, is_recovered=True) > 0


@pytest.mark.soak(part=2)
@pytest.mark.parametrize("seed", range(16))
def test_a_thousand_kills_of_routers_in_sixteen_parts(tmp_path: Path, seed: int) -> None:
    keep_s = 1 if seed % 2 else 604_800
    assert _shoot(tmp_path, SOAK_KILLS, seed=seed + 3, keep_s=keep_s, is_recovered=seed % 4 > 1) > 0


def _shoot(tmp_path: Path, kills: int, seed: int, keep_s: int = 604_800, *, is_recovered: bool = False) -> int:
    """Kill so many children. Return the number of records that were copied."""
    chance, count = random.Random(seed), 0
    remote = (tmp_path / "remote").as_uri() if is_recovered else ""
    for shot in range(kills):
        if shot % KILLS_A_DIRECTORY == 0:
            for each in ("data", "remote"):
                shutil.rmtree(tmp_path / each, ignore_errors=True)
            begin, acked = 0, set[int]()
        acked |= _shot(tmp_path / "data", chance, begin, remote, keep_s)
        if keep_s == 1:
            time.sleep(1.1)  # the topics forget the producers when they open
        if is_recovered and shot % 2:
            acked &= _lost_machine(tmp_path, remote)
        begin = _settled(tmp_path / "data", remote, keep_s, acked)
        count += len(acked)
    tell(f"{kills} kills, {count} records behind three routers; doubled or lost: 0")
    return count


def _shot(directory: Path, chance: random.Random, begin: int, remote: str, keep_s: int) -> set[int]:
    """Start a child, kill it soon after it began, and return the numbers of the records that are acked."""
    root = str(Path(__file__).parents[2])
    given = [str(directory), str(chance.randrange(2**32)), str(begin), remote, str(keep_s)]
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, *given],
        stdout=subprocess.PIPE,
        cwd=root,
        env=os.environ | {"PYTHONPATH": root},
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"begins\n"
        time.sleep(chance.uniform(0.05, 0.4))
        child.send_signal(signal.SIGKILL)
        said = child.stdout.read()
    ends = [int(line.split()[1]) for line in said.split(b"\n")[:-1]]
    return {*range(begin, max(ends, default=begin + 1))}


def _lost_machine(tmp_path: Path, remote: str) -> set[int]:
    """Offload some of the topics, and put a directory from the bucket in the place of the old one."""
    with seglog.open(tmp_path / "data") as log, offload.attach(log, remote) as archive:
        for topic in ("_seglog.routers", *CHAIN):
            if log.has_topic(topic):
                log.topic(topic).seal()
                archive.offload(topic)
        kept = {int(record.value) for record in log.topic("a").read()}
    shutil.rmtree(tmp_path / "data")
    assert {type(each) for each in recover(tmp_path / "data", remote, writable=True)} == {Recovered}
    return kept


def _settled(directory: Path, remote: str, keep_s: int, acked: set[int]) -> int:
    """Let the routers copy all, and compare. Return the number of the next record."""

    async def settle() -> int:
        async with serving(directory, remote, LOG_PRODUCER_KEEP_S=str(keep_s)) as service:
            place = directory_of(service)
            await asyncio.sleep(0.05)

            def is_done() -> bool:
                shown = list(list_routers(place))
                for router in shown:
                    assert router.state != "stopped", router
                return all(router.lag_records == 0 for router in shown)

            names = [router.router for router in list_routers(place) if router.state == "paused"]
            for name in names:
                await asyncio.to_thread(resume, place, name)
            await until(is_done, "the copies")
            values = {topic: [int(record.value) for record in service.sync.topic(topic).read()] for topic in CHAIN}
            for topic in CHAIN:
                assert values[topic] == sorted({*values[topic]}), f"{topic} has doubles, or another order"
                assert values[topic] == values["a"], f"{topic} is not as a: { ({*values['a']} ^ {*values[topic]}) }"
            assert acked <= {*values["a"]}
            return values["a"][-1] + 1

    return asyncio.run(settle())
