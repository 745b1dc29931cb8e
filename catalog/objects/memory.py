"""Objects in memory, for tests and simulations. One lock makes every operation atomic. Nothing outlives the process."""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

import xxhash

from catalog.errors import InvalidObject, KeyChanged, KeyTaken, NoSuchObject
from catalog.format.checksum import Checksum, ChecksumKind
from catalog.format.keys import Key, check_key, check_prefix
from catalog.objects.object_store import ObjectInfo, PartTag, WithETag, checksum_of_parts
from seglog.base.dataclasses import dataclass

_FEW = 16
_AFTER_ANY_KEY = "\x7f"  # keys are of letters, digits, `.`, `_`, `-` and `/`


@dataclass(frozen=True, slots=True)
class _Object:
    body: bytes
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    checksum: Checksum | None = None


@dataclass(frozen=True, slots=True)
class _Upload:
    key: Key
    metadata: Mapping[str, str]
    parts: dict[int, bytes] = field(default_factory=dict[int, bytes])


class _Order:
    """Keys in order, so that a LIST costs by the number of keys that it gives. A LIST sorts all new keys in at once."""

    def __init__(self) -> None:
        self._sorted: list[str] = []
        self._new: set[str] = set()

    def add(self, key: str) -> None:
        self._new.add(key)

    def remove(self, key: str) -> None:
        if key in self._new:
            self._new.remove(key)
        else:
            del self._sorted[bisect_left(self._sorted, key)]

    def keys(self, prefix: str, start_after: str, limit: int | None) -> list[str]:
        if len(self._new) < _FEW:
            for key in self._new:
                insort(self._sorted, key)
        else:
            self._sorted = sorted((*self._sorted, *self._new))
        self._new.clear()
        first = max(bisect_left(self._sorted, prefix), bisect_right(self._sorted, start_after))
        end = bisect_left(self._sorted, prefix + _AFTER_ANY_KEY) if prefix else len(self._sorted)
        return self._sorted[first : end if limit is None else min(end, first + limit)]


class MemoryStore:
    """An `ObjectStore`. Every reader and writer must share the instance.

    The store lies in the machine whose clock it would judge. So it tells a time only if the caller gives it a `clock`.
    """

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._objects: dict[str, _Object] = {}
        self._order = _Order()
        self._uploads: dict[str, _Upload] = {}
        self._upload_ids = itertools.count(1)

    @property
    def url(self) -> str:
        return "memory://"

    @property
    def is_ordered(self) -> bool:
        return True

    def put_new(self, key: Key, body: bytes) -> None:
        check_key(key)
        with self._lock:
            if key in self._objects:
                raise KeyTaken(key)
            self._keep(key, _Object(body))

    def put(self, key: Key, body: bytes | bytearray, metadata: Mapping[str, str]) -> None:
        check_key(key)
        checksum = _checksum(body)
        with self._lock:
            self._keep(key, _Object(bytes(body), dict(metadata), checksum))

    def get(self, key: Key) -> bytes:
        return self._object(key).body

    def get_with_etag(self, key: Key) -> WithETag:
        body = self._object(key).body
        return WithETag(body, _etag(body))

    def swap(self, key: Key, body: bytes, etag: str) -> None:
        check_key(key)
        with self._lock:
            stored = self._objects.get(key)
            if stored is None or _etag(stored.body) != etag:
                raise KeyChanged(key)
            self._objects[key] = _Object(body)

    def get_range(self, key: Key, start: int, length: int) -> bytes:
        if length == 0:
            return b""
        body = self._object(key).body
        if start + length > len(body):
            raise InvalidObject(key, f"it has {len(body)} bytes, {start + length} were expected")
        return body[start : start + length]

    def head(self, key: Key) -> ObjectInfo:
        stored = self._object(key)
        return ObjectInfo(len(stored.body), stored.metadata, stored.checksum)

    def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
        check_prefix(prefix)
        with self._lock:
            return iter(self._order.keys(prefix, start_after, limit))

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        check_prefix(prefix)
        with self._lock:
            return iter([(key, len(self._objects[Key(key)].body)) for key in self._order.keys(prefix, "", None)])

    def delete(self, key: Key) -> None:
        check_key(key)
        with self._lock:
            if self._objects.pop(key, None) is not None:
                self._order.remove(key)

    def delete_many(self, keys: Sequence[Key]) -> None:
        for key in keys:
            self.delete(key)

    def create_upload(self, key: Key, metadata: Mapping[str, str]) -> str:
        check_key(key)
        with self._lock:
            upload_id = str(next(self._upload_ids))
            self._uploads[upload_id] = _Upload(key, dict(metadata))
        return upload_id

    def put_part(self, key: Key, upload_id: str, number: int, body: bytes | bytearray) -> PartTag:
        check_key(key)
        with self._lock:
            self._upload(key, upload_id).parts[number] = bytes(body)
        return _tag(number, body)

    def complete_upload(self, key: Key, upload_id: str, parts: Sequence[PartTag]) -> None:
        check_key(key)
        with self._lock:
            upload = self._upload(key, upload_id)
            for part in parts:
                if part.number not in upload.parts or _etag(upload.parts[part.number]) != part.etag:
                    raise InvalidObject(key, f"part {part.number} of its upload is not the one that was sent")
            body = b"".join(upload.parts[part.number] for part in parts)
            expected = checksum_of_parts(parts)
            checksum = _checksum(body)
            if expected is not None and expected.checksum != checksum:
                raise InvalidObject(key, "its joined parts differ from the bytes that were sent")
            self._keep(key, _Object(body, upload.metadata, checksum))
            del self._uploads[upload_id]

    def abort_upload(self, key: Key, upload_id: str) -> None:
        check_key(key)
        with self._lock:
            self._uploads.pop(upload_id, None)

    def list_uploads(self, prefix: str) -> Iterator[tuple[Key, str]]:
        check_prefix(prefix)
        with self._lock:
            uploads = sorted((upload.key, upload_id) for upload_id, upload in self._uploads.items())
        return ((key, upload_id) for key, upload_id in uploads if key.startswith(prefix))

    def time_ms(self) -> int | None:
        return None if self._clock is None else self._clock() // 1000 * 1000

    def close(self) -> None:
        """Do nothing: the objects live as long as the instance."""

    def _keep(self, key: Key, stored: _Object) -> None:
        if key not in self._objects:
            self._order.add(key)
        self._objects[key] = stored

    def _object(self, key: Key) -> _Object:
        check_key(key)
        with self._lock:
            stored = self._objects.get(key)
        if stored is None:
            raise NoSuchObject(key)
        return stored

    def _upload(self, key: Key, upload_id: str) -> _Upload:
        upload = self._uploads.get(upload_id)
        if upload is None or upload.key != key:
            raise NoSuchObject(f"upload {upload_id} of {key}")
        return upload


def _tag(number: int, body: bytes | bytearray) -> PartTag:
    return PartTag(number, _etag(body), len(body), _checksum(body))


def _etag(body: bytes | bytearray) -> str:
    return xxhash.xxh3_128_hexdigest(body)


def _checksum(body: bytes | bytearray) -> Checksum:
    return Checksum.of(ChecksumKind.CRC32C, body)
