"""The objects of a remote as a proxy shows them to clients with a token: their rights, and a cache of bytes.

    object               a GET of it
    a segment, a list    comes from slices of 1 MiB on the disk; missing neighbours come with one GET of the store
    any other            goes through to the store

PROXY-1  Only keys with a random id or a hash are cached (`is_fixed`), because their bytes never change. All others go
    through, each request for itself, so no read is older than its request. Behind GC, the key of a commit may get
    another writer's commit (VOL-6).
PROXY-2  Each request is checked before the cache and before the store. The topic of a key is the one in the key of a
    ref or a tag, or in the control of its volume, which a branch has in common with its parent. Any other key needs the
    role on all topics. A key that the client may not read looks as an absent one does.
PROXY-3  A slice ends with its XXH3, so that damage on the disk is found here, and fetched again. A client finds damage
    on the way from the store, and its next request goes past the cache, which then takes the new bytes.
PROXY-4  Readers that miss the same slice at the same time share one GET. If it fails, each of them asks for itself.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from blake3 import blake3
from xxhash import xxh3_64_digest, xxh3_64_intdigest

from catalog import Vid, Volumes
from catalog.errors import InvalidKey, InvalidName, NoSuchObject
from catalog.format.keys import Key, check_key, check_name, check_prefix, volume_of
from catalog.objects.base import ObjectStore, past_cache
from offload.errors import NotAllowed
from offload.read.cache import ChunkCache, Name, open_cache
from offload.read.cold_reader import SingleFlight
from offload.rights import Rights, Role

SLICE_BYTES: Final = 1024 * 1024
PIECE_BYTES: Final = 8 * SLICE_BYTES
"""The bytes of one piece of an answer, and of the largest GET of the store."""
CACHED, SHARED, FETCHED = "cached", "shared", "fetched"
K = TypeVar("K")
V = TypeVar("V")
_SUM_BYTES = 8
_MOST_KNOWN = 100_000  # sizes of objects, and topics of volumes


class ProxyObjects:
    """The objects of one remote. Many threads may use it. Methods raise the errors of the store.

    The cache has `limit_bytes` in `directory`, and opens with the first read.
    """

    def __init__(self, store: ObjectStore, directory: Path, limit_bytes: int) -> None:
        self.store = store
        self._volumes = Volumes(store)
        self._open_cache = directory, limit_bytes
        self._cache: ChunkCache | None = None
        self._is_open = False
        self._lock = threading.Lock()
        self._flights: dict[Name, Future[bytes]] = {}
        self._heads: SingleFlight[Key, int] = SingleFlight()
        self._sizes: OrderedDict[Key, int] = OrderedDict()
        self._topics: OrderedDict[Vid, str] = OrderedDict()

    def close(self) -> None:
        with self._lock:
            self._is_open = True
            if self._cache is not None:
                self._cache.close()

    def checked(self, rights: Rights, text: str) -> Key:
        """Return the key if the client may read it. Raises `NoSuchObject` (PROXY-2), also for a text that is no key."""
        try:
            key = check_key(text)
        except InvalidKey:
            raise NoSuchObject(text) from None
        if not self._shows(rights, key):
            raise NoSuchObject(text)
        return key

    def keys(self, rights: Rights, prefix: str, start_after: str, limit: int) -> list[str]:
        """Return the first keys of a listing that the client may see. Raises `InvalidKey` for a prefix that is none."""
        check_prefix(prefix)
        if _sees_all(rights) or self._shows(rights, prefix):
            return list(self.store.list(prefix, limit=limit, start_after=start_after))
        if self._topic_of(prefix) is not None or not _is_of_topics(prefix):
            return []
        listed = self.store.list(prefix, start_after=start_after)
        return list(islice((key for key in listed if self._shows(rights, key)), limit))

    def size(self, key: Key) -> int:
        """Return the size of a fixed object."""
        size = self._sizes.get(key)
        return self._heads.do(key, lambda: self._asked_size(key)) if size is None else size

    def read(self, key: Key, start: int, end: int, *, is_fresh: bool = False) -> tuple[bytes, str]:
        """Return bytes of a fixed object, and how they came. The object has them, and they are a piece at most.

        With `is_fresh` they come from the store.
        """
        size, first = self.size(key), start // SLICE_BYTES
        numbers = range(first, -(-end // SLICE_BYTES))
        if is_fresh:
            slices, outcome = self._fetched(key, numbers, size, is_fresh=True), FETCHED
        else:
            slices, outcome = self._slices(key, numbers, size)
        body = b"".join(slices[number] for number in numbers)
        return body[start - first * SLICE_BYTES : end - first * SLICE_BYTES], outcome

    # ------------------------------------------------------------ rights

    def _shows(self, rights: Rights, key: str) -> bool:
        topic = self._topic_of(key)
        return _sees_all(rights) if topic is None else rights.shows(topic, Role.READ)

    def _topic_of(self, key: str) -> str | None:
        """Return the one topic of a key, or of all keys with a prefix; None without one."""
        kind, _, names = key.partition("/")
        if kind in ("refs", "tags"):
            topic, slash, _ = names.partition("/")
            try:
                return check_name("topic", topic) if slash else None
            except InvalidName:
                return None
        vid = volume_of(key)
        if vid is None:
            return None
        topic_name = self._topics.get(vid)
        if topic_name is None:
            try:
                topic_name = self._volumes.control(vid).topic
            except NoSuchObject:
                return None
            self._keep(self._topics, vid, topic_name)
        return topic_name

    # ------------------------------------------------------------ bytes

    def _asked_size(self, key: Key) -> int:
        size = self.store.head(key).size
        self._keep(self._sizes, key, size)
        return size

    def _slices(self, key: Key, numbers: Sequence[int], size: int) -> tuple[dict[int, bytes], str]:
        """Return slices by number. Fetch those that neither the cache has nor another reader fetches (PROXY-4)."""
        found = {number: body for number in numbers if (body := self._cached(key, number, size)) is not None}
        missing = [number for number in numbers if number not in found]
        with self._lock:
            others = {number: self._flights.get(_name(key, number)) for number in missing}
            own = [number for number, flight in others.items() if flight is None]
            self._flights |= {_name(key, number): Future[bytes]() for number in own}
        failure: BaseException = NoSuchObject(key)
        try:
            found |= self._fetched(key, own, size)
        except BaseException as error:
            failure = error
            raise
        finally:
            with self._lock:
                landed = {number: self._flights.pop(_name(key, number)) for number in own}
            for number, flight in landed.items():
                if number in found:
                    flight.set_result(found[number])
                else:
                    flight.set_exception(failure)
        for number, other in others.items():
            if other is not None:
                body = other.result() if other.exception() is None else None
                found[number] = self._fetched(key, [number], size)[number] if body is None else body
        return found, FETCHED if own else SHARED if missing else CACHED

    def _fetched(self, key: Key, numbers: Sequence[int], size: int, *, is_fresh: bool = False) -> dict[int, bytes]:
        """Fetch slices, neighbours with one GET, and give them to the cache."""
        found: dict[int, bytes] = {}
        for first, last in _runs(numbers):
            start, end = first * SLICE_BYTES, min(size, (last + 1) * SLICE_BYTES)
            body = (past_cache(self.store) if is_fresh else self.store).get_range(key, start, end - start)
            for number in range(first, last + 1):
                at = (number - first) * SLICE_BYTES
                found[number] = body[at : at + SLICE_BYTES]
                self._keep_slice(_name(key, number), found[number], is_fresh=is_fresh)
        return found

    def _cached(self, key: Key, number: int, size: int) -> bytes | None:
        cache = self._opened()
        if cache is None:
            return None
        length = min(size - number * SLICE_BYTES, SLICE_BYTES)
        body = cache.get(_name(key, number), length + _SUM_BYTES, None)
        return None if body is None else body[:length]

    def _keep_slice(self, name: Name, body: bytes, *, is_fresh: bool) -> None:
        cache = self._opened()
        if cache is None:
            return
        if is_fresh:
            cache.drop(name)
        sealed = body + xxh3_64_digest(body)
        if cache.admit(name, len(sealed), is_scan=False):
            cache.hand_over(name, sealed)
            cache.write(name, xxh3_64_intdigest(sealed))

    def _opened(self) -> ChunkCache | None:
        if not self._is_open:
            with self._lock:
                if not self._is_open:
                    self._cache = open_cache(*self._open_cache)
                    self._is_open = True
        return self._cache

    def _keep(self, known: OrderedDict[K, V], key: K, value: V) -> None:
        with self._lock:
            known[key] = value
            if len(known) > _MOST_KNOWN:
                known.popitem(last=False)


def _sees_all(rights: Rights) -> bool:
    try:
        rights.check_all_topics(Role.READ)
    except NotAllowed:
        return False
    return True


def _is_of_topics(prefix: str) -> bool:
    """Return whether keys that begin with the prefix may have topics: those of volumes, refs and tags."""
    return any(name.startswith(prefix[: len(name)]) for name in ("refs/", "tags/")) or prefix[:1] in ("", "5")


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last number of each run of neighbours."""
    for at, number in enumerate(numbers):
        if at == 0 or numbers[at - 1] != number - 1:
            first = number
        if at == len(numbers) - 1 or numbers[at + 1] != number + 1:
            yield first, number


def _name(key: Key, number: int) -> Name:
    """Return the name of a slice in the cache. No writer can make two keys with one name."""
    return blake3(key.encode()).digest(length=16), number * SLICE_BYTES
