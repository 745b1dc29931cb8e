"""What a program may use, whichever carrier it has: a log in its own process, or a client of a daemon.

    def ship(orders: seglog.AnyTopic) -> None:
        orders.append([b"one", b"two"], tag="eu", key="order-17")
        for record in orders.read(tag="eu"):
            print(record.seq, record.value)

    with seglog.open("data") as log:
        ship(log.topic("orders"))
    with seglog.connect("unix:data") as client:
        ship(client.topic("orders"))

    carrier              a log                a client of a daemon       the same for asyncio
    log                  `Log`                `Client`                   `AsyncLog`, `AsyncClient`
    topic                `Topic`              `RemoteTopic`              `AsyncTopic`, `AsyncRemoteTopic`
    archive              `offload.Archive`    `Client.archive`           none, `AsyncClient.archive`

CARRIER-1  A name that two carriers have means the same in both: the same arguments, the same defaults, the same result,
    and the same error for a topic, a record or a condition that is not there.
CARRIER-2  A carrier may have more names than these, such as the reads in arrays of a log.
CARRIER-3  The arguments of a call stand in one place: the classes of arguments below. `Unpack` gives them to each call.

A log raises the errors of a read or a follower at the call. The other carriers raise them at the first record, because
the call makes no request. No I/O.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypedDict, Unpack, overload

from seglog.base.dataclasses import dataclass
from seglog.values.producer import Appended, ProducerBatch
from seglog.values.record import Gap, Record
from seglog.values.seq_set import SeqSet

if TYPE_CHECKING:
    import pyarrow as pa


class AppendArguments(TypedDict, total=False):
    """The arguments of an append beside its values. They are the same for all of its records."""

    #: A label of the records, by which reads and deletes select.
    tag: str | None
    #: Another label, such as the machine that the records come from.
    node: str | None
    #: The values are lines without a line end.
    unterminated: bool
    #: How safe the records are on return: "fsync", "disk", "memory" or "ephemeral". None: as the topic is configured.
    durability: str | None
    #: The id, the epoch and the number of the batch, so that the append may be repeated.
    producer: ProducerBatch | None
    #: The seq that the topic has to end with; 0 for a topic without records.
    if_head: int | None
    #: A text of 1 to 256 bytes that names this append, so that it may be repeated without a producer.
    key: str | None
    #: The incarnation that the topic has to have (`Bounds.incarnation`).
    if_incarnation: str | None


class LogAppendArguments(AppendArguments, total=False):
    """The arguments of an append to a log. A daemon takes no times."""

    #: A time for each value, in ms since the epoch, in place of the clock's. They ascend.
    times_ms: Sequence[int] | None


class Selection(TypedDict, total=False):
    """Conditions on records beside their seqs."""

    #: The first time, in ms since the epoch.
    since_ms: int | None
    #: The last time, itself included.
    until_ms: int | None
    #: The tag, or a prefix of it with a trailing `*`.
    tag: str | None


class ReadArguments(Selection, total=False):
    """The arguments of a read beside its seqs."""

    #: The number of records, at most.
    limit: int | None


class FollowArguments(TypedDict, total=False):
    """The arguments of a follower beside its first seq."""

    #: The epoch of the records below the first seq, which the caller has.
    epoch: int | None
    #: The follower ends when no record came for so long. None: it does not end.
    timeout_s: float | None
    #: The tag, or a prefix of it with a trailing `*`.
    tag: str | None


class FollowTopicsArguments(TypedDict, total=False):
    """The arguments of a follower of several topics beside their names."""

    #: The name of a cursor of each topic. The follower begins behind it.
    cursor: str | None
    #: The position of an earlier record (`Followed.position`), behind which the follower begins.
    position: str | None
    #: The tag, or a prefix of it with a trailing `*`.
    tag: str | None
    #: Give a `Gap` in the place of records that retention took, instead of raising `Evicted`.
    gaps: bool
    #: Only records that a sync covers.
    strong: bool
    #: The follower ends when no record came for so long. None: it does not end.
    timeout_s: float | None


class DeleteArguments(Selection, total=False):
    """The conditions of a delete. A record that meets all of them goes."""

    #: A regular expression of Python's `re` that the bytes of the value have.
    grep: str | None
    #: The seq behind the last one. It may be above the head, as the other bounds may.
    before: int | None
    #: The first seq.
    start: int | None
    #: The last seq.
    end: int | None
    #: Single seqs, in any order. An empty list names no record.
    seqs: SeqSet | Iterable[int] | None
    #: The epoch in which the caller saw the seqs. In another one, nothing is deleted.
    epoch: int | None


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a topic. `epoch` rises if the topic is truncated: then seqs may mean other records.

    `incarnation` is None if the log is read-only.
    """

    earliest_seq: int
    head_seq: int
    sealed_seq: int
    epoch: int
    incarnation: str | None = None


