"""Each record is copied once, whatever a power cut leaves: over pages, pairs, truncations, pauses and new routers.

A life appends to `a`, which routers copy to `b` and `c`, truncates topics, and pauses. The test recovers legal images
after effects on the disk, lets the routers go on, and looks at what `b` and `c` have. Each value has a number of its
own, in the order of the appends.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest

import seglog
from offload.daemon import routers
from offload.daemon.service import Service, open_service
from offload.operations import router as operations
from offload.operations.removal import truncate
from offload.settings import read_settings
from seglog import LogSettings
from seglog.engine.work_thread import InCaller
from tests.faults.disk import Image, Moment, SimulatedDisk
from tests.faults.stride import every
from tests.seams.delivery import look_at_routers
from tests.work import tell
from tests.worlds.clock import HandClock
from tests.worlds.services import directory_of, until

DIRECTORY = Path("/log")
WAL_FILE_BYTES = 8192
LATER_MS = 10_000

Step: TypeAlias = Callable[["World"], Awaitable[object]]


@dataclass
class World:
    """A daemon's service on a simulated disk, and the number of the next value."""

    service: Service
    next: int = 0

    async def append(self, count: int, durability: str = "fsync", tag: str | None = None) -> None:
        values = [b"%06d" % number for number in range(self.next, self.next + count)]
        self.next += count
        await self.service.log.topic("a").append(values, durability=durability, tag=tag)

    async def command(self, do: Callable[..., object], *given: object, **options: object) -> None:
        await asyncio.to_thread(do, directory_of(self.service), *given, **options)
        await look_at_routers(self.service.routers)

    async def settle(self) -> None:
        """Let the routers copy all."""
        if not self.service.sync.has_topic(operations.TOPIC):
            return
        await look_at_routers(self.service.routers)

        def is_done() -> bool:
            shown = list(operations.list_routers(directory_of(self.service)))
            return all(router.state == "paused" or router.lag_records == 0 for router in shown)

        try:
            await until(is_done, "the copies")
        except AssertionError as error:
            error.add_note(str(list(operations.list_routers(directory_of(self.service)))))
            raise

    def numbers(self, topic: str) -> list[int]:
        sync = self.service.sync
        return [int(record.value) for record in sync.topic(topic).read()] if sync.has_topic(topic) else []


def append(count: int, durability: str = "fsync", tag: str | None = None) -> Step:
    return lambda world: world.append(count, durability, tag)


def made(name: str, source: str, destination: str) -> Step:
    return lambda world: world.command(operations.create, name, source, destination)


def cut(topic: str, seq: int) -> Step:
    return lambda world: world.command(truncate, topic, seq, yes=True)


def on(do: Callable[..., object], name: str) -> Step:
    return lambda world: world.command(do, name)


async def settle(world: World) -> None:
    await world.settle()


STEPS: tuple[Step, ...] = (
    append(3),
    made("r", "a", "b"),
    settle,
    append(2, "memory", "x"),
    append(2, "memory"),
    made("s", "b", "c"),
    settle,
    append(4, tag="y"),
    cut("a", 6),
    append(3),
    settle,
    cut("b", 9),
    append(1),
    settle,
    on(operations.pause, "r"),
    append(9, "memory"),
    on(operations.resume, "r"),
    settle,
    cut("a", 2),
    cut("a", 1),
    append(30, "memory", "z"),
    append(1),
    settle,
    cut("c", 3),
    settle,
)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.CRITICAL, "seglog")
    monkeypatch.setattr(routers, "PAIR_RECORDS", 8)
    monkeypatch.setattr(routers, "COLLECT_S", 0.0)


async def in_world(
    disk: SimulatedDisk,
    settings: Path,
    clock: HandClock,
    given: dict[str, str],
    act: Callable[[World], Awaitable[object]],
) -> None:
    service = await open_service(DIRECTORY, read_settings(settings, given), clock=clock, files=disk)
    try:
        await act(World(service))
    finally:
        await service.close()


