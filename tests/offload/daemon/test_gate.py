"""Test that the gate counts and limits every request to the store, and the bytes of bodies in both directions."""

from __future__ import annotations

import threading

from catalog.format.keys import Key
from catalog.objects import MemoryStore
from offload.daemon.metrics import Metrics
from offload.daemon.store_gate import Gate, GatedStore, Rate

A, B = Key("vol/log/A"), Key("vol/segments/B")


class Recorded(Rate):
    """A rate without a limit. It records the units that callers take."""

    def __init__(self) -> None:
        super().__init__(None, threading.Event())
        self.taken: list[int] = []

    def take(self, units: int) -> None:
        self.taken.append(units)
        super().take(units)


def test_bodies_are_limited_and_counted_both_ways() -> None:
    metrics, requests, uploads = Metrics(), Recorded(), Recorded()
    registry = metrics.registry
    store = GatedStore(MemoryStore(), Gate(metrics, requests, uploads))
    store.put_new(A, b"1")
    found = store.get_with_etag(A)
    store.swap(A, b"22", found.etag)
    store.put(B, b"333", {})
    upload_id = store.create_upload(B, {})
    store.put_part(B, upload_id, 1, b"4444")
    assert store.get(A) == b"22"
    assert store.get_range(B, 0, 3) == b"333"
    store.delete_many([A, B])
    assert [size for size in uploads.taken if size] == [1, 2, 3, 4]
    assert metrics.last_day.seen().methods["put_part"] == 1
    assert requests.taken == [1] * 9
    assert registry.get_sample_value("seglog_store_sent_bytes_total") == 10
    assert registry.get_sample_value("seglog_store_received_bytes_total") == 6
    for method in ("swap", "get_with_etag", "delete_many"):
        labels = {"operation": method, "outcome": "ok"}
        assert registry.get_sample_value("seglog_store_requests_total", labels) == 1
