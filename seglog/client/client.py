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
from seglog.client.following import Followed, FollowingTopics, Taking, following_topics
from seglog.client.producer import RemoteProducer
from seglog.client.queue import RemoteQueue
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
from seglog.interrupts import closing_after
from seglog.values.byte_strings import check_in_order
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
) -> Client:
    """Return a client of a daemon, for a program on any machine. It connects with the first request.

        with seglog.connect("https://log.example:7373", token="...") as client:
            client.topic("orders").append([b"book", b"lamp"], key="order-17")

    Args:
        url: `https://host:7373`, `http://host:7373`, or `unix:DIR` for the daemon of a data directory of this machine.
        token: The bearer token.
        ca_file: The authorities that may sign the daemon's certificate, in place of the system's.
        retries: How long, and how often, a request is tried again.

    Returns:
        The client, which is also a context manager that closes its connections.

    Raises:
        InvalidArgument: The URL or the token is none.
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
        """Return a topic of the daemon, without a request.

            orders = client.topic("orders")

        Raises:
            InvalidName: The name is none.
        """
        return RemoteTopic(self._driver, check_topic_name(name))

    @checked
    def queue(self, topic: str, name: str) -> RemoteQueue:
        """Return a queue of a topic, without a request.

            billing = client.queue("orders", "billing")

        Raises:
            InvalidName: The topic or the name is none.
        """
        return RemoteQueue(self._driver, check_topic_name(topic), check_topic_name(name))

    @property
    def archive(self) -> RemoteArchive:
        """Return the archive of the daemon, without a request."""
        return RemoteArchive(self._driver)

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        request = topics_request()
        return topics_of(request, self._driver.ask(request))

    @checked
    def follow(self, topics: Sequence[str], **options: Unpack[FollowTopicsArguments]) -> RemoteFollower:
        """Follow several topics over one connection. The follower yields each topic with its next record.

            for topic, record in client.follow(["orders", "web"]):
                print(topic, record.seq, record.value)

        It resumes after a lost connection, so each record comes once, and in the order of its topic.

        Args:
            topics: Up to 32 names. A topic begins at its head, and `"orders:5"` at seq 5.
            cursor: The name of a cursor of each topic. The follower begins behind it, and `ack` moves it.
            position: The `position` of an earlier record: the follower continues there, whatever the topics say.
            tag: Only records with this tag; a trailing `*` makes it a prefix.
            gaps: Give a `Gap` in the place of records that retention took, and go on. With a cursor, always.
            strong: Only records that a sync covers.
            timeout_s: End after so many seconds without a new record, also if the connection is lost meanwhile.

        Raises:
            InvalidArgument: There are no topics, or more than 32, or one is there twice.
            InvalidName: A name is none.
        """
        return RemoteFollower(self._driver, following_topics(topics, options), options)

    def close(self) -> None:
        self._driver.close()


class RemoteFollower(Taking):
    """A follower of several topics, made by `Client.follow`: an iterator of `Followed`. For one thread.

        with client.follow(["orders", "web"], cursor="billing") as follower:
            for each in follower:
                bill(each.topic, each.record)
                follower.ack(each)

    After `Truncated`, drop the records of its `topic` from its `seq` on, and take the next item: the follower goes on
    there. Any other error ends it. `position` is the place behind the last item.
    """

    def __init__(self, driver: Driver, source: FollowingTopics, options: FollowTopicsArguments) -> None:
        super().__init__(source, options.get("cursor"))
        self._driver = driver
        self._items = driver.items(source, timeout_s=options.get("timeout_s"))

    def __enter__(self) -> RemoteFollower:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        with closing_after(error):
            self.close()

    def __iter__(self) -> RemoteFollower:
        return self

    def __next__(self) -> Followed:
        return self._taken(next(self._items))

    def ack(self, *records: Followed) -> None:
        """Ack records that the caller is done with, and return when that is durable.

        Raises:
            Misuse: The follower has no cursor.
            SeglogError: As the daemon refuses the ack, for example because the topic was truncated meanwhile.
        """
        for request in self._acks(records):
            self._driver.ask(request)

    def close(self) -> None:
        """Leave the connection. Idempotent."""
        self._items.close()


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

            client.topic("orders").append([b"book", b"lamp"], tag="eu", key="order-17")

        An append with a `producer` or a `key` is repeated after a lost answer, because the daemon knows it again. Any
        other append raises `AppendUnknown` then. The options are those of `seglog.Topic.append`, but for `times_ms`.

        Args:
            values: The records.
            key: A text of the caller's choice, for one append in 24 hours.
            producer: The same for a program that numbers its batches; `producer` of this object does that by itself.
            if_head: The seq that the topic has to end with.

        Returns:
            The seqs of the records.

        Raises:
            AppendUnknown: The records may be in or not. Read the head, or repeat the append if it had a key.
            DaemonGone: The daemon does not answer. Nothing was sent.
            DaemonError: The daemon refuses the request, for example because of its token.
            OtherIncarnation: The append has a key or a producer, and the topic is another one than at the first append
                of this object.
            SeglogError: As `seglog.Topic.append` does, such as `HeadMoved`, `KeyReused`, `ProducerFenced`, `DiskFull`.
        """
        return (self._append(append_of(self.name, values, self._incarnation, options))).seqs

    @checked
    def append_once(self, values: Sequence[bytes], **options: Unpack[AppendArguments]) -> Appended:
        """Append records as `append` does, and say whether the topic had them already. Raise the errors of `append`."""
        return self._append(append_of(self.name, values, self._incarnation, options))

    def append_stream(self, chunks: Iterable[bytes], **options: Unpack[AppendArguments]) -> Appended:
        """Append one record whose value comes in chunks. Neither side holds the whole value in memory.

            with open("dump.bin", "rb") as file:
                client.topic("dumps").append_stream(iter(lambda: file.read(1 << 20), b""), key="dump-17")

        The client does not send the chunks a second time: to repeat the append under its `key` or `producer`, call this
        again with the same chunks. If `chunks` ends with an error, nothing is appended, and the error passes through.

        Args:
            chunks: The parts of the value, in order.
            options: Those of `append`.

        Returns:
            The seq, in a range of one, and whether the topic had the record already.

        Raises:
            RecordTooLarge: The value is longer than the daemon's `max_record_bytes`.
            SeglogError: As `append` does.
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
        """Return a producer, which sends records in batches so that each is there once. It sends nothing yet.

            with client.topic("orders").producer("importer", epoch=time.time_ns()) as producer:
                for line in lines:
                    producer.send(line)

        The numbers of its batches begin with 0, so each new producer of an id needs a higher `epoch` than the last one.
        The log then refuses batches of the last one.

        Args:
            id: The name of the program that sends.
            epoch: Higher than that of the last producer of this id.
            batching: When a batch is full.
            durability: How safe each batch is when it counts as acked; None is what the topic is configured with.

        Raises:
            InvalidArgument: The id does not fit a header.
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

            for record in client.topic("orders").read(tag="eu", limit=100):
                print(record.seq, record.value)

        A read resumes after a lost connection. The selection is that of `seglog.Topic.read`.

        Args:
            start: The first seq; None is the first live record.
            end: The last seq, inclusive; None is the head.
            gaps: Give a `Gap` in the place of records that were evicted, instead of raising `Evicted`.

        Raises:
            ConcurrentModification: The topic was truncated while a lost connection interrupted the read.
            DaemonError: The daemon refuses the request.
            SeglogError: As `seglog.Topic.read` does, at the first record.
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

            for record in client.topic("orders").follow(start=1):
                print(record.seq, record.value)

        The follower resumes after a lost connection, also while the daemon restarts. The options are those of
        `seglog.Topic.follow`.

        Args:
            start: The first seq; None is the first live record.
            gaps: Give a `Gap` in the place of records that retention took, and go on.
            epoch: You have the records below `start` as they were in this epoch of the topic.
            timeout_s: End after so many seconds without a new record, also if the connection is lost meanwhile.
            tag: Only records with this tag; a trailing `*` makes it a prefix.

        Raises:
            Truncated: Records that you have were truncated. Its `seq` and `epoch` are the next `start` and `epoch`.
            Evicted: Retention took records. To continue, follow from its `gap_to + 1` on.
            OtherIncarnation: The topic was made again, or another directory answers.
            DaemonError: The daemon refuses the request.
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
        """Delete the current records that meet each condition, as `seglog.Topic.delete` does. Durable on return.

            client.topic("orders").delete(tag="eu", before=4711)

        If the daemon does not take a `grep`, because RE2 is missing there or refuses it, the client reads the records
        and looks itself. The client does not repeat a delete after a lost answer, because new records may have come.

        Raises:
            DaemonGone: The delete may be done or not, as after any error of the statuses 500 to 504. Look, and repeat
                it with an `end`.
            DaemonError: The daemon refuses the request.
            SeglogError: As `seglog.Topic.delete` does.
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
        """Remove all records from `seq` on. Later appends use their seqs again.

        The client does not repeat it after a lost answer, because new records may have come.

        Raises:
            DaemonGone: The truncation may be done or not, as after any error of the statuses 500 to 504. Look first.
            DaemonError: The daemon refuses the request.
        """
        self._driver.ask(truncate_request(self.name, seq))
