"""The status, in the terms of PIP-17, of each range of segments that is or becomes one data object. No I/O.

    PIP-17           here
    uid              sid
    complete         a commit of the volume names it, and its objects are whole
    deleted          the hot copy is gone
    timestamp        when the attempt began

If a later commit merged a run into another, or truncated all of it, the run is no longer listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from catalog import Attempt, Commit, SegmentRef
from offload.reports import RunStatus

__all__ = ["run_statuses"]


def run_statuses(
    known: Iterable[SegmentRef], commits: Iterable[Commit], attempts: Iterable[Attempt], hot_floor: int
) -> tuple[RunStatus, ...]:
    """Return the runs of a volume: its own segments, its commits after that, and the attempts for it; ascending.

    Records below `hot_floor` are not hot.
    """
    found = {str(segment.sid): _complete(segment, hot_floor) for segment in known}
    for commit in commits:
        for sid in commit.removed_sids:
            found.pop(str(sid), None)
        if commit.truncate_from is not None:
            found = dict(_cut(found, commit.truncate_from))
        again = [view.ref for view in commit.restored_views if view.vid == commit.vid]
        found.update((str(segment.sid), _complete(segment, hot_floor)) for segment in (*commit.segments, *again))
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


def _cut(runs: Mapping[str, RunStatus], seq: int) -> Iterator[tuple[str, RunStatus]]:
    """Yield the runs without the records from `seq` on."""
    for sid, run in runs.items():
        if run.first_seq < seq:
            yield sid, replace(run, last_seq=min(run.last_seq, seq - 1))


def _complete(segment: SegmentRef, hot_floor: int) -> RunStatus:
    return RunStatus(
        str(segment.sid),
        segment.first_seq,
        segment.last_seq,
        complete=True,
        hot_deleted=segment.last_seq < hot_floor,
        timestamp_ms=segment.sid.created_ms,
    )
