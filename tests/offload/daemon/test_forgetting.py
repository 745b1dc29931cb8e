"""A daemon forgets topics and streams that are gone: no container of its process grows with their number."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import deque
from pathlib import Path
from typing import Any

import pytest

import seglog
from offload.daemon import http
from offload.daemon.http import direct
from offload.daemon.service import Service
from offload.daemon.threads import in_threads
from tests.seams.limits import Limit, set_limit
from tests.worlds.asgi import BYTES, asked
from tests.worlds.services import serving, until

_ROUND = 12
_WARM = 2
_CONTAINERS = (dict, list, set, deque)
_OURS = {"seglog", "offload", "catalog"}


def _sizes() -> list[tuple[Any, str, int]]:
    """Return the containers of the process, their names, and their sizes.

    The garbage collector knows no container of plain values alone, so that those of our objects are asked for.
    """
    gc.collect()
    found: dict[int, tuple[Any, str, int]] = {}
    for each in gc.get_objects():
        if isinstance(each, _CONTAINERS):
            found.setdefault(id(each), (each, type(each).__name__, len(each)))
        elif str(getattr(type(each), "__module__", "")).partition(".")[0] in _OURS:
            for name in (*getattr(each, "__dict__", ()), *getattr(each, "__slots__", ())):
                part = getattr(each, name, None)
                if isinstance(part, _CONTAINERS):
                    found[id(part)] = (part, f"{type(each).__qualname__}.{name}", len(part))
    return [each for each in found.values() if not _is_of_sqlite(each[0])]


def _is_of_sqlite(container: Any) -> bool:
    """Return whether it has the cursors of a connection. SQLite forgets those that are gone at each 200th."""
    return isinstance(container, list) and bool(container) and isinstance(container[0], weakref.ref)


async def _lives(service: Service, app: Any, number: int) -> None:
    """Let topics and streams come and go: some that nobody offloads, and some that leave a history in the remote."""
    archive = service.archive
    assert archive is not None
    for each in range(number * _ROUND, (number + 1) * _ROUND):
        for kind in ("short", "long"):
            assert (await asked(app, f"/topics/{kind}-{each}/records", BYTES))[0] == 201
        service.sync.topic(f"long-{each}").seal()
        await until(lambda: archive.status.offloaded_seq(f"long-{each}") == 1, "the offload")  # noqa: B023
        assert [record.value for record in service.sync.topic(f"long-{each}").read()]
        await in_threads(service.cold_reads, archive.delete_topic, f"short-{each}")
        await in_threads(service.cold_reads, lambda: archive.delete_topic(f"long-{each}", detach=True))  # noqa: B023
        assert (await asked(app, f"/streams/s-{each}", BYTES, body=b"x", method="PUT"))[0] == 201
        assert (await asked(app, f"/streams/s-{each}", BYTES, body=b"", method="DELETE"))[0] == 204
    service.sync.checkpoint()
    versions = service.sync.versions
    await until(lambda: not [name for name in versions() if name != "_streams"], "the deletions")


@pytest.mark.long
def test_no_container_of_the_daemon_grows_with_topics_and_streams_that_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limit(monkeypatch, Limit.DURABLE_DIRECTORIES, 40)

    async def run() -> None:
        seglog.open(tmp_path / "d").close()
        remote = (tmp_path / "remote").as_uri()
        given = {"OFFLOAD_OFFLOAD_AFTER_S": "0", "OFFLOAD_WORKER": "thread", "COLD_INDEX_CACHE_BYTES": "0"}
        async with serving(tmp_path / "d", remote, **given) as service:
            app = direct(http.make_app(service))
            for number in range(_WARM):
                await _lives(service, app, number)
            before = _sizes()
            for number in range(_WARM, _WARM + 4):
                await _lives(service, app, number)
            grown = [(name, size, len(each)) for each, name, size in before if len(each) >= size + 2 * _ROUND]
            assert not grown

    asyncio.run(run())
