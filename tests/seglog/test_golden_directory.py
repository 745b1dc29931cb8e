"""The log reads files that an older release wrote. The same calls still write the same bytes."""

from __future__ import annotations

import json

import pytest
from xxhash import xxh3_64_hexdigest

import seglog
from seglog import Appended, DeleteOp, Gap, ProducerBatch, Record, TopicConfig
from seglog.format.batch_frame import encode_unit
from seglog.format.control import TopicCreated, encode_config, encode_create, encode_delete, encode_head
from seglog.format.frame import encode_lost, encode_sync_mark, read_header, tombstone
from seglog.format.index import encode_entry
from seglog.values import canonical
from tests.faults.disk import Image, SimulatedDisk
from tests.golden.directories import golden, on_disk
from tests.golden.make_seglog import OLD, SECRET, SETTINGS, make
from tests.seglog.frames import append_frames
from tests.worlds.clock import HandClock

T0 = 1_720_000_000_000
CONFIG = TopicConfig("disk", True, {"codec": "zstd"})
[APPEND] = append_frames(7, 258, T0, [b"hello"], tag="eu", node="n1", unterminated=True, durable=True)
PINNED = {
    "APPEND": (APPEND, "4420e827266cf1d6"),
    "APPEND, deleted": (tombstone(read_header(APPEND)), "637f5ca9523e0b1c"),
    "APPEND, lost": (encode_lost(7, 258, T0), "66b593cb916328d4"),
    "HEAD_WATERMARK": (encode_head(7, T0, 258), "6d341329f0f68ef6"),
    "TOPIC_CREATE": (encode_create(TopicCreated(7, "orders@fix", 1, 101, CONFIG, T0)), "8f023823c0d5eba2"),
    "CONFIG_UPDATE": (encode_config(7, T0, CONFIG), "e32381b947782094"),
    "DELETE": (encode_delete(7, DeleteOp(3, 258, T0, before=200, tag="gr\u00fc\u00df*")), "ff31068e8c4870ff"),
    "SYNC_MARK": (encode_sync_mark(17, 4096, SECRET), "620e9984331063d0"),
    "SYNC_MARK without a secret": (encode_sync_mark(17, 4096, 0), "90ec5d6ef10ca418"),
    "UNIT": (encode_unit(7, T0, 258, 30), "c88a555f8a774e40"),
    "index entry": (encode_entry(258, 1000, 55, T0, 9), "0df36a021a36aa41"),
}


@pytest.mark.parametrize("kind", PINNED)
def test_each_encoded_type_is_pinned(kind: str) -> None:
    body, pin = PINNED[kind]
    assert xxh3_64_hexdigest(body) == pin


def test_the_same_calls_write_the_same_bytes() -> None:
    made, kept = make(), golden()
    assert sorted(made) == sorted(kept)
    assert [name for name in made if made[name] != kept[name]] == []


def test_the_old_directory_is_read() -> None:
    with seglog.open("/log", files=on_disk(golden(OLD)), settings=SETTINGS) as log:
        assert log.topics() == ["orders@fix", "plain"]
        plain, orders = log.topic("plain"), log.topic("orders@fix")
        assert plain.config == TopicConfig("memory")
        assert list(plain.read(gaps=True)) == [
            Record(2, T0, b""),
            Record(3, T0, b"\x00\xff\r\n"),
            Gap(4, 4),
            Record(5, T0 + 61, b"kept"),
            Record(6, T0 + 61, b"x" * 3000),
            Gap(7, 7),
            Record(8, T0 + 61, b"y" * 500, ""),
            Record(9, T0 + 61, b"y" * 500, ""),
        ]
        assert (orders.config, orders.first_seq, orders.head_seq) == (CONFIG, 101, 106)
        assert list(orders.read(101)) == [Record(102 + number, T0 + 61, b"%d" % number) for number in range(5)]
        assert orders.inner.delete_ops() == (DeleteOp(1, 106, T0 + 61, None, "gr*"),)


def test_the_directory_is_read() -> None:
    """With its sync marks, units, producers and keys."""
    with seglog.open("/log", files=on_disk(golden()), settings=SETTINGS, clock=HandClock(T0 + 100)) as log:
        plain, orders = log.topic("plain"), log.topic("orders@fix")
        assert [(record.seq, record.value) for record in plain.read(2, gaps=True) if isinstance(record, Record)] == [
            (2, b""),
            (3, b"\x00\xff\r\n"),
            (4, b"once"),
            (6, b"kept"),
            (7, b"x" * 3000),
            (9, b"y" * 500),
            (10, b"y" * 500),
            *[(11 + number, b"%d" % number) for number in range(30)],
        ]
        assert [record.value for record in orders.read(101)] == [
            b"a",
            b"b",
            b"0",
            b"1",
            b"2",
            b"3",
            b"4",
            b"c",
            b"d",
            b"e",
        ]
        assert orders.append_once([b"d", b"e"], key="last") == Appended(range(110, 112), True)
        assert orders.append_once([b"c"], producer=ProducerBatch("pr\u00fcfer", 3, 1)) == Appended(
            range(109, 110), True
        )


def test_the_opening_of_an_old_directory_gives_its_sync_marks_a_secret() -> None:
    """The manifest with the secret is durable before the first append, and keeps it for good."""
    disk = on_disk(golden(OLD))
    assert _secret_in(disk) is None
    log = seglog.open("/log", files=disk, settings=SETTINGS)
    secret = _secret_in(SimulatedDisk(disk.after_power_cut()))
    assert secret is not None
    log.topic("plain").append([b"next"], durability="fsync")
    log.checkpoint()
    assert _secret_in(disk) == secret
    log.close()


def test_an_old_directory_without_a_frame_to_replay_gets_a_secret_too() -> None:
    """No checkpoint is due there but for the secret."""
    disk = SimulatedDisk()
    seglog.open("/log", files=disk, settings=SETTINGS).close()
    tree = disk.after_kill().tree
    place = max(path for path in tree if path.startswith("/log/meta/snapshot."))
    fields = json.loads((tree[place] or b"").partition(b"\n")[0])
    body = canonical.encode({name: 1 if name == "format" else fields[name] for name in fields if name != "mark_secret"})
    disk = SimulatedDisk(Image({**tree, place: body + b"\n" + xxh3_64_hexdigest(body).encode() + b"\n"}))
    assert _secret_in(disk) is None
    log = seglog.open("/log", files=disk, settings=SETTINGS)
    secret = _secret_in(SimulatedDisk(disk.after_power_cut()))
    assert secret is not None
    log.topic("t").append([b"x"])
    again = seglog.open("/log", files=(after := SimulatedDisk(disk.after_power_cut())), settings=SETTINGS)
    assert _secret_in(after) == secret
    assert again.topic("t").head_seq == 1


def _secret_in(disk: SimulatedDisk) -> int | None:
    tree = disk.after_kill().tree
    newest = tree[max(path for path in tree if path.startswith("/log/meta/snapshot."))]
    assert newest is not None
    secret: int | None = json.loads(newest.partition(b"\n")[0]).get("mark_secret")
    return secret