@dataclass
class Life:
    """What a life has done so far: the step, and what each truncation took of which topic."""

    done: int = 0
    removed: dict[str, set[int]] = field(default_factory=lambda: {topic: set[int]() for topic in "abc"})
    going: dict[str, set[int]] = field(default_factory=lambda: {topic: set[int]() for topic in "abc"})

    def copy(self) -> Life:
        return Life(
            self.done, *({topic: {*seen} for topic, seen in each.items()} for each in (self.removed, self.going))
        )


def live(disk: SimulatedDisk, settings: Path, given: dict[str, str], life: Life) -> None:
    async def act(world: World) -> None:
        for step in STEPS:
            before = {topic: {*world.numbers(topic)} for topic in "abc"}
            life.going = before if "cut" in step.__qualname__ else {topic: set() for topic in "abc"}
            await step(world)
            if "cut" in step.__qualname__:
                for topic in "abc":
                    life.removed[topic] |= before[topic] - {*world.numbers(topic)}
            life.done += 1
        life.going = {topic: set() for topic in "abc"}

    asyncio.run(in_world(disk, settings, HandClock(), given, act))


def judge(image: Image, life: Life, settings: Path, given: dict[str, str]) -> None:
    """Recover the image, let the routers go on, and append more. Each record is copied once, and none stands behind."""
    clock = HandClock()
    clock.ms += LATER_MS  # a producer that is kept for a second is forgotten

    async def go_on(world: World) -> None:
        there = {topic: world.numbers(topic) for topic in "abc"}
        names = (
            [router.router for router in operations.list_routers(directory_of(world.service))] if _has(world) else []
        )
        for name in names:
            await world.command(operations.resume, name)
        world.next = 1_000_000
        await world.append(2)
        await world.settle()
        for name, (source, destination) in (("r", "ab"), ("s", "bc")):
            if name not in names:
                continue
            found, wanted = world.numbers(destination), world.numbers(source)
            assert found == sorted({*found}), f"{name}: doubled, or in another order: {found}"
            lost = {*wanted} - {*found} - life.removed[destination] - life.going[destination]
            assert not lost, f"{name} lost {lost}: {wanted} and {found}"
            assert {*found} <= {*wanted} | life.removed[source] | life.going[source], f"{name} made up {found}"
            gone = life.removed[destination] - {*there[destination]}
            assert not gone & {*found}, f"{name} filled its destination again: {found}"

    asyncio.run(in_world(SimulatedDisk(image), settings, clock, given, go_on))


def _has(world: World) -> bool:
    return world.service.sync.has_topic(operations.TOPIC)


@pytest.mark.long
@pytest.mark.parametrize(("keep_s", "shards"), [(86_400, 1), (1, 1), (1, 3)])
@every(23, part=1)
def test_every_crash_leaves_each_copy_once(every: int, keep_s: int, shards: int, tmp_path: Path) -> None:
    settings = tmp_path / seglog.SETTINGS_FILE
    given = {
        "SEGLOG_LOG_WAL_FILE_BYTES": str(WAL_FILE_BYTES),
        "SEGLOG_LOG_WAL_SHARDS": str(shards),
        "SEGLOG_LOG_PRODUCER_KEEP_S": str(keep_s),
    }
    life = Life()
    moments: list[tuple[Moment, Life]] = []

    def note(disk: SimulatedDisk) -> None:
        moments.append((disk.moment(), life.copy()))

    disk = SimulatedDisk(None, note)
    log = LogSettings(wal_file_bytes=WAL_FILE_BYTES, wal_shards=shards)
    seglog.open(DIRECTORY, files=disk, settings=log, upkeep=InCaller).close()
    moments.clear()
    live(disk, settings, given, life)
    assert life.done == len(STEPS)
    chance, seen = random.Random(33), set[bytes]()
    for index in range(chance.randrange(every), len(moments), every):
        moment, then = moments[index]
        found = list(moment.images(chance, 8))
        for image in chance.sample(found, min(8 if every == 1 else 2, len(found))):
            if image.digest in seen:
                continue
            seen.add(image.digest)
            try:
                judge(image, then, settings, given)
            except BaseException as problem:
                problem.add_note(f"moment {index} of {len(moments)}, after step {then.done}")
                raise
    tell(
        f"{len(moments[::every])} of {len(moments)} moments, {len(seen)} images of routers: each record is copied once"
    )
