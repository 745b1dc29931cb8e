"""The client of the daemon for asyncio. It needs httpx: `pip install 'seglog[client]'`.

from seglog.client import aio

async with aio.connect("unix:/var/lib/seglog") as client:
    async for record in client.topic("orders").follow():
        print(record.seq, record.value)
"""

from __future__ import annotations

from seglog.client.aio.archive import AsyncRemoteArchive, AsyncRemoteBranches
from seglog.client.aio.client import AsyncClient, AsyncRemoteFollower, AsyncRemoteTopic, connect
from seglog.client.aio.producer import AsyncRemoteProducer
from seglog.client.aio.queue import AsyncRemoteQueue

__all__ = [
    "AsyncClient",
    "AsyncRemoteArchive",
    "AsyncRemoteBranches",
    "AsyncRemoteFollower",
    "AsyncRemoteProducer",
    "AsyncRemoteQueue",
    "AsyncRemoteTopic",
    "connect",
]
