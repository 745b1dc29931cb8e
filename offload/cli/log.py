"""The output of `seglog log`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from offload.cli.graph import graphed
from offload.operations.commits import CommitListed, SegmentListed
from offload.operations.graph import GraphedCommit
from offload.operations.parameters import with_branch
from offload.operations.printing import Output, lines, rows
from offload.operations.segments import SegmentShown
from offload.operations.units import counted, format_bytes

__all__ = ["commit_text", "print_commits", "print_segments", "print_shown"]


def print_commits(output: Output, results: Iterator[CommitListed | GraphedCommit], values: Mapping[str, Any]) -> None:
    volume = None
    for found in results:
        commit = found.commit if isinstance(found, GraphedCommit) else found
        is_graphed = isinstance(found, GraphedCommit)  # the lines say which volume it is
        text = commit_text(replace(commit, target=f"lsn:{commit.lsn}") if is_graphed else commit)
        text += f"\n{_stat(commit)}" if values["stat"] else ""
        if isinstance(found, GraphedCommit):
            text = graphed(found, text)
        elif volume is not None and commit.volume != volume:
            output.remark(f"-- forked from volume {commit.volume}")
        volume = commit.volume
        output.show(found, text)
    if volume is None and not _is_filtered(values):
        output.note(f"{with_branch(values['topic'], values['branch'])}: nothing is offloaded yet")


def _is_filtered(values: Mapping[str, Any]) -> bool:
    return any(values[name] is not None for name in ("since", "until", "kind", "record"))


def shown_text(commit: CommitListed) -> str:
    """Return one commit with all that it says."""
    lines = [commit_text(commit), _stat(commit), f"    volume {commit.volume}, hash {commit.hash}"]
    lines.append(f"    the topic at {commit.at_time}: head seq {commit.head_seq}, operation at seq {commit.at_seq}")
    lines += [f"    object {each.sid}: {_segment(each)}" for each in commit.segments]
    return "\n".join(lines)


def _stat(commit: CommitListed) -> str:
    records = sum(segment.last_seq - segment.first_seq + 1 for segment in commit.segments)
    size = format_bytes(sum(segment.data_bytes for segment in commit.segments))
    parts = [f"{counted(records)} in {size}"] if records else []
    parts.append(f"by {commit.writer}, epoch {commit.epoch}")
    return f"    {', '.join(parts)}{f': {commit.message}' if commit.message else ''}"


def commit_text(commit: CommitListed) -> str:
    name = commit.target.replace(":", " ")
    return (
        f"{name:<10} {commit.hash[:12]}  {commit.created_at}  {commit.commit_kind:<9} {_what(commit)}"
        f"{'' if commit.erased_by is None else f', erased by {commit.erased_by}'}"
    ).rstrip()


def _what(commit: CommitListed) -> str:
    segments = ", ".join(map(_segment, commit.segments))
    match commit.commit_kind:
        case "offload":
            return segments
        case "compact":
            return f"{segments} in the place of {counted(commit.removed_objects, 'object')}"
        case "evict":
            return f"records below seq {commit.evict_floor}, of {commit.at_time}"
        case "restore":
            return f"takes back lsn {commit.undone_lsn}, of {commit.at_time}"
        case "delete" if commit.before_seq:
            return f"records below seq {commit.before_seq}, of {commit.at_time}"
        case "delete":
            return f"{counted(commit.deleted_records)}, of {commit.at_time}"
    if commit.truncate_from is not None:
        return f"records from seq {commit.truncate_from} on, of {commit.at_time}"
    return commit.message


def _segment(segment: SegmentListed) -> str:
    return f"seq {segment.first_seq}-{segment.last_seq} ({format_bytes(segment.data_bytes)} {segment.codec})"


def _segment_text(found: SegmentShown) -> str:
    seqs = f"seq {found.first_seq}-{found.last_seq}"
    return f"{seqs:<24} lsn {found.lsn:<8} {found.sid}  {format_bytes(found.data_bytes)}"


def _segment_row(found: SegmentShown) -> tuple[str, ...]:
    return str(found.first_seq), str(found.last_seq), str(found.lsn), found.sid, format_bytes(found.data_bytes)


print_shown = lines(shown_text)
print_segments = rows(("first seq", "last seq", "lsn", "segment", "size"), _segment_row, _segment_text)
