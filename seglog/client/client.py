"""The plain client: it waits for each answer in the caller's thread.

    import seglog

    with seglog.connect("https://log.example:7373", token="...") as client:
        orders = client.topic("orders")
        orders.append([b"one", b"two"], tag="eu", key="order-17")
        for record in orders.read(start=1):
            print(record.seq, record.value)

Safe for many threads. A generator of a read belongs to one thread, and holds a connection until it ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Unpack, cast, overload

from seglog.base.arguments import checked
from seglog.client.address import address_of, check_token
from seglog.client.answers import bounds_of, receipt_of, topics_of
from seglog.client.archive import RemoteArchive
from seglog.client.batches import Batching, Outbox, Window
from seglog.client.bodies import chunks_of, errors_of_chunks
from seglog.client.commands import evict_of, seal_of
from seglog.client.connections import Connections, Request, tls_context
from seglog.client.driver import Driver
from seglog.client.producer import RemoteProducer
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
from seglog.process import closing_after
from seglog.values.byte_strings import check_in_order
from seglog.values.names import check_topic_name
from seglog.values.producer import Appended
from seglog.values.protocols import (
    AppendArguments,
    Bounds,
    DeleteArguments,
    FollowArguments,
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
) -> Client:
    """Return a client of a daemon. It connects with the first request.

    `url` is `https://host:7373`, `http://host:7373` or `unix:DIR`. `token` is the bearer token. `ca_file` has the
    authorities that may sign the daemon's certificate, in place of the system's. Raise `InvalidArgument`.
    """
    address = address_of(url)
    context = tls_context(address, None if ca_file is None else os.fspath(ca_file))
    return Client(Driver(Connections(address, check_token(token), context, retries.silence_s), url, retries))


class Client:
    """A client of one daemon, made by `connect`. As a context manager it closes its connections at the end."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def __enter__(self) -> Client:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        with closing_after(error):
            self.close()

    def __repr__(self) -> str:
        return f"<Client of {self._driver.address}>"

    @checked
    def topic(self, name: str) -> RemoteTopic:
        """Return a topic of the daemon, without a request. Raise `InvalidTopicName`."""
        return RemoteTopic(self._driver, check_topic_name(name))

    @property
    def archive(self) -> RemoteArchive:
        """Return the archive of the daemon, without a request."""
        return RemoteArchive(self._driver)

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        request = topics_request()
        return topics_of(request, self._driver.ask(request))

    def close(self) -> None:
        self._driver.close()


