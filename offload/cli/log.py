"""The command `seglog log`."""

from __future__ import annotations

from typing import Annotated

import typer
from pyroaring import BitMap

from catalog import CommitKind, PastCommit, SegmentRef
from offload.cli.session import TopicName, counted, emit, format_bytes, format_time, session_of, with_branch

__all__ = ["log"]


def log(
    context: typer.Context,
    topic: TopicName,
    branch: Annotated[
        str | None, typer.Option(help="The branch; the same as TOPIC@BRANCH.", show_default=False)
    ] = None,
) -> None:
    """Show the commits that made a topic what it is, newest first. Each LSN is a target for restore and read --at."""
    session = session_of(context)
    name = with_branch(topic, branch)
    with session.archive(read_only=True) as (_, archive):
        volume, erasures = None, archive.erasures(name)
        for stored in archive.history(name):
            if volume is not None and stored.commit.vid != volume and not session.as_json:
                emit(session, {}, f"-- forked from volume {stored.commit.vid}")
            volume = stored.commit.vid
            erased_by = erasures.date_ms(stored)
            emit(session, _fields(stored, erased_by), _describe(stored, erased_by))


def _describe(stored: PastCommit, erased_by: int | None) -> str:
    commit = stored.commit
    return (
        f"lsn {commit.lsn:<6} {stored.hash.hex()[:12]}  {format_time(commit.created_at_ms)}  "
        f"{commit.kind.name.lower():<9} {_what(stored)}"
        f"{'' if erased_by is None else f', erased by {format_time(erased_by)}'}"
    ).rstrip()


def _what(stored: PastCommit) -> str:
    commit = stored.commit
    if commit.kind is CommitKind.OFFLOAD:
        return ", ".join(map(_segment, commit.segments))
    if commit.kind is CommitKind.COMPACT:
        return (
            f"{', '.join(map(_segment, commit.segments))} in the place of {counted(len(commit.removed_sids), 'object')}"
        )
    if commit.kind is CommitKind.EVICT:
        return f"records below seq {commit.bounds.evict_floor}, of {format_time(commit.at_ts_ms)}"
    if commit.kind is CommitKind.DELETE:
        if commit.deletions.before_seq:
            return f"records below seq {commit.deletions.before_seq}, of {format_time(commit.at_ts_ms)}"
        count = sum(len(BitMap.deserialize(bitmap)) for bitmap in commit.deletions.bitmaps.values())
        return f"{counted(count)}, of {format_time(commit.at_ts_ms)}"
    if commit.truncate_from is not None:
        return f"records from seq {commit.truncate_from} on, of {format_time(commit.at_ts_ms)}"
    return commit.message


def _segment(segment: SegmentRef) -> str:
    size, codec = format_bytes(segment.data_length), segment.codec.name.lower()
    return f"seq {segment.first_seq}-{segment.last_seq} ({size} {codec})"


def _fields(stored: PastCommit, erased_by: int | None) -> dict[str, object]:
    commit = stored.commit
    return {
        "volume": str(commit.vid),
        "lsn": commit.lsn,
        "hash": stored.hash.hex(),
        "kind": commit.kind.name.lower(),
        "created_at": format_time(commit.created_at_ms),
        "at_seq": commit.at_seq,
        "truncate_from": commit.truncate_from,
        "at_time": format_time(commit.at_ts_ms),
        "head_seq": commit.bounds.head_seq,
        "segments": [
            {
                "sid": str(segment.sid),
                "first_seq": segment.first_seq,
                "last_seq": segment.last_seq,
                "data_bytes": segment.data_length,
                "codec": segment.codec.name.lower(),
            }
            for segment in commit.segments
        ],
        "erased_by": None if erased_by is None else format_time(erased_by),
        "writer": commit.writer_id,
        "epoch": commit.epoch,
        "message": commit.message,
    }
