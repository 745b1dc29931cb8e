"""Threads for blocking work of the event loop.

THREADS-1  Nothing ends a thread from outside. So the end of a daemon does not wait for a thread whose call hangs, and
    `has_work` tells whether there is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from catalog.objects.store_timeout import one_command
from offload.daemon.asgi import tenant_id

#: So much of a body is taken apart in the event loop. Longer texts of short values take longer than a turn of threads.
SHORT_BYTES = 16 * 1024


class Threads:
    """The pools of threads of one service, each for one kind of work. Their log lines name the tenant."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._pools: list[_Pool] = []

    def pool(self, most: int, name: str) -> ThreadPoolExecutor:
        """Return a pool of at most `most` threads. It makes a thread only when it needs one more."""
        pool = _Pool(most, name, tenant_id.set, (self._tenant,))
        self._pools.append(pool)
        return pool

    @property
    def has_work(self) -> bool:
        """Return whether some work has begun, or waits, and has not ended."""
        return any(pool.unfinished for pool in self._pools)

    def busy_share(self, *pools: ThreadPoolExecutor) -> float:
        """Return the share of the threads of these pools that work: 0 to 1."""
        ours = [pool for pool in self._pools if pool in pools]
        return sum(pool.busy for pool in ours) / sum(pool.most for pool in ours)

    async def close(self, patience_s: float) -> None:
        """Drop the work that waits. Wait `patience_s` for what has begun; its thread ends after it in any case."""
        for pool in self._pools:
            pool.shutdown(wait=False, cancel_futures=True)
        begun = [asyncio.wrap_future(future) for pool in self._pools for future in tuple(pool.unfinished)]
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await asyncio.gather(*begun, return_exceptions=True)


class _Pool(ThreadPoolExecutor):
    """A pool that knows the work that has not ended."""

    def __init__(self, most: int, *arguments: Any) -> None:
        super().__init__(most, *arguments)
        self.most = most
        self.unfinished: set[Future[Any]] = set()

    @property
    def busy(self) -> int:
        """Return how many threads work."""
        return min(len(self.unfinished), self.most)

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Future[Any]:
        future = super().submit(work, *arguments, **keywords)
        self.unfinished.add(future)
        future.add_done_callback(self.unfinished.discard)
        return future


async def in_threads(pool: ThreadPoolExecutor, work: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of `work`. All its requests to the store share one limit (catalog.objects.store_timeout)."""
    return await asyncio.get_running_loop().run_in_executor(pool, _as_command, work, *arguments)


def _as_command(work: Callable[..., Any], *arguments: Any) -> Any:
    with one_command():
        return work(*arguments)
