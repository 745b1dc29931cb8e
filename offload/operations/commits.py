"""A commit of a topic as operations show it, and its texts."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from offload.moment import Moment
from offload.operations.printing import Output, counted, format_bytes, is_brief, shown_time
from offload.operations.result_json import HIDDEN, OPTIONAL
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    from catalog import PastCommit
    from catalog.history import History
    from offload.services.erasure_dates import Erasures

_NAMES = 5  # that a line shows


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

    A commit of kind restore has undone the commit `undone_lsn`. `kept_by` are the names that keep the bytes of deleted
    records, so that there is no date.
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
    kept_by: tuple[str, ...] | None = field(default=None, metadata=OPTIONAL)


def listed(stored: PastCommit, history: History, erasures: Erasures | None = None) -> CommitListed:
    """Return a commit as a command shows it. `history` is that of the topic or branch that the command shows.

    With `erasures`, tell when the bytes of deleted records are gone.
    """
    from catalog import CommitKind
    from catalog.format.lazy_imports import pyroaring

    commit = stored.commit
    erased_by_ms, kept_by = (None, ()) if erasures is None else erasures.of(stored)
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
        deleted_records=sum(len(pyroaring.BitMap.deserialize(bitmap)) for bitmap in bitmaps),
        removed_objects=len(commit.removed_sids),
        undone_lsn=None if commit.restored is None else commit.restored.undone.lsn,
        kept_by=kept_by or None,
    )


def stat_text(commit: CommitListed) -> str:
    records = sum(segment.last_seq - segment.first_seq + 1 for segment in commit.segments)
    size = format_bytes(sum(segment.data_bytes for segment in commit.segments))
    parts = [f"{counted(records)} in {size}"] if records else []
    parts.append(f"by {commit.writer}, epoch {commit.epoch}")
    return f"    {', '.join(parts)}{f': {commit.message}' if commit.message else ''}"


def commit_text(commit: CommitListed, output: Output | None = None) -> str:
    """Return a commit as a line. A terminal gets neither hashes nor volumes, and relative times."""
    at, gone = shown_time(output, commit.created_at), ""
    name = f"lsn {commit.lsn}{'@…' if '@' in commit.target else ''}"
    if not is_brief(output):
        name = f"{commit.target.replace(':', ' '):<10} {commit.hash[:12]} "
    if commit.erased_by is not None:
        gone = f", erased {'' if is_brief(output) else 'by '}{shown_time(output, commit.erased_by)}"
    if commit.kept_by:
        more = f" and {len(commit.kept_by) - _NAMES} more" if len(commit.kept_by) > _NAMES else ""
        gone = f", kept by {', '.join(commit.kept_by[:_NAMES])}{more}"
    of = "" if is_brief(output) else f", of {commit.at_time}"
    return f"{name:<10} {at:<11}  {commit.commit_kind:<9} {_what(commit, of)}{gone}".rstrip()


def _what(commit: CommitListed, of: str) -> str:
    """Return what a commit did. `of` is the time of the topic then, as text."""
    segments = ", ".join(map(segment_text, commit.segments))
    match commit.commit_kind:
        case "offload":
            return segments
        case "compact":
            return f"{segments} in the place of {counted(commit.removed_objects, 'object')}"
        case "evict":
            return f"records below seq {commit.evict_floor}{of}"
        case "restore":
            return f"takes back lsn {commit.undone_lsn}{of}"
        case "delete" if commit.before_seq:
            return f"records below seq {commit.before_seq}{of}"
        case "delete":
            return f"{counted(commit.deleted_records)}{of}"
    if commit.truncate_from is not None:
        return f"records from seq {commit.truncate_from} on{of}"
    return commit.message


def segment_text(segment: SegmentListed) -> str:
    return f"seq {segment.first_seq}-{segment.last_seq} ({format_bytes(segment.data_bytes)} {segment.codec})"
