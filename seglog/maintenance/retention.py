"""What retention wants, decided from values.

    ttl_ms                       a sealed segment goes when its newest record is older
    cap_records, cap_bytes       with discard "old", the oldest sealed segment goes as long as the cap is still filled
                                 without it; with "reject", an append that would pass a cap is refused
    segment_max_age_ms           a segment is sealed when its oldest record is older than that, or than the ttl: so what
                                 has expired gives its space back at most one ttl later

R1  Only whole sealed segments go, from the front: a topic holds up to a segment more than its cap, and the segment
    that is written is never touched.
R2  What counts is what is on this disk and may be live: from the first live record on, with the deleted ones behind it.

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
    """What a topic holds on this disk: records `first_seq` to `last_seq`, and the bytes of their frames."""

    first_seq: int
    last_seq: int
    size_bytes: int

    @property
    def records(self) -> int:
        return self.last_seq - self.first_seq + 1


@dataclass(frozen=True, slots=True)
class Retention:
    """What a call did for a topic. Seqs; 0 is none.

    `evicted_seq`: the last record that was evicted. `waiting_seq`: with `keep_history`, the last one that should go,
    and waits for the archive to have it and let it go.
    """

    topic: str
    evicted_seq: int = 0
    waiting_seq: int = 0


def due_seq(config: TopicConfig, sealed: Sequence[SegmentInfo], retained: Retained, now_ms: int) -> int:
    """The last seq of the last sealed segment that has to go; 0 if none has to."""
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
    """The cap that is passed, and its value."""
    if config.cap_records is not None and retained.records > config.cap_records:
        return "cap_records", config.cap_records
    if config.cap_bytes is not None and retained.size_bytes > config.cap_bytes:
        return "cap_bytes", config.cap_bytes
    return None


def seal_age_ms(config: TopicConfig, segment_max_age_ms: int) -> int:
    """The age at which the active segment is sealed; 0: at none."""
    return min(filter(None, (config.ttl_ms, segment_max_age_ms)), default=0)


def is_aged(oldest_ts_ms: int | None, max_age_ms: int, now_ms: int) -> bool:
    """Whether the unsealed records, of which the oldest is of that time, are to be sealed. None: there are none."""
    return max_age_ms > 0 and oldest_ts_ms is not None and oldest_ts_ms < now_ms - max_age_ms
