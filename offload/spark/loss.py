"""The check of `failOnDataLoss`: records of the range that were evicted or truncated.

LOSS-1  The options give the range. Filters of a query do not narrow it, so both readers raise alike.
LOSS-2  Nothing tells the times of evicted records, except that times never fall. So a range by time has evicted records
    in it if it begins at the first kept record or earlier.
LOSS-3  A range that begins beyond the record after the head expects records that a truncation took.
LOSS-4  Records past their ttl, and deleted records, are no loss.
"""

from __future__ import annotations

from collections.abc import Sequence

from catalog.snapshot import Snapshot
from offload.errors import DataLoss
from offload.read.cold_reader import ColdReader
from offload.spark.option_texts import moment_ms
from offload.spark.options import EARLIEST, ReadOptions
from offload.spark.pin import PinnedTopic
from seglog.errors import SeqOutOfRange

__all__ = ["check_loss"]


def check_loss(
    options: ReadOptions, found: Sequence[tuple[PinnedTopic, Snapshot]], reader: ColdReader, now_ms: int
) -> None:
    """Raise `DataLoss` if records of the range were evicted. It names all topics and seqs.

    Raises `SeqOutOfRange` if the range of a topic begins beyond its head. If a range by time begins within a segment
    whose beginning was evicted, the check reads an index object and one chunk.
    """
    for topic, snapshot in found:
        first, bounds = options.starting.of(topic.topic), snapshot.bounds
        if first is not None and first > bounds.head_seq + 1:
            raise SeqOutOfRange(topic.topic, first, bounds.first_seq, bounds.head_seq)
    lost = [
        (topic.topic, *evicted)
        for topic, snapshot in found
        if (evicted := _evicted(options, topic.topic, snapshot, reader, now_ms))
    ]
    if lost:
        raise DataLoss(lost)


def _evicted(
    options: ReadOptions, topic: str, snapshot: Snapshot, reader: ColdReader, now_ms: int
) -> tuple[int, int] | None:
    """Return the first and the last evicted seq of the range."""
    first, last = options.starting.of(topic), options.ending.of(topic)
    evicted_to = snapshot.bounds.evict_floor - 1
    if first == EARLIEST or (last is not None and last < (first or 1)) or evicted_to < (first or 1):
        return None
    if options.starting_time is not None and _is_after(snapshot, moment_ms(options.starting_time, now_ms), reader):
        return None
    return first or 1, evicted_to if last is None else min(last, evicted_to)


def _is_after(snapshot: Snapshot, start_ms: int, reader: ColdReader) -> bool:
    """Tell whether all evicted records are older than `start_ms`."""
    if not snapshot.segments:
        return False
    view = snapshot.segments[0]
    if view.first == view.ref.first_seq or not view.ref.min_ts_ms < start_ms <= view.ref.max_ts_ms:
        return start_ms > view.ref.min_ts_ms
    return reader.last_seq_at(view.vid, view.ref, start_ms - 1) >= view.first - 1
