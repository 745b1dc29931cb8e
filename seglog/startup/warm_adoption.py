"""The claim of a warm directory that has no owner yet. A test tells which segments there are this log's.

    relocated here    the .idx has the checksum that the manifest has
    hot here          the copy is one on its way, or from before `make_hot`: both .data begin with the same bytes

The log takes a directory with segments only if one of them is its own (WDIR-3).
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
from seglog.tiers.segment_store import Part, SegmentId
from seglog.tiers.warm_stores import WarmStores
from seglog.values.layout import Layout

__all__ = ["adopt_warm"]

_COMPARED_BYTES = 4096


def adopt_warm(files: Files, layout: Layout, states: Iterable[TopicState], stores: WarmStores) -> None:
    """Claim the warm directories for the log with these topics.

    Raises `WarmDirectoryNotApart`, `WarmDirectoryTaken`.
    """
    topics = {state.topic_id: state for state in states}

    def is_ours(topic_id: int, segment: SegmentId) -> bool:
        state = topics.get(topic_id)
        sealed = () if state is None else state.sealed
        info = next((info for info in sealed if info.first_seq == segment), None)
        return info is not None and _is_copy(files, layout, stores, topic_id, info)

    stores.is_ours = is_ours
    stores.claim()


def _is_copy(files: Files, layout: Layout, stores: WarmStores, topic_id: int, info: SegmentInfo) -> bool:
    """Tell whether the segment in the store is this log's. If the store or a file fails, it is not."""
    store, segment = stores.store(topic_id), SegmentId(info.first_seq)
    try:
        if info.warm_check is not None:
            idx = store.read_range(segment, Part.IDX, 0, store.length(segment, Part.IDX))
            return xxh3_64_intdigest(idx) == info.warm_check
        length = min(info.data_bytes, _COMPARED_BYTES)
        hot = OpenFile(files, layout.data(topic_id, segment), os.O_RDONLY).read(length, 0)
        return hot == store.read_range(segment, Part.DATA, 0, length)
    except SeglogError:
        return False
