"""The store as the daemon uses it: every request is counted, and waits its turn where a limit is set.

G1  A limit spaces requests out; none is refused, none is lost. What waits ends at once when the daemon stops.
G2  `put_new`, `swap` and `complete_upload` are sent once each, as before: the gate repeats nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from catalog.keys import Key
from catalog.objects.base import ObjectStore, PartTag, Tagged
from catalog.objects.wrapped import WrappedStore
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


class GatedStore(WrappedStore):
    """An `ObjectStore` before another one."""

    def __init__(self, inner: ObjectStore, metrics: Metrics, requests: Rate, uploads: Rate) -> None:
        super().__init__(inner)
        self._metrics = metrics
        self._requests = requests
        self._uploads = uploads

    def put_new(self, key: Key, body: bytes) -> None:
        with self._sending(body):
            super().put_new(key, body)

    def swap(self, key: Key, body: bytes, etag: str) -> None:
        with self._sending(body):
            super().swap(key, body, etag)

    def put(self, key: Key, body: bytes | bytearray, metadata: Mapping[str, str]) -> None:
        with self._sending(body):
            super().put(key, body, metadata)

    def put_part(self, key: Key, upload_id: str, number: int, body: bytes | bytearray) -> PartTag:
        with self._sending(body):
            return super().put_part(key, upload_id, number, body)

    @contextmanager
    def _sending(self, body: bytes | bytearray) -> Iterator[None]:
        self._uploads.take(len(body))
        yield
        self._metrics.sent_bytes.inc(len(body))

    def _call(self, method: str, _key: str, act: Callable[[], _Answer]) -> _Answer:
        self._requests.take(1)
        outcome = "ok"
        try:
            with timed(self._metrics.request_s.labels(method)):
                answer = act()
        except Exception as error:
            outcome = type(error).__name__
            raise
        finally:
            self._metrics.requests.labels(method, outcome).inc()
        body = answer.body if isinstance(answer, Tagged) else answer
        if isinstance(body, bytes):
            self._metrics.received_bytes.inc(len(body))
        return answer
