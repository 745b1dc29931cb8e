"""The expiry floor of a topic's newest remote state. `seglog.reading.times` computes it for the log.

A past state has no expiry floor. It shows its records as long as the PITR window keeps them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from catalog import SegmentView, Snapshot
from catalog.format import keys
from offload.format.topic_config import config_of

if TYPE_CHECKING:
    from offload.read.cold_reader import ColdReader


def expired_before(snapshot: Snapshot, now_ms: int, reader: ColdReader, *, is_branch: bool) -> int:
    """Return the expiry floor: every record below it is past the topic's ttl. Return 1 if no record is, or if there is
    no ttl.

    Reads the index object, and at most one chunk, of the segment that contains the floor. A branch's ttl counts from
    the first segment of its own. Raises what a cold read raises.
    """
    ttl_ms = config_of(snapshot.config, keys.commit_key(snapshot.vid, snapshot.lsn or 1)).ttl_ms
    if ttl_ms is None:
        return 1
    return first_since(own_views(snapshot) if is_branch else snapshot.segments, now_ms - ttl_ms, reader)


def own_views(snapshot: Snapshot) -> tuple[SegmentView, ...]:
    """Return the views that are not the parent's."""
    return tuple(view for view in snapshot.segments if view.vid == snapshot.vid)


def first_since(views: Sequence[SegmentView], oldest_ms: int, reader: ColdReader) -> int:
    """Return the seq after the records of `views` that are older than a time; 1 if there are none."""
    position = bisect_left(views, oldest_ms, key=lambda view: view.ref.max_ts_ms)
    if position == len(views):
        return views[-1].last + 1 if views else 1
    view = views[position]
    if view.ref.min_ts_ms < oldest_ms:
        # The objects may have older and newer records that a truncation took out of the view.
        older = min(reader.last_seq_at(view.vid, view.ref, oldest_ms - 1), view.last)
        if older >= view.first:
            return older + 1
    return view.first if position else 1


def unexpired(views: tuple[SegmentView, ...], floor: int) -> list[SegmentView]:
    """Return the part of each view from the seq `floor` on."""
    return [replace(view, first=max(view.first, floor)) for view in views if view.last >= floor]
