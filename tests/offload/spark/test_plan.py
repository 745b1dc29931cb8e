from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from catalog.errors import NoSuchTag, NoSuchTopic, OutOfWindow
from catalog.format.commit import Codec, ForkPoint, SegmentRef, SegmentView
from catalog.format.gid import Sid, Vid
from catalog.format.keys import Key, pins_prefix
from catalog.format.small_objects import decode_pin
from catalog.objects import LocalStore
from catalog.refs.tag import Tags
from catalog.volume import Volumes
from offload.format.index import decode_head
from offload.format.metadata import SegmentIndex
from offload.spark.options import ReadOptions
from offload.spark.plan import RANGE_BYTES, ChunkRange, pin, plan, ranges_of
from tests.offload.samples import EncodedObject, Sample, encode_object, frames_of_samples
from tests.offload.spark.archives import TopicArchive

MIB = 1 << 20
VID, SID = Vid.new(1), Sid.new(2)


def view_of(made: EncodedObject, first: int, last: int, deleted: BitMap | None = None) -> SegmentView:
    summary = made.summary
    ref = SegmentRef(
        sid=SID,
        first_seq=summary.first_seq,
        last_seq=summary.last_seq,
        min_ts_ms=summary.min_ts_ms,
        max_ts_ms=summary.max_ts_ms,
        data_length=summary.data_length,
        data_hash=summary.data_hash,
        index_head_length=made.index.head_length,
        index_trailer_length=made.index.trailer_length,
        index_head_hash=made.index.head_hash,
        codec=summary.codec,
        frame_bytes=summary.frame_bytes,
        live_records=summary.live_records,
    )
    return SegmentView(ref, VID, 5, first, last, bytes(deleted.serialize()) if deleted else None)


def big_object() -> EncodedObject:
    """Return an object of 100 chunks of about 1 MiB, an entry each, from seq 11."""
    frames = frames_of_samples([Sample(bytes(MIB - 100))] * 100, first_seq=11)
    return encode_object(frames, Codec.ZSTD, block_size=5 * MIB, chunk_bytes=MIB)


BIG = big_object()
BIG_INDEX: SegmentIndex = decode_head(BIG.index.body, "k")


def runs(view: SegmentView) -> list[ChunkRange]:
    return list(ranges_of(view, BIG_INDEX, "file:///r", "orders"))


def test_a_run_holds_about_32_mib_of_records():
    found = runs(view_of(BIG, 11, 110))
    assert [len(run.chunks) for run in found] == [32, 32, 32, 4]
    assert all(sum(chunk.raw_length for chunk in run.chunks) <= RANGE_BYTES for run in found)


@given(st.integers(11, 110), st.integers(0, 99))
def test_every_visible_seq_is_in_exactly_one_run_with_its_chunk(first, more):
    last = min(110, first + more)
    found = runs(view_of(BIG, first, last))
    assert [seq for run in found for seq in range(run.first, run.last + 1)] == list(range(first, last + 1))
    for run in found:
        assert run.chunks == BIG_INDEX.chunks[run.first_chunk : run.first_chunk + len(run.chunks)]
        assert run.chunks[0].first_seq <= run.first <= run.last <= run.chunks[-1].last_seq


def test_a_run_carries_the_deletes_of_its_own_range_only():
    found = runs(view_of(BIG, 11, 110, BitMap([0, 31, 32, 99])))
    assert [list(BitMap.deserialize(run.deleted)) if run.deleted else None for run in found] == [
        [0, 31],
        [32],
        None,
        [99],
    ]


def test_a_run_of_deleted_records_only_is_not_read():
    found = runs(view_of(BIG, 11, 110, BitMap(range(32, 64))))
    assert [(run.first, run.last) for run in found] == [(11, 42), (75, 106), (107, 110)]


def test_a_run_is_small_and_survives_pickling():
    for run in runs(view_of(BIG, 11, 110, BitMap([3]))):
        pickled = pickle.dumps(run)
        assert len(pickled) < 10_000
        assert pickle.loads(pickled) == run  # noqa: S301 - our own bytes


def test_a_pin_stays_while_the_head_moves(tmp_path: Path):
    url = (tmp_path / "remote").as_uri()
    archive = TopicArchive(url)
    archive.add([Sample(b"a")] * 3)
    options = ReadOptions(url, "orders", "main", None)
    pinned = pin(options)
    archive.add([Sample(b"b")] * 3)
    assert [(run.first, run.last, run.lsn) for run in plan(options, pinned)] == [(1, 3, 1)]
    assert [(run.first, run.last, run.lsn) for run in plan(options, pin(options))] == [(1, 3, 1), (4, 6, 2)]


def test_a_version_above_the_head_and_an_unknown_topic_are_refused(tmp_path: Path):
    url = (tmp_path / "remote").as_uri()
    TopicArchive(url).add([Sample(b"a")])
    with pytest.raises(OutOfWindow, match="lsn 1"):
        pin(ReadOptions(url, "orders", "main", 2))
    with pytest.raises(NoSuchTopic):
        pin(ReadOptions(url, "nope", "main", None))


def test_a_version_of_the_past_is_held_by_a_lease_and_the_newest_needs_none(tmp_path: Path):
    url = (tmp_path / "remote").as_uri()
    archive = TopicArchive(url)
    archive.add([Sample(b"a")])
    archive.add([Sample(b"b")])
    store = LocalStore(tmp_path / "remote")
    pin(ReadOptions(url, "orders", "main", None))
    pin(ReadOptions(url, "orders", "main", 1, pin_seconds=0))
    assert list(store.list(pins_prefix())) == []
    point = pin(ReadOptions(url, "orders", "main", 1))
    [key] = store.list(pins_prefix())
    held = decode_pin(store.get(Key(key)), key)
    assert (held.point, held.holder.startswith("spark on ")) == (point, True)


def test_a_tag_is_a_version(tmp_path: Path):
    url = (tmp_path / "remote").as_uri()
    archive = TopicArchive(url)
    archive.add([Sample(b"a"), Sample(b"b")])
    point = ForkPoint(archive.vid, 1, 1)
    volumes = Volumes(LocalStore(tmp_path / "remote"))
    Tags(volumes).create("orders", "v1", point, branch="main", now_ms=1)
    assert pin(ReadOptions(url, "orders", "main", None, "v1")) == point
    with pytest.raises(NoSuchTag):
        pin(ReadOptions(url, "orders", "main", None, "v2"))


def test_importing_the_source_is_light():
    code = (
        "import sys, offload.spark\n"
        "heavy = {'numpy', 'pyarrow', 'boto3', 'catalog', 'obstore', 'seglog', 'zstandard'}\n"
        "print(*(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""
