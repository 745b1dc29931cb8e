"""A commit of a topic as commands show it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from offload.moment import Moment
from offload.operations.results import HIDDEN, OPTIONAL

if TYPE_CHECKING:
    from catalog import PastCommit
    from catalog.history import History

__all__ = ["CommitListed", "SegmentListed", "listed"]


@dataclass(frozen=True, slots=True)
class SegmentListed:
    sid: str
    first_seq: int
    last_seq: int
    data_bytes: int
    codec: str


@dataclass(frozen=True, slots=True)
class CommitListed:
    """A commit of a topic's history, which `target` means for good. The hidden fields hold the details of its kind.

    A commit of kind restore has undone the commit `undone_lsn`.
    """

    target: str

    volume: str
    lsn: int
    hash: str
    commit_kind: str
    created_at: Moment
    at_seq: int
    truncate_from: int | None
    at_time: Moment
    head_seq: int
    segments: tuple[SegmentListed, ...]
    erased_by: Moment | None
    writer: str
    epoch: int
    message: str
    evict_floor: int = field(metadata=HIDDEN)
    before_seq: int = field(metadata=HIDDEN)
    deleted_records: int = field(metadata=HIDDEN)
    removed_objects: int = field(metadata=HIDDEN)
    undone_lsn: int | None = field(metadata=OPTIONAL)


def listed(stored: PastCommit, erased_by_ms: int | None, history: History) -> CommitListed:
    """Return a commit as a command shows it. `history` is that of the topic or branch that the command shows."""
    from pyroaring import BitMap

    from catalog import CommitKind

    commit = stored.commit
    bitmaps = commit.deletions.bitmaps.values() if commit.kind is CommitKind.DELETE else ()
    return CommitListed(
        target=history.target_of(commit),
        volume=str(commit.vid),
        lsn=commit.lsn,
        hash=stored.hash.hex(),
        commit_kind=commit.kind.name.lower(),
        created_at=Moment(commit.created_at_ms),
        at_seq=commit.at_seq,
        truncate_from=commit.truncate_from,
        at_time=Moment(commit.at_ts_ms),
        head_seq=commit.bounds.head_seq,
        segments=tuple(
            SegmentListed(
                sid=str(segment.sid),
                first_seq=segment.first_seq,
                last_seq=segment.last_seq,
                data_bytes=segment.data_length,
                codec=segment.codec.name.lower(),
            )
            for segment in commit.segments
        ),
        erased_by=None if erased_by_ms is None else Moment(erased_by_ms),
        writer=commit.writer_id,
        epoch=commit.epoch,
        message=commit.message,
        evict_floor=commit.bounds.evict_floor,
        before_seq=commit.deletions.before_seq,
        deleted_records=sum(len(BitMap.deserialize(bitmap)) for bitmap in bitmaps),
        removed_objects=len(commit.removed_sids),
        undone_lsn=None if commit.restored is None else commit.restored.undone.lsn,
    )
