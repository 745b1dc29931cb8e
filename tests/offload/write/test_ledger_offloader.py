"""Test PIP-17's three calls: the first writes a ledger, the second reads it, the third deletes it."""

from __future__ import annotations

import os
from contextlib import closing

import pytest

from catalog import Sid, Vid
from catalog.errors import AccessDenied, NoSuchObject, StoreUnreachable
from catalog.format import keys
from catalog.format.commit import Codec
from catalog.objects.memory import MemoryStore
from offload import OffloadSettings
from offload.read.cold_reader import ColdReader
from offload.settings import MIN_BLOCK_SIZE
from offload.write.ledger_offloader import LedgerOffloader
from offload.write.segment_upload import FrameRun
from seglog.format.frames import take_apart
from tests.faults.store import CountingStore, Fault, FaultyStore, unreachable
from tests.offload.samples import Sample, frames_of_samples

VID, SID = Vid.new(1), Sid.new(5)
SETTINGS = OffloadSettings(block_size=MIN_BLOCK_SIZE, concurrency=3)


def a_run(count: int, size: int = 50) -> FrameRun:
    made = frames_of_samples(Sample(os.urandom(size)) for _ in range(count))
    return FrameRun("t", 1, count, [take_apart(part) for part in (made[: count // 2], made[count // 2 :]) if part])


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(("count", "size"), [(1, 10), (300, 50), (300, 60_000)])
def test_what_is_offloaded_is_read_and_deleted(codec: Codec, count: int, size: int) -> None:
    store = MemoryStore()
    offloader = LedgerOffloader(store, VID, SETTINGS)
    run = a_run(count, size)
    segment = offloader.offload(run, SID, codec=codec)
    assert (segment.sid, segment.first_seq, segment.last_seq) == (SID, 1, count)
    with closing(ColdReader(store)) as reader:
        found = list(offloader.read_offloaded(reader, segment))
        assert [record.seq for record in found] == list(range(1, count + 1))
        last = list(offloader.read_offloaded(reader, segment, count, count))
        assert last == found[-1:]
    for _ in range(2):
        offloader.delete_offloaded(SID)
        assert list(store.list("")) == list(store.list_uploads("")) == []


def test_extra_metadata_is_on_both_objects_and_replaces_nothing_of_ours() -> None:
    store = MemoryStore()
    extra = {"managedledgername": "tenant/ns/t", "role": "of somebody else"}
    LedgerOffloader(store, VID, SETTINGS).offload(a_run(3), SID, extra, codec=Codec.NONE)
    for key, role in ((keys.data_key(VID, SID), "data"), (keys.index_key(VID, SID), "index")):
        found = store.head(key).metadata
        assert (found["managedledgername"], found["role"]) == ("tenant/ns/t", role)
        assert (found["seglog-topic"], found["seglog-first-seq"], found["seglog-last-seq"]) == ("t", "1", "3")


def test_an_offload_that_failed_anywhere_is_taken_away() -> None:
    done = 0
    for nth in range(1, 20):
        inner = MemoryStore()
        offloader = LedgerOffloader(FaultyStore(inner, [Fault(nth=nth, error=unreachable)]), VID, SETTINGS)
        try:
            offloader.offload(a_run(300, 60_000), SID, codec=Codec.NONE)
        except StoreUnreachable:
            LedgerOffloader(inner, VID, SETTINGS).delete_offloaded(SID)
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
    LedgerOffloader(store, VID, SETTINGS).delete_offloaded(SID, upload_id)
    assert store.counts == {"abort_upload": 1, "delete": 2}
    assert list(store.inner.list_uploads("")) == []


def test_what_a_policy_denies_is_left_and_the_rest_goes() -> None:
    def denied(key: str) -> AccessDenied:
        return AccessDenied("faulty://", key)

    inner = MemoryStore()
    LedgerOffloader(inner, VID, SETTINGS).offload(a_run(3), SID, codec=Codec.ZSTD)
    store = FaultyStore(inner, [Fault(nth=1, error=denied, method="delete")])
    LedgerOffloader(store, VID, SETTINGS).delete_offloaded(SID)
    assert list(inner.list("")) == [keys.data_key(VID, SID)]
