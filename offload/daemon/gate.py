"""The store as the daemon uses it: every request is counted, and waits its turn where a limit is set.

G1  A limit spaces requests out; none is refused, none is lost. What waits ends at once when the daemon stops.
G2  `put_new` and `complete_upload` are sent once each, as before: the gate repeats nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from catalog.keys import Key
from catalog.objects.base import ObjectInfo, ObjectStore, PartTag
from offload.daemon.metrics import Metrics, timed
from offload.errors import Stopping

__all__ = ["GatedStore", "Rate"]

_Answer = TypeVar("_Answer")


class Rate:
    """At most `per_s` units a second over time; None: as many as come. Safe for many threads."""

    def __init__(self, per_s: float | None, stopping: threading.Event) -> None:
        self._per_s = per_s
        self._stopping = stopping
        self._lock = threading.Lock()
        self._free_at = time.monotonic()

    def change(self, per_s: float | None) -> None:
        """Holds for the requests that come from now on."""
        self._per_s = per_s

    def take(self, units: int) -> None:
        """Wait for the turn of `units`. Raises `Stopping`."""
        per_s = self._per_s
        if per_s is None or not units:
            return
        with self._lock:
            now = time.monotonic()
            begin = max(now, self._free_at)
            self._free_at = begin + units / per_s
        if begin > now and self._stopping.wait(begin - now):
            raise Stopping


class GatedStore:
    """An `ObjectStore` before another one."""

    def __init__(self, store: ObjectStore, metrics: Metrics, requests: Rate, uploads: Rate) -> None:
        self._store = store
        self._metrics = metrics
        self._requests = requests
        self._uploads = uploads

    @property
    def url(self) -> str:
        return self._store.url

    def put_new(self, key: Key, body: bytes) -> None:
        self._send("put_new", len(body), lambda: self._store.put_new(key, body))

    def put(self, key: Key, body: bytes, metadata: Mapping[str, str]) -> None:
        self._send("put", len(body), lambda: self._store.put(key, body, metadata))

    def get(self, key: Key) -> bytes:
        return self._receive("get", lambda: self._store.get(key))

    def get_range(self, key: Key, start: int, length: int) -> bytes:
        return self._receive("get_range", lambda: self._store.get_range(key, start, length))

    def head(self, key: Key) -> ObjectInfo:
        return self._call("head", lambda: self._store.head(key))

    def list(self, prefix: str, *, limit: int | None = None) -> Iterator[str]:
        return iter(self._call("list", lambda: [*self._store.list(prefix, limit=limit)]))

    def delete(self, key: Key) -> None:
        self._call("delete", lambda: self._store.delete(key))

    def create_upload(self, key: Key, metadata: Mapping[str, str]) -> str:
        return self._call("create_upload", lambda: self._store.create_upload(key, metadata))

    def put_part(self, key: Key, upload_id: str, number: int, body: bytes) -> PartTag:
        return self._send("put_part", len(body), lambda: self._store.put_part(key, upload_id, number, body))

    def complete_upload(self, key: Key, upload_id: str, parts: Sequence[PartTag]) -> None:
        self._call("complete_upload", lambda: self._store.complete_upload(key, upload_id, parts))

    def abort_upload(self, key: Key, upload_id: str) -> None:
        self._call("abort_upload", lambda: self._store.abort_upload(key, upload_id))

    def list_uploads(self, prefix: str) -> Iterator[tuple[Key, str]]:
        return iter(self._call("list_uploads", lambda: [*self._store.list_uploads(prefix)]))

    def close(self) -> None:
        self._store.close()

    def _send(self, operation: str, size_bytes: int, request: Callable[[], _Answer]) -> _Answer:
        self._uploads.take(size_bytes)
        answer = self._call(operation, request)
        self._metrics.sent_bytes.inc(size_bytes)
        return answer

    def _receive(self, operation: str, request: Callable[[], bytes]) -> bytes:
        body = self._call(operation, request)
        self._metrics.received_bytes.inc(len(body))
        return body

    def _call(self, operation: str, request: Callable[[], _Answer]) -> _Answer:
        self._requests.take(1)
        outcome = "ok"
        try:
            with timed(self._metrics.request_s.labels(operation)):
                return request()
        except Exception as error:
            outcome = type(error).__name__
            raise
        finally:
            self._metrics.requests.labels(operation, outcome).inc()
