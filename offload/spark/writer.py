"""The writer that Spark's executors and driver run, in Python: `offload.load` with Spark's rows.

SPARKW-1  Without `partitionRows`, the rows were not counted. Then only partition 0 may have rows.
    The JVM provider counts the rows of each partition, and hands them to this writer. A session without the provider
    writes from one partition: df.coalesce(1).
SPARKW-2  Spark pickles the writer that the driver made. The tasks and the commit use that copy, in other processes.
    So the writer holds plain values, and each process opens the remote for itself.
SPARKW-3  `abort` deletes nothing. Spark also calls it after a commit whose outcome is unknown (LOAD-6).
SPARKW-4  An error brings its hint as a note, because Spark shows the traceback of the Python process.
SPARKW-5  The key of a micro-batch is the id of the query and the number of the batch. Both stay the same if the query
    starts again from its checkpoint.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyspark.sql.datasource as api
from pyspark import TaskContext
from pyspark.sql.types import StructType

from offload.errors import InvalidOption
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

    from offload.load import Load, Loaded, LoadedPart, LoadRequest

_log = logging.getLogger(__name__)
_QUERY_ID = "sql.streaming.queryId"  # Spark's names of the local properties of a query's tasks
_ONE_PARTITION = "write from one partition, df.coalesce(1), or use a session in which `register` returns jvm"
_StreamWriter: Any = getattr(api, "DataSourceStreamArrowWriter", api.DataSourceStreamWriter)


@dataclass(frozen=True, slots=True)
class LoadMessage(api.WriterCommitMessage):  # type: ignore[misc]  # pyspark's types are not followed
    """The part of one task, and the query that it belongs to; empty outside of streams."""

    part: LoadedPart
    query_id: str = ""


class SeglogWriter(api.DataSourceArrowWriter):  # type: ignore[misc]
    """Appends the rows of a DataFrame to one branch, as one load."""

    def __init__(self, options: dict[str, str], schema: StructType, *, overwrite: bool) -> None:
        self._url, self._load = opened(options, schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> LoadMessage:
        return LoadMessage(written(self._url, self._load, iterator))

    def commit(self, messages: list[Any]) -> None:
        committed(self._url, self._load, [message.part for message in messages if message is not None])

    def abort(self, messages: list[Any]) -> None:
        pass


class SeglogStreamWriter(_StreamWriter):  # type: ignore[misc]
    """Appends each micro-batch to one branch, as one load. Spark makes one for each micro-batch."""

    def __init__(self, options: dict[str, str], schema: StructType, *, overwrite: bool) -> None:
        if _StreamWriter is api.DataSourceStreamWriter:
            reason = "this Spark gives the rows of a stream to Python one by one"
            raise InvalidOption("format", reason, hint="use Spark 4.1 or newer")
        if any(name.lower() == "idempotencykey" for name in options):
            raise InvalidOption("idempotencyKey", "a stream makes a key for each micro-batch", hint="leave it out")
        self._url, self._load = opened(options, schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> LoadMessage:
        query_id = TaskContext.get().getLocalProperty(_QUERY_ID) or ""
        return LoadMessage(written(self._url, self._load, iterator), query_id)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        commits = [message for message in messages if message is not None]
        if not commits:
            return
        request = replace(self._load.request, key=f"{commits[0].query_id}:{batchId}")
        committed(self._url, replace(self._load, request=request), [message.part for message in commits])

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        pass


def opened(options: dict[str, str], schema: StructType, *, overwrite: bool) -> tuple[str, Load]:
    """Check options and columns, and open the load. Runs on the driver, before any task."""
    from offload.load import open_load, warn_of_done
    from offload.spark.row_frames import check_columns
    from offload.spark.write_options import parse_write_options

    url, request = parse_write_options(options)
    check_columns([(field.name, field.dataType.simpleString()) for field in schema.fields])
    if overwrite:
        raise InvalidOption("mode", "records are only appended", hint='use mode("append")')
    with closing(_Remote(url, request)) as remote:
        load = open_load(remote.volumes, request, writer_id=_writer_id(), now_ms=remote.now_ms())
    if load.done_seq is not None:
        warn_of_done(request, load.done_seq)
    return url, load


def written(url: str, load: Load, batches: Iterator[pa.RecordBatch]) -> LoadedPart:
    """Upload the rows of a partition. Runs in a task."""
    from offload.load import LoadedPart, most_value_bytes, write_part
    from offload.spark.row_frames import RowFrames
    from offload.spark.stores import store_of
    from seglog.files.clock import SystemClock

    partition = TaskContext.get().partitionId()
    if load.is_done:
        return LoadedPart(partition, 0)
    if load.request.rows is None and partition > 0:
        if any(len(batch) for batch in batches):
            raise InvalidOption("partitionRows", f"the rows of each partition were not counted: {_ONE_PARTITION}")
        return LoadedPart(partition, 0)
    times, most = (load.start_ms, load.newest_ms), most_value_bytes(load.codec)
    rows = RowFrames(load.request.topic, load.first_seq_of(partition), *times, most)
    store = store_of(url, load.request.kms_key_id)
    return write_part(store, load, partition, rows.frames(batches), now_ms=SystemClock().now_ms)


def committed(url: str, load: Load, parts: Sequence[LoadedPart]) -> Loaded:
    """Publish the load. Runs on the driver, after all tasks."""
    from offload.load import publish_load, warn_of_done

    with closing(_Remote(url, load.request)) as remote:
        loaded = publish_load(remote.volumes, load, parts, writer_id=_writer_id(), now_ms=remote.now_ms())
    if loaded.lsn is not None:
        _log.info("%s: seqs %d to %d, lsn %d", load.name, loaded.first_seq, loaded.last_seq, loaded.lsn)
    elif loaded.done_seq is not None and not load.is_done:
        warn_of_done(load.request, loaded.done_seq)
    return loaded


class _Remote:
    """A remote, opened for one step on the driver (SPARKW-2)."""

    def __init__(self, url: str, request: LoadRequest) -> None:
        from catalog.volume import Volumes
        from offload.spark.stores import open_remote
        from seglog.files.clock import SystemClock

        self.store = open_remote(url, request.kms_key_id)
        self.volumes = Volumes(self.store)
        self.now_ms = SystemClock().now_ms

    def close(self) -> None:
        self.store.close()


def _writer_id() -> str:
    return f"spark on {socket.gethostname()}"
