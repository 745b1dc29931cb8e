"""Arrays of records as batches of Apache Arrow, with the columns of `seglog.values.arrow`.

ARROW-2  A batch owns its memory. One `take` for each column copies the nodes, tags and values out of the frames.

This module does no I/O. It imports pyarrow when a function is first called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from seglog.base.lazy import LazyModule
from seglog.format.arrays import NDArray, np
from seglog.format.frame import HAS_NODE, HAS_TAG
from seglog.format.record_arrays import RecordArrays
from seglog.values.arrow import arrow_reader, arrow_schema
from seglog.values.names import BRANCH_MARK

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa, pc = LazyModule("pyarrow"), LazyModule("pyarrow.compute")

_NODE, _TAG, _VALUE = 0, 1, 2
_PARTS = 4  # of a record: node, tag, value, and all up to the next node


def read_as_arrow(
    name: str, arrays: Iterable[RecordArrays], tag: str | None = None, *, text: bool = False
) -> pa.RecordBatchReader:
    """Return a reader of the records of the topic or branch `name`. With `tag`, it has only those with that tag.

    A trailing `*` makes `tag` a prefix. With `text`, the values are texts.
    """
    return arrow_reader(_batches(name, arrays, tag), text=text)


def _batches(name: str, arrays: Iterable[RecordArrays], tag: str | None) -> Iterator[pa.RecordBatch]:
    schema, topic = arrow_schema(), name.partition(BRANCH_MARK)[0]
    for records in arrays:
        batch = pa.RecordBatch.from_arrays(_columns(topic, records), schema=schema)
        if tag is not None:
            batch = batch.filter(_has_tag(batch.column("tag"), tag))
        if len(batch):
            yield batch


def labels(parts: pa.BinaryArray, places: NDArray[np.int64], is_there: NDArray[np.bool_]) -> pa.StringArray:
    """Return the texts at `places` of `parts`, and null where none is there.

    Raise `pyarrow.ArrowInvalid` if a text is not UTF-8.
    """
    if not is_there.any():
        return pa.nulls(len(places), pa.string())
    return parts.take(pa.array(places, mask=~is_there)).cast(pa.string())


def timestamps(ts_ms: NDArray[np.int64]) -> pa.TimestampArray:
    return pa.array(ts_ms * 1000).view(pa.timestamp("us", tz="UTC"))


def _columns(topic: str, records: RecordArrays) -> list[Any]:
    count = len(records)
    bounds = np.empty(_PARTS * count, np.int32)
    for part, starts in enumerate(records.places()):
        bounds[part::_PARTS] = starts
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(records.buffer)]
    parts = pa.BinaryArray.from_buffers(pa.binary(), len(bounds) - 1, buffers)
    rows, flags = np.arange(0, len(bounds), _PARTS), records.headers["flags"]
    return [
        pa.repeat(topic, count),
        pa.array(records.seqs),
        timestamps(records.headers["ts_ms"].astype(np.int64)),
        labels(parts, rows + _NODE, flags & HAS_NODE != 0),
        labels(parts, rows + _TAG, flags & HAS_TAG != 0),
        parts.take(pa.array(rows + _VALUE)),
    ]


def _has_tag(tags: pa.StringArray, tag: str) -> pa.BooleanArray:
    matches = pc.starts_with(tags, tag[:-1]) if tag.endswith("*") else pc.equal(tags, tag)
    return pc.fill_null(matches, False)
