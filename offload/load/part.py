"""The part of one task in a load (step 3 of offload.load): frames become segments, which no commit names yet."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from catalog import CatalogError, SegmentRef, Sid
from catalog.objects.base import ObjectStore
from offload.errors import RowsChanged
from offload.load.opening import Load
from offload.write.segment_upload import UploadJob, delete_segment, upload_segment
from seglog.format.frames import Frames

__all__ = ["BEFORE_THE_LAST", "SORT_BY_TIME", "LoadedPart", "discard_segments", "write_part"]

BEFORE_THE_LAST = "is before the time of the record before it"
SORT_BY_TIME = 'sort the rows, df.orderBy("timestamp"), or drop the column: each row then gets the time of the load'

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedPart:
    """The rows of one partition as segments, ascending. Without rows there are none."""

    partition: int
    rows: int
    segments: tuple[SegmentRef, ...] = ()


def write_part(
    store: ObjectStore, load: Load, partition: int, batches: Iterable[Frames], *, now_ms: Callable[[], int]
) -> LoadedPart:
    """Upload the frames of a partition, and return its segments. Memory holds one block, beside the batches.

    The first frame has the seq `load.first_seq_of(partition)`. A segment has at most `max_object_bytes`. Raises
    `RowsChanged`, and the errors of `batches` and of the store. Then the objects are deleted, if that works.
    """
    sids: list[Sid] = []

    def new_sid() -> Sid:
        sids.append(Sid.new(max(now_ms(), load.collected_before_ms)))
        return sids[-1]

    try:
        return _written(store, load, partition, _Batches(batches), new_sid)
    except BaseException:
        discard_segments(store, load, sids)
        raise


def _written(
    store: ObjectStore, load: Load, partition: int, waiting: _Batches, new_sid: Callable[[], Sid]
) -> LoadedPart:
    segments: list[SegmentRef] = []
    rows, counted = 0, load.rows_of(partition)
    while waiting.first_seq is not None and counted != 0:
        job = UploadJob(load.name, load.vid, new_sid(), waiting.first_seq, 0, load.codec, load.settings)
        frames = waiting.up_to(load.settings.max_object_bytes)
        segments.append(upload_segment(store, job, frames, on_upload_id=lambda _: None))
        rows = segments[-1].last_seq - segments[0].first_seq + 1
    if waiting.first_seq is not None or (counted is not None and rows != counted):
        raise RowsChanged(partition, rows + sum(map(len, waiting)), counted or 0)
    return LoadedPart(partition, rows, tuple(segments))


def discard_segments(store: ObjectStore, load: Load, sids: Iterable[Sid]) -> None:
    """Delete the objects of segments that no commit will name. GC deletes what an error leaves."""
    for sid in sids:
        try:
            delete_segment(store, load.vid, sid)
        except CatalogError as trouble:
            _log.warning("segment %s stays behind for GC: %s", sid, trouble)


@dataclass(slots=True)
class _Batches:
    """Batches of frames with a look at the first one that is left."""

    batches: Iterable[Frames]
    _rest: Iterator[Frames] = field(init=False)
    _next: Frames | None = field(init=False)

    def __post_init__(self) -> None:
        self._rest = iter(self.batches)
        self._next = next(self._rest, None)

    @property
    def first_seq(self) -> int | None:
        return None if self._next is None else int(self._next.headers["seq"][0])

    def up_to(self, max_bytes: int) -> Iterator[Frames]:
        """Yield batches of together at most `max_bytes`, but at least one."""
        size = 0
        while self._next is not None and (size == 0 or size + self._next.size_bytes <= max_bytes):
            frames, self._next = self._next, None
            size += frames.size_bytes
            yield frames
            del frames
            self._next = next(self._rest, None)

    def __iter__(self) -> Iterator[Frames]:
        while self._next is not None:
            yield self._next
            self._next = next(self._rest, None)
