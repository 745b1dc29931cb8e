"""The columns of records in Apache Arrow, for the log and its client. The extra `arrow` installs pyarrow.

The columns are those of the Spark source, with the same types (offload.spark.columns). With `text`, the values are
texts.

Each function imports pyarrow, and the module does not.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from seglog.base.arguments import checked
from seglog.errors import InvalidArgument, NotInstalled

if TYPE_CHECKING:
    import pyarrow as pa


def check_arrow(needed_by: str) -> None:
    """Raise `NotInstalled` if pyarrow is missing. `needed_by` is the function that needs it."""
    if importlib.util.find_spec("pyarrow") is None:
        raise NotInstalled(needed_by, "pyarrow", "arrow")


@checked
def arrow_schema(*, text: bool = False) -> pa.Schema:
    """Return the schema of `read_arrow` (`pyarrow.Schema`), with the same `text`.

    If pyarrow is not installed, raise `NotInstalled`.
    """
    check_arrow("arrow_schema")
    import pyarrow as pa

    return pa.schema(
        [
            ("topic", pa.string()),
            ("seq", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("node", pa.string()),
            ("tag", pa.string()),
            ("value", pa.string() if text else pa.binary()),
        ]
    )


def arrow_reader(batches: Iterable[pa.RecordBatch], *, text: bool) -> pa.RecordBatchReader:
    """Return a reader of the batches, whose values are bytes. With `text`, the reader shows them as texts."""
    import pyarrow as pa

    return pa.RecordBatchReader.from_batches(arrow_schema(text=text), shown_batches(batches, text=text))


def shown_batches(batches: Iterable[pa.RecordBatch], *, text: bool) -> Iterator[pa.RecordBatch]:
    """Yield the batches. With `text`, their values become texts.

    For a value that is no UTF-8, raise `InvalidArgument`, after the records before it.
    """
    if not text:
        yield from batches
        return
    import pyarrow as pa

    schema = arrow_schema(text=True)
    index = schema.get_field_index("value")
    for batch in batches:
        values, count = batch.column(index), len(batch)
        try:
            texts = values.cast(pa.string())
        except pa.ArrowInvalid:
            count = next(row for row, value in enumerate(values.to_pylist()) if not _is_text(value))
            texts = values.slice(0, count).cast(pa.string())
        if count:
            yield batch.slice(0, count).set_column(index, schema.field(index), texts)
        if count < len(batch):
            topic, seq = batch.column(0)[count], batch.column(1)[count]
            raise InvalidArgument("text", text, f"False, because the value of record {seq} of {topic} is not UTF-8")


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
