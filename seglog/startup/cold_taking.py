"""Which segments in a cold directory are a log's own, when it takes a directory that has no owner yet.

relocated here    the .idx has the checksum that the snapshot tells
hot here          a copy on its way, or of before a recall: .data begins with the same bytes
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from xxhash import xxh3_64_intdigest

from seglog.engine.state import TopicState
from seglog.errors import SeglogError
from seglog.files.open_file import OpenFile
from seglog.files.port import Files
from seglog.segments.segment import SegmentInfo
from seglog.tiers.cold_stores import ColdStores
from seglog.tiers.segment_store import Part, SegmentId
from seglog.values.layout import Layout

__all__ = ["take_cold"]

_COMPARED_BYTES = 4096


def take_cold(files: Files, layout: Layout, states: Iterable[TopicState], stores: ColdStores) -> None:
    """Of the log with those topics. Raises `ColdDirectoryNotApart`, `ColdDirectoryTaken`."""
    topics = {state.topic_id: state for state in states}

    def is_ours(topic_id: int, segment: SegmentId) -> bool:
        state = topics.get(topic_id)
        sealed = () if state is None else state.sealed
        info = next((info for info in sealed if info.first_seq == segment), None)
        return info is not None and _is_copy(files, layout, stores, topic_id, info)

    stores.is_ours = is_ours
    stores.claim()


def _is_copy(files: Files, layout: Layout, stores: ColdStores, topic_id: int, info: SegmentInfo) -> bool:
    store, segment = stores.store(topic_id), SegmentId(info.first_seq)
    try:
        if info.cold_check is not None:
            idx = store.read_range(segment, Part.IDX, 0, store.length(segment, Part.IDX))
            return xxh3_64_intdigest(idx) == info.cold_check
        length = min(info.data_bytes, _COMPARED_BYTES)
        hot = OpenFile(files, layout.data(topic_id, segment), os.O_RDONLY).read(length, 0)
        return hot == store.read_range(segment, Part.DATA, 0, length)
    except SeglogError:
        return False
