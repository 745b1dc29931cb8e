"""The loss of records that a read or a stream needs.

The check of `failOnDataLoss` for a read, and for the beginning of a stream: records of the range that were evicted or
truncated.

LOSS-1  The options give the range. Filters of a query do not narrow it, so both readers raise alike.
LOSS-2  Nothing tells the times of evicted records, except that times never fall. So a range by time has evicted records
    in it if it begins at the first kept record or earlier.
LOSS-3  A range that begins beyond the record after the head expects records that a truncation took.
LOSS-4  Records past their ttl, and deleted records, are no loss.

What happened to a topic since a stream saw it:

SLOSS-1  A truncation below the position is a loss. The records that the stream gave are gone, and later records use
    their seqs. If the branch leads to another volume now, the seqs from the place where both histories part are lost.
SLOSS-2  An eviction above the position is a loss: the stream never gave those records.
SLOSS-3  If GC collected commits that the stream has not seen, nothing tells whether they truncated the topic. That
    counts as a loss, too. GC keeps the commits for as long as the PITR window lasts.
SLOSS-4  Deleted records, records past their ttl, and records that were truncated above the position are no loss.
SLOSS-5  After a loss, a stream with `failOnDataLoss=false` continues with the first seq that may have another record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from catalog.errors import HistoryCollected, InvalidObject, NoSuchObject
from catalog.format.commit import ForkPoint
from catalog.snapshot import Snapshot
from catalog.volume import Volumes
from offload.errors import OffloadError
from offload.read.cold_reader import ColdReader
from offload.spark.offsets import Position
from offload.spark.option_texts import moment_ms
from offload.spark.options import EARLIEST, ReadOptions
from offload.spark.pin import PinnedTopic
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Conflict
from seglog.errors import SeqOutOfRange

EVICTED = "were evicted before the stream read them"
_TRUNCATED = "were truncated after the stream gave them"
_UNKNOWN = "may have been truncated after the stream gave them, for garbage collection took the commits that tell it"
_HINT = "failOnDataLoss=false continues with the records that are there"


class DataLoss(Conflict, OffloadError):
    """Records of the range that Spark reads are gone. `lost` has each topic with its first and last lost seq.

    `fate` tells what happened to them.
    """

    def __init__(
        self, lost: Sequence[tuple[str, int, int]], fate: str = "were evicted", *, hint: str | None = None
    ) -> None:
        ranges = ", ".join(f"{first} to {last} of {topic}" for topic, first, last in lost)
        other_way = f", or startingSeq={lost[0][2] + 1}" if len(lost) == 1 else ""
        self._tell(
            f"records {ranges} {fate}",
            hint=hint or f"startingSeq=earliest{other_way} begins behind them, failOnDataLoss=false leaves them out",
        )
        self.lost = tuple(lost)


def check_loss(
    options: ReadOptions, topics: Sequence[tuple[PinnedTopic, Snapshot]], reader: ColdReader, now_ms: int
) -> None:
    """Raise `DataLoss` if records of the range were evicted. It names all topics and seqs.

    Raises `SeqOutOfRange` if the range of a topic begins beyond its head. If a range by time begins within a segment
    whose beginning was evicted, the check reads an index object and one chunk.
    """
    for topic, snapshot in topics:
        first, bounds = options.starting.of(topic.topic), snapshot.bounds
        if first is not None and first > bounds.head_seq + 1:
            raise SeqOutOfRange(topic.topic, first, bounds.first_seq, bounds.head_seq)
    lost = [
        (topic.topic, *evicted)
        for topic, snapshot in topics
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


@dataclass(frozen=True, slots=True)
class Loss:
    """Records of a topic that are gone. `fate` tells what happened to them."""

    name: str
    first: int
    last: int
    fate: str

    def __str__(self) -> str:
        return f"records {self.first} to {self.last} of {self.name} {self.fate}"


def continued(
    name: str, seen: Position, point: ForkPoint, snapshot: Snapshot, volumes: Volumes
) -> tuple[int, list[Loss]]:
    """Return the seq that a stream continues with, and what it lost. `snapshot` is the topic at `point`, its newest.

    Reads the commits since the stream saw the topic.
    """
    same_below = _same_below(seen, point, volumes)
    bounds = snapshot.bounds
    first = min(seen.next_seq, bounds.head_seq + 1, seen.next_seq if same_below is None else same_below)
    losses: list[Loss] = []
    if same_below is None and seen.next_seq > 1:
        losses.append(Loss(name, 1, seen.next_seq - 1, _UNKNOWN))
    elif first < seen.next_seq:
        losses.append(Loss(name, first, seen.next_seq - 1, _TRUNCATED))
    if first < bounds.evict_floor:
        losses.append(Loss(name, first, bounds.evict_floor - 1, EVICTED))
        first = bounds.evict_floor
    return first, losses


def raise_losses(losses: Iterable[Loss]) -> None:
    """Raise `DataLoss` if there are losses. It names all topics that lost records in the same way as the first."""
    all_losses = list(losses)
    if all_losses:
        lost = [(loss.name, loss.first, loss.last) for loss in all_losses if loss.fate == all_losses[0].fate]
        raise DataLoss(lost, all_losses[0].fate, hint=_HINT)


def _same_below(seen: Position, point: ForkPoint, volumes: Volumes) -> int | None:
    """Return the seq below which the topic has the records that the stream saw. None if nothing tells.

    It may lie above the position.
    """
    try:
        if seen.vid == point.vid:
            commits = volumes.commits(point.vid, seen.lsn + 1, point.lsn)
            cuts = (stored.commit.truncate_from for stored in commits)
            return min((cut for cut in cuts if cut is not None), default=seen.next_seq)
        return _parted_from(seen, point, volumes)
    except HistoryCollected:
        return None
    except (InvalidObject, NoSuchObject):
        if volumes.boundary(point.vid) > seen.lsn + 1:
            return None
        raise


def _parted_from(seen: Position, point: ForkPoint, volumes: Volumes) -> int | None:
    """Return the seq from which the history of `point` parts from the volume that the stream saw."""
    history = volumes.history(point.vid, point.lsn)
    lowest = seen.next_seq
    for past in history:
        if past.cut_seq is not None:
            lowest = min(lowest, past.cut_seq + 1)
        if past.commit.vid == seen.vid and past.commit.lsn <= seen.lsn:
            return lowest if past.commit.lsn == seen.lsn else min(lowest, past.head_seq + 1)
        if past.commit.truncate_from is not None:
            lowest = min(lowest, past.commit.truncate_from)
    return None if history.is_cut else 1
