"""The golden directory with deletes of ranges is written and read, and no older release takes it."""

from __future__ import annotations

import json

import seglog
from seglog import DeleteOp
from seglog.format.frame import HEADER, FrameType
from seglog.values.seq_set import SeqSet
from tests.golden.directories import SETTINGS, golden, on_disk
from tests.golden.make_seglog import WITH_RANGES, make_ranges
from tests.worlds.clock import HandClock

T0 = 1_720_000_000_000


def test_the_directory_is_written_as_it_was() -> None:
    assert make_ranges() == golden(WITH_RANGES)


def test_the_directory_is_read() -> None:
    clock = HandClock(T0 + 100)
    with seglog.open("/log", files=on_disk(golden(WITH_RANGES)), settings=SETTINGS, clock=clock) as log:
        topic = log.topic("orders")
        assert [record.seq for record in topic.read()] == [1, 2, 6, 7, 8, 9, 11]
        assert topic.inner.delete_ops() == (
            DeleteOp(1, 12, T0, seqs=SeqSet.of([(3, 5)])),
            DeleteOp(2, 12, T0, tag="e*", seqs=SeqSet.of_seqs([7, 9, 10])),
            DeleteOp(3, 13, T0 + 61, seqs=SeqSet.of([(12, 13)])),
        )


def test_older_software_finds_a_format_and_a_frame_that_it_does_not_know() -> None:
    files = golden(WITH_RANGES)
    newest = max(name for name in files if "snapshot" in name)
    assert json.loads(files[newest].partition(b"\n")[0])["format"] == 5
    wal = b"".join(body for name, body in sorted(files.items()) if name.startswith("wal/"))
    body = wal.index(b'{"before":null,"op":3,"seqs":[12,2],"tag":null}')
    assert wal[body - HEADER.size + 4] == FrameType.DELETE_SEQS == 17  # behind the length, which has four bytes