@dataclass(frozen=True, slots=True)
class Removed:
    """The result of `delete`, `evict` and `truncate`. `lsn` is the commit that publishes the removal.

    `lsn` is None if the remote had none of the records that a truncation removed. It is also None while the commit is
    not published yet. Then `waits_for` gives the reason. `records` counts the removed records. It is None if the
    records of a delete in the cold tier could not be counted, and from a `Topic`, which would have to read them.
    `number` names a delete or an eviction that has no commit, for its undo.
    """

    records: int | None
    lsn: int | None
    waits_for: str | None = None
    number: int | None = None


class AnyOffloaded(Protocol):
    """The result of an offload. `released_seq` is the last seq whose hot copy was deleted; 0 if none was."""

    @property
    def offloaded_seq(self) -> int: ...
    @property
    def released_seq(self) -> int: ...
    @property
    def unsealed_records(self) -> int: ...


class AnyRestored(Protocol):
    """A new branch, and its contents. `last_seq` and `last_ts_ms` are 0 if the branch is empty."""

    @property
    def records(self) -> int: ...
    @property
    def last_seq(self) -> int: ...
    @property
    def last_ts_ms(self) -> int: ...


class AnyBranch(Protocol):
    """A branch of a topic. `deleted_at_ms` is None unless it is deleted."""

    @property
    def topic(self) -> str: ...
    @property
    def branch(self) -> str: ...
    @property
    def created_at_ms(self) -> int: ...
    @property
    def deleted_at_ms(self) -> int | None: ...


class AnyTopic(Protocol):
    """A topic of a log or of a daemon (`seglog.Topic`, `seglog.client.RemoteTopic`)."""

    @property
    def name(self) -> str: ...
    def append(self, values: Sequence[bytes], **options: Unpack[AppendArguments]) -> range:
        """Append records, all or none, and return their seqs when they are as safe as the durability says."""

    def append_once(self, values: Sequence[bytes], **options: Unpack[AppendArguments]) -> Appended:
        """Append as `append` does, and say whether the topic had the records already."""

    def append_stream(self, chunks: Iterable[bytes], **options: Unpack[AppendArguments]) -> Appended:
        """Append one record whose value comes in chunks. The seqs of the result have its seq alone."""

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
    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        gaps: bool = False,
        **selection: Unpack[ReadArguments],
    ) -> Iterator[Record] | Iterator[Record | Gap]:
        """Return the live records from `start` to `end`, both inclusive, of those that are there now."""

    def read_arrow(
        self, start: int | None = None, end: int | None = None, *, text: bool = False, **selection: Unpack[Selection]
    ) -> pa.RecordBatchReader:
        """Return the records of `read` in Apache Arrow."""

    @overload
    def follow(
        self, start: int | None = None, *, gaps: Literal[False] = False, **options: Unpack[FollowArguments]
    ) -> Iterator[Record]: ...
    @overload
    def follow(
        self, start: int | None = None, *, gaps: bool, **options: Unpack[FollowArguments]
    ) -> Iterator[Record | Gap]: ...
    def follow(
        self, start: int | None = None, *, gaps: bool = False, **options: Unpack[FollowArguments]
    ) -> Iterator[Record] | Iterator[Record | Gap]:
        """Return the records of `read`, and then wait for further records."""

    def bounds(self) -> Bounds: ...
    def delete(self, **conditions: Unpack[DeleteArguments]) -> Removed:
        """Delete the records that meet each condition, durably on return."""

    def evict(self, before: int) -> Removed:
        """Evict the records below `before`, durably on return. Readers get a `Gap` or `Evicted` in their place."""

    def truncate(self, seq: int) -> None:
        """Remove the records from `seq` on, durably on return."""

    def seal(self) -> None:
        """Seal the segments with the current records, so that they can be offloaded."""


