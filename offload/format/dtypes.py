"""The structures of entries as dtypes of numpy, to read and write thousands of them at once."""

from __future__ import annotations

import numpy as np

__all__ = ["ENTRY_HEAD", "GAP"]

#: An entry and the fixed part of its frame.
ENTRY_HEAD = np.dtype(
    [
        ("length", ">u4"),
        ("entry_id", ">u8"),
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
GAP = np.dtype([("checksum", "<u8"), ("length", ">u4"), ("entry_id", ">u8")])  # between one frame's body and the next
