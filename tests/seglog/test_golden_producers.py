"""The golden directory of an older release with producers is read, and a release before that refuses it by name."""

from __future__ import annotations

import pytest

import seglog
from seglog import FileCorrupt, FormatUnsupported, Gap, Producer, ProducerBatch, Record
from seglog.values.producer import Batch
from tests.golden.directories import SETTINGS, golden, on_disk
from tests.golden.make_seglog import OLD_WITH_PRODUCERS
from tests.seams.log import as_release_of_format_1
from tests.worlds.clock import HandClock

T0 = 1_720_000_000_000


def test_the_directory_is_read() -> None:
    clock = HandClock(T0 + 100)
    with seglog.open("/log", files=on_disk(golden(OLD_WITH_PRODUCERS)), settings=SETTINGS, clock=clock) as log:
        topic = log.topic("orders")
        assert topic.inner.known_producer("pr\u00fcfer") == Producer(4, T0 + 61, (Batch(0, 15, 3),))
        assert topic.inner.known_producer("bridge") == Producer(0, T0 + 61, (Batch(4711, 13, 1), Batch(4800, 19, 1)))
        assert list(topic.read(13, gaps=True)) == [
            Record(13, T0, b"offset", "eu"),
            Gap(14, 14),
            *[Record(15 + index, T0 + 61, b"%c" % (97 + index), None, "n1") for index in range(3)],
            Record(18, T0 + 61, b"between"),
            Record(19, T0 + 61, b"d"),
        ]
        assert topic.append([b"d"], producer=ProducerBatch("bridge", 0, 4800)) == range(19, 20)


@pytest.mark.long
def test_a_flipped_byte_of_the_wal_is_reported_or_leaves_whole_batches(caplog: pytest.LogCaptureFixture) -> None:
    """Only the last batch, at `memory`, may look torn. It then goes with its number."""
    caplog.set_level("ERROR", "seglog")
    name = "wal/wal-0000000000000001.log"
    body = golden(OLD_WITH_PRODUCERS)[name]
    end = len(body.rstrip(b"\0"))
    allowed = (19, 4800), (18, 4711)
    for position in range(0, end, 11):
        damaged = bytearray(body)
        damaged[position] ^= 1 << position % 8
        port = on_disk({**golden(OLD_WITH_PRODUCERS), name: bytes(damaged)})
        try:
            with seglog.open("/log", files=port, settings=SETTINGS, clock=HandClock(T0 + 100)) as log:
                bridge = log.topic("orders").inner.known_producer("bridge")
                assert bridge is not None
                assert (log.topic("orders").head_seq, bridge.number) in allowed
        except FileCorrupt:
            pass


def test_a_release_without_producers_refuses_the_manifest_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    as_release_of_format_1(monkeypatch)
    port = on_disk(golden(OLD_WITH_PRODUCERS))
    before = port.after_kill()
    with pytest.raises(FormatUnsupported, match="format version 2") as caught:
        seglog.open("/log", files=port, settings=SETTINGS)
    assert str(caught.value.path) == "/log/meta/snapshot.0000000000000002.json"
    assert {**port.after_kill().tree, "/log/LOCK": None} == {**before.tree, "/log/LOCK": None}
