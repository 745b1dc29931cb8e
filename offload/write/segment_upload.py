"""The upload of frames as a data object and its index object, and the removal of both. No commit names them yet.

    PIP-17                                  here
    offload(ledger, uid, extraMetadata)     `upload_segment(store, job, batches, extra=...)`
    readOffloaded(ledgerId, uid)            `ColdReader.segment_records(view, first, last)`
    deleteOffloaded(ledgerId, uid)          `delete_segment(store, vid, sid)`

UPLOAD-1  The caller may repeat each call after any error or crash.
    Use a sid once: if it has objects already, the upload writes the same keys again (ATTEMPT-1).
UPLOAD-2  The caller decides which records are offloaded, and publishes them by a commit. This module does neither.
UPLOAD-3  The items of `extra` go into the user metadata of both objects. They never replace items of
    offload.format.labels.

Source: PIP-17, "Interface" and "Writing to S3". The futures of PIP-17 are left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from catalog import SegmentRef, SegmentView, Sid, Vid
from catalog.errors import AccessDenied
from catalog.format import keys
from catalog.format.commit import Codec
from catalog.objects.base import ObjectStore
from offload.format.encoder import SegmentEncoder, SegmentSummary
from offload.format.index import IndexObject, encode_index
from offload.format.labels import object_metadata
from offload.settings import OffloadSettings
from offload.write.upload import BlockUpload
from seglog.format.frames import Frames

__all__ = ["UploadJob", "delete_segment", "segment_ref", "upload_segment"]

_log = logging.getLogger("offload.write.segment_upload")
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class UploadJob:
    """The records `first_seq` to `last_seq` of a topic, which become segment `sid` of volume `vid`.

    The records are hot, or come from `views` of remote segments, one after the other. `last_seq` is 0 if it
    is not known yet.
    """

    topic: str
    vid: Vid
    sid: Sid
    first_seq: int
    last_seq: int
    codec: Codec
    settings: OffloadSettings
    views: tuple[SegmentView, ...] = ()


def upload_segment(
    store: ObjectStore,
    job: UploadJob,
    batches: Iterable[Frames],
    *,
    on_upload_id: Callable[[str], None],
    extra: Mapping[str, str] = _NOTHING,
) -> SegmentRef:
    """Upload the frames of an upload job, and return when both objects are whole.

    `batches` are all its frames, in order. `on_upload_id` is called before the first part is sent, and must make the id
    durable. Raises the errors of the store and of `batches`, `EntryTooLarge` and `FrameMismatch`. After an error,
    `delete_segment` removes the remains.
    """
    sid, settings = job.sid, job.settings
    data_key, index_key = keys.data_key(job.vid, sid), keys.index_key(job.vid, sid)

    def metadata(role: str, last_seq: int | None) -> dict[str, str]:
        ours = object_metadata(role, job.topic, job.first_seq, last_seq, job.codec)
        return {**extra, **ours}

    with BlockUpload(
        store,
        data_key,
        metadata("data", job.last_seq or None),
        concurrency=settings.concurrency,
        on_upload_id=on_upload_id,
    ) as upload:
        encoder = SegmentEncoder(
            block_size=settings.block_size, codec=job.codec, zstd_level=settings.zstd_level, spare=upload.spare
        )
        for frames in batches:
            for block in encoder.add(frames):
                upload.add(block)
                del block  # or this block would stay in memory beside the next one
            del frames
        (*blocks, last), summary = encoder.finish()
        for block in blocks:
            upload.add(block)
        upload.finish(last)
    index = encode_index(summary, topic=job.topic, created_at_ms=sid.created_ms)
    store.put(index_key, index.body, metadata("index", summary.last_seq))
    return segment_ref(sid, summary, index)


def segment_ref(sid: Sid, summary: SegmentSummary, index: IndexObject) -> SegmentRef:
    """Return the entry of a commit for a segment with this data object and this index object."""
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
        codec=summary.codec,
        frame_bytes=summary.frame_bytes,
        live_records=summary.live_records,
    )


def delete_segment(store: ObjectStore, vid: Vid, sid: Sid, upload_id: str | None = None) -> None:
    """Delete both objects, and abort the unfinished upload; without `upload_id`, all that the store knows."""
    data, index = keys.data_key(vid, sid), keys.index_key(vid, sid)
    steps: tuple[Callable[[], None], ...] = (
        lambda: _abort_uploads(store, data, upload_id),
        lambda: store.delete(data),
        lambda: store.delete(index),
    )
    for step in steps:
        try:
            step()
        except AccessDenied as error:
            # A writer's policy may deny both listing uploads and deleting. Then the bucket's maintainer does it.
            _log.warning("left something of segment %s behind: %s", sid, error)


def _abort_uploads(store: ObjectStore, data: keys.Key, upload_id: str | None) -> None:
    known = [upload_id] if upload_id else None
    for found in known or [found for key, found in store.list_uploads(data) if key == data]:
        store.abort_upload(data, found)
