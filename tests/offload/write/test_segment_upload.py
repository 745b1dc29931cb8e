"""Test PIP-17's three calls: the first writes a ledger, the second reads it, the third deletes it.

An upload holds no more blocks in memory than its concurrency, counted in allocated bytes.
"""

from __future__ import annotations

import os
import threading
import tracemalloc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from random import Random

import pytest

from catalog import SegmentRef, SegmentView, Sid, Vid
from catalog.errors import AccessDenied, NoSuchObject, StoreUnreachable
from catalog.format import keys
from catalog.format.commit import Codec
from catalog.format.keys import Key
from catalog.objects import MemoryStore, ObjectStore, PartTag
from offload import OffloadSettings
from offload.read.cold_reader import ColdReader
from offload.settings import MIN_BLOCK_SIZE
from offload.write.segment_upload import UploadJob, delete_segment, upload_segment
from seglog.format.frames import Frames, take_apart
from tests.faults.store import CountingStore, Fault, FaultyStore, unreachable
from tests.offload.samples import Sample, frames_of_samples

VID, SID = Vid.new(1), Sid.new(5)
SETTINGS = OffloadSettings(block_size=MIN_BLOCK_SIZE, concurrency=3)
RECORD_BYTES = 16_000
BATCH = 64
BATCHES = 60
WORKING_BYTES = 8 << 20  # a batch of frames, a chunk raw and stored, and the data for the index


def upload(
    store: ObjectStore,
    frames: Iterable[Frames],
    count: int,
    codec: Codec,
    settings: OffloadSettings = SETTINGS,
    extra: Mapping[str, str] | None = None,
) -> SegmentRef:
    """Upload the frames of the seqs 1 to `count`."""
    job = UploadJob("t", VID, SID, 1, count, codec, settings)
    return upload_segment(store, job, frames, on_upload_id=lambda _: None, extra=extra or {})


class Sink(MemoryStore):
    """Keep no bytes. A part ends when `at_once` parts are on their way, or after 1 s."""

    def __init__(self, at_once: int) -> None:
        super().__init__()
        self.parts = self.now = self.most = 0
        self._at_once = at_once
        self._changed = threading.Condition()

    def put_part(self, key: Key, upload_id: str, number: int, body: bytes | bytearray) -> PartTag:
        assert len(body) <= MIN_BLOCK_SIZE
        with self._changed:
            self.parts += 1
            self.now += 1
            self.most = max(self.most, self.now)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.now >= self._at_once, timeout=1)
            self.now -= 1
        return PartTag(number, "sunk")

    def complete_upload(self, key: Key, upload_id: str, parts: object) -> None:
        pass


def batches() -> Iterator[Frames]:
    random = Random(1)
    for number in range(BATCHES):
        yield take_apart(
            frames_of_samples(
                (Sample(random.randbytes(RECORD_BYTES)) for _ in range(BATCH)),
                first_seq=number * BATCH + 1,
                first_ts_ms=number * BATCH,
            )
        )


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("concurrency", [1, 3])
def test_an_upload_holds_as_many_blocks_as_its_concurrency(codec: Codec, concurrency: int) -> None:
    store = Sink(concurrency)
    settings = OffloadSettings(block_size=MIN_BLOCK_SIZE, concurrency=concurrency)
    upload(MemoryStore(), frames_of(2), 2, codec, settings)  # what the first upload of a process imports is no block
    tracemalloc.start()
    try:
        upload(store, batches(), BATCH * BATCHES, codec, settings)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert store.parts >= 11
    assert store.most == concurrency
    assert peak_bytes <= MIN_BLOCK_SIZE * concurrency + WORKING_BYTES


def frames_of(count: int, size: int = 50) -> list[Frames]:
    made = frames_of_samples(Sample(os.urandom(size)) for _ in range(count))
    return [take_apart(part) for part in (made[: count // 2], made[count // 2 :]) if part]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(("count", "size"), [(1, 10), (300, 50), (300, 60_000)])
def test_what_is_offloaded_is_read_and_deleted(codec: Codec, count: int, size: int) -> None:
    store = MemoryStore()
    segment = upload(store, frames_of(count, size), count, codec)
    assert (segment.sid, segment.first_seq, segment.last_seq) == (SID, 1, count)
    with closing(ColdReader(store)) as reader:
        view = SegmentView(segment, VID, 0, segment.first_seq, segment.last_seq)
        found = list(reader.segment_records(view, 1, count))
        assert [record.seq for record in found] == list(range(1, count + 1))
        last = list(reader.segment_records(view, count, count))
        assert last == found[-1:]
    for _ in range(2):
        delete_segment(store, VID, SID)
        assert list(store.list("")) == list(store.list_uploads("")) == []


def test_extra_metadata_is_on_both_objects_and_replaces_nothing_of_ours() -> None:
    store = MemoryStore()
    extra = {"managedledgername": "tenant/ns/t", "role": "of somebody else"}
    upload(store, frames_of(3), 3, Codec.NONE, extra=extra)
    for key, role in ((keys.data_key(VID, SID), "data"), (keys.index_key(VID, SID), "index")):
        found = store.head(key).metadata
        assert (found["managedledgername"], found["role"]) == ("tenant/ns/t", role)
        assert (found["seglog-topic"], found["seglog-first-seq"], found["seglog-last-seq"]) == ("t", "1", "3")


@pytest.mark.long
def test_an_offload_that_failed_anywhere_is_taken_away() -> None:
    done = 0
    for nth in range(1, 20):
        inner = MemoryStore()
        faulty = FaultyStore(inner, [Fault(nth=nth, error=unreachable)])
        try:
            upload(faulty, frames_of(300, 60_000), 300, Codec.NONE)
        except StoreUnreachable:
            delete_segment(inner, VID, SID)
            assert list(inner.list("")) == list(inner.list_uploads("")) == []
        else:
            done = nth
            break
    assert done > 6
    with pytest.raises(NoSuchObject):
        inner.head(keys.data_key(VID, Sid.new(6)))


def test_an_upload_on_record_is_aborted_without_asking_for_others() -> None:
    store = CountingStore(MemoryStore())
    upload_id = store.inner.create_upload(keys.data_key(VID, SID), {})
    delete_segment(store, VID, SID, upload_id)
    assert store.counts == {"abort_upload": 1, "delete": 2}
    assert list(store.inner.list_uploads("")) == []


def test_what_a_policy_denies_is_left_and_the_rest_goes() -> None:
    def denied(key: str) -> AccessDenied:
        return AccessDenied("faulty://", key)

    inner = MemoryStore()
    upload(inner, frames_of(3), 3, Codec.ZSTD)
    store = FaultyStore(inner, [Fault(nth=1, error=denied, method="delete")])
    delete_segment(store, VID, SID)
    assert list(inner.list("")) == [keys.data_key(VID, SID)]
