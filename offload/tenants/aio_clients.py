"""Clients of aiobotocore. Only functions import it, because most processes need none.

The first client of a process parses the descriptions of the AWS services, which takes 80 ms of CPU. Later ones share
them and take 5 to 8 ms. So `warm` parses them in a thread, and the event loop of a daemon never waits that long.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

_WARM = {"region_name": "us-east-1", "aws_access_key_id": "none", "aws_secret_access_key": "none"}
_warmed: set[str] = set()


@asynccontextmanager
async def open_aio_client(
    service: str, settings: Mapping[str, object], profile: str = "", credentials: Mapping[str, str | None] | None = None
) -> AsyncIterator[Any]:
    """Yield a client. `settings` are those of its AioConfig. Without `credentials`, the AWS environment gives them."""
    from aiobotocore.config import AioConfig
    from aiobotocore.session import AioSession

    session = AioSession(profile=profile or None)
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    async with session.create_client(service, config=AioConfig(**settings), **(credentials or {})) as client:
        yield client


async def warm(service: str) -> None:
    """Parse the descriptions of a service in a thread, unless this process has done so."""
    if service in _warmed:
        return

    async def open_and_close() -> None:
        async with open_aio_client(service, {}, "", _WARM):
            pass

    # A thread of its own: callers that wait for these very credentials may fill the default ones of the loop.
    with ThreadPoolExecutor(1, "seglog-warm") as pool:
        await asyncio.get_running_loop().run_in_executor(pool, lambda: asyncio.run(open_and_close()))
    _warmed.add(service)


@functools.cache
def _loader(data_path: str | None) -> Any:
    from botocore.loaders import create_loader

    return create_loader(data_path)
