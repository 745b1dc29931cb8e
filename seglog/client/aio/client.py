"""The client for asyncio. It needs httpx: `pip install 'seglog[client]'`.

    from seglog.client import aio

    async with aio.connect("https://log.example:7373", token="...") as client:
        orders = client.topic("orders")
        await orders.append([b"one", b"two"], tag="eu", key="order-17")
        async for record in orders.read(start=1):
            print(record.seq, record.value)

It does what the plain client does (seglog.client.client), in one event loop.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import TYPE_CHECKING, Literal, Unpack, cast, overload

from seglog.base.arguments import checked
from seglog.client.address import address_of, check_token
from seglog.client.aio.archive import AsyncRemoteArchive
from seglog.client.aio.driver import AsyncConnections, AsyncDriver
from seglog.client.aio.producer import AsyncRemoteProducer
from seglog.client.aio.queue import AsyncRemoteQueue
from seglog.client.answers import bounds_of, receipt_of, topics_of
from seglog.client.batches import Batching, Outbox, Window
from seglog.client.bodies import chunks_in_loop, errors_of_chunks
from seglog.client.commands import evict_of, seal_of
from seglog.client.connections import Request, tls_context
from seglog.client.following import Followed, FollowingTopics, Taking, following_topics
from seglog.client.reading import ArrowReading, Following, Reading, place_of
from seglog.client.requests import (
    Asked,
    append_of,
    append_stream,
    bounds_request,
    header_text,
    topics_request,
    truncate_request,
)
from seglog.client.retries import Retries
from seglog.errors import InvalidArgument
from seglog.interrupts import closing_after
from seglog.values.names import check_topic_name
from seglog.values.producer import Appended
from seglog.values.protocols import (
    AppendArguments,
    Bounds,
    DeleteArguments,
    FollowArguments,
    FollowTopicsArguments,
    ReadArguments,
    Removed,
    Selection,
)
from seglog.values.record import Gap, Record

if TYPE_CHECKING:
    import pyarrow as pa


@checked
def connect(
    url: str,
    *,
    token: str | None = None,
    ca_file: str | os.PathLike[str] | None = None,
    retries: Retries = Retries(),  # noqa: B008 - a frozen value
) -> AsyncClient:
    """Return a client of a daemon. It connects with the first request.

    `url` is `https://host:7373`, `http://host:7373` or `unix:DIR`. `token` is the bearer token. `ca_file` has the
    authorities that may sign the daemon's certificate, in place of the system's. Raise `InvalidArgument`.
    """
    address = address_of(url)
    context = tls_context(address, None if ca_file is None else os.fspath(ca_file))
    return AsyncClient(
        AsyncDriver(AsyncConnections(address, check_token(token), context, retries.silence_s), url, retries)
    )


class AsyncClient:
    """A client of one daemon, made by `connect`. As a context manager it closes its connections at the end."""

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        with closing_after(error):
            await self.close()

    def __repr__(self) -> str:
        return f"<AsyncClient of {self._driver.address}>"

    @checked
    def topic(self, name: str) -> AsyncRemoteTopic:
        """Return a topic of the daemon, without a request. Raise `InvalidName`."""
        return AsyncRemoteTopic(self._driver, check_topic_name(name))

    @checked
    def queue(self, topic: str, name: str) -> AsyncRemoteQueue:
        """Return a queue of a topic, without a request. Raise `InvalidName`."""
        return AsyncRemoteQueue(self._driver, check_topic_name(topic), check_topic_name(name))

    @property
    def archive(self) -> AsyncRemoteArchive:
        """Return the archive of the daemon, without a request."""
        return AsyncRemoteArchive(self._driver)

    async def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        request = topics_request()
        return topics_of(request, await self._driver.ask(request))

    @checked
    def follow(self, topics: Sequence[str], **options: Unpack[FollowTopicsArguments]) -> AsyncRemoteFollower:
        """Follow several topics over one connection, as `Client.follow` does, with its arguments and errors.

        async for topic, record in client.follow(["orders", "web"]):
            print(topic, record.seq, record.value)
        """
        return AsyncRemoteFollower(self._driver, following_topics(topics, options), options)

    async def close(self) -> None:
        await self._driver.close()


class AsyncRemoteFollower(Taking):
    """A follower of several topics, made by `AsyncClient.follow`. Its calls are those of `RemoteFollower`, awaited."""

    def __init__(self, driver: AsyncDriver, source: FollowingTopics, options: FollowTopicsArguments) -> None:
        super().__init__(source, options.get("cursor"))
        self._driver = driver
        self._items = driver.items(source, timeout_s=options.get("timeout_s"))

    async def __aenter__(self) -> AsyncRemoteFollower:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        with closing_after(error):
            await self.close()

    def __aiter__(self) -> AsyncRemoteFollower:
        return self

    async def __anext__(self) -> Followed:
        return self._taken(await anext(self._items))

    async def ack(self, *records: Followed) -> None:
        """Ack records that the caller is done with, as `RemoteFollower.ack` does, with its errors."""
        for request in self._acks(records):
            await self._driver.ask(request)

    async def close(self) -> None:
        """Leave the connection. Idempotent."""
        await self._items.aclose()


class AsyncRemoteTopic:
    """A topic of a daemon's log, for one event loop. Its calls are those of `RemoteTopic`, awaited."""

    def __init__(self, driver: AsyncDriver, name: str) -> None:
        self.name = name
        self._driver = driver
        self._incarnation: str | None = None

    def __repr__(self) -> str:
        return f"<AsyncRemoteTopic {self.name} of {self._driver.address}>"

    @checked
    async def append(self, values: Sequence[bytes], **options: Unpack[AppendArguments]) -> range:
        """Append records, and return their seqs, as `RemoteTopic.append` does, with its errors."""
        return (await self._append(append_of(self.name, values, self._incarnation, options))).seqs

    @checked
    async def append_once(self, values: Sequence[bytes], **options: Unpack[AppendArguments]) -> Appended:
        """Append records as `append` does, and say whether the topic had them already. Raise the errors of `append`."""
        return await self._append(append_of(self.name, values, self._incarnation, options))

    async def append_stream(self, chunks: AsyncIterable[bytes], **options: Unpack[AppendArguments]) -> Appended:
        """Append one record whose value comes in chunks, as `RemoteTopic.append_stream` does."""
        if not isinstance(chunks, AsyncIterable):
            raise InvalidArgument("chunks", chunks, "an asynchronous iterable of byte strings")
        with errors_of_chunks():
            return await self._append(append_stream(self.name, chunks_in_loop(chunks), self._incarnation, **options))

    async def _append(self, request: Request) -> Appended:
        receipt = receipt_of(request, await self._driver.ask(request))
        self._incarnation = self._incarnation or receipt.incarnation
        return receipt.result

    @checked
    def producer(
        self,
        id: str,  # noqa: A002 - the name that the log has for it
        *,
        epoch: int,
        batching: Batching = Batching(),  # noqa: B008 - a frozen value
        durability: str | None = None,
    ) -> AsyncRemoteProducer:
        """Return a producer that sends records in batches, so that each is there once (`RemoteTopic.producer`)."""
        header_text("id", id)
        driver = self._driver
        window = Window(
            self.name,
            id,
            epoch,
            driver.address,
            driver.retries,
            incarnation=self._incarnation,
            is_reached=driver.is_reached,
        )
        return AsyncRemoteProducer(self._driver, Outbox(batching, window), durability)

    @overload
    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        gaps: Literal[False] = False,
        **selection: Unpack[ReadArguments],
    ) -> AsyncIterator[Record]: ...
    @overload
    def read(
        self, start: int | None = None, end: int | None = None, *, gaps: bool, **selection: Unpack[ReadArguments]
    ) -> AsyncIterator[Record | Gap]: ...
    @checked
    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        gaps: bool = False,
        **selection: Unpack[ReadArguments],
    ) -> AsyncIterator[Record] | AsyncIterator[Record | Gap]:
        """Yield the records that `RemoteTopic.read` yields, and raise its errors."""
        items = self._driver.items(Reading(self.name, Asked(start, end, gaps=gaps, **selection)))
        return items if gaps else cast("AsyncIterator[Record]", items)

    @checked
    def read_arrow(
        self, start: int | None = None, end: int | None = None, *, text: bool = False, **selection: Unpack[Selection]
    ) -> AsyncIterator[pa.RecordBatch]:
        """Yield the records of `read` as batches of Apache Arrow (`pyarrow.RecordBatch`, `seglog.Topic.read_arrow`).

        A `pyarrow.RecordBatchReader` cannot wait for an event loop. To get one, collect the batches:

            batches = [batch async for batch in topic.read_arrow()]
            reader = pyarrow.RecordBatchReader.from_batches(seglog.arrow_schema(), batches)

        No batch is empty. The daemon needs pyarrow too. If it is not installed here, raise `NotInstalled` at once.
        """
        from seglog.values.arrow import check_arrow

        check_arrow("AsyncRemoteTopic.read_arrow")
        source = ArrowReading(self.name, Asked(start, end, **selection))
        return self._driver.batches(source, text=text)

    @overload
    def follow(
        self, start: int | None = None, *, gaps: Literal[False] = False, **options: Unpack[FollowArguments]
    ) -> AsyncIterator[Record]: ...
    @overload
    def follow(
        self, start: int | None = None, *, gaps: bool, **options: Unpack[FollowArguments]
    ) -> AsyncIterator[Record | Gap]: ...
    @checked
    def follow(
        self, start: int | None = None, *, gaps: bool = False, **options: Unpack[FollowArguments]
    ) -> AsyncIterator[Record] | AsyncIterator[Record | Gap]:
        """Yield the records from seq `start` on, and then new ones, as `RemoteTopic.follow` does, with its errors."""
        asked = Asked(start=start, tag=options.get("tag"), gaps=gaps)
        last_event = place_of(start, options.get("epoch"))
        incarnation = None if last_event is None else self._incarnation
        source = Following(self.name, asked, last_event, incarnation)
        items = self._driver.items(source, timeout_s=options.get("timeout_s"))
        return items if gaps else cast("AsyncIterator[Record]", items)

    async def bounds(self) -> Bounds:
        """Return the bounds of the topic. Raise `NoSuchTopic`."""
        request = bounds_request(self.name)
        return bounds_of(request, await self._driver.ask(request))

    @checked
    async def delete(self, **conditions: Unpack[DeleteArguments]) -> Removed:
        """Delete the current records that meet each condition, as `RemoteTopic.delete` does. Durable on return."""
        return await self._driver.delete(self.name, conditions)

    @checked
    async def evict(self, before: int) -> Removed:
        """Evict the records below `before`, as retention does. Readers get a `Gap` or `Evicted` in their place."""
        return await self._driver.result(evict_of(self.name, before))

    async def seal(self) -> None:
        """Seal the segments with the current records. Raise `NoSuchTopic`."""
        await self._driver.result(seal_of(self.name))

    @checked
    async def truncate(self, seq: int) -> None:
        """Remove all records from `seq` on, as `RemoteTopic.truncate` does."""
        await self._driver.ask(truncate_request(self.name, seq))
