"""The golden directory of an older release with keys is read."""

from __future__ import annotations

import pytest

import seglog
from seglog import Appended, FileCorrupt, KeyReused, ProducerBatch
from seglog.values.append_key import Key, digest_of
from tests.golden.directories import SETTINGS, golden, on_disk
from tests.golden.make_seglog import OLD_WITH_KEYS
from tests.seams.log import keys_of
from tests.worlds.clock import HandClock

T0 = 1_720_000_000_000
WAL = "wal/wal-0000000000000001.log"


def test_the_directory_is_read() -> None:
    clock = HandClock(T0 + 100)
    with seglog.open("/log", files=on_disk(golden(OLD_WITH_KEYS)), settings=SETTINGS, clock=clock) as log:
        topic = log.topic("orders")
        assert keys_of(log, "orders") == (
            *[(f"order-{number}", Key(T0, 2 * number + 1, 2, digest_of([b"%d" % number] * 2))) for number in range(3)],
            ("schl\u00fcssel", Key(T0, 8, 1, digest_of([b"euro"]))),
            ("k" * 256, Key(T0 + 61, 10, 3, digest_of([b"a", b"", b"c"]))),
            ("last", Key(T0 + 61, 14, 1, digest_of([b"d"]))),
        )
        assert topic.append_once([b"d"], key="last") == Appended(range(14, 15), True)
        assert topic.append_once([b"a", b"", b"c"], key="k" * 256) == Appended(range(10, 13), True)
        assert topic.append_once([b"p"], producer=ProducerBatch("shop", 0, 0)) == Appended(range(7, 8), True)
        with pytest.raises(KeyReused):
            topic.append([b"0"], key="order-0")
        assert [record.value for record in topic.read(10)] == [b"a", b"", b"c", b"between", b"d"]


def test_a_flipped_byte_of_the_wal_is_reported_or_leaves_whole_appends(caplog: pytest.LogCaptureFixture) -> None:
    """Only the last append, at `memory`, may look torn. It then goes with its key."""
    caplog.set_level("ERROR", "seglog")
    body = golden(OLD_WITH_KEYS)[WAL]
    for position in range(0, len(body.rstrip(b"\0")), 29):
        damaged = bytearray(body)
        damaged[position] ^= 1 << position % 8
        port = on_disk({**golden(OLD_WITH_KEYS), WAL: bytes(damaged)})
        try:
            with seglog.open("/log", files=port, settings=SETTINGS, clock=HandClock(T0 + 100)) as log:
                newest = keys_of(log, "orders")[-1][0]
                assert (log.topic("orders").head_seq, newest) in ((14, "last"), (13, "k" * 256))
        except FileCorrupt:
            pass
