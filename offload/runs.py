"""What PIP-17 keeps of each run of segments that is, or is to be, one data object. No I/O.

    PIP-17           here
    uid              sid
    complete         a commit of the volume names it, and its objects are whole
    deleted          the hot copy is gone
    timestamp        when the attempt began

A run that a later commit merged into another is not listed any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from catalog import Attempt, Commit

__all__ = ["RunStatus", "run_statuses"]


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Seqs are inclusive, the time is in ms since the epoch."""

    sid: str
    first_seq: int
    last_seq: int
    complete: bool
    hot_deleted: bool
    timestamp_ms: int


def run_statuses(commits: Iterable[Commit], attempts: Iterable[Attempt], hot_floor: int) -> tuple[RunStatus, ...]:
    """Of a volume's own commits, and of the attempts for it; ascending. Records below `hot_floor` are not hot."""
    found: dict[str, RunStatus] = {}
    for commit in commits:
        for sid in commit.removed_sids:
            found.pop(str(sid), None)
        for segment in commit.segments:
            sid = segment.sid
            is_gone = segment.last_seq < hot_floor
            found[str(sid)] = RunStatus(
                str(sid),
                segment.first_seq,
                segment.last_seq,
                complete=True,
                hot_deleted=is_gone,
                timestamp_ms=sid.created_ms,
            )
    for attempt in attempts:
        run = RunStatus(
            str(attempt.sid),
            attempt.first_seq,
            attempt.last_seq,
            complete=False,
            hot_deleted=False,
            timestamp_ms=attempt.created_at_ms,
        )
        found.setdefault(run.sid, run)
    return tuple(sorted(found.values(), key=lambda run: (run.first_seq, run.timestamp_ms)))
