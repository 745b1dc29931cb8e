"""The rows of a DataFrame as frames, batch by batch. This module does no I/O.

    column     type              meaning
    value      binary or string  the record's bytes; never null
    tag        string or void    the record's tag, or null
    node       string or void    the record's node, or null
    timestamp  timestamp or void the record's time, in milliseconds, rounded down; null: the time of the load
    topic      string            the topic that the writer writes to, or the topic of each row
    seq        bigint            the seq that the record gets; any other one is refused

`value` is required. Any other column is refused. As in Spark, the case of a name does not count. Spark gives a column
of nulls alone the type `void`. Rows become records in the order of the DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalog import Codec
from offload.errors import InvalidOption
from offload.load import BEFORE_THE_LAST, SORT_BY_TIME, InvalidRow, most_value_bytes
from seglog.base.dataclasses import dataclass
from seglog.format.dtypes import HEADERS
from seglog.format.frame import HAS_NODE, HAS_TAG, LABEL_MAX_BYTES, FrameType
from seglog.format.frames import Frames, assembled

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "value": ("binary", "string"),
    "tag": ("string", "void"),
    "node": ("string", "void"),
    "timestamp": ("timestamp", "void"),
    "topic": ("string",),
    "seq": ("bigint",),
}
_TOPIC_ID = 1  # a frame names the topic by the number that its log gave; a load has no log
_PIECE_BYTES = 4 << 20
_MOST_VALUE_BYTES = most_value_bytes(Codec.ZSTD)
_MICROSECONDS = pa.timestamp("us", tz="UTC")


def check_columns(columns: Sequence[tuple[str, str]]) -> None:
    """Check the names and Spark types of a DataFrame's columns. Raises `InvalidOption`."""
    names = [name.lower() for name, _ in columns]
    if "value" not in names:
        hint = 'name one so: df.withColumnRenamed("…", "value"), or INSERT INTO … (value, tag)'
        raise InvalidOption("schema", "there is no column value", hint=hint)
    for name, kind in columns:
        kinds = _COLUMNS.get(name.lower())
        if kinds is None:
            hint = f"leave it out; the columns are {', '.join(_COLUMNS)}"
            raise InvalidOption("schema", f"no record has a column {name}", hint=hint)
        if kind not in kinds:
            if (name.lower(), kind) == ("value", "void"):
                raise InvalidOption(
                    "schema", "value is null in each row", hint="a record has a value, perhaps an empty one"
                )
            wanted = [each for each in kinds if each != "void"]
            raise InvalidOption("schema", f"{name} is {kind}", hint=f"cast it to {' or '.join(wanted)}")
    if len(set(names)) < len(names):
        raise InvalidOption("schema", "two columns have the same name", hint="drop one of them")


