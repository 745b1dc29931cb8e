"""Writes the golden data directory of a log with appends under keys: `python -m tests.golden.make_keys`.

It is what a killed process left: a manifest of format 2 with keys and a producer, and KEY frames in the WAL. The rules
of make_seglog.py hold for it too.
"""

from __future__ import annotations

from pathlib import Path

import seglog
from seglog import LogSettings, ProducerBatch
from seglog.engine.upkeep import InCaller
from tests.faults.disk import SimulatedDisk
from tests.golden.make_seglog import relative
from tests.seglog.clocks import SetClock

DIRECTORY = Path(__file__).parent / "seglog_keys"
SETTINGS = LogSettings(segment_max_events=4, wal_file_bytes=8192)
_ROOT = Path("/log")


def make() -> dict[str, bytes]:
    """Return relative paths and bodies, without LOCK."""
    disk, clock = SimulatedDisk(), SetClock(1_720_000_000_000)
    log = seglog.open(_ROOT, files=disk, settings=SETTINGS, clock=clock, upkeep=InCaller)
    topic = log.topic("orders")
    for number in range(3):
        topic.append([b"%d" % number] * 2, key=f"order-{number}")
    topic.append([b"p"], producer=ProducerBatch("shop", 0, 0))
    topic.append([b"euro"], key="schl\u00fcssel", tag="eu")
    log.topic("plain").append([b"without a key"])
    clock.ms += 61
    log.checkpoint()
    topic.append([b"passing"], durability="ephemeral")
    topic.append([b"a", b"", b"c"], key="k" * 256, node="n1")
    topic.append([b"between"])
    topic.append([b"d"], key="last", durability="memory")
    return relative(disk.after_kill())


if __name__ == "__main__":
    for name, body in make().items():
        (DIRECTORY / name).parent.mkdir(parents=True, exist_ok=True)
        (DIRECTORY / name).write_bytes(body)
