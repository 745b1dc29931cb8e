"""The structures of frames and index entries as dtypes of numpy, to read thousands of them at once."""

from __future__ import annotations

import numpy as np

from seglog.format.frame import FrameType

#: seglog.format.frame.HEADER as a dtype.
HEADERS = np.dtype(
    [
        ("length", "<u4"),
        ("type", "u1"),
        ("flags", "u1"),
        ("topic_id", "<u8"),
        ("seq", "<u8"),
        ("ts_ms", "<u8"),
        ("node_len", "<u2"),
        ("tag_len", "<u2"),
        ("data_len", "<u4"),
    ]
)
BODY_HEADS = np.dtype(HEADERS.descr[1:])  # a header without its length
RAW_HEADERS = np.dtype((np.void, HEADERS.itemsize))
BETWEEN = np.dtype([("checksum", "<u8"), ("length", "<u4")])  # of one body and the next
RAW_BODY_HEADS, RAW_BETWEEN = (np.dtype((np.void, each.itemsize)) for each in (BODY_HEADS, BETWEEN))
#: Between the values of two records without labels: the checksum of the first frame, and the header of the second.
JOINTS = np.dtype([*BETWEEN.descr, *BODY_HEADS.descr])
JOINT_PARTS = np.dtype([("between", RAW_BETWEEN), ("head", RAW_BODY_HEADS)])

#: seglog.format.index.ENTRY as a dtype.
ENTRIES = np.dtype([("offset", "<u4"), ("length", "<u4"), ("ts_ms", "<u8"), ("flags", "u1"), ("check", "u1", (3,))])
HASHED_ENTRIES = np.dtype([("seq", "<u8"), ("plain", "V17")])  # an entry without its check

#: A row of seglog.engine.tail.
ROWS = np.dtype([("file", "<u8"), ("offset", "<u4"), ("length", "<u4"), ("ts_ms", "<u8")])

#: Indexed by frame type: true for every type except Append, UNIT and sync mark.
OTHERS = np.array([kind not in (FrameType.APPEND, FrameType.UNIT, FrameType.SYNC_MARK) for kind in range(256)])
