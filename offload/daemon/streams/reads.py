"""Reads of a stream: a piece of its records, and the wait for more.

PIECE-1  A piece ends at `_PIECE_BYTES` bytes, at `_PIECE_RECORDS` records, or at the tail. It never splits a record.
PIECE-2  No thread waits for new records. A wait ends with news, with its time, with the daemon, or with the stream.
PIECE-3  A reader that waits or gets events keeps its place over a truncation only if that took no record up to there.
    Else its answer ends, and its next request gets 410, or 404 after a deletion.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from offload.daemon.service import Service
from offload.daemon.streams.live import NO_MARK, Live, mark_of
from offload.daemon.threads import in_threads
from seglog import LogClosed, NoSuchTopic, SeqOutOfRange, Topic, Truncated
from seglog.base.dataclasses import dataclass

_PIECE_BYTES = 1024 * 1024
_PIECE_RECORDS = 8192


@dataclass(frozen=True, slots=True)
class Piece:
    """Records behind a position. `last` is the position after them."""

    values: tuple[bytes, ...]
    last: int
    is_tail: bool
    is_closed: bool


async def read_piece(service: Service, live: Live, after: int) -> Piece:
    """Return the piece behind seq `after`. Raise `Evicted` if retention took its beginning."""
    first, end = max(after + 1, live.first_seq), live.topic.head_seq
    if first > end - live.has_end:
        return Piece((), max(after, live.entry.base), is_tail=True, is_closed=live.mark.is_closed)
    own = max(live.entry.base, live.entry.own)
    pool = service.read_threads(live.topic, first)
    piece: Piece = await in_threads(pool, _read, live.topic, first, end, own)
    if piece.is_tail and end == live.topic.head_seq and live.mark.is_closed:
        return Piece(piece.values, piece.last, is_tail=True, is_closed=True)
    return piece


async def next_piece(service: Service, live: Live, after: int, epoch: int) -> Piece | None:
    """Return the piece behind seq `after`, for a reader that began in `epoch`. None: its place is gone (PIECE-3)."""
    while True:
        try:
            piece = await read_piece(service, live, after)
        except (Truncated, NoSuchTopic, SeqOutOfRange):
            if not live.is_cut(epoch, after):
                continue  # a truncation behind the reader's place came while this read
            return None
        return None if live.is_cut(epoch, after) else piece


def _read(topic: Topic, first: int, end: int, own: int) -> Piece:
    """Read a piece. The records up to `own` are inherited, and their marks are their source's."""
    values: list[bytes] = []
    size_bytes, last, mark = 0, first - 1, NO_MARK
    for record in topic.read(first, end):
        mark = mark_of(record.tag) if record.seq > own else NO_MARK
        if not record.value and mark.is_closed:
            return Piece(tuple(values), last, is_tail=True, is_closed=True)
        values.append(record.value)
        size_bytes += len(record.value)
        last = record.seq
        if size_bytes >= _PIECE_BYTES or len(values) == _PIECE_RECORDS:
            break
    else:
        last = end
    return Piece(tuple(values), last, is_tail=last == end, is_closed=last == end and mark.is_closed)


async def is_news(service: Service, live: Live, after: int, wait_s: float) -> bool:
    """Wait for a record behind seq `after`. Return False at the end of the time, of the stream or of the daemon."""
    loop, news, is_over = asyncio.get_running_loop(), asyncio.Event(), False

    def wake() -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(news.set)

    def poll() -> bool:
        is_there: bool = follower.poll(wake)
        if is_over:  # the wait was cancelled meanwhile, so nothing forgets this call
            follower.forget(wake)
        return is_there

    end = loop.time() + wait_s
    live.waiters.add(news)
    try:
        follower = await in_threads(service.hot_reads, live.topic.inner.follower, after + 1)
        try:
            while not await in_threads(service.hot_reads, poll):
                if not await _is_set(service, news, end):
                    return False
                news.clear()
        finally:
            is_over = True
            follower.forget(wake)
    except SeqOutOfRange:
        return True  # a truncation came before the wait began: the next read finds that
    except (LogClosed, NoSuchTopic):
        return False
    finally:
        live.waiters.discard(news)
    return not live.is_gone and live.topic.exists


async def _is_set(service: Service, news: asyncio.Event, end: float) -> bool:
    left_s = end - asyncio.get_running_loop().time()
    if left_s <= 0 or service.stopping.is_set():
        return False
    with suppress(TimeoutError):
        async with asyncio.timeout(left_s):
            await news.wait()
    return news.is_set() and not service.stopping.is_set()
