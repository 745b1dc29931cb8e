"""Frames to a data object and its index object, both whole when it returns. Nothing refers to them yet.

Source: PIP-17, "Writing to S3".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from catalog import Attempt, SegmentRef, keys
from catalog.commit import Codec
from catalog.objects.base import ObjectStore
from offload.encoder import SegmentEncoder
from offload.index import encode_index
from offload.labels import object_metadata
from offload.settings import OffloadSettings
from offload.upload import BlockUpload

__all__ = ["upload_segment"]


def upload_segment(
    store: ObjectStore,
    attempt: Attempt,
    batches: Iterable[Sequence[bytes]],
    *,
    codec: Codec,
    settings: OffloadSettings,
    on_upload_id: Callable[[str], None],
) -> SegmentRef:
    """`batches` are all frames from the attempt's first seq to its last, in order.

    `on_upload_id` is called before the first part is sent: make it durable. Raises what the store raises,
    `EntryTooLarge` and `FrameMismatch`.
    """
    name, first_seq, last_seq = attempt.name, attempt.first_seq, attempt.last_seq
    encoder = SegmentEncoder(block_size=settings.block_size, codec=codec, zstd_level=settings.zstd_level)
    with BlockUpload(
        store,
        keys.data_key(attempt.vid, attempt.sid),
        object_metadata("data", name, first_seq, last_seq, codec),
        concurrency=settings.concurrency,
        on_upload_id=on_upload_id,
    ) as upload:
        for frames in batches:
            for block in encoder.add_many(frames):
                upload.add(block)
        blocks, summary = encoder.finish()
        for block in blocks:
            upload.add(block)
        upload.finish()
    index = encode_index(summary, topic=name, created_at_ms=attempt.created_at_ms)
    store.put(
        keys.index_key(attempt.vid, attempt.sid),
        index.body,
        object_metadata("index", name, first_seq, last_seq, codec),
    )
    return SegmentRef(
        sid=attempt.sid,
        first_seq=summary.first_seq,
        last_seq=summary.last_seq,
        min_ts_ms=summary.min_ts_ms,
        max_ts_ms=summary.max_ts_ms,
        data_length=summary.data_length,
        data_hash=summary.data_hash,
        index_head_length=index.head_length,
        index_trailer_length=index.trailer_length,
        index_head_hash=index.head_hash,
        codec=codec,
        frame_bytes=summary.frame_bytes,
    )
