"""The structures of entries as dtypes of numpy, to read and write thousands of them at once."""

from __future__ import annotations

import numpy as np

from seglog.format.dtypes import BODY_HEADS

#: An entry and the fixed part of its frame, without the frame's length.
ENTRY_HEAD = np.dtype([("length", ">u4"), ("entry_id", ">u8"), *BODY_HEADS.descr])
GAP = np.dtype([("checksum", "<u8"), ("length", ">u4"), ("entry_id", ">u8")])  # between one frame's body and the next
