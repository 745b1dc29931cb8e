"""Threads for blocking work of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from offload.daemon.tenant_id import tenant_id

__all__ = ["Threads", "in_threads"]


class Threads:
    """The pools of threads of one service, each for one kind of work. Their log lines name the tenant."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._pools: list[ThreadPoolExecutor] = []

    def pool(self, most: int, name: str) -> ThreadPoolExecutor:
        """Return a pool of at most `most` threads. It makes a thread only when it needs one more."""
        pool = ThreadPoolExecutor(most, name, tenant_id.set, (self._tenant,))
        self._pools.append(pool)
        return pool

    def close(self) -> None:
        """Drop the work that waits. Each thread ends after the work that it has begun."""
        for pool in self._pools:
            pool.shutdown(wait=False, cancel_futures=True)


async def in_threads(pool: ThreadPoolExecutor, work: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(pool, work, *arguments)
