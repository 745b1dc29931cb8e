"""The upload of frames as a data object and its index object. No commit names these objects yet.

Source: PIP-17, "Writing to S3".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from catalog import SegmentRef, Sid
from catalog.format.commit import Codec
from catalog.format.keys import Key
from catalog.objects.base import ObjectStore
from offload.format.encoder import SegmentEncoder
from offload.format.index import encode_index
from offload.format.labels import object_metadata
from offload.settings import OffloadSettings
from offload.write.upload import BlockUpload
from seglog.format.frames import Frames

__all__ = ["FrameRun", "upload_segment"]


@dataclass(frozen=True, slots=True)
class FrameRun:
    """The source of one data object: all frames from `first_seq` to `last_seq` of a topic, in order."""

    topic: str
    first_seq: int
    last_seq: int
    batches: Iterable[Frames]


def upload_segment(
    store: ObjectStore,
    data_key: Key,
    index_key: Key,
    run: FrameRun,
    sid: Sid,
    *,
    extra: Mapping[str, str],
    codec: Codec,
    settings: OffloadSettings,
    on_upload_id: Callable[[str], None],
) -> SegmentRef:
    """Upload a run, and return when both objects are whole.

    `extra` is user metadata of both objects, beside the items of offload.format.labels. `on_upload_id` is called before
    the first part is sent, and must make the id durable. Raises the errors of the store, `EntryTooLarge` and
    `FrameMismatch`.
    """

    def metadata(role: str) -> dict[str, str]:
        return {**extra, **object_metadata(role, run.topic, run.first_seq, run.last_seq, codec)}

    with BlockUpload(
        store, data_key, metadata("data"), concurrency=settings.concurrency, on_upload_id=on_upload_id
    ) as upload:
        encoder = SegmentEncoder(
            block_size=settings.block_size, codec=codec, zstd_level=settings.zstd_level, spare=upload.spare
        )
        for frames in run.batches:
            for block in encoder.add(frames):
                upload.add(block)
                del block  # or this block would stay in memory beside the next one
            del frames
        (*blocks, last), summary = encoder.finish()
        for block in blocks:
            upload.add(block)
        upload.finish(last)
    index = encode_index(summary, topic=run.topic, created_at_ms=sid.created_ms)
    store.put(index_key, index.body, metadata("index"))
    return SegmentRef(
        sid=sid,
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
        live_records=summary.live_records,
    )
