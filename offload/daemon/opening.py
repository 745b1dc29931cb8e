"""The opening of a data directory as a service of the daemon."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import offload
from catalog.objects.base import ObjectStore
from offload.daemon.gate import Gate, GatedStore
from offload.daemon.live_settings import LiveSettings
from offload.daemon.metrics import MeteredFiles, Metrics
from offload.daemon.service import Service
from offload.daemon.stopping import StopEvent
from offload.daemon.tenant_aws import open_aws
from offload.settings import PROCESS
from offload.settings_file import Settings
from offload.wiring import check_remote_apart, open_store
from offload.worker.pool import WorkerPool
from seglog import aio
from seglog.files.clock import Clock, SystemClock
from seglog.files.port import Files

if TYPE_CHECKING:
    from catalog.objects.s3_credentials import CredentialSource
    from offload.tenants.credentials import Refresher

__all__ = ["open_service"]


async def open_service(
    directory: Path,
    settings: Settings,
    *,
    remote: str | None = None,
    store: ObjectStore | None = None,
    clock: Clock | None = None,
    is_alone: bool = True,
    files: Files | None = None,
    refresher: Callable[[], Refresher] | None = None,
) -> Service:
    """Open the data directory, and attach its remote if it has one. The background tasks do not run yet.

    `is_alone` says that the process has no other service (`Metrics`). `files` is the file system of the log, instead of
    the operating system's with its metrics. All services of a process may share what `refresher` returns: it renews the
    credentials of their tenants.

    Raises the errors of `seglog.open` and `offload.attach`, and then leaves nothing open.
    """
    url, loaded = remote or settings.url, LiveSettings.of(settings)
    metrics, stopping, clock = Metrics(settings.tenant.name, is_alone=is_alone), StopEvent(), clock or SystemClock()
    files = files or MeteredFiles(metrics)
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(
            aio.open(directory, create=False, settings=settings.log, files=files, clock=clock)
        )
        gate = Gate.of(metrics, loaded.offload, stopping)
        archive = workers = aws = None
        if store is None and url:
            check_remote_apart(url, log.sync.path)
            aws = open_aws(settings, url, metrics, refresher)
            if aws is not None:
                stack.push_async_callback(aws.close)
            credentials = None if aws is None else aws.credentials
            store = open_store(url, settings.cold, loaded.offload, credentials)
            workers = _workers(store, settings, gate, credentials, None if is_alone else 1)
        if store is not None:
            gated = GatedStore(store, gate)
            archive = offload.attach(log.sync, url, store=gated, settings=settings, clock=clock, uploader=workers)
        service = Service(log, archive, loaded, metrics, clock, stopping, gate, workers, aws)
        stack.pop_all()
        return service


def _workers(
    store: ObjectStore, settings: Settings, gate: Gate, credentials: CredentialSource | None, most: int | None
) -> WorkerPool | None:
    """Return the worker processes for uploads; None if the settings want uploads in this process.

    A worker opens the store by its URL. So uploads to a store that the caller gives stay in this process.
    """
    if settings.offload.worker != PROCESS:
        return None
    return WorkerPool(store.url, settings.cold, settings.offload, gate, credentials=credentials, most=most)
