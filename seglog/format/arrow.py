"""Records as batches of Apache Arrow. pyarrow is optional: the extra `arrow` installs it.

ARROW-1  The columns are those of the Spark source, with the same types (offload.spark.columns).
ARROW-2  A batch owns its memory. One `take` for each column copies the nodes, tags and values out of the frames.

This module does no I/O. It imports pyarrow when a function is first called.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from seglog.errors import NotInstalled
from seglog.format.arrays import Later, NDArray, np
from seglog.format.frame import HAS_NODE, HAS_TAG
from seglog.format.record_arrays import RecordArrays
from seglog.values.names import BRANCH_MARK

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa, pc = Later("pyarrow"), Later("pyarrow.compute")

__all__ = ["arrow_batches", "arrow_schema", "check_arrow", "labels", "timestamps"]

_NODE, _TAG, _VALUE = 0, 1, 2
_PARTS = 4  # of a record: node, tag, value, and all up to the next node


def check_arrow(what: str) -> None:
    """Raise `NotInstalled` if pyarrow is missing. `what` needs it."""
    if importlib.util.find_spec("pyarrow") is None:
        raise NotInstalled(what, "pyarrow", "arrow")


def arrow_schema() -> pa.Schema:
    """Return the schema of the batches of `Topic.read_arrow` and `Archive.read_arrow` (`pyarrow.Schema`).

    If pyarrow is not installed, raise `NotInstalled`.
    """
    check_arrow("arrow_schema")
    return pa.schema(
        [
            ("topic", pa.string()),
            ("seq", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("node", pa.string()),
            ("tag", pa.string()),
            ("value", pa.binary()),
        ]
    )


def arrow_batches(name: str, arrays: Iterable[RecordArrays], tag: str | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the records of the topic or branch `name`. With `tag`, yield only those with that tag.

    A trailing `*` makes `tag` a prefix.
    """
    schema, topic = arrow_schema(), name.partition(BRANCH_MARK)[0]
    for found in arrays:
        batch = pa.RecordBatch.from_arrays(_columns(topic, found), schema=schema)
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


def _columns(topic: str, found: RecordArrays) -> list[Any]:
    count = len(found)
    bounds = np.empty(_PARTS * count, np.int32)
    for part, starts in enumerate(found.places()):
        bounds[part::_PARTS] = starts
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(found.buffer)]
    parts = pa.BinaryArray.from_buffers(pa.binary(), len(bounds) - 1, buffers)
    rows, flags = np.arange(0, len(bounds), _PARTS), found.headers["flags"]
    return [
        pa.repeat(topic, count),
        pa.array(found.seqs),
        timestamps(found.headers["ts_ms"].astype(np.int64)),
        labels(parts, rows + _NODE, flags & HAS_NODE != 0),
        labels(parts, rows + _TAG, flags & HAS_TAG != 0),
        parts.take(pa.array(rows + _VALUE)),
    ]


def _has_tag(tags: pa.StringArray, tag: str) -> pa.BooleanArray:
    found = pc.starts_with(tags, tag[:-1]) if tag.endswith("*") else pc.equal(tags, tag)
    return pc.fill_null(found, False)
