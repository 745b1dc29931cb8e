"""Writes the golden data directories of the log: `python -m tests.golden.make_seglog`.

It is what a killed process left: every kind of frame that is written, several WAL files, sealed and active segments
with deleted records, two snapshots, producers and keys. A change here that alters its bytes is a change of format: it
needs a new version number in the format, and the old files stay, with their test.

`seglog_units` has form 1 (seglog.base.forms). `seglog_ranges` has form 2, with deletes of ranges (MANIFEST-13).
`seglog_undeleted` has an UNDELETE frame.

Older releases left the other directories. No code writes them any more, because their manifests have no secret for sync
marks, and their WAL has no UNIT frames:

    seglog            a manifest of format 1
    seglog_producers  a manifest of format 2 with producers, and BATCH frames
    seglog_keys       a manifest of format 2 with keys and a producer, and KEY frames
"""

from __future__ import annotations

from pathlib import Path

import pytest

import seglog
from seglog import LogSettings, ProducerBatch, SeqSet, TopicConfig
from seglog.base import forms
from tests.faults.disk import Image, SimulatedDisk
from tests.seams.log import checkpoints_fail, engine_of, known_mark_secret
from tests.worlds.clock import HandClock

_GOLDEN = Path(__file__).parent
DIRECTORY = _GOLDEN / "seglog_units"
WITH_RANGES = _GOLDEN / "seglog_ranges"
UNDELETED = _GOLDEN / "seglog_undeleted"
OLD, OLD_WITH_PRODUCERS, OLD_WITH_KEYS = (_GOLDEN / f"seglog{name}" for name in ("", "_producers", "_keys"))
SETTINGS = LogSettings(segment_max_events=4, wal_file_bytes=4096)
SECRET = 0x0123456789ABCDEF
_ROOT = Path("/log")


def make() -> dict[str, bytes]:
    """Relative paths and bodies, without LOCK."""
    disk, clock = SimulatedDisk(), HandClock(1_720_000_000_000)
    with known_mark_secret(SECRET), pytest.MonkeyPatch.context() as older:
        older.setattr(forms, "NEWEST", 1)
        log = seglog.open(_ROOT, files=disk, settings=SETTINGS, clock=clock)
    orders = log.create_topic("orders@fix", TopicConfig("disk", True, {"codec": "zstd"}), first_seq=101)
    log.topic("plain").append([b"one", b"", b"\x00\xff\r\n"])
    orders.append([b"tagged"], tag="gr\u00fc\u00df", node="node-1", unterminated=True)
    orders.append([b"a", b"b"], producer=ProducerBatch("pr\u00fcfer", 3, 0))
    clock.ms += 61
    orders.append([b"%d" % number for number in range(5)], durability="fsync")
    log.topic("plain").append([b"once"], key="schl\u00fcssel")
    log.topic("plain").append([b"passing"], durability="ephemeral")
    log.topic("plain").append([b"kept"])
    log.topic("plain").delete(before=2)
    log.checkpoint()
    log.configure("plain", TopicConfig("memory"))
    orders.delete(tag="gr*")
    with engine_of(log).checkpoint_lock:  # or the rotation would make a checkpoint, and the first WAL file would go
        log.topic("plain").append([b"x" * 3000])
        log.topic("plain").append([b"passing"], durability="ephemeral")
        log.topic("plain").append([b"y" * 500] * 2, tag="", durability="fsync")
        orders.append([b"c"], producer=ProducerBatch("pr\u00fcfer", 3, 1))
        orders.append([b"d", b"e"], key="last")
        log.topic("plain").append([b"%d" % number for number in range(30)])
    return relative(disk.after_kill())


def make_ranges() -> dict[str, bytes]:
    """The same of a directory with deletes of ranges and of single records: in the manifest, and only in the WAL."""
    disk, clock = SimulatedDisk(), HandClock(1_720_000_000_000)
    with known_mark_secret(SECRET):
        log = seglog.open(_ROOT, files=disk, settings=SETTINGS, clock=clock)
    orders = log.create_topic("orders", TopicConfig("disk", keep_history=True))
    for number in range(12):
        orders.append([b"%d" % number], tag="eu" if number % 2 else None)
    orders.delete(start=3, end=5)
    orders.delete(seqs=[7, 9, 10], tag="e*")
    log.checkpoint()
    clock.ms += 61
    orders.append([b"later"])
    orders.delete(start=12)
    return relative(disk.after_kill())


def make_undeleted() -> dict[str, bytes]:
    """The same of a directory with an undelete that only the WAL has. A listed delete reaches one of its records."""
    disk, clock = SimulatedDisk(), HandClock(1_720_000_000_000)
    with known_mark_secret(SECRET):
        log = seglog.open(_ROOT, files=disk, settings=SETTINGS, clock=clock)
    orders = log.create_topic("orders", TopicConfig("disk", keep_history=True))
    orders.append([b"%d" % number for number in range(8)])
    orders.seal()
    orders.evict(4)
    orders.inner.settle_deletes(1)
    orders.delete(seqs=[2])
    clock.ms += 61
    with checkpoints_fail():
        orders.inner.undelete(SeqSet.of([(1, 3)]), evict_floor=1)
    return relative(disk.after_kill())


def relative(image: Image) -> dict[str, bytes]:
    root = f"{_ROOT}/"
    return {
        path.removeprefix(root): body
        for path, body in sorted(image.tree.items())
        if body is not None and path != f"{root}LOCK"
    }


if __name__ == "__main__":
    for directory, files in ((DIRECTORY, make()), (WITH_RANGES, make_ranges()), (UNDELETED, make_undeleted())):
        for name, body in files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(body)
