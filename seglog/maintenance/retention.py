"""Decide from values what retention removes.

    ttl_ms                       a sealed segment is due when its newest record is older
    cap_records, cap_bytes       with discard "old", the oldest sealed segment is due as long as the rest still fills
                                 the cap; with "reject", an append that would pass a cap is refused
    segment_max_age_ms           a segment is sealed when its oldest record is older than this, or than the ttl. So
                                 expired records free their space at most one ttl later

RETAIN-1  Retention removes only whole sealed segments, from the front. So a topic holds up to one segment more than its
    cap. Retention never touches the active segment.
RETAIN-2  Caps count the records on this disk that may be live. The count starts at the first live record and includes
    deleted records behind it.

Source: topics engine architecture, section 3.4. No I/O.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from seglog.segments.segment import SegmentInfo
from seglog.values.config import TopicConfig

__all__ = ["Retained", "Retention", "due_seq", "is_aged", "passed_cap", "seal_age_ms"]


@dataclass(frozen=True, slots=True)
class Retained:
    """The records `first_seq` to `last_seq` that a topic holds on this disk, and the bytes of their frames."""

    first_seq: int
    last_seq: int
    size_bytes: int

    @property
    def records(self) -> int:
        return self.last_seq - self.first_seq + 1


@dataclass(frozen=True, slots=True)
class Retention:
    """The result of one call for one topic. The fields are seqs; 0 means none.

    `evicted_seq` is the last record that was evicted. `waiting_seq` is the last record that is due under
    `keep_history`. It waits until the archive has it and releases it.
    """

    topic: str
    evicted_seq: int = 0
    waiting_seq: int = 0


def due_seq(config: TopicConfig, sealed: Sequence[SegmentInfo], retained: Retained, now_ms: int) -> int:
    """Return the last seq of the last sealed segment that is due, or 0 if none is."""
    due, records, size_bytes = 0, retained.records, retained.size_bytes
    start = bisect_left(sealed, retained.first_seq, key=lambda segment: segment.last_seq)
    for segment in islice(sealed, start, None):
        records -= segment.last_seq - max(segment.first_seq, retained.first_seq) + 1
        size_bytes -= segment.data_bytes
        is_old = config.ttl_ms is not None and segment.max_ts_ms < now_ms - config.ttl_ms
        is_over = (config.cap_records is not None and records >= config.cap_records) or (
            config.cap_bytes is not None and size_bytes >= config.cap_bytes
        )
        if not (is_old or (is_over and config.discard == "old")):
            break
        due = segment.last_seq
    return due


def passed_cap(config: TopicConfig, retained: Retained) -> tuple[str, int] | None:
    """Return the name and the value of a cap that is passed, or None."""
    if config.cap_records is not None and retained.records > config.cap_records:
        return "cap_records", config.cap_records
    if config.cap_bytes is not None and retained.size_bytes > config.cap_bytes:
        return "cap_bytes", config.cap_bytes
    return None


def seal_age_ms(config: TopicConfig, segment_max_age_ms: int) -> int:
    """Return the age at which the active segment is sealed. 0 means that age never seals it."""
    return min(filter(None, (config.ttl_ms, segment_max_age_ms)), default=0)


def is_aged(oldest_ts_ms: int | None, max_age_ms: int, now_ms: int) -> bool:
    """Return whether the unsealed records are old enough to seal.

    `oldest_ts_ms` is the time of the oldest one, or None if there are none.
    """
    return max_age_ms > 0 and oldest_ts_ms is not None and oldest_ts_ms < now_ms - max_age_ms
