"""The objects of a remote as a proxy shows them to clients with a token: their rights, and a cache of bytes.

    object               a GET of it
    a segment, a list    comes from slices of 1 MiB on the disk; missing neighbours come with one GET of the store
    any other            goes through to the store

PROXY-1  Only keys with a random id or a hash are cached (`is_fixed`), because their bytes never change. All others go
    through, each request for itself, so no read is older than its request. Behind GC, the key of a commit may get
    another writer's commit (VOL-6).
PROXY-2  Each request is checked before the cache and before the store. The topic of a key is the one in the key of a
    ref or a tag, or in the control of its volume, which a branch has in common with its parent. Any other key needs the
    role on all topics, and so does one of a volume whose control is damaged. A key that the client may not read looks
    as an absent one does.
PROXY-3  A slice ends with its XXH3, so that damage on the disk is found here, and fetched again. A client finds damage
    on the way from the store, and its next request goes past the cache, which then takes the new bytes.
PROXY-4  Readers that miss the same slice at the same time share one GET. Those that wait for it hold no thread, so that
    many of them leave the threads to GETs. If it fails, each of them asks for itself.
PROXY-5  A listing reads no more of the store than it needs: pages of the kinds of keys that the client may see, past
    the rest of a foreign volume. It ends once it has its keys, and once the client is gone.
PROXY-6  Without a cache, a range comes from the store as it was asked for, because nobody else would use the rest of
    its slices.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import lru_cache
from itertools import groupby
from typing import Final, Generic, TypeVar

from blake3 import blake3
from xxhash import xxh3_64_digest, xxh3_64_intdigest

from catalog import Vid, Volumes
from catalog.errors import CatalogError, InvalidKey, NoSuchObject, StoreUnreachable
from catalog.format.keys import (
    Key,
    after_volume,
    check_key,
    check_prefix,
    refs_prefix,
    tags_prefix,
    volume_of,
    volumes_prefix,
)
from catalog.objects.object_store import ObjectStore, past_cache
from offload.read.chunk_cache import ChunkCache, Name
from offload.token_rights import Rights
from seglog.base.dataclasses import dataclass

SLICE_BYTES: Final = 1024 * 1024
PIECE_BYTES: Final = 8 * SLICE_BYTES
"""The bytes of one piece of an answer, and of the largest GET of the store."""
CACHED, SHARED, FETCHED = "cached", "shared", "fetched"
_PAGE_KEYS = 1000
_MOST_KNOWN = 100_000
_log = logging.getLogger("seglog.daemon")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Awaited(Generic[T]):
    """A read whose other slices are on their way for other readers. Once all `flights` are done, call `finish`."""

    flights: tuple[Future[bytes], ...]
    finish: Callable[[], T]


class ProxyObjects:
    """The objects of one remote. Many threads may use it. Methods raise the errors of the store.

    `size_of` returns the size of a fixed object, and asks the store once. There is no cache before `open`.
    """

    def __init__(self, store: ObjectStore, open_cache: Callable[[], ChunkCache | None]) -> None:
        volumes = Volumes(store)
        self.store = store
        self.size_of: Callable[[Key], int] = lru_cache(_MOST_KNOWN)(lambda key: store.head(key).size)
        self._topic_of_volume: Callable[[Vid], str] = lru_cache(_MOST_KNOWN)(lambda vid: volumes.control(vid).topic)
        self._open_cache = open_cache
        self._is_open = False
        self._cache: ChunkCache | None = None
        self._lock = threading.Lock()
        self._flights: dict[Name, Future[bytes]] = {}

    def open(self) -> None:
        """Open the cache, if this is the first call."""
        if not self._is_open:
            self._is_open, self._cache = True, self._open_cache()

    def close(self) -> None:
        if self._cache is not None:
            self._cache.close()

    def checked(self, rights: Rights, text: str) -> Key:
        """Return the key if the client may read it. Raises `NoSuchObject` (PROXY-2), also for a text that is no key."""
        with suppress(InvalidKey):
            if self._shows(rights, check_key(text)):
                return Key(text)
        raise NoSuchObject(text)

    def keys(self, rights: Rights, prefix: str, start_after: str, limit: int) -> Iterator[list[str]]:
        """Yield the keys of a listing that the client may see, by pages of the store. A page may have none (PROXY-5).

        Raises `InvalidKey` for a prefix that is none.
        """
        check_prefix(prefix)
        if self._shows(rights, prefix):
            yield list(self.store.list(prefix, limit=limit, start_after=start_after))
            return
        if self._topic_of(prefix) is not None:
            return
        for kind in sorted((volumes_prefix(), refs_prefix(), tags_prefix())):
            if kind.startswith(prefix) or prefix.startswith(kind):
                yield from self._pages(rights, max(kind, prefix, key=len), start_after)

    def _pages(self, rights: Rights, prefix: str, after: str) -> Iterator[list[str]]:
        most = _PAGE_KEYS if self.store.is_ordered else None  # each page of another store costs a whole listing
        while True:
            page = list(self.store.list(prefix, limit=most, start_after=after))
            shown = [key for key in page if self._shows(rights, key)]
            yield shown
            if most is None or len(page) < most:
                return
            after, vid = page[-1], volume_of(page[-1])
            if vid is not None and page[-1] not in shown[-1:]:
                after = after_volume(vid)  # the rest of it is foreign, too

    def read(
        self, key: Key, start: int, end: int, *, is_fresh: bool = False
    ) -> tuple[bytes, str] | Awaited[tuple[bytes, str]]:
        """Return bytes of a fixed object, and how they came. The object has them, and they are a piece at most.

        With `is_fresh` they come from the store. Otherwise other readers may fetch some of them (PROXY-4).
        """
        if self._cache is None or not self._cache.keeps:
            return (past_cache(self.store) if is_fresh else self.store).get_range(key, start, end - start), FETCHED
        first, size = start // SLICE_BYTES, self.size_of(key)
        numbers = range(first, -(-end // SLICE_BYTES))
        if is_fresh:
            found, flights, outcome = (
                self._fetched(key, numbers, size, is_fresh=True),
                dict[int, Future[bytes]](),
                FETCHED,
            )
        else:
            found, flights, outcome = self._slices(key, numbers, size)

        def finish() -> tuple[bytes, str]:
            for number, flight in flights.items():
                found[number] = flight.result() or self._fetched(key, [number], size)[number]
            body = found[first] if len(numbers) == 1 else b"".join(found[number] for number in numbers)
            return body[start - first * SLICE_BYTES : end - first * SLICE_BYTES], outcome

        return Awaited((*flights.values(),), finish) if flights else finish()

    def _shows(self, rights: Rights, key: str) -> bool:
        if rights.shows_all():
            return True
        topic = self._topic_of(key)
        return topic is not None and rights.shows(topic)

    def _topic_of(self, key: str) -> str | None:
        """Return the one topic of a key, or of all keys with a prefix; None without one."""
        kind, _, names = key.partition("/")
        topic, slash, _ = names.partition("/")
        if kind in ("refs", "tags"):
            return topic if slash else None
        vid = volume_of(key)
        try:
            return None if vid is None else self._topic_of_volume(vid)
        except StoreUnreachable:
            raise
        except CatalogError as error:
            if not isinstance(error, NoSuchObject):
                _log.warning("the proxy shows volume %s only to tokens for all topics: %s", vid, error)
            return None

    def _slices(
        self, key: Key, numbers: Sequence[int], size: int
    ) -> tuple[dict[int, bytes], dict[int, Future[bytes]], str]:
        """Return slices by number, and those that other readers fetch now. Fetch all others that the cache lacks."""
        found = {number: body for number in numbers if (body := self._cached(key, number, size)) is not None}
        missing = [number for number in numbers if number not in found]
        if not missing:
            return found, {}, CACHED
        with self._lock:
            others = {number: flight for number in missing if (flight := self._flights.get(_name(key, number)))}
            own = [number for number in missing if number not in others]
            self._flights |= {_name(key, number): _flight() for number in own}
        try:
            found |= self._fetched(key, own, size)
        finally:
            with self._lock:
                landed = {number: self._flights.pop(_name(key, number)) for number in own}
            for number, flight in landed.items():
                flight.set_result(found.get(number, b""))  # no slice is empty: the GET failed
        return found, others, FETCHED if own else SHARED

    def _fetched(self, key: Key, numbers: Sequence[int], size: int, *, is_fresh: bool = False) -> dict[int, bytes]:
        """Fetch slices, neighbours with one GET, and give them to the cache."""
        found: dict[int, bytes] = {}
        for _, run in groupby(enumerate(numbers), lambda each: each[1] - each[0]):
            [(_, first), *_, (_, last)] = [*run] * 2
            start, end = first * SLICE_BYTES, min(size, (last + 1) * SLICE_BYTES)
            body = (past_cache(self.store) if is_fresh else self.store).get_range(key, start, end - start)
            for number in range(first, last + 1):
                at = (number - first) * SLICE_BYTES
                found[number] = body[at : at + SLICE_BYTES]
                self._keep(_name(key, number), found[number], is_fresh=is_fresh)
        return found

    def _cached(self, key: Key, number: int, size: int) -> bytes | None:
        length = min(size - number * SLICE_BYTES, SLICE_BYTES)
        return None if self._cache is None else self._cache.get(_name(key, number), length, None)

    def _keep(self, name: Name, body: bytes, *, is_fresh: bool) -> None:
        if self._cache is None:
            return
        if is_fresh:
            self._cache.drop(name)
        sealed = body + xxh3_64_digest(body)
        if self._cache.admit(name, len(sealed), is_scan=False):
            self._cache.hand_over(name, sealed)
            self._cache.write(name, xxh3_64_intdigest(sealed))


def _flight() -> Future[bytes]:
    """Return the future of a slice. A reader that waits for it and leaves cannot cancel it."""
    flight = Future[bytes]()
    flight.set_running_or_notify_cancel()
    return flight


def _name(key: Key, number: int) -> Name:
    """Return the name of a slice in the cache. No writer can make two keys with one name."""
    return blake3(key.encode()).digest(length=16), number * SLICE_BYTES
