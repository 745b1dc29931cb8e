"""The forms of the files of an export.

    raw        the bytes of `seglog read`: a line feed after each record, except one that is marked as unterminated
    jsonl      the lines of `seglog read --json`: `seglog append --format jsonl` takes them again
    parquet    the columns of the export in Spark: seq, timestamp, node, tag, value, lsn

A file ends with the record that fills it. So where it ends depends on the records alone, and a run that continues makes
the same files. In Parquet, `lsn` is null for a record that no commit had.
"""

from __future__ import annotations

import enum
import importlib.util
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from offload.operations.record_text import to_json, to_line
from seglog import NotInstalled, Record

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 65_536
_GROUP_BYTES = 64 * 1024 * 1024
_ROW_BYTES = 32


class Form(enum.StrEnum):
    RAW = "raw"
    JSONL = "jsonl"
    PARQUET = "parquet"


class Sink(Protocol):
    def write(self, data: bytes, /) -> object:
        """Take all of `data`."""


class PartWriter(Protocol):
    """Writes the records of one file."""

    def fill(self, records: Sequence[Record], room_bytes: int) -> tuple[int, int]:
        """Write records until one fills the room. Return their number, and how many bytes they count."""

    def close(self) -> None:
        """Write what belongs behind the records. After an error, leave the writer open."""


def check_installed(form: Form) -> None:
    """Raise `NotInstalled` if a package is missing that the form needs."""
    if form is Form.PARQUET and importlib.util.find_spec("pyarrow") is None:
        raise NotInstalled("--format parquet", "pyarrow", "parquet")


def writer_of(form: Form, sink: Sink, lsns: Sequence[tuple[int, int]]) -> PartWriter:
    """Return a writer. `lsns` are the last seq and the LSN of each segment, ascending."""
    if form is Form.PARQUET:
        return _Parquet(sink, lsns)
    return _Lines(sink, to_line if form is Form.RAW else lambda record: to_json(record).encode() + b"\n")


class _Lines:
    def __init__(self, sink: Sink, line_of: Callable[[Record], bytes]) -> None:
        self._sink = sink
        self._line_of = line_of

    def fill(self, records: Sequence[Record], room_bytes: int) -> tuple[int, int]:
        lines: list[bytes] = []
        size_bytes = 0
        for record in records:
            line = self._line_of(record)
            lines.append(line)
            size_bytes += len(line)
            if size_bytes >= room_bytes:
                break
        self._sink.write(b"".join(lines))
        return len(lines), size_bytes

    def close(self) -> None:
        """Do nothing: no byte follows the last line."""


class _Parquet:
    """A row group has as many records as fit into some bytes, wherever the batches of the reader end."""

    def __init__(self, sink: Sink, lsns: Sequence[tuple[int, int]]) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        from offload.spark.columns import export_schema

        self._lsns = lsns
        self._schema = export_schema()
        self._writer = parquet.ParquetWriter(pa.PythonFile(_Stream(sink), mode="w"), self._schema)
        self._group: list[Record] = []
        self._group_bytes = 0

    def fill(self, records: Sequence[Record], room_bytes: int) -> tuple[int, int]:
        size_bytes = count = 0
        for record in records:
            count += 1
            own = len(record.value) + len(record.tag or "") + len(record.node or "") + _ROW_BYTES
            self._group.append(record)
            self._group_bytes += own
            size_bytes += own
            if len(self._group) == _ROWS or self._group_bytes >= _GROUP_BYTES:
                self._write_group()
            if size_bytes >= room_bytes:
                break
        return count, size_bytes

    def close(self) -> None:
        self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        if self._group:
            self._writer.write_table(self._table(self._group), len(self._group))
        self._group, self._group_bytes = [], 0

    def _table(self, records: list[Record]) -> pa.Table:
        import pyarrow as pa

        columns: dict[str, Any] = {
            "seq": [record.seq for record in records],
            "timestamp": pa.array([record.ts_ms * 1000 for record in records], pa.int64()).view(
                self._schema.field("timestamp").type
            ),
            "node": [record.node for record in records],
            "tag": [record.tag for record in records],
            "value": [record.value for record in records],
            "lsn": [self._lsn(record.seq) for record in records],
        }
        return pa.Table.from_pydict(columns, self._schema)

    def _lsn(self, seq: int) -> int | None:
        index = bisect_left(self._lsns, (seq, 0))
        return self._lsns[index][1] if index < len(self._lsns) else None


class _Stream:
    """A sink as a file for Arrow."""

    closed = False

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._done = 0

    def write(self, data: bytes) -> int:
        self._sink.write(bytes(data))
        self._done += len(data)
        return len(data)

    def tell(self) -> int:
        return self._done

    def flush(self) -> None:
        """Do nothing: the sink has no buffer."""

    def close(self) -> None:
        self.closed = True