@dataclass(slots=True)
class RowFrames:
    """Makes frames of Arrow batches, from the seq `next_seq` on. It is used once.

    `newest_ms` is the time before which no row may be. `start_ms` is the time of rows without one. Value,
    tag and node of a row have at most `most_value_bytes` together.
    """

    topic: str
    next_seq: int
    start_ms: int
    newest_ms: int
    most_value_bytes: int = _MOST_VALUE_BYTES

    def frames(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Frames]:
        """Yield the frames of the rows, about 4 MiB at a time. Raises `InvalidRow`."""
        for batch in batches:
            for piece in _pieces(batch):
                yield self._frames(piece)

    def _frames(self, rows: pa.RecordBatch) -> Frames:
        named = zip(map(str.lower, rows.schema.names), rows.columns, strict=True)
        columns = {name: column for name, column in named if not pa.types.is_null(column.type)}
        self._check(columns)
        contents = _bytes_of(columns["value"])
        headers = np.zeros(len(contents), HEADERS)
        headers["type"] = int(FrameType.APPEND)
        headers["topic_id"] = _TOPIC_ID
        headers["seq"] = np.arange(self.next_seq, self.next_seq + len(contents), dtype=np.uint64)
        headers["ts_ms"] = self._times(columns.get("timestamp"), len(contents))
        headers["data_len"] = np.fromiter(map(len, contents), np.int64, len(contents))
        for name, flag in (("tag", HAS_TAG), ("node", HAS_NODE)):  # node comes before tag in a frame
            if name in columns and columns[name].null_count < len(contents):
                labels = self._labels(name, columns[name])
                headers[f"{name}_len"] = np.fromiter(map(len, labels), np.int64, len(labels))
                headers["flags"] |= columns[name].is_valid().to_numpy(zero_copy_only=False) * np.uint8(flag)
                contents = [label + content for label, content in zip(labels, contents, strict=True)]
        self.next_seq += len(contents)
        return assembled(headers, contents)

    def _check(self, columns: Mapping[str, pa.Array]) -> None:
        values = columns["value"]
        if values.null_count:
            self._refuse("value", "is null", values.is_null())
        sizes = pc.cast(pc.binary_length(values), pa.int64())
        for label in ("tag", "node"):
            if label in columns:
                sizes = pc.add(sizes, pc.fill_null(pc.binary_length(columns[label]), 0))
        too_long = pc.greater(sizes, self.most_value_bytes)
        hint = "split it, or keep it elsewhere and write its place"
        self._refuse("value", f"has more than {self.most_value_bytes} bytes, with tag and node", too_long, hint)
        if "topic" in columns:
            wrong = pc.fill_null(pc.not_equal(columns["topic"], self.topic), True)
            self._refuse("topic", f"is not {self.topic}", wrong)
        if "seq" in columns:
            assigned = pa.array(np.arange(self.next_seq, self.next_seq + len(values), dtype=np.int64))
            wrong = pc.fill_null(pc.not_equal(columns["seq"], assigned), True)
            hint = 'leave the column out: df.drop("seq"), or INSERT INTO … (value, tag)'
            self._refuse("seq", "is not the seq that the record gets", wrong, hint)

    def _times(self, column: pa.Array | None, count: int) -> NDArray[Any]:
        """Return the times in milliseconds. Raises `InvalidRow` if one falls (LOAD-7)."""
        if column is None or column.null_count == count:
            times = np.full(count, self.start_ms, np.int64)
        else:
            micros = column.cast(_MICROSECONDS).cast(pa.int64())
            filled = pc.fill_null(micros, self.start_ms * 1000)
            times = np.floor_divide(filled.to_numpy(zero_copy_only=False), 1000)
        falls = np.diff(times, prepend=self.newest_ms) < 0
        if times[0] < 0:
            self._refuse("timestamp", "is before 1970, when the times of records begin", pa.array(times < 0))
        if falls.any():
            self._refuse("timestamp", BEFORE_THE_LAST, pa.array(falls), SORT_BY_TIME)
        self.newest_ms = int(times[-1])
        return times

    def _labels(self, name: str, column: pa.Array) -> list[bytes]:
        labels = [label or b"" for label in column.cast(pa.binary()).to_pylist()]
        if max(map(len, labels)) > LABEL_MAX_BYTES:
            too_long = pa.array([len(label) > LABEL_MAX_BYTES for label in labels])
            self._refuse(name, f"has more than {LABEL_MAX_BYTES} bytes", too_long)
        return labels

    def _refuse(self, column: str, reason: str, wrong: pa.Array, hint: str | None = None) -> None:
        """Raise `InvalidRow` for the first row that is wrong, if there is one."""
        number = pc.index(wrong, True).as_py()
        if number >= 0:
            raise InvalidRow(self.next_seq + number, column, reason, hint=hint)


def _bytes_of(column: pa.Array) -> list[bytes]:
    return list((column if pa.types.is_binary(column.type) else column.cast(pa.binary())).to_pylist())


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch, so many at a time that their values have about 4 MiB."""
    value = batch.column([name.lower() for name in batch.schema.names].index("value"))
    ends = np.cumsum(np.nan_to_num(pc.binary_length(value).to_numpy(zero_copy_only=False)))
    start = 0
    while start < len(batch):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _PIECE_BYTES, "right")))
        yield batch.slice(start, stop - start)
        start = stop
