"""A service in this process, with a store and a clock of the test, and ways to wait for its threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import seglog
from catalog.objects import ObjectStore
from offload.daemon.scheduler.slots import Slots
from offload.daemon.service import Service, open_service
from offload.operations.command import Directory
from offload.settings import read_settings
from tests.worlds.clock import HandClock

__all__ = ["directory_of", "serving", "until"]

_QUICK = {
    "SEGLOG_SERVE_CHECK_INTERVAL_MS": "10",
    "SEGLOG_OFFLOAD_RETRY_MIN_S": "1",
    "SEGLOG_OFFLOAD_BLOCK_SIZE": "33554432",
}


@asynccontextmanager
async def serving(
    directory: Path,
    store: ObjectStore | str,
    clock: HandClock | None = None,
    slots: Slots | None = None,
    **variables: str,
) -> AsyncIterator[Service]:
    """Start a service, and close it at the end. `store` may be a remote's URL. Tenants of one daemon share `slots`.

    `variables` is the environment, without its prefix SEGLOG_.
    """
    seglog.open(directory).close()
    given = {**_QUICK, **{f"SEGLOG_{name}": text for name, text in variables.items()}}
    settings = read_settings(directory / seglog.SETTINGS_FILE, given)
    if isinstance(store, str):
        service = await open_service(directory, settings, remote=store, clock=clock, slots=slots)
    else:
        service = await open_service(directory, settings, store=store, clock=clock, slots=slots)
    try:
        service.start()
        yield service
    finally:
        await service.close()


async def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait until `is_so` returns True. Raise AssertionError after 30 s."""
    for _ in range(3_000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"waited in vain: {what}")


def directory_of(service: Service) -> Directory:
    """Return the directory of a service, as its commands get it."""
    return Directory(lambda: (service.sync, service.archive), None)  # type: ignore[arg-type]
