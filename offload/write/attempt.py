"""One attempt to offload a range of sealed segments, as a state machine.

    state      what is true                                                    step that follows
    PLANNED    sid and range are on record; of the objects nothing is certain  upload, then prepare
    PREPARED   data and index objects are whole; the commit that names them    publish
               is on record as the handle's pending commit
    PUBLISHED  the commit under its key is ours                                release, when the lag is over
    (gone)     the hot copy is gone, and so is the attempt's record            -

Every state is durable in the local catalog before its next step begins. So after a crash, the offloader resumes at the
last row that is true. A PLANNED attempt found at start belongs to a process that is gone. The offloader discards it
(aborts the upload, deletes the objects), and plans its range again under a fresh sid.

ATTEMPT-1  Only one attempt uses a sid, so two attempts never write the same key.
ATTEMPT-2  The publisher sends the pending commit with identical bytes until the answer is definite.
ATTEMPT-3  A hot copy is deleted only in PUBLISHED, after a read-back of commit, index object and data object.

Source: PIP-17 ("Modifications to ManagedLedger"), Graft RFC 0001 (PendingCommit). This module does no I/O.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from seglog import SegmentInfo
from seglog.base.dataclasses import dataclass


class AttemptState(enum.StrEnum):
    PLANNED = "planned"
    PREPARED = "prepared"
    PUBLISHED = "published"


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """Adjacent sealed segments that become one data object. Seqs are inclusive."""

    first_seq: int
    last_seq: int


def plan_range(
    segments: Sequence[SegmentInfo],
    offloaded_seq: int,
    up_to: int | None,
    max_bytes: int,
    max_age_ms: int | None = None,
) -> SegmentRange | None:
    """Return the next range to offload, or None: adjacent sealed segments above `offloaded_seq`, at most `max_bytes`.

    With `max_age_ms`, no two records of the range are further apart in time. The range has at least one segment,
    whatever its size and age. `up_to` bounds the range: a segment that ends above it stays out.
    """
    first = last = 0
    size_bytes = 0
    min_ts_ms = max_ts_ms = 0
    for segment in segments:
        if not segment.sealed or (up_to is not None and segment.last_seq > up_to):
            break
        if segment.last_seq <= offloaded_seq:
            continue
        if first and size_bytes + segment.data_bytes > max_bytes:
            break
        min_ts_ms = min(min_ts_ms, segment.min_ts_ms) if first else segment.min_ts_ms
        max_ts_ms = max(max_ts_ms, segment.max_ts_ms) if first else segment.max_ts_ms
        if first and max_age_ms is not None and max_ts_ms - min_ts_ms > max_age_ms:
            break
        first = first or max(segment.first_seq, offloaded_seq + 1)
        last = segment.last_seq
        size_bytes += segment.data_bytes
    return SegmentRange(first, last) if first else None


def is_due(published_at_ms: int, lag_s: int, now_ms: int) -> bool:
    """Return whether a published range's hot copy may go. If the clock went back, the copy stays longer."""
    return now_ms - published_at_ms >= lag_s * 1000
