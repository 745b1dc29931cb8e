"""Records of several writers. Each names the hash of its writer's record before it."""

from __future__ import annotations

from xxhash import xxh3_64_hexdigest

import seglog
from seglog import LogSettings

__all__ = ["SETTINGS", "WRITERS", "chain_of", "link"]

WRITERS = 3
SETTINGS = LogSettings(segment_max_events=100, wal_file_bytes=64 * 1024)


def link(writer: int, number: int, last: bytes) -> bytes:
    """Return record `number` of that writer, counted from 0. `last` is the writer's record before it."""
    return b"%d %d %s %s" % (writer, number, xxh3_64_hexdigest(last).encode(), b"." * (number % 300))


def chain_of(log: seglog.Log, writer: int) -> tuple[int, bytes]:
    """Return how many records that writer has, and the last one. Assert that each record follows the one before it."""
    topic = log.topic(f"t{writer % 2}")
    number, last = 0, b""
    for record in topic.read() if topic.exists else ():
        if record.value.startswith(b"%d " % writer):
            assert record.value == link(writer, number, last)
            number, last = number + 1, record.value
    return number, last
