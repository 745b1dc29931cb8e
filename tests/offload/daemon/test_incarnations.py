"""Test appends over HTTP that name the incarnation of their topic, which another client replaces meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from catalog.objects.memory import MemoryStore
from offload.daemon import http
from offload.daemon.http import appends, direct
from offload.daemon.service import Service
from offload.daemon.threads import in_threads
from tests.worlds.asgi import BYTES, asked
from tests.worlds.services import serving

PATH = "/topics/t/records"
BATCH = ((b"producer-id", b"p"), (b"producer-epoch", b"0"), (b"producer-seq", b"0"))


def named(incarnation: str) -> tuple[bytes, bytes]:
    return b"seglog-if-incarnation", incarnation.encode()


def test_an_append_is_for_the_incarnation_that_it_names(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path / "data", MemoryStore()) as service:
            app = direct(http.make_app(service))
            status, told, _ = await asked(app, PATH, BYTES, named("another"))
            assert (status, told["title"], told["incarnation"]) == (412, "OtherIncarnation", None)
            assert not service.sync.has_topic("t")
            known = (await asked(app, PATH, BYTES))[1]["incarnation"]
            status, told, _ = await asked(app, PATH, BYTES, named(known))
            assert (status, told["first_seq"], told["incarnation"]) == (201, 2, known)
            status, told, _ = await asked(app, PATH, BYTES, named("another"))
            assert (status, told["incarnation"], service.sync.topic("t").head_seq) == (412, known, 2)

    asyncio.run(scenario())


def test_a_batch_that_is_repeated_while_its_topic_is_reset_is_not_there_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reset comes after the first look at the incarnation, and before the log takes the records."""
    prepare = appends.prepare_append

    async def reset_first(service: Service, topic: str) -> None:
        archive: Any = service.archive
        await in_threads(service.local, archive.replication.reset, topic)
        await prepare(service, topic)

    async def scenario() -> None:
        async with serving(tmp_path / "data", MemoryStore()) as service:
            app = direct(http.make_app(service))
            archive: Any = service.archive
            status, told, _ = await asked(app, PATH, BYTES, *BATCH)
            known = told["incarnation"]
            again = await asked(app, PATH, BYTES, *BATCH, named(known))
            assert (status, again[0], again[1]["duplicate"]) == (201, 200, True)
            service.sync.topic("t").seal()
            archive.offload("t")
            monkeypatch.setattr(appends, "prepare_append", reset_first)
            status, told, _ = await asked(app, PATH, BYTES, *BATCH, named(known))
            assert (status, told["title"]) == (412, "OtherIncarnation")
            assert told["incarnation"] == service.sync.topic("t").incarnation() != known
            assert [record.value for record in archive.read("t")] == [b"value"]

    asyncio.run(scenario())
