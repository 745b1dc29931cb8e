"""The store as the daemon uses it. The gate counts every request, and delays requests where a limit is set.

GATE-1  A limit spaces requests out. The gate refuses no request and loses none. When the daemon stops, a waiting
    request ends at once with `Stopping`.
    After `close`, no request begins any more: each raises `Stopping`.
GATE-2  The gate repeats no request: it sends `put_new`, `swap` and `complete_upload` once each.
"""

from __future__ import annotations

import threading
import time

from catalog.objects.object_store import ObjectStore
from catalog.objects.wrapped import OK, MeasuredStore
from offload.daemon.metrics import Metrics
from offload.errors import Stopping
from offload.settings import OffloadSettings, bound_of


class Rate:
    """A limit of `per_s` units a second on average. With None there is no limit. Safe for many threads."""

    def __init__(self, per_s: float | None, stopping: threading.Event) -> None:
        self._per_s = per_s
        self._stopping = stopping
        self._lock = threading.Lock()
        self._free_at = time.monotonic()

    def change(self, per_s: float | None) -> None:
        """Change the limit for the requests that come from now on."""
        self._per_s = per_s

    def take(self, units: int) -> None:
        """Wait until the limit admits `units`. Raises `Stopping`."""
        per_s = self._per_s
        if per_s is None or not units:
            return
        with self._lock:
            now = time.monotonic()
            begin = max(now, self._free_at)
            self._free_at = begin + units / per_s
        if begin > now and self._stopping.wait(begin - now):
            raise Stopping


class Gate:
    """The limits and the counters for requests of every process (an `offload.worker.pool.RequestLimiter`)."""

    def __init__(self, metrics: Metrics, requests: Rate, uploads: Rate) -> None:
        self._metrics = metrics
        self._requests = requests
        self._uploads = uploads
        self._is_closed = False

    @classmethod
    def of(cls, metrics: Metrics, settings: OffloadSettings, stopping: threading.Event) -> Gate:
        """Return the gate with the limits of the settings."""
        gate = cls(metrics, Rate(None, stopping), Rate(None, stopping))
        gate.change(settings)
        return gate

    def change(self, settings: OffloadSettings) -> None:
        """Take new limits, for the requests that come from now on."""
        self._requests.change(bound_of(settings.requests_per_s))
        self._uploads.change(bound_of(settings.upload_bytes_per_s))

    def take(self, sent_bytes: int) -> None:
        """Wait until the limits admit a request that sends `sent_bytes`. Raises `Stopping`."""
        if self._is_closed:
            raise Stopping
        self._uploads.take(sent_bytes)
        self._requests.take(1)

    def close(self) -> None:
        """Let no request begin any more. Those under way continue."""
        self._is_closed = True

    def answered(self, method: str, outcome: str, elapsed_s: float, sent_bytes: int, received_bytes: int) -> None:
        self._metrics.last_day.count(method)
        self._metrics.requests.labels(method, outcome).inc()
        self._metrics.request_s.labels(method).observe(elapsed_s)
        self._metrics.sent_bytes.inc(sent_bytes if outcome == OK else 0)
        self._metrics.received_bytes.inc(received_bytes)


class GatedStore(MeasuredStore):
    """An `ObjectStore` that passes each request through the gate to another store."""

    def __init__(self, inner: ObjectStore, gate: Gate) -> None:
        super().__init__(inner)
        self._gate = gate

    def _begin(self, _method: str, sent_bytes: int) -> None:
        self._gate.take(sent_bytes)

    def _end(self, method: str, outcome: str, elapsed_s: float, sent_bytes: int, received_bytes: int) -> None:
        self._gate.answered(method, outcome, elapsed_s, sent_bytes, received_bytes)
