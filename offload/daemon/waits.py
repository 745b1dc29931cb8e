"""Waits for an answer that end when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from starlette.requests import Request

CLIENT_GONE: Final = 499
"""A status for the metrics only: the client is gone."""

_T = TypeVar("_T")


async def unless_gone(request: Request, work: Callable[[], Awaitable[_T]]) -> _T | None:
    """Return the result of `work`. If the client disconnects first, cancel `work`, and return None.

    Raises `ClientDisconnect` if the client was gone before the call.
    """

    async def doing() -> _T:
        return await work()

    # While a body may come, the guard waits with a time limit. Such a wait may swallow the cancel below.
    await request.body()
    result_task, gone = asyncio.ensure_future(doing()), asyncio.ensure_future(_is_gone(request))
    try:
        await asyncio.wait({result_task, gone}, return_when=asyncio.FIRST_COMPLETED)
        return result_task.result() if result_task.done() else None
    finally:
        result_task.cancel()
        gone.cancel()
        await asyncio.wait({result_task, gone})


async def _is_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
