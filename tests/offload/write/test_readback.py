"""Test that the read-back reads every byte before a hot copy is deleted.

It reads the commit, the index object with its trailer, and the data object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from catalog import Attempt, Sid
from catalog.errors import InvalidObject, NoSuchObject
from catalog.format.commit import NO_PARENT, Bounds, Codec, Commit, CommitKind, SegmentRef
from catalog.format.encoding import encode_commit
from catalog.format.keys import Key, commit_key, data_key, index_key
from catalog.objects import MemoryStore
from offload import OffloadSettings
from offload.errors import FormatUnsupported, InvalidIndex
from offload.write.attempt import AttemptState
from offload.write.readback import check_published, check_segment
from offload.write.segment_upload import UploadJob, upload_segment
from seglog.format.frames import take_apart
from tests.catalog.samples import START_MS, sid, vid
from tests.offload.samples import Sample, frames_of_samples

VID = vid(1)


def uploaded(store: MemoryStore, name: Sid, codec: Codec = Codec.NONE) -> SegmentRef:
    frames = take_apart(frames_of_samples(Sample(bytes([number]) * 50) for number in range(20)))
    job = UploadJob("orders", VID, name, 1, 20, codec, OffloadSettings())
    return upload_segment(store, job, [frames], on_upload_id=lambda _: None)


def published(store: MemoryStore, segment: SegmentRef) -> Attempt:
    commit = Commit(
        VID, 1, CommitKind.OFFLOAD, Bounds(1, 20), NO_PARENT, bytes(16), START_MS, "w", 1, 20, START_MS,
        segments=(segment,),
    )  # fmt: skip
    store.put_new(commit_key(VID, 1), encode_commit(commit)[0])
    return Attempt(segment.sid, "orders", VID, 1, 20, AttemptState.PUBLISHED, START_MS, lsn=1, published_at_ms=START_MS)


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda body: body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


@pytest.mark.parametrize("codec", Codec)
def test_what_is_whole_passes(codec: Codec) -> None:
    store = MemoryStore()
    check_published(store, published(store, uploaded(store, sid(1), codec)))


def test_a_flipped_bit_in_any_byte_of_both_objects_is_found() -> None:
    store = MemoryStore()
    segment = uploaded(store, sid(1))
    for key, step in ((index_key(VID, segment.sid), 1), (data_key(VID, segment.sid), 7)):
        whole = store.get(key)
        assert len(whole) > segment.index_head_length
        for at in {*range(0, len(whole), step), len(whole) - 1}:
            store.put(key, flipped(at)(whole), {})
            with pytest.raises((InvalidObject, InvalidIndex, FormatUnsupported)):
                check_segment(store, VID, segment)
        store.put(key, whole, {})
    check_segment(store, VID, segment)


def test_an_object_that_is_cut_or_gone_is_found() -> None:
    for key_of in (index_key, data_key):
        store = MemoryStore()
        segment = uploaded(store, sid(1))
        key: Key = key_of(VID, segment.sid)
        store.put(key, store.get(key)[:-1], {})
        with pytest.raises((InvalidObject, InvalidIndex)):
            check_segment(store, VID, segment)
        store.delete(key)
        with pytest.raises(NoSuchObject):
            check_segment(store, VID, segment)


def test_a_commit_that_names_another_segment_or_is_gone_is_found() -> None:
    store = MemoryStore()
    attempt = published(store, uploaded(store, sid(1)))
    uploaded(store, sid(2))
    with pytest.raises(InvalidObject, match="does not name segment"):
        check_published(store, replace(attempt, sid=sid(2)))
    store.delete(commit_key(VID, 1))
    with pytest.raises(NoSuchObject):
        check_published(store, attempt)


def test_a_sound_index_that_is_not_the_one_of_the_commit_is_found() -> None:
    store = MemoryStore()
    segment = uploaded(store, sid(1))
    with pytest.raises(InvalidIndex, match="not the one that the commit names"):
        check_segment(store, VID, replace(segment, index_head_hash=bytes(32)))