class RemoteTopic:
    """A topic of a daemon's log. Safe for many threads.

    It remembers the incarnation of the topic at its first append. If the topic gets another one, an append with a
    producer or a key raises `OtherIncarnation`. A new topic object then begins with the new incarnation.
    """

    def __init__(self, driver: Driver, name: str) -> None:
        self.name = name
        self._driver = driver
        self._incarnation: str | None = None

    def __repr__(self) -> str:
        return f"<RemoteTopic {self.name} of {self._driver.address}>"

    @checked
    def append(self, values: Sequence[bytes], **options: Unpack[AppendArguments]) -> range:
        """Append records, and return their seqs once they are as safe as the durability says.

        Only an append with a `producer` or a `key` is repeated after a lost answer: the daemon knows it again. A key is
        a text of the caller's choice, for one append in 24 hours. `if_head` is the seq that the topic has to end with.
        Raise `AppendUnknown` if the records may be in or not, `HeadMoved`, `ProducerFenced`, `ProducerGap`,
        `BatchForgotten`, `OtherIncarnation`, `DaemonGone`, and `DaemonError` if the daemon refuses the request.
        """
        return (self._append(append_of(self.name, values, self._incarnation, options))).seqs

    @checked
    def append_once(self, values: Sequence[bytes], **options: Unpack[AppendArguments]) -> Appended:
        """Append records as `append` does, and say whether the topic had them already. Raise the errors of `append`."""
        return self._append(append_of(self.name, values, self._incarnation, options))

    def append_stream(self, chunks: Iterable[bytes], **options: Unpack[AppendArguments]) -> Appended:
        """Append one record whose value comes in chunks. Return its seq, in a range of one, as `append_once` does.

        Neither side holds the whole value in memory. The client does not send the chunks a second time: to repeat the
        append under its `key` or `producer`, call this again with the same chunks. If `chunks` ends with an error,
        nothing is appended, and the error passes through. Raise the errors of `append`, and `RecordTooLarge`.
        """
        check_in_order("chunks", chunks, "an iterable of byte strings")
        with errors_of_chunks():
            return self._append(append_stream(self.name, chunks_of(chunks), self._incarnation, **options))

    def _append(self, request: Request) -> Appended:
        receipt = receipt_of(request, self._driver.ask(request))
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
    ) -> RemoteProducer:
        """Return a producer that sends records in batches, so that each is there once. It sends nothing yet.

        The numbers of its batches begin with 0. So give each new producer of an id a higher `epoch` than the last one,
        such as `time.time_ns()`. The log then refuses batches of the last one.
        """
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
        return RemoteProducer(self._driver, Outbox(batching, window), durability)

    @overload
    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        gaps: Literal[False] = False,
        **selection: Unpack[ReadArguments],
    ) -> Iterator[Record]: ...
    @overload
    def read(
        self, start: int | None = None, end: int | None = None, *, gaps: bool, **selection: Unpack[ReadArguments]
    ) -> Iterator[Record | Gap]: ...
    @checked
    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        gaps: bool = False,
        **selection: Unpack[ReadArguments],
    ) -> Iterator[Record] | Iterator[Record | Gap]:
        """Yield the records from seq `start` to `end`, both inclusive, that were there when the read began.

        With `gaps`, yield a gap in the place of records that were evicted. Otherwise they raise `Evicted`. Raise
        `ConcurrentModification` if the topic was truncated while a lost connection interrupted the read, and errors of
        the daemon.
        """
        items = self._driver.items(Reading(self.name, Asked(start, end, gaps=gaps, **selection)))
        return items if gaps else cast("Iterator[Record]", items)

    @checked
    def read_arrow(
        self, start: int | None = None, end: int | None = None, *, text: bool = False, **selection: Unpack[Selection]
    ) -> pa.RecordBatchReader:
        """Return the records of `read` as a `pyarrow.RecordBatchReader` (`seglog.Topic.read_arrow`).

        The daemon needs pyarrow too. The reader asks for half a MiB of values at a time, and raises the errors of
        `read` when it gets there. If pyarrow is not installed here, raise `NotInstalled` at once.
        """
        from seglog.values.arrow import arrow_reader, check_arrow

        check_arrow("RemoteTopic.read_arrow")
        source = ArrowReading(self.name, Asked(start, end, **selection))
        return arrow_reader(self._driver.batches(source), text=text)

    @overload
    def follow(
        self, start: int | None = None, *, gaps: Literal[False] = False, **options: Unpack[FollowArguments]
    ) -> Iterator[Record]: ...
    @overload
    def follow(
        self, start: int | None = None, *, gaps: bool, **options: Unpack[FollowArguments]
    ) -> Iterator[Record | Gap]: ...
    @checked
    def follow(
        self, start: int | None = None, *, gaps: bool = False, **options: Unpack[FollowArguments]
    ) -> Iterator[Record] | Iterator[Record | Gap]:
        """Yield the records from seq `start` on, and then new ones as they come, without an end.

        The follower resumes after a lost connection, also while the daemon restarts. If records that it yielded were
        truncated, raise `Truncated`. Its `seq` and `epoch` are the next `start` and `epoch`: `epoch` says that the
        caller has the records below `start` as they were in that epoch, and `Truncated` tells of a truncation since
        then that took one of them (`seglog.Topic.follow`).

        Without `gaps`, records that retention took raise `Evicted`; to continue, follow from its `gap_to + 1` on. With
        `gaps`, a `Gap` comes in their place, and the follower goes on. Raise `OtherIncarnation` if the topic was made
        again or another directory answers, and errors of the daemon. The iteration ends after `timeout_s` seconds
        without a new record, also if the connection is lost meanwhile.
        """
        asked = Asked(start=start, tag=options.get("tag"), gaps=gaps)
        last_event = place_of(start, options.get("epoch"))
        incarnation = None if last_event is None else self._incarnation
        source = Following(self.name, asked, last_event, incarnation)
        items = self._driver.items(source, timeout_s=options.get("timeout_s"))
        return items if gaps else cast("Iterator[Record]", items)

    def bounds(self) -> Bounds:
        """Return the bounds of the topic. Raise `NoSuchTopic`."""
        request = bounds_request(self.name)
        return bounds_of(request, self._driver.ask(request))

    @checked
    def delete(self, **conditions: Unpack[DeleteArguments]) -> Removed:
        """Delete the current records that meet each condition, as `Topic.delete` does. Durable on return.

        If the daemon does not take a `grep`, because RE2 is missing there or refuses it, the client reads the records
        and looks itself. The client does not repeat a delete after a lost answer, because new records may have come.
        Raise `DaemonGone` then.
        """
        return self._driver.delete(self.name, conditions)

    @checked
    def evict(self, before: int) -> Removed:
        """Evict the records below `before`, as retention does. Readers get a `Gap` or `Evicted` in their place."""
        return self._driver.result(evict_of(self.name, before))

    def seal(self) -> None:
        """Seal the segments with the current records. Raise `NoSuchTopic`."""
        self._driver.result(seal_of(self.name))

    @checked
    def truncate(self, seq: int) -> None:
        """Remove all records from `seq` on.

        The client does not repeat it after a lost answer, because new records may have come. Raise `DaemonGone` then.
        """
        self._driver.ask(truncate_request(self.name, seq))
