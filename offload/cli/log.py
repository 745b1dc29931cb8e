"""The command `seglog log`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.run import describe, each, remark, show
from offload.cli.session import TopicName, counted, format_bytes
from offload.commands import log as use
from offload.commands.log import CommitListed, SegmentListed

__all__ = ["log"]


@describe(use.log)
def log(
    context: typer.Context,
    topic: TopicName,
    branch: Annotated[str | None, typer.Option(show_default=False)] = None,
) -> None:
    volume = None
    for commit in each(context, use.log, topic=topic, branch=branch):
        if volume is not None and commit.volume != volume:
            remark(context, f"-- forked from volume {commit.volume}")
        volume = commit.volume
        show(context, commit, _describe(commit))


def _describe(commit: CommitListed) -> str:
    return (
        f"lsn {commit.lsn:<6} {commit.hash[:12]}  {commit.created_at}  {commit.kind:<9} {_what(commit)}"
        f"{'' if commit.erased_by is None else f', erased by {commit.erased_by}'}"
    ).rstrip()


def _what(commit: CommitListed) -> str:
    segments = ", ".join(map(_segment, commit.segments))
    match commit.kind:
        case "offload":
            return segments
        case "compact":
            return f"{segments} in the place of {counted(commit.removed_objects, 'object')}"
        case "evict":
            return f"records below seq {commit.evict_floor}, of {commit.at_time}"
        case "delete" if commit.before_seq:
            return f"records below seq {commit.before_seq}, of {commit.at_time}"
        case "delete":
            return f"{counted(commit.deleted_records)}, of {commit.at_time}"
    if commit.truncate_from is not None:
        return f"records from seq {commit.truncate_from} on, of {commit.at_time}"
    return commit.message


def _segment(segment: SegmentListed) -> str:
    return f"seq {segment.first_seq}-{segment.last_seq} ({format_bytes(segment.data_bytes)} {segment.codec})"
