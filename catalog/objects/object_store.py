"""The port to object storage: the calls that the catalog needs of a store, and nothing more.

Implementations: `catalog.objects.local` (a directory), `catalog.objects.memory`, `catalog.objects.s3`.
One suite of checks runs over all of them, and over a user's store: `catalog.objects.conformance`.

STORE-1  `put_new` is atomic. Of any number of racing callers one succeeds. No reader ever sees half an object.
STORE-2  When a write returns, its effect is durable, and visible to every later `get`, `head` and `list` from anywhere.
STORE-3  An absent key raises `NoSuchObject`. No other trouble raises `NoSuchObject`.
STORE-4  A multipart object appears whole, at `complete_upload`, or never.
STORE-5  If a store keeps a checksum of the whole object, it compares that with the checksum of the sent bytes. It does
    so before the object appears. `head` returns the checksum. Directory and memory stores keep a checksum of the
    objects that `put` and `complete_upload` made.
STORE-6  `swap` is atomic, as `put_new` is. Of any number of racing callers that saw one state of an object, one
    succeeds.
STORE-7  A store adds the prefix that it was opened with to every key. No request leaves that prefix.
STORE-8  When a call returns, the store uses the caller's buffers no longer. The caller may change them.

Every method may raise `StoreUnreachable`, `AccessDenied` and `NoSuchBucket`. All methods are safe to call from many
threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Protocol, TypeGuard, TypeVar, runtime_checkable

from catalog.errors import AccessDenied, NoSuchObject
from catalog.format.checksum import Checksum, SizedChecksum, joined
from catalog.format.ids import Vid
from catalog.format.keys import Key
from catalog.objects.store_timeout import carried
from seglog.base.dataclasses import dataclass

AT_ONCE = 16
_WRITE_HINT = "write through the bucket itself: give its URL as the remote, with credentials that may write"
K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """The facts that a store gives about an object without reading it. Metadata keys are lower case.

    `checksum` covers the whole object. It is None if the store keeps none, or only a checksum of the parts' checksums.
    """

    size: int
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    checksum: Checksum | None = None


@dataclass(frozen=True, slots=True)
class PartTag:
    """A part as the store acknowledged it: its number, from 1, the store's tag for it, its length and its checksum.

    Callers pass it to `complete_upload`, so that the store refuses a part that differs from the sent one.
    """

    number: int
    etag: str
    size: int = 0
    checksum: Checksum | None = None


@dataclass(frozen=True, slots=True)
class WithETag:
    """An object, and the store's tag for this state of the object. Callers pass the tag to `swap`."""

    body: bytes
    etag: str


def checksum_of_parts(parts: Sequence[PartTag]) -> SizedChecksum | None:
    """Return the checksum and size that the object of `parts`, in order, must have.

    Return None if there are no parts, or a part carries no checksum.
    """
    sized = [SizedChecksum(part.checksum, part.size) for part in parts if part.checksum is not None]
    return joined(sized) if sized and len(sized) == len(parts) else None


@runtime_checkable
class TellsTime(Protocol):
    """A store that has a clock of its own."""

    def time_ms(self) -> int | None:
        """Return the store's time in ms since the epoch, rounded down to a second; None if the store does not say.

        This takes one request. `catalog.objects.store_time` compares the time with the machine's clock before a caller
        deletes by age.
        """


@runtime_checkable
class TellsSizes(Protocol):
    """A store whose listings tell the sizes of objects."""

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield the keys that begin with `prefix`, ascending, each with the size of its object in bytes.

        This takes the requests of `list`.
        """


@dataclass(frozen=True, slots=True)
class Forward:
    """What a follower of a name needs after the LSN that it has, as one answer of a proxy.

    The name leads to `vid`, whose newest commit that the proxy knows is `lsn`. It read `boundary` after that commit.
    `bodies` are the commits since, or in their place the newest one as if it were a checkpoint; none without news.
    """

    vid: Vid
    lsn: int
    boundary: int
    bodies: tuple[bytes, ...] = ()


class ObjectStore(Protocol):
    @property
    def url(self) -> str:
        """The remote as a user writes it: `s3://bucket/prefix` or `file:///path`."""

    @property
    def is_ordered(self) -> bool:
        """Tell whether the store keeps keys in order.

        In an ordered store, a LIST with a limit costs by its limit. In another store, it costs by the number of stored
        keys.
        """

    def put_new(self, key: Key, body: bytes) -> None:
        """Create `key` by one request, without any retry.

        Raise `KeyTaken` if the key exists. The object may be the caller's own, from a call whose answer got lost. Raise
        `OutcomeUnknown` if the store's answer does not tell whether the object exists now (5xx, 409, reset, timeout).
        """

    def put(self, key: Key, body: bytes | bytearray, metadata: Mapping[str, str]) -> None:
        """Create or replace `key`. Use it only for keys that carry a fresh id, so that a repetition is harmless."""

    def get(self, key: Key) -> bytes:
        """Return the whole object. Raise `NoSuchObject` if it is absent."""

    def get_with_etag(self, key: Key) -> WithETag:
        """Return the whole object and its tag. Raise `NoSuchObject` if it is absent."""

    def swap(self, key: Key, body: bytes, etag: str) -> None:
        """Replace `key` if the object still is in the state that had `etag`. Send one request, without any retry.

        Raise `KeyChanged` if the object is in another state or gone. That state may be the caller's own, from a call
        whose answer got lost. Raise `OutcomeUnknown` as `put_new` does.
        """

    def get_range(self, key: Key, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start`. If `length` is 0, make no request.

        Raise `NoSuchObject` if the object is absent, and `InvalidObject` if it is shorter.
        """

    def head(self, key: Key) -> ObjectInfo:
        """Return the object's size, metadata and checksum. Raise `NoSuchObject` if it is absent."""

    def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
        """Yield the keys that begin with `prefix` and come after `start_after`, ascending.

        The store delivers them page by page. With `limit`, yield at most that many keys, from one request.
        """

    def delete(self, key: Key) -> None:
        """Delete `key`. An absent key is no error."""

    def delete_many(self, keys: Sequence[Key]) -> None:
        """Delete `keys`. Absent keys are no error.

        A store that can do so sends requests of up to 1,000 keys. After an error, any of the keys may still exist.
        """

    def create_upload(self, key: Key, metadata: Mapping[str, str]) -> str:
        """Begin a multipart upload and return its id."""

    def put_part(self, key: Key, upload_id: str, number: int, body: bytes | bytearray) -> PartTag:
        """Store part `number` (from 1), or replace it. Raise `NoSuchObject` if the upload is gone."""

    def complete_upload(self, key: Key, upload_id: str, parts: Sequence[PartTag]) -> None:
        """Make the object of `parts`, in order, and compare it with `checksum_of_parts` of them.

        Send one request, without any retry.

        Raise `InvalidObject` if a part differs from the stored one, or the whole differs from what the parts make.
        Raise `NoSuchObject` if the upload is gone. An earlier completion by this caller may have succeeded: `head`
        tells. Raise `OutcomeUnknown` as `put_new` does.
        """

    def abort_upload(self, key: Key, upload_id: str) -> None:
        """Abort the upload. An upload that is gone is no error."""

    def list_uploads(self, prefix: str) -> Iterator[tuple[Key, str]]:
        """Yield (key, upload id) of every upload that is neither completed nor aborted."""

    def close(self) -> None: ...


