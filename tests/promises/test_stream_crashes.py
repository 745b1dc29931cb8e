"""A stream is there as a whole or not at all, whatever a power cut leaves: its records, its end and its `Stream-Seq`.

A life makes, appends to, closes and deletes streams, and one of them expires. The test recovers legal images after
effects on the disk. Each stream must be as before or after the request in progress. Then requests about it must find
that state. A closed stream refuses, and a `Stream-Seq` that was taken is refused. A stream that is gone is made empty.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest

import seglog
from offload.daemon.service import Service, open_service
from offload.daemon.streams.appends import append
from offload.daemon.streams.errors import NoSuchStream, StreamRefused
from offload.daemon.streams.live import Live
from offload.daemon.streams.reads import read_piece
from offload.daemon.streams.requests import append_of, create_of
from offload.daemon.streams.store import Streams
from offload.settings import read_settings
from seglog import LogSettings
from seglog.engine.work_thread import InCaller
from tests.faults.disk import Image, Moment, SimulatedDisk
from tests.faults.stride import every
from tests.seams.log import known_mark_secret
from tests.work import tell
from tests.worlds.clock import HandClock

DIRECTORY = Path("/log")
LOG = LogSettings(wal_file_bytes=8192)
PATHS = ("a", "b/c", "d", "e")
TEXT, JSON = {"content-type": "text/plain"}, {"content-type": "application/json"}
CLOSED = {"stream-closed": "true"}


@dataclass(frozen=True)
class Shown:
    """The state of a stream that is there."""

    values: tuple[bytes, ...]
    is_closed: bool
    seq: str | None
    ttl_s: int | None


State: TypeAlias = dict[str, Shown | None]


@dataclass
class World:
    """A daemon's service on a simulated disk."""

    service: Service
    streams: Streams
    clock: HandClock

    async def shown(self) -> State:
        return {path: await self._shown(path) for path in PATHS}

    async def _shown(self, path: str) -> Shown | None:
        try:
            live = await self.streams.find(path, uses=False)
        except NoSuchStream:
            return None
        piece = await read_piece(self.service, live, live.entry.base)
        assert piece.is_closed == live.mark.is_closed
        return Shown(piece.values, live.mark.is_closed, live.mark.seq, live.entry.ttl_s)

    async def post(self, path: str, body: bytes, headers: dict[str, str]) -> Live:
        live = await self.streams.find(path)
        await append(self.service, live, append_of(headers), body)
        return live


Step: TypeAlias = Callable[[World], Awaitable[object]]


def put(path: str, body: bytes = b"", headers: dict[str, str] = TEXT) -> Step:
    return lambda world: world.streams.create(path, create_of(headers), body)


def sweep(after_ms: int) -> Step:
    async def look(world: World) -> None:
        world.clock.ms += after_ms
        await world.streams.sweep()

    return look


def post(path: str, body: bytes, headers: dict[str, str]) -> Step:
    return lambda world: world.post(path, body, headers)


def delete(path: str) -> Step:
    return lambda world: world.streams.delete(path)


def number(number: int) -> dict[str, str]:
    return {**TEXT, "producer-id": "p", "producer-epoch": "0", "producer-seq": str(number)}


STEPS: tuple[Step, ...] = (
    put("a"),
    post("a", b"one", TEXT),
    post("a", b"two", {**TEXT, "stream-seq": "a"}),
    put("b/c", b"[1, 2]", {**JSON, "stream-ttl": "15"}),
    post("b/c", b"[3, 4, 5]", JSON),
    put("d", b"whole", {**TEXT, **CLOSED}),
    post("a", b"three", {**TEXT, **CLOSED, "stream-seq": "b"}),
    delete("d"),
    put("d", b"again"),
    post("d", b"numbered", number(0)),
    post("d", b"", {**CLOSED, "stream-seq": "z"}),
    sweep(20_000),  # b/c has expired
    put("e", b"e"),
    delete("a"),
    put("b/c", b"[6]", JSON),
    put("a", b"anew"),
    post("a", b"x" * 5_000, {**TEXT, "stream-seq": "c"}),
    delete("e"),
)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.CRITICAL, "seglog")
    with known_mark_secret(0x5EC4E7):  # it is in each image
        yield


