"""The expiry floor of a topic's newest remote state: what `seglog.reading.expiry` is to the log.

A past state has none. It shows what was there then, as long as the PITR window keeps it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from catalog import SegmentView, Snapshot
from catalog.format import keys
from offload.format.topic_config import config_of
from offload.read.cold_reader import ColdReader

__all__ = ["expired_before", "unexpired"]


def expired_before(snapshot: Snapshot, now_ms: int, reader: ColdReader, *, is_branch: bool) -> int:
    """The seq below which all is past the topic's ttl; 1 if nothing is, or there is no ttl.

    Reads the index object, and at most one chunk, of the segment in which the floor lies. A branch's ttl counts from
    the first segment of its own. Raises what reading raises.
    """
    ttl_ms = config_of(snapshot.config, keys.commit_key(snapshot.vid, snapshot.lsn or 1)).ttl_ms
    if ttl_ms is None:
        return 1
    views = snapshot.segments
    if is_branch:
        views = tuple(view for view in views if view.vid == snapshot.vid)
    oldest_ms = now_ms - ttl_ms
    position = bisect_left(views, oldest_ms, key=lambda view: view.ref.max_ts_ms)
    if position == len(views):
        return views[-1].last + 1 if views else 1
    view = views[position]
    if view.ref.min_ts_ms < oldest_ms:
        return reader.last_seq_at(view.vid, view.ref, oldest_ms - 1) + 1
    return view.first if position else 1


def unexpired(views: tuple[SegmentView, ...], floor: int) -> list[SegmentView]:
    """What they show from the seq `floor` on."""
    return [replace(view, first=max(view.first, floor)) for view in views if view.last >= floor]
