"""The golden directory with producers: its bytes are pinned, it is read, and an older release refuses it by name."""

from __future__ import annotations

from pathlib import Path

import pytest

import seglog
from seglog import FileCorrupt, FormatUnsupported, Gap, Producer, ProducerBatch, Record
from seglog.values.producer import Batch
from tests.faults.disk import Image, SimulatedDisk
from tests.golden.make_producers import DIRECTORY, SETTINGS, make
from tests.seams.log import as_release_without_producers
from tests.seglog.clocks import SetClock

T0 = 1_720_000_000_000


def golden() -> dict[str, bytes]:
    return {str(path.relative_to(DIRECTORY)): path.read_bytes() for path in DIRECTORY.rglob("*") if path.is_file()}


def on_disk(files: dict[str, bytes]) -> SimulatedDisk:
    tree: dict[str, bytes | None] = {"/log": None}
    for name, body in files.items():
        tree[f"/log/{name}"] = body
        tree |= {str(folder): None for folder in list(Path("/log", name).parents)[:-1]}
    return SimulatedDisk(Image(tree))


def test_the_same_calls_write_the_same_bytes() -> None:
    made, kept = make(), golden()
    assert sorted(made) == sorted(kept)
    assert [name for name in made if made[name] != kept[name]] == []


def test_the_directory_is_read() -> None:
    clock = SetClock(T0 + 100)
    with seglog.open("/log", files=on_disk(golden()), settings=SETTINGS, clock=clock) as log:
        topic = log.topic("orders")
        assert topic.producer("pr\u00fcfer") == Producer(4, T0 + 61, (Batch(0, 15, 3),))
        assert topic.producer("bridge") == Producer(0, T0 + 61, (Batch(4711, 13, 1), Batch(4800, 19, 1)))
        assert list(topic.read(13, gaps=True)) == [
            Record(13, T0, b"offset", "eu"),
            Gap(14, 14),
            *[Record(15 + index, T0 + 61, b"%c" % (97 + index), None, "n1") for index in range(3)],
            Record(18, T0 + 61, b"between"),
            Record(19, T0 + 61, b"d"),
        ]
        assert topic.append([b"d"], producer=ProducerBatch("bridge", 0, 4800)) == range(19, 20)


def test_a_flipped_byte_of_the_wal_is_reported_or_leaves_whole_batches(caplog: pytest.LogCaptureFixture) -> None:
    """Only the last batch, at `memory`, may look torn. It then goes with its number."""
    caplog.set_level("ERROR", "seglog")
    name = "wal/wal-0000000000000001.log"
    body = golden()[name]
    end = len(body.rstrip(b"\0"))
    allowed = (19, 4800), (18, 4711)
    for position in range(0, end, 11):
        damaged = bytearray(body)
        damaged[position] ^= 1 << position % 8
        port = on_disk({**golden(), name: bytes(damaged)})
        try:
            with seglog.open("/log", files=port, settings=SETTINGS, clock=SetClock(T0 + 100)) as log:
                bridge = log.topic("orders").producer("bridge")
                assert bridge is not None
                assert (log.topic("orders").head_seq, bridge.number) in allowed
        except FileCorrupt:
            pass


def test_a_release_without_producers_refuses_the_manifest_and_the_frame_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The frame is refused where no manifest tells of producers yet."""
    disk = SimulatedDisk()
    log = seglog.open("/log", files=disk, settings=SETTINGS, clock=SetClock())
    log.topic("orders").append([b"x"], producer=ProducerBatch("p", 0, 0))
    image = disk.after_kill()
    log.close()
    as_release_without_producers(monkeypatch)
    for port, place, found in (
        (on_disk(golden()), "/log/meta/snapshot.0000000000000002.json", "format version 2"),
        (SimulatedDisk(image), "/log/wal/wal-0000000000000001.log", "frames of type 14"),
    ):
        before = port.after_kill()
        with pytest.raises(FormatUnsupported, match=found) as caught:
            seglog.open("/log", files=port, settings=SETTINGS)
        assert str(caught.value.path) == place
        assert {**port.after_kill().tree, "/log/LOCK": None} == {**before.tree, "/log/LOCK": None}
