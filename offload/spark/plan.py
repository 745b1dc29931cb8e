"""The plan of a Spark job: the version that it reads, pinned, and the runs of chunks that its tasks read.

SPLAN-1  A range lies in one segment. It holds whole chunks, together about 32 MiB decompressed.
    Every visible seq is in exactly one range. A chunk may hold other seqs too, so a scan keeps to `first` and `last`.
SPLAN-2  A range carries all that a task needs to read and check it, and nothing more. That is a few KiB.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from pyroaring import BitMap
from pyspark.sql.datasource import InputPartition

from catalog.errors import AccessDenied
from catalog.format import keys
from catalog.format.commit import Codec, ForkPoint, SegmentView
from catalog.format.control import MAIN
from catalog.history import retry_if_collected
from catalog.refs.branch import Branches
from catalog.refs.pin import Pins
from catalog.refs.tag import Tags
from catalog.timeline import Lsn, no_time_lookup, resolve
from catalog.volume import Volumes
from offload.format.block import ChunkRef
from offload.format.metadata import SegmentIndex
from offload.read.cold_reader import ColdReader
from offload.services.expired import expired_before, unexpired
from offload.spark.options import ReadOptions
from offload.wiring import open_store
from seglog.files.clock import SystemClock

__all__ = ["RANGE_BYTES", "ChunkRange", "pin", "plan", "ranges_of"]

RANGE_BYTES = 32 * 1024 * 1024
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChunkRange(InputPartition):  # type: ignore[misc]  # pyspark's types are not followed
    """The input of one task: adjacent chunks of one segment. Seqs are inclusive.

    The segment has `chunk_count` chunks, and `first_chunk` is the number of the range's first one among them. With
    both, a task finds its part of the trailer, which lies at `trailer_offset` of the index object. `deleted` is a
    Roaring bitmap of the deleted entry ids within the range, or None.
    """

    url: str
    topic: str
    lsn: int
    data_key: keys.Key
    index_key: keys.Key
    codec: Codec
    topic_id: int
    segment_first_seq: int
    first: int
    last: int
    chunks: tuple[ChunkRef, ...]
    first_chunk: int
    chunk_count: int
    trailer_offset: int
    trailer_length: int
    deleted: bytes | None


def pin(options: ReadOptions) -> ForkPoint:
    """Return the version that `options` mean, as it is now. A lease holds a past version, if the role may write one.

    The newest version needs no lease: every state is kept for as long as the PITR window lasts. A tag holds its version
    itself. Raises `NoSuchTopic`, `NoSuchBranch`, `NoSuchTag`, `OutOfWindow`.
    """
    with closing(open_store(options.url)) as store:
        volumes = Volumes(store)
        vid = Branches(volumes).resolve(options.topic, options.branch)
        if options.tag is not None:
            return Tags(volumes).get(options.topic, options.tag).point  # the tag holds it
        if options.version is None:
            return ForkPoint(vid, volumes.newest_lsn(vid))
        wanted = Lsn(options.version)
        point = retry_if_collected(
            lambda: volumes.history(vid), lambda history: resolve(wanted, history, no_time_lookup)
        )
        if options.pin_seconds:
            _hold(volumes, point, options.pin_seconds)
        return point


def _hold(volumes: Volumes, point: ForkPoint, seconds: int) -> None:
    now_ms = SystemClock().now_ms()
    try:
        Pins(volumes).hold(point, f"spark on {socket.gethostname()}", ttl_ms=seconds * 1000, now_ms=now_ms)
    except AccessDenied as refusal:
        _log.warning("lsn %d is read without a lease, for the role may not write one: %s", point.lsn, refusal)


def plan(options: ReadOptions, point: ForkPoint) -> list[ChunkRange]:
    """Return the runs of the topic at `point`, ascending by seq. Reads the commits and the heads of index objects."""
    with closing(open_store(options.url)) as store, closing(ColdReader(store)) as reader:
        snapshot = Volumes(store).snapshot(point.vid, point.lsn, point.seq)
        floor = 1
        if options.version is None and options.tag is None:  # a past state shows records that expired since
            is_branch = options.branch != MAIN
            floor = expired_before(snapshot, SystemClock().now_ms(), reader, is_branch=is_branch)
        views = unexpired(snapshot.segments, floor)
        return [
            chunk_range
            for view in reader.indexed(views)
            for chunk_range in ranges_of(view, reader.index(view), options.url, options.topic)
        ]


def ranges_of(view: SegmentView, index: SegmentIndex, url: str, topic: str) -> Iterator[ChunkRange]:
    """Yield the runs of one segment, as far as `view` shows it."""
    deleted = BitMap.deserialize(view.deleted) if view.deleted else BitMap()
    first_chunk = next(n for n, chunk in enumerate(index.chunks) if chunk.last_seq >= view.first)
    for chunks in _grouped(index.chunks_between(view.first, view.last)):
        first, last = max(view.first, chunks[0].first_seq), min(view.last, chunks[-1].last_seq)
        base = view.ref.first_seq
        gone = deleted & BitMap(range(first - base, last + 1 - base))
        if len(gone) <= last - first:
            yield ChunkRange(
                url=url,
                topic=topic,
                lsn=view.lsn,
                data_key=keys.data_key(view.vid, view.ref.sid),
                index_key=keys.index_key(view.vid, view.ref.sid),
                codec=index.codec,
                topic_id=index.topic_id,
                segment_first_seq=base,
                first=first,
                last=last,
                chunks=chunks,
                first_chunk=first_chunk,
                chunk_count=len(index.chunks),
                trailer_offset=view.ref.index_head_length,
                trailer_length=view.ref.index_trailer_length,
                deleted=bytes(gone.serialize()) if gone else None,
            )
        first_chunk += len(chunks)


def _grouped(chunks: Sequence[ChunkRef]) -> Iterator[tuple[ChunkRef, ...]]:
    group: list[ChunkRef] = []
    size_bytes = 0
    for chunk in chunks:
        if group and size_bytes + chunk.raw_length > RANGE_BYTES:
            yield tuple(group)
            group, size_bytes = [], 0
        group.append(chunk)
        size_bytes += chunk.raw_length
    if group:
        yield tuple(group)
