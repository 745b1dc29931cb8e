"""Records as arrays: one buffer of frames, and for each record its header and the place of its frame.

A caller that takes thousands of records at once gets them in this form. No Python object is made for a record until
the caller asks for its value. No I/O: bytes in, bytes out.

ARRAYS-1  The maker of the arrays has verified every frame, as it does for a `Record`. Each node and tag is UTF-8.
ARRAYS-2  Only the header's `length` may differ from the buffer. All else is read there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from seglog.base.dataclasses import dataclass
from seglog.format.arrays import NDArray, dtypes, np
from seglog.format.frame import HAS_NODE, HAS_TAG, HEADER, UNTERMINATED, Buffer, FrameType
from seglog.format.frames import assembled, picked_headers
from seglog.values.deletes import MergedDeletes
from seglog.values.record import Record, in_groups

_SMALL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class RecordArrays:
    """Records of one topic, ascending. There may be none.

    `starts` (int64) are the places of the frames in `buffer`, ascending. `headers` has the dtype HEADERS.
    """

    buffer: Buffer
    starts: NDArray[np.int64]
    headers: NDArray[Any]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def seqs(self) -> NDArray[np.int64]:
        return self.headers["seq"].astype(np.int64)

    @property
    def last_seq(self) -> int:
        """Return the seq of the last record. There is at least one."""
        return int(self.headers["seq"][-1])

    def at(self, rows: NDArray[np.intp]) -> RecordArrays:
        """Return the records number `rows`, ascending."""
        if len(rows) == len(self):
            return self
        return replace(self, starts=self.starts[rows], headers=picked_headers(self.headers, rows))

    def without(self, deletes: Iterable[MergedDeletes]) -> RecordArrays:
        """Return the records that none of `deletes` reaches."""
        records = self
        for reach in deletes:
            if len(records) and reach.may_reach(int(records.headers["seq"][0])):
                mask = reach.kept(records.seqs.tolist(), records._tags() if reach.has_tags else None)
                records = records if mask is None else records.at(np.flatnonzero(mask))
        return records

    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return where the node, the tag and the value of each record begin in the buffer, and where the value ends."""
        nodes = self.starts + np.int64(HEADER.size)
        tags = nodes + self.headers["node_len"]
        values = tags + self.headers["tag_len"]
        return nodes, tags, values, values + self.headers["data_len"]

    def lines(self) -> bytes:
        """Return the values with a line feed after each, except after the unterminated ones."""
        _, _, starts, ends = self.places()
        values = _cut(self.buffer, starts, ends)
        is_unterminated = self.headers["flags"] & UNTERMINATED != 0
        if not is_unterminated.any():
            return b"\n".join([*values, b""])
        feeds = [b"" if flag else b"\n" for flag in is_unterminated.tolist()]
        return b"".join(chain.from_iterable(zip(values, feeds, strict=True)))

    def labels_are_text(self) -> bool:
        """Tell whether each node and tag is UTF-8."""
        nodes, tags, values, _ = self.places()
        for starts, ends, flag in ((nodes, tags, HAS_NODE), (tags, values, HAS_TAG)):
            rows = np.flatnonzero(self.headers["flags"] & flag)
            try:
                # No part of a character survives next to a NUL, so the whole is UTF-8 iff each label is.
                str(b"\0".join(_cut(self.buffer, starts[rows], ends[rows])), "utf-8")
            except UnicodeDecodeError:
                return False
        return True

    def _tags(self) -> list[str | None]:
        _, starts, ends, _ = self.places()
        flags = (self.headers["flags"] & HAS_TAG).tolist()
        tags = zip(_cut(self.buffer, starts, ends), flags, strict=True)
        return [str(tag, "utf-8") if is_there else None for tag, is_there in tags]


def arrays_of_records(records: Sequence[Record]) -> RecordArrays:
    """Return records as arrays."""
    headers = np.zeros(len(records), dtypes.HEADERS)
    headers["type"] = int(FrameType.APPEND)
    contents: list[bytes] = []
    for header, record in zip(headers, records, strict=True):
        node, tag = (record.node or "").encode(), (record.tag or "").encode()
        flags = (HAS_NODE if record.node is not None else 0) | (HAS_TAG if record.tag is not None else 0)
        header["flags"] = flags | (UNTERMINATED if record.unterminated else 0)
        header["seq"], header["ts_ms"] = record.seq, record.ts_ms
        header["node_len"], header["tag_len"], header["data_len"] = len(node), len(tag), len(record.value)
        contents.append(node + tag + record.value)
    frames = assembled(headers, contents)
    return RecordArrays(frames.buffer, frames.starts, frames.headers)


def in_arrays(records: Iterable[Record]) -> Iterator[RecordArrays]:
    """Yield records as arrays, up to a MiB at a time. Raises as `in_groups` does."""
    return map(arrays_of_records, in_groups(records))


def _cut(buffer: Buffer, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> list[Buffer]:
    """Return the pieces of a buffer.

    Views copy no bytes, but the garbage collector looks at each one again and again. So small pieces are copies.
    """
    is_large = len(buffer) > _SMALL_BYTES * len(starts)
    source: Buffer = memoryview(buffer) if is_large else bytes(buffer)
    return [source[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
