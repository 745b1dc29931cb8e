"""Reads for tasks: records in batches from another thread, and a wait for news without a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

from seglog.aio.append_queue import AppendQueue
from seglog.base.ownership import check_process
from seglog.reading.follow import Follower
from seglog.values.record import Gap, Record

__all__ = ["in_batches", "wait_for_news"]

_READ_RECORDS = 1024
_READ_BYTES = 1024 * 1024


async def in_batches(queue: AppendQueue, start: Callable[[], Iterator[Any]]) -> AsyncIterator[Any]:
    records: Iterator[Any] | None = None
    error: Exception | None = None
    is_at_end = False
    while not is_at_end:
        check_process(queue)
        if records is None:
            records = await asyncio.to_thread(start)
        batch, is_at_end, error = await asyncio.to_thread(_take, records)
        for record in batch:
            yield record
    if error is not None:
        raise error


async def wait_for_news(follower: Follower, timeout_s: float | None) -> bool:
    """Wait until there is news. Return False at the time-out. Raise `LogClosed`."""
    loop = asyncio.get_running_loop()
    news = asyncio.Event()

    def waiter() -> None:
        with suppress(RuntimeError):  # the loop has ended: no task waits any more
            loop.call_soon_threadsafe(news.set)

    try:
        while not follower.poll(waiter):
            try:
                async with asyncio.timeout(timeout_s):
                    await news.wait()
            except TimeoutError:
                return False
            news.clear()
        return True
    finally:
        follower.forget(waiter)


def _take(records: Iterator[Record | Gap]) -> tuple[list[Record | Gap], bool, Exception | None]:
    """Return the next records, whether they are the last, and the error that came after them, if any."""
    batch: list[Record | Gap] = []
    size_bytes = 0
    try:
        for record in records:
            batch.append(record)
            size_bytes += 0 if isinstance(record, Gap) else len(record.value)
            if len(batch) >= _READ_RECORDS or size_bytes >= _READ_BYTES:
                return batch, False, None
    except Exception as error:
        return batch, True, error
    return batch, True, None
