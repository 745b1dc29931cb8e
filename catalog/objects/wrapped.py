"""Object stores in front of another one. One method, `_call`, says what happens with every call.

A `MeasuredStore` sees each request before it is sent, and its outcome.
"""

from __future__ import annotations

import copy
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from catalog.errors import StoreUnreachable
from catalog.format.ids import Vid
from catalog.format.keys import Key
from catalog.objects.object_store import (
    Forward,
    ObjectInfo,
    ObjectStore,
    PartTag,
    TellsTime,
    WithETag,
    is_behind_proxy,
    past_cache,
    sizes_of,
)

T = TypeVar("T")
OK = "ok"
_Answer = TypeVar("_Answer")


class WrappedStore(ABC):
    """An `ObjectStore` that passes every call through `_call`, with the method's name and the action to perform."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner

    @abstractmethod
    def _call(self, method: str, key: str, act: Callable[[], T]) -> T: ...

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def is_ordered(self) -> bool:
        return self.inner.is_ordered

    @property
    def is_proxied(self) -> bool:
        return is_behind_proxy(self.inner)

    def forward(self, name: str, since: int) -> Forward | None:
        inner = self.inner
        return self._call("get", name, lambda: inner.forward(name, since)) if is_behind_proxy(inner) else None

    def await_forward(self, name: str, vid: Vid, since: int, wait_s: int) -> Forward | None:
        # Not through `_call`: a wait says nothing about the time that a request takes.
        return self.inner.await_forward(name, vid, since, wait_s) if is_behind_proxy(self.inner) else None

    def end_waits(self) -> None:
        if is_behind_proxy(self.inner):
            self.inner.end_waits()

    def followed(self) -> Sequence[str]:
        inner = self.inner
        return self._call("list", "", inner.followed) if is_behind_proxy(inner) else ()

    def past_cache(self) -> ObjectStore:
        wrapped = copy.copy(self)
        wrapped.inner = past_cache(self.inner)
        return wrapped

    def put_new(self, key: Key, body: bytes) -> None:
        self._call("put_new", key, lambda: self.inner.put_new(key, body))

    def put(self, key: Key, body: bytes | bytearray, metadata: Mapping[str, str]) -> None:
        self._call("put", key, lambda: self.inner.put(key, body, metadata))

    def get(self, key: Key) -> bytes:
        return self._call("get", key, lambda: self.inner.get(key))

    def get_with_etag(self, key: Key) -> WithETag:
        return self._call("get_with_etag", key, lambda: self.inner.get_with_etag(key))

    def swap(self, key: Key, body: bytes, etag: str) -> None:
        self._call("swap", key, lambda: self.inner.swap(key, body, etag))

    def get_range(self, key: Key, start: int, length: int) -> bytes:
        return self._call("get_range", key, lambda: self.inner.get_range(key, start, length))

    def head(self, key: Key) -> ObjectInfo:
        return self._call("head", key, lambda: self.inner.head(key))

    def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
        # Read the whole listing: a lazy one would reach the store after the call.
        return self._call(
            "list", prefix, lambda: iter([*self.inner.list(prefix, limit=limit, start_after=start_after)])
        )

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        return self._call("list", prefix, lambda: iter([*sizes_of(self.inner, prefix)]))

    def delete(self, key: Key) -> None:
        self._call("delete", key, lambda: self.inner.delete(key))

    def delete_many(self, keys: Sequence[Key]) -> None:
        self._call("delete_many", keys[0] if keys else "", lambda: self.inner.delete_many(keys))

    def create_upload(self, key: Key, metadata: Mapping[str, str]) -> str:
        return self._call("create_upload", key, lambda: self.inner.create_upload(key, metadata))

    def put_part(self, key: Key, upload_id: str, number: int, body: bytes | bytearray) -> PartTag:
        return self._call("put_part", key, lambda: self.inner.put_part(key, upload_id, number, body))

    def complete_upload(self, key: Key, upload_id: str, parts: Sequence[PartTag]) -> None:
        self._call("complete_upload", key, lambda: self.inner.complete_upload(key, upload_id, parts))

    def abort_upload(self, key: Key, upload_id: str) -> None:
        self._call("abort_upload", key, lambda: self.inner.abort_upload(key, upload_id))

    def list_uploads(self, prefix: str) -> Iterator[tuple[Key, str]]:
        return self._call("list_uploads", prefix, lambda: iter([*self.inner.list_uploads(prefix)]))

    def time_ms(self) -> int | None:
        inner = self.inner
        return self._call("time_ms", "", inner.time_ms) if isinstance(inner, TellsTime) else None

    def close(self) -> None:
        self.inner.close()


class OfflineStore(WrappedStore):
    """A store that makes no request: every call raises `StoreUnreachable` at once.

    It is for callers that want local data at once, and no answer rather than a late one.
    """

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:  # noqa: ARG002 - as the base has it
        raise StoreUnreachable(self.url, "the call is made offline", "")


class MeasuredStore(WrappedStore):
    """A wrapper that calls `_begin` before each request and `_end` after it. Safe for many threads."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._body = threading.local()  # .size: bytes that the call of this thread sends

    @abstractmethod
    def _begin(self, method: str, sent_bytes: int) -> None:
        """Take note of a request before it is sent. If this raises, the request is not sent."""

    @abstractmethod
    def _end(self, method: str, outcome: str, elapsed_s: float, sent_bytes: int, received_bytes: int) -> None:
        """Take note of a request that ended. `outcome` is `OK` or the error's name."""

    def put_new(self, key: Key, body: bytes) -> None:
        self._body.size = len(body)
        super().put_new(key, body)

    def put(self, key: Key, body: bytes | bytearray, metadata: Mapping[str, str]) -> None:
        self._body.size = len(body)
        super().put(key, body, metadata)

    def swap(self, key: Key, body: bytes, etag: str) -> None:
        self._body.size = len(body)
        super().swap(key, body, etag)

    def put_part(self, key: Key, upload_id: str, number: int, body: bytes | bytearray) -> PartTag:
        self._body.size = len(body)
        return super().put_part(key, upload_id, number, body)

    def _call(self, method: str, _key: str, act: Callable[[], _Answer]) -> _Answer:
        sent_bytes = getattr(self._body, "size", 0)
        self._body.size = 0
        self._begin(method, sent_bytes)
        outcome, received_bytes, begin = OK, 0, time.perf_counter()
        try:
            answer = act()
            body = answer.body if isinstance(answer, WithETag) else answer
            received_bytes = len(body) if isinstance(body, bytes) else 0
        except Exception as error:
            outcome = type(error).__name__
            raise
        else:
            return answer
        finally:
            self._end(method, outcome, time.perf_counter() - begin, sent_bytes, received_bytes)
