"""Blocking work of the event loop, in the threads of the service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from offload.daemon.service import Service
from offload.replica_topic import ReplicaTopic
from seglog import Topic

__all__ = ["in_threads", "pool_of"]


def pool_of(service: Service, topic: Topic | ReplicaTopic, first: int) -> ThreadPoolExecutor:
    """Return the threads for a read from seq `first` on: cold ones below the hot floor, else hot ones (HTTP-2)."""
    return service.cold_reads if first < topic.hot_floor else service.hot_reads


async def in_threads(pool: ThreadPoolExecutor, work: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(pool, work, *arguments)
