"""The uploaders, which make objects of ranges of segments: a thread of this process, or a worker (offload.worker)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from pyroaring import BitMap

from catalog import SegmentRef, SegmentView
from catalog.format import keys
from catalog.objects.base import ObjectStore
from offload.format.entry import entries, frame_of
from offload.read.cold_reader import ColdReader
from offload.write.port import Uploader
from offload.write.segment_upload import UploadJob, upload_segment
from seglog import Topic
from seglog.format.frame import read_header, tombstone
from seglog.format.frames import Frames, take_apart

__all__ = ["LocalUploader", "Uploader", "remote_frames"]


class LocalUploader:
    """An `Uploader` that uploads in the thread of the caller. `reader` is of the same store."""

    def __init__(self, store: ObjectStore, reader: ColdReader) -> None:
        self._store = store
        self._reader = reader

    def upload(
        self,
        job: UploadJob,
        topic: Topic,
        *,
        on_upload_id: Callable[[str], None],
        on_bytes: Callable[[int], None],
    ) -> SegmentRef:
        def counted() -> Iterator[Frames]:
            hot = () if job.views else topic.frame_batches(job.first_seq, job.last_seq)
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
            whole = []
            for entry_id, data in entries(raw, key, 0):
                if view.first <= first_seq + entry_id <= view.last:
                    frame = frame_of(data)
                    whole.append(tombstone(read_header(frame)) if entry_id in deleted else frame)
            if whole:  # a truncation may have removed all of a chunk
                yield take_apart(whole)