class AnyAsyncTopic(Protocol):
    """A topic of a log or of a daemon for one event loop (`seglog.aio`, `seglog.client.aio`): `AnyTopic`, awaited."""

    @property
    def name(self) -> str: ...
    async def append(self, values: Sequence[bytes], **options: Unpack[AppendArguments]) -> range: ...
    async def append_once(self, values: Sequence[bytes], **options: Unpack[AppendArguments]) -> Appended: ...
    async def append_stream(self, chunks: AsyncIterable[bytes], **options: Unpack[AppendArguments]) -> Appended: ...
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
    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        gaps: bool = False,
        **selection: Unpack[ReadArguments],
    ) -> AsyncIterator[Record] | AsyncIterator[Record | Gap]: ...
    def read_arrow(
        self, start: int | None = None, end: int | None = None, *, text: bool = False, **selection: Unpack[Selection]
    ) -> AsyncIterator[pa.RecordBatch]: ...
    @overload
    def follow(
        self, start: int | None = None, *, gaps: Literal[False] = False, **options: Unpack[FollowArguments]
    ) -> AsyncIterator[Record]: ...
    @overload
    def follow(
        self, start: int | None = None, *, gaps: bool, **options: Unpack[FollowArguments]
    ) -> AsyncIterator[Record | Gap]: ...
    def follow(
        self, start: int | None = None, *, gaps: bool = False, **options: Unpack[FollowArguments]
    ) -> AsyncIterator[Record] | AsyncIterator[Record | Gap]: ...
    async def bounds(self) -> Bounds: ...
    async def delete(self, **conditions: Unpack[DeleteArguments]) -> Removed: ...
    async def evict(self, before: int) -> Removed: ...
    async def truncate(self, seq: int) -> None: ...
    async def seal(self) -> None: ...


class AnyLog(Protocol):
    """The topics of a log or of a daemon (`seglog.Log`, `seglog.client.Client`)."""

    def topic(self, name: str) -> AnyTopic: ...
    def topics(self) -> list[str]: ...
    def close(self) -> None: ...


class AnyAsyncLog(Protocol):
    """The topics of a log or of a daemon for one event loop (`seglog.aio`, `seglog.client.aio`)."""

    def topic(self, name: str) -> AnyAsyncTopic: ...
    async def topics(self) -> list[str]: ...
    async def close(self) -> None: ...


class AnyBranches(Protocol):
    """The branches of topics (`offload.Archive.branches`, `seglog.client.RemoteArchive.branches`)."""

    def list(self, topic: str, *, deleted: bool = False) -> Sequence[AnyBranch]: ...
    def delete_branch(self, topic: str, branch: str, *, message: str = "") -> object: ...
    def undelete_branch(self, topic: str, branch: str) -> object: ...
    def rename_branch(self, topic: str, branch: str, new: str) -> object: ...


class AnyArchive(Protocol):
    """An archive here or in a daemon (`offload.Archive`, `seglog.client.Client.archive`)."""

    @property
    def branches(self) -> AnyBranches: ...
    def offload(self, name: str, *, up_to: int | None = None, drop_hot: bool = False) -> AnyOffloaded: ...
    def delete(self, name: str, *, message: str = "", **conditions: Unpack[DeleteArguments]) -> Removed: ...
    def evict(self, name: str, before: int, *, message: str = "") -> Removed: ...
    def truncate(self, name: str, seq: int, *, message: str = "") -> Removed: ...
    def restore(self, topic: str, *, to: str, name: str, message: str = "") -> AnyRestored: ...
    def open_for_append(self, name: str) -> AnyTopic:
        """Return the topic that takes appends for `name`: also for a branch that `restore` has just made."""
