"""The credentials of 100 tenants from STS, renewed in the event loop in which a task appends.

The refresher is the daemon's own. STS is moto's, a process beside this one. One task appends records of 200 bytes at
`fsync`. `seglog` renews the credentials of all tenants meanwhile, round after round, which a daemon does once in 40
minutes. `without` renews none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks import s3_server
from benchmarks.lines import log_lines
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Report, Row, alone, compare
from benchmarks.runner import Figures
from benchmarks.slices import Open, Slice, in_slices, rate_and_percentiles
from catalog.errors import CatalogError
from catalog.tenants.policies import TenantRole
from offload.tenants.credentials import Refresher
from offload.tenants.sts_request import TenantAccess, policy_text
from seglog import aio

__all__ = ["SUMMARY", "TENANTS", "run"]

SUMMARY = "the credentials of 100 tenants renewed in one event loop, and appends meanwhile"

TENANTS = 100
SIZE_BYTES = 200
_ROLE = "arn:aws:iam::123456789012:role/seglog"
_DURATION_S = 3600


def run(options: Options) -> Report:
    with s3_server.running():
        rounds = in_slices(options, f"{TENANTS} tenants", {"seglog": _subject(TENANTS), "without": _subject(0)})
    rows: list[Row] = []
    for name, figure in (("p50", "p50_us"), ("p99", "p99_us")):
        rows += compare(rounds, f"append meanwhile, {name}", "us", figure, "without", more_is_better=False)
    rows.append(alone(f"{TENANTS} tenants, first credentials", "s", rounds.median("seglog", "first_s")))
    rows.append(alone(f"{TENANTS} tenants, renewed", "s", rounds.median("seglog", "renewed_s")))
    return Report("tenant-credentials", SUMMARY, tuple(rows), describe(options.directory), options.rounds)


class _Tenants:
    """The tenants of one refresher, which are renewed together."""

    def __init__(self, refresher: Refresher, number: int) -> None:
        self._left = number
        self._is_done = asyncio.Event()
        self._error: CatalogError | None = None
        accesses = [_access(f"tenant-{each}") for each in range(number)]
        self._sources = [refresher.add(each, self._watch) for each in accesses]

    def _watch(self, error: CatalogError | None) -> None:
        self._error = self._error or error
        self._left -= 1
        if not self._left:
            self._is_done.set()

    async def until_renewed(self) -> None:
        """Return when each tenant has new credentials. Raises the error of a tenant that got none."""
        await self._is_done.wait()
        if self._error is not None:
            raise self._error

    async def renew(self) -> None:
        self._is_done.clear()
        self._left = len(self._sources)
        for each in self._sources:
            each.wanted.set()
        await self.until_renewed()


def _access(tenant: str) -> TenantAccess:
    policy = policy_text(tenant, TenantRole.WRITER, s3_server.BUCKET, "", None)
    return TenantAccess(tenant, _ROLE, _DURATION_S, policy)


def _subject(number: int) -> Open:
    @contextmanager
    def open_subject(directory: Path) -> Iterator[Slice]:
        with asyncio.Runner() as runner:
            stack = AsyncExitStack()
            work = runner.run(_opened(stack, directory, number))
            try:
                yield lambda slice_s: runner.run(work(slice_s))
            finally:
                runner.run(stack.aclose())

    return open_subject


async def _opened(
    stack: AsyncExitStack, directory: Path, number: int
) -> Callable[[float], Coroutine[Any, Any, Figures]]:
    """Open a log, and a refresher with so many tenants. Return the work of a slice."""
    log = await stack.enter_async_context(aio.open(directory / "data"))
    append, values = log.topic("bench").append, [[line] for line in log_lines(1_000, SIZE_BYTES)]
    await append([b"makes the topic"])
    refresher = Refresher()
    stack.push_async_callback(refresher.close)
    begin = time.perf_counter()
    tenants = _Tenants(refresher, number)
    if number:
        await tenants.until_renewed()
    first_s = time.perf_counter() - begin

    async def work(slice_s: float) -> Figures:
        begin = now = time.perf_counter()
        renewing = asyncio.create_task(_timed(tenants)) if number else None
        times: list[float] = []
        while now - begin < slice_s or (renewing is not None and not renewing.done()):
            await append(values[len(times) % len(values)])
            times.append(time.perf_counter() - now)
            now += times[-1]
        figures = rate_and_percentiles(len(times), now - begin, times)
        return figures if renewing is None else {**figures, "first_s": first_s, "renewed_s": await renewing}

    return work


async def _timed(tenants: _Tenants) -> float:
    begin = time.perf_counter()
    await tenants.renew()
    return time.perf_counter() - begin
