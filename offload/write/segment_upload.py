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

**Blocks.** `BlockUpload` uploads the blocks of one object: one block by a single PUT, more blocks by a multipart
upload, one part each. If the answer to the completion is lost, a HEAD decides. The object must have the length that was
sent, and the checksum of the whole if the store keeps one. Otherwise the outcome is unknown.

Blocks arrive in order and leave in parallel. `add` returns when fewer than `concurrency` blocks are in flight. Then the
caller makes the next one, so memory holds at most `concurrency` blocks.

`LocalUploader` makes the objects in a thread of this process. A worker does it elsewhere (offload.worker).

Source: PIP-17, "Interface" and "Writing to S3". The futures of PIP-17 are left out. Part numbers count from 1, as in
Apache Pulsar's code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import chain
from types import MappingProxyType

from pyroaring import BitMap

from catalog import SegmentRef, SegmentView, Sid, Vid
from catalog.errors import AccessDenied, NoSuchObject, OutcomeUnknown
from catalog.format import keys
from catalog.format.commit import Codec
from catalog.format.keys import Key
from catalog.objects.object_store import ObjectStore, PartTag, checksum_of_parts
from catalog.objects.store_timeout import carried
from offload.format.encoder import SegmentEncoder, SegmentSummary
from offload.format.entry import entries, frame_of
from offload.format.index import IndexObject, encode_index
from offload.format.labels import object_metadata
from offload.read.cold_reader import ColdReader
from offload.settings import OffloadSettings
from seglog import Topic
from seglog.base.dataclasses import dataclass
from seglog.base.lazy import logger
from seglog.format.frame import read_header, tombstone
from seglog.format.frames import Frames, take_apart

_log = logger("offload.write.segment_upload")
_NOTHING: Mapping[str, str] = MappingProxyType({})


class BlockUpload:
    """A context manager: `add` each block but the last, then `finish` with that one.

    A sent block goes into `spare`, and the maker of later blocks may use it again.
    On an exception, the exit waits for the parts in flight.
    """

    def __init__(
        self,
        store: ObjectStore,
        key: Key,
        metadata: Mapping[str, str],
        *,
        concurrency: int,
        on_upload_id: Callable[[str], None],
    ) -> None:
        """`on_upload_id` is called with the upload's id before the first part is sent, and must make the id durable."""
        self._store = store
        self._key = key
        self._metadata = metadata
        self._concurrency = concurrency
        self._on_upload_id = on_upload_id
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="seglog-upload")
        self._in_flight: set[Future[PartTag]] = set()
        self._tags: list[PartTag] = []
        self._upload_id: str | None = None
        self._length = 0
        self.spare: deque[bytearray] = deque()

    def __enter__(self) -> BlockUpload:
        return self

    def __exit__(self, kind: object, _error: object, _trace: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=kind is not None)

    def add(self, block: bytearray) -> None:
        """Send `block`, which is not the last one. Raises the error of an earlier part that failed."""
        if self._upload_id is None:
            self._upload_id = self._store.create_upload(self._key, self._metadata)
            self._on_upload_id(self._upload_id)
        self._send(self._upload_id, block)
        del block
        self._settle(down_to=self._concurrency - 1)

    def finish(self, block: bytearray) -> None:
        """Send the last block, and return when the object is whole. Raises `OutcomeUnknown` if no answer tells."""
        if self._upload_id is None:
            self._store.put(self._key, block, self._metadata)
            return
        self._send(self._upload_id, block)
        self._settle(down_to=0)
        parts = sorted(self._tags, key=lambda tag: tag.number)
        try:
            self._store.complete_upload(self._key, self._upload_id, parts)
        except (NoSuchObject, OutcomeUnknown) as error:
            # The answer was lost, or this was a retry of a completed upload. The object itself tells.
            if not self._is_whole(parts):
                raise OutcomeUnknown(self._key, f"the upload's completion: {error}") from error

    def _send(self, upload_id: str, block: bytearray) -> None:
        self._length += len(block)
        number = len(self._tags) + len(self._in_flight) + 1
        self._in_flight.add(self._pool.submit(carried(self._put), upload_id, number, block))

    def _put(self, upload_id: str, number: int, block: bytearray) -> PartTag:
        tag = self._store.put_part(self._key, upload_id, number, block)
        self.spare.append(block)
        return tag

    def _settle(self, *, down_to: int) -> None:
        while len(self._in_flight) > down_to:
            done, self._in_flight = wait(self._in_flight, return_when=FIRST_COMPLETED)
            self._tags.extend(future.result() for future in done)

    def _is_whole(self, parts: Sequence[PartTag]) -> bool:
        """Return whether the object under the key consists of these parts."""
        try:
            head = self._store.head(self._key)
        except NoSuchObject:
            return False
        expected = checksum_of_parts(parts)
        if expected is None or head.checksum is None or head.checksum.kind is not expected.checksum.kind:
            return head.size == self._length
        return head.size == self._length and head.checksum == expected.checksum


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
    own_ids = [upload_id] if upload_id else None
    for stale_id in own_ids or [open_id for key, open_id in store.list_uploads(data) if key == data]:
        store.abort_upload(data, stale_id)


class LocalUploader:
    """An `Uploader` that uploads in the thread of the caller. `reader` is of the same store."""

    def __init__(self, store: ObjectStore, reader: ColdReader) -> None:
        self._store = store
        self._reader = reader

    def upload(
        self, job: UploadJob, topic: Topic, *, on_upload_id: Callable[[str], None], on_bytes: Callable[[int], None]
    ) -> SegmentRef:
        def counted() -> Iterator[Frames]:
            hot = () if job.views else topic.inner.frame_batches(job.first_seq, job.last_seq)
            for frames in chain(remote_frames(self._reader, job.views), hot):
                on_bytes(frames.size_bytes)
                yield frames

        return upload_segment(self._store, job, counted(), on_upload_id=on_upload_id)

    def close(self) -> None:
        pass


def remote_frames(reader: ColdReader, views: Iterable[SegmentView]) -> Iterator[Frames]:
    """Yield the frames that the views show, with a tombstone for each deleted record."""
    for view in views:
        deleted = BitMap.deserialize(view.deleted) if view.deleted else BitMap()
        key, first_seq = keys.data_key(view.vid, view.ref.sid), view.ref.first_seq
        for raw in reader.segment_chunks(view):
            frames = []
            for entry_id, data in entries(raw, key, 0):
                if view.first <= first_seq + entry_id <= view.last:
                    frame = frame_of(data)
                    frames.append(tombstone(read_header(frame)) if entry_id in deleted else frame)
            if frames:  # a truncation may have removed all of a chunk
                yield take_apart(frames)