@runtime_checkable
class BehindProxy(ObjectStore, Protocol):
    """A store whose answers come from a proxy with a cache, which knows what a follower needs."""

    @property
    def is_proxied(self) -> bool:
        """Tell whether a proxy answers. A wrapper tells it of the store that it wraps."""

    def forward(self, name: str, since: int) -> Forward | None:
        """Return what follows the LSN `since` of a topic or branch; None if the proxy does not know the name."""

    def await_forward(self, name: str, vid: Vid, since: int, wait_s: int) -> Forward | None:
        """Return the same once there is news, or a volume but `vid`, or after `wait_s` seconds. Makes one try."""

    def end_waits(self) -> None:
        """End each `await_forward` at once, with `StoreUnreachable`, and let none begin. Any thread may call this."""

    def followed(self) -> Sequence[str]:
        """Return the topics and branches that the proxy follows, and that the client may read."""

    def past_cache(self) -> ObjectStore:
        """Return this store for reads that no cache answers: what it has of them is read again."""


def sizes_of(store: ObjectStore, prefix: str) -> Iterator[tuple[str, int]]:
    """Yield the keys that begin with `prefix`, ascending, each with the size of its object in bytes.

    If the listing of the store tells no sizes, this takes a `head` for each key.
    """
    if isinstance(store, TellsSizes):
        yield from store.sizes(prefix)
        return
    for key in store.list(prefix):
        try:
            yield key, store.head(Key(key)).size
        except NoSuchObject:  # the object was deleted since the listing
            continue


def is_behind_proxy(store: ObjectStore) -> TypeGuard[BehindProxy]:
    """Return whether the store's answers come from a proxy."""
    return isinstance(store, BehindProxy) and store.is_proxied


def check_writable(store: ObjectStore) -> None:
    """Raise `AccessDenied` if the store only reads, because a proxy answers for it."""
    if is_behind_proxy(store):
        raise refusal(store.url)


def refusal(url: str) -> AccessDenied:
    """Return the error of a write to a remote that only reads."""
    return AccessDenied(url, "this remote only reads", _WRITE_HINT)


def past_cache(store: ObjectStore) -> ObjectStore:
    """Return the store for a caller that found its former answer damaged. No cache on the way answers."""
    return store.past_cache() if is_behind_proxy(store) else store


def each_of(store: ObjectStore, items: Sequence[K], ask: Callable[[K], T]) -> Iterator[T]:
    """Yield what `ask` returns for each item, in order. Up to `AT_ONCE` small reads go to the store at once.

    In a directory, a read costs less than a thread, so that one goes after another.
    """
    threads = 1 if store.url.startswith("file:") else min(AT_ONCE, len(items))
    if threads < 2:
        yield from map(ask, items)
        return
    from concurrent.futures import ThreadPoolExecutor  # imported late, because a look at a directory needs none

    with ThreadPoolExecutor(threads, "catalog-get") as pool:
        yield from pool.map(carried(ask), items)


def first_valid_key(store: ObjectStore, prefix: str, parse: Callable[[str], T | None]) -> T | None:
    """Return the result of `parse` for the first key under `prefix` that it accepts; None if it accepts none.

    This takes one LIST of one key. If that key is a foreign one, it takes a second LIST, of all keys that follow.
    """
    first = next(store.list(prefix, limit=1), None)
    if first is None:
        return None
    parsed = parse(first)
    if parsed is not None:
        return parsed
    return next((later for key in store.list(prefix, start_after=first) if (later := parse(key)) is not None), None)
