"""Test streams where two requests meet."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import seglog
from offload.daemon.service import Service
from offload.daemon.streams import store
from offload.daemon.streams.errors import NoSuchStream, StreamExists
from offload.daemon.streams.live import Live
from offload.daemon.streams.reads import is_news, next_piece, read_piece
from offload.daemon.streams.requests import Fork, create_of
from offload.daemon.streams.store import Streams
from tests.offload.daemon.conftest import HandClock, serving

_TEXT = create_of({"content-type": "text/plain"})


def test_a_sweep_never_deletes_a_stream_that_was_made_again_meanwhile(tmp_path: Path) -> None:
    entry = {"content_type": "text/plain", "base": 0, "own": 0}
    entries = (
        {**entry, "path": "old", "topic": "old", "state": "live", "ttl_s": 1},
        {**entry, "path": "b", "topic": "b", "state": "dying"},
    )
    with seglog.open(tmp_path / "d") as log:
        log.topic("_streams").append([json.dumps(each).encode() for each in entries])
        log.topic("b").append([b"former"])

    async def run() -> None:
        clock = HandClock()
        async with serving(tmp_path / "d", "", clock) as service:
            streams = Streams(service)
            old = await streams.find("old")
            async with old.turns.shared():  # as an append does that takes long
                clock.now += 20_000
                sweeping = asyncio.create_task(streams.create("c", _TEXT, b""))
                for _ in range(20):  # the sweep waits for the turn of `old`
                    await asyncio.sleep(0)
                assert (await streams.create("b", _TEXT, b"new"))[0]
            await sweeping
            live = await streams.find("b")
            assert (await read_piece(service, live, live.entry.base)).values == (b"new",)

    asyncio.run(run())


def test_a_source_that_is_deleted_while_a_fork_is_made_gives_no_fork_without_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with serving(tmp_path / "d", (tmp_path / "remote").as_uri()) as service:
            streams, divergence = Streams(service), store.divergence

            async def then_delete(service: Service, source: Live, fork: Fork) -> tuple[int, bytes]:
                found = await divergence(service, source, fork)
                await streams.delete("source")
                return found

            monkeypatch.setattr(store, "divergence", then_delete)
            await streams.create("source", _TEXT, b"inherited")
            wanted = create_of({"stream-forked-from": "/streams/source"})
            with pytest.raises(StreamExists, match="its source source was deleted"):
                await streams.create("fork", wanted, b"")
            with pytest.raises(NoSuchStream):
                await streams.find("fork")

    asyncio.run(run())


def test_a_truncation_between_a_read_and_the_wait_is_news(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path / "d", "") as service:
            _, live = await Streams(service).create("s", _TEXT, b"one")
            epoch = live.topic.epoch
            assert await next_piece(service, live, 1, epoch) is not None
            live.topic.truncate(1)
            assert await is_news(service, live, 1, 20)
            assert await next_piece(service, live, 1, epoch) is None

    asyncio.run(run())