async def in_world(disk: SimulatedDisk, settings: Path, act: Callable[[World], Awaitable[object]]) -> None:
    clock = HandClock()
    given = read_settings(settings, {"SEGLOG_LOG_WAL_FILE_BYTES": str(LOG.wal_file_bytes)})
    service = await open_service(DIRECTORY, given, clock=clock, files=disk)
    try:
        await act(World(service, Streams(service), clock))
    finally:
        await service.close()


def live(disk: SimulatedDisk, settings: Path, states: list[State], *, look: bool) -> None:
    """Run the steps, and append a state after each one; an empty one unless `look` is set."""
    seglog.open(DIRECTORY, files=disk, settings=LOG, upkeep=InCaller).close()

    async def act(world: World) -> None:
        states.append(dict.fromkeys(PATHS))
        for step in STEPS:
            await step(world)
            states.append(await world.shown() if look else {})

    asyncio.run(in_world(disk, settings, act))


@dataclass
class Images:
    """Recovers images of a life. `dry` are the states after its steps."""

    settings: Path
    dry: list[State]
    seen: set[tuple[bytes, int]] = field(default_factory=set[tuple[bytes, int]])
    refused: int = 0

    def judge(self, image: Image, done: int) -> None:
        """Recover the image. `done` steps were complete, and the next one was in progress."""
        if (image.digest, done) in self.seen:
            return
        self.seen.add((image.digest, done))
        disk, found, after = SimulatedDisk(image), dict[str, State](), dict[str, State]()

        async def look(world: World) -> None:
            found["is"] = await world.shown()
            for path, state in found["is"].items():
                assert state in [self.dry[index][path] for index in (done, min(done + 1, len(STEPS)))], path

        async def use(world: World) -> None:
            assert await world.shown() == found["is"]
            for path, state in found["is"].items():
                await self._use(world, path, state)
            after["is"] = await world.shown()

        async def look_again(world: World) -> None:
            assert await world.shown() == after["is"]

        asyncio.run(in_world(disk, self.settings, look))
        asyncio.run(in_world(disk, self.settings, use))
        asyncio.run(in_world(SimulatedDisk(disk.after_power_cut()), self.settings, look_again))

    async def _use(self, world: World, path: str, state: Shown | None) -> None:
        """Make requests that the state of a stream decides on."""
        if state is None:
            await world.streams.create(path, create_of(TEXT), b"new")
            assert (await world.shown())[path] == Shown((b"new",), is_closed=False, seq=None, ttl_s=None)
            return
        kind = (await world.streams.find(path)).entry.content_type
        headers = {"content-type": kind}
        if state.is_closed:
            with pytest.raises(StreamRefused, match="is closed"):
                await world.post(path, b"[0]", headers)
            self.refused += 1
            return
        if state.seq is not None:
            with pytest.raises(StreamRefused, match="is refused"):
                await world.post(path, b"[0]", {**headers, "stream-seq": state.seq})
            self.refused += 1
        await world.post(path, b"[0]", headers)
        now = (await world.shown())[path]
        assert now is not None
        assert (len(now.values), now.seq) == (len(state.values) + 1, state.seq)


@pytest.mark.long
@every(7, part=1)
def test_every_crash_leaves_streams_whole(every: int, tmp_path: Path) -> None:
    settings = tmp_path / seglog.SETTINGS_FILE
    dry: list[State] = []
    live(SimulatedDisk(), settings, dry, look=True)
    assert dry[6]["d"] == Shown((b"whole",), is_closed=True, seq=None, ttl_s=None)
    assert dry[7]["a"] == Shown((b"one", b"two", b"three"), is_closed=True, seq="b", ttl_s=None)
    done: list[State] = []
    moments: list[tuple[Moment, int]] = []

    def note(disk: SimulatedDisk) -> None:
        if done:  # the data directory is there
            moments.append((disk.moment(), len(done) - 1))

    live(SimulatedDisk(None, note), settings, done, look=False)
    images, chance = Images(settings, dry), random.Random(19)
    for index in range(chance.randrange(every), len(moments), every):
        moment, count = moments[index]
        found = list(moment.images(chance, 8))
        for image in chance.sample(found, min(8 if every == 1 else 2, len(found))):
            try:
                images.judge(image, count)
            except BaseException as problem:
                problem.add_note(f"moment {index}, after step {count}")
                raise
    assert images.refused
    tell(f"{len(moments[::every])} of {len(moments)} moments, {len(images.seen)} images of streams: all whole")
