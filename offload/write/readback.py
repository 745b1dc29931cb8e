"""The proof that a hot copy may go: every byte of its remote copy is read back from the store.

An acknowledged upload is not yet a readable one.
"""

from __future__ import annotations

from functools import partial

from blake3 import blake3

from catalog import Attempt, Commit, SegmentRef, Vid
from catalog.errors import InvalidObject
from catalog.format import keys
from catalog.format.encoding import decode_commit_at
from catalog.objects.object_store import ObjectStore
from offload.format.index import decode_head
from offload.format.trailer import decode_trailer
from offload.read.chunk_fetcher import in_order
from seglog.base.progress import count

_READ_BYTES = 8 * 1024 * 1024
_READS_AT_A_TIME = 4


def check_published(store: ObjectStore, attempt: Attempt) -> None:
    """Read back the attempt's commit, index object and data object.

    Raises `InvalidObject`, `InvalidIndex` or `NoSuchObject`.
    """
    assert attempt.lsn is not None  # noqa: S101 - a published attempt has one
    body = store.get(keys.commit_key(attempt.vid, attempt.lsn))
    commit = decode_commit_at(body, attempt.vid, attempt.lsn).commit
    check_segment(store, attempt.vid, _segment_of(commit, attempt))


def check_segment(store: ObjectStore, vid: Vid, segment: SegmentRef) -> None:
    """Read back the segment's index object and its data object. Raises as `check_published` does."""
    check_index(store, vid, segment)
    check_data(store, vid, segment)


def check_index(store: ObjectStore, vid: Vid, segment: SegmentRef) -> None:
    """Read back the segment's index object, with its trailer. Raises `InvalidIndex` or `NoSuchObject`."""
    index_key = keys.index_key(vid, segment.sid)
    head_length = segment.index_head_length
    index = store.get_range(index_key, 0, head_length + segment.index_trailer_length)
    chunks = decode_head(index, index_key, segment.index_head_hash).chunks
    decode_trailer(index[head_length:], chunks, index_key, head_length)


def check_data(store: ObjectStore, vid: Vid, segment: SegmentRef) -> None:
    """Compare the segment's data object with the hash in its commit. Raises `InvalidObject` or `NoSuchObject`."""
    data_key = keys.data_key(vid, segment.sid)
    hasher = blake3()
    reads = (
        partial(store.get_range, data_key, start, min(_READ_BYTES, segment.data_length - start))
        for start in range(0, segment.data_length, _READ_BYTES)
    )
    for body in in_order(reads, _READS_AT_A_TIME, "seglog-readback"):
        hasher.update(body)
        count("reading back", len(body), "bytes")
    if hasher.digest() != segment.data_hash:
        raise InvalidObject(data_key, "its bytes are not what the commit says")


def _segment_of(commit: Commit, attempt: Attempt) -> SegmentRef:
    for segment in commit.segments:
        if segment.sid == attempt.sid:
            return segment
    raise InvalidObject(keys.commit_key(commit.vid, commit.lsn), f"does not name segment {attempt.sid}")
