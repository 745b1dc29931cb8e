"""The routes that read records: one, a range, and new ones as they come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from offload.commands.lines import to_json
from offload.commands.results import problem
from offload.daemon.http.answers import answer_error, begun
from offload.daemon.http.parameters import query_of, whole, yes
from offload.daemon.http.topics import in_threads, pool_of, readable
from offload.daemon.service import Service
from offload.errors import InvalidOption
from offload.replica_topic import ReplicaTopic
from seglog import Gap, LogClosed, Record, Topic
from seglog.reading.follow import Follower

__all__ = ["read_routes"]

_JSON_LINES_TYPE = "application/x-ndjson"
_BYTES_TYPE = "application/octet-stream"
_READ_RECORDS = 512
_READ_BYTES = 1024 * 1024
_LOOK_AGAIN_S = 1.0


def read_routes(service: Service) -> list[Route]:
    reads = _Reads(service)
    return [
        Route("/topics/{topic}/records", reads.read),
        Route("/topics/{topic}/records/{seq}", reads.record),
    ]


class _Reads:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def record(self, request: Request) -> Response:
        topic, seq = await readable(self._service, request.path_params["topic"]), whole(request.path_params, "seq")
        assert seq is not None  # noqa: S101 - the route has it
        found = await in_threads(pool_of(self._service, topic, seq), lambda: next(topic.read(seq, seq), None))
        if found is None:
            return await answer_error(request, RecordDeleted(topic.name, seq))
        headers = {"seglog-seq": str(found.seq), "seglog-ts-ms": str(found.ts_ms)}
        for name, label in (("seglog-tag", found.tag), ("seglog-node", found.node)):
            if label is not None:
                headers[name] = quote(label, safe="")
        return Response(found.value, media_type=_BYTES_TYPE, headers=headers)

    async def read(self, request: Request) -> Response:
        names = {"from", "to", "since_ms", "until_ms", "tag", "limit", "gaps", "follow"}
        query = query_of(request, names)
        topic = await readable(self._service, request.path_params["topic"])
        start, end, limit = (whole(query, name) for name in ("from", "to", "limit"))
        if limit == 0:
            raise InvalidOption("limit", "must be at least 1")
        since_ms, until_ms = whole(query, "since_ms"), whole(query, "until_ms")
        tag, gaps, follow = query.get("tag"), yes(query, "gaps"), yes(query, "follow")
        if follow and (end is not None or until_ms is not None):
            raise InvalidOption("follow", "has no end: leave out to and until_ms")
        pool = pool_of(self._service, topic, topic.earliest_seq if start is None else start)
        if follow and isinstance(topic, ReplicaTopic):
            raise InvalidOption("follow", f"{topic.name} is a replica: its records come with each sync")
        if follow:
            assert isinstance(topic, Topic)  # noqa: S101 - it is no replica
            follower = await in_threads(pool, lambda: topic.follower(start, gaps=gaps))
            wanted = _wanted(_news(follower), tag=tag, since_ms=since_ms, limit=limit)
            return await begun(request, self._followed(topic, follower, wanted), _JSON_LINES_TYPE)
        items = await in_threads(pool, lambda: topic.read(start, end, since_ms=since_ms, until_ms=until_ms, gaps=gaps))
        wanted = _wanted(items, tag=tag, since_ms=since_ms, limit=limit)
        return await begun(request, self._lines(lambda: pool, wanted), _JSON_LINES_TYPE)

    async def _lines(
        self, pool: Callable[[], ThreadPoolExecutor], items: Iterator[Record | Gap | None]
    ) -> AsyncGenerator[bytes]:
        """Yield JSON lines, one batch at a time. A None in `items` ends a batch, which may be empty.

        An error before the first batch is raised, and decides the answer's status. A later one becomes the last line.
        """
        is_begun = False
        while True:
            try:
                batch, is_end = await in_threads(pool(), _take, items)
            except Exception as error:
                if not is_begun:
                    raise
                yield json.dumps({"error": problem(error)}).encode() + b"\n"
                return
            is_begun = True
            yield "".join(to_json(item) + "\n" for item in batch).encode()
            if is_end:
                return

    async def _followed(
        self, topic: Topic, follower: Follower, items: Iterator[Record | Gap | None]
    ) -> AsyncGenerator[bytes]:
        """Yield JSON lines until the daemon stops. No thread waits for new records (HTTP-1)."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(news.set)

        try:
            async for lines in self._lines(lambda: pool_of(self._service, topic, follower.seq), items):
                yield lines
                news.clear()
                if lines or await in_threads(self._service.hot_reads, follower.poll, wake):
                    continue
                while not news.is_set():
                    if self._service.stopping.is_set():
                        return
                    with suppress(TimeoutError):
                        await asyncio.wait_for(news.wait(), _LOOK_AGAIN_S)
        except LogClosed:
            return
        finally:
            follower.forget(wake)


class RecordDeleted(LookupError):
    """The error for a seq whose record was deleted: 404, as for a seq that never had a record."""

    exit_code = 3

    def __init__(self, topic: str, seq: int) -> None:
        super().__init__(f"record {seq} of {topic} was deleted")


def _news(follower: Follower) -> Iterator[Record | Gap | None]:
    """Yield the existing records, a None, the records that came since, a None, and so on, until the log closes."""
    try:
        while True:
            yield from follower.new_items()
            yield None
    except LogClosed:
        return


def _wanted(
    items: Iterator[Record | Gap | None], *, tag: str | None, since_ms: int | None, limit: int | None
) -> Iterator[Record | Gap | None]:
    for item in items:
        if isinstance(item, Record):
            if (tag is not None and item.tag != tag) or (since_ms is not None and item.ts_ms < since_ms):
                continue
            yield item
            if limit is not None:
                limit -= 1
                if limit <= 0:
                    return
        else:
            yield item


def _take(items: Iterator[Record | Gap | None]) -> tuple[list[Record | Gap], bool]:
    """Return the next batch of items, and whether `items` has ended.

    A batch ends at a None, at `_READ_RECORDS` items or at `_READ_BYTES` bytes of values.
    """
    taken: list[Record | Gap] = []
    size_bytes = 0
    for item in items:
        if item is None:
            return taken, False
        taken.append(item)
        size_bytes += len(item.value) if isinstance(item, Record) else 0
        if len(taken) == _READ_RECORDS or size_bytes >= _READ_BYTES:
            return taken, False
    return taken, True
