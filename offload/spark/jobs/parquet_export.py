"""Export to Parquet by day: files of a topic and a UTC day, and a manifest of the seqs that they hold.

    <target>/day=2026-11-22/topic=orders/seqs-<first>-<last>.parquet    records of a range of seqs, of that day
    <target>/_seglog/<number>.json                                      the manifest (offload.spark.jobs.export_target)

The columns of a file are seq, timestamp, node, tag, value and lsn. Spark adds day and topic from the path, and reads
nothing below `_seglog`. The topic of a branch is `orders@fix`.

EXPORT-1  A round's files are whole before the manifest lists them. The next run begins behind the manifest's seqs.
    So no record is exported twice, and none is left out.
EXPORT-2  A file with such a name that the manifest does not list is left from a run that was killed. The next run
    deletes it. So a target takes one run at a time.
EXPORT-3  An export is a copy. Later deletes and merges do not reach it.
EXPORT-4  If exported records were truncated since, or the topic has another volume by now: `ExportOutdated`.
EXPORT-5  If records were evicted after the last export and before this one: `DataLoss`, unless the caller skips them.
DAY-1  An executor writes one file for each day of its task. Two attempts at one task write the same records to the same
    name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

from catalog.format.commit import CommitKind
from offload.errors import ExportOutdated, InvalidOption
from offload.spark.columns import EXPORT_COLUMNS, export_schema
from offload.spark.data_loss import DataLoss
from offload.spark.jobs.export_target import Exported, ExportedFile, ExportTarget, target_of
from offload.spark.jobs.progress import in_rounds
from offload.spark.jobs.topics import AtLeastOne, PinnedRemote, job_options, pinned
from offload.spark.options import Positions, ReadOptions, TopicPattern
from offload.spark.pin import PinnedTopic
from offload.spark.query_plan import Plan, Query
from offload.spark.task import Task
from seglog.base.arguments import checked
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

_TASK_BYTES = 128 * 1024 * 1024  # a task holds its records in memory
_EPOCH = date(1970, 1, 1)
_DAY_US = 24 * 3600 * 1_000_000


@dataclass(frozen=True, slots=True)
class ExportedDay:
    """The files that a run wrote for a topic and a day."""

    topic: str
    day: str
    first_seq: int
    last_seq: int
    files: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The days that a run wrote, ascending by topic. `topics` also counts the topics that missed nothing."""

    rows: tuple[ExportedDay, ...]
    topics: int
    files: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class MissingPart:
    """The seqs of a topic that the target does not have yet. `bytes` counts decompressed chunks."""

    topic: str
    first_seq: int
    last_seq: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PlannedExport:
    """The result of a dry run."""

    rows: tuple[MissingPart, ...]


@dataclass(frozen=True, slots=True)
class _Missing:
    """The part of a topic that the target does not have. The export has it up to `up_to` when the part is written."""

    name: str
    topic: PinnedTopic
    first_seq: int
    up_to: int
    plan: Plan


@checked
def export(
    spark: Any,
    remote: str,
    target: str,
    topic: str = "*",
    *,
    branch: str | None = None,
    version: str | int | None = None,
    as_of: str | None = None,
    skip_lost: bool = False,
    task_bytes: AtLeastOne = _TASK_BYTES,
    kms_key_id: str = "",
    dry_run: bool = False,
) -> ExportResult | PlannedExport:
    """Write the records that `target` does not have yet as Parquet, by day and topic.

    `target` is s3://bucket/prefix, or a URL or an absolute path that Arrow can write to, such as file:///exports. The
    other arguments choose topics and versions as those of `statistics` do. The manifest resumes a killed run.
    The objects of an export to s3:// carry `kms_key_id`.

    Raises `InvalidOption`, `NoSuchTopic`, `ExportOutdated`, `DataLoss` (EXPORT-5), and what the store raises.
    """
    if f"{target}/".startswith(f"{remote.rstrip('/')}/"):
        raise InvalidOption("target", f"{target} lies in the remote", hint="name a place beside it")
    options = replace(job_options(remote, topic, branch, version, as_of, kms_key_id), max_task_bytes=task_bytes)
    with ExitStack() as stack:
        place = stack.enter_context(closing(ExportTarget(target, kms_key_id)))
        exported = place.exported(remote)
        found = stack.enter_context(pinned(options))
        missing = list(_missing(found, replace(options, fail_on_data_loss=not skip_lost), exported))
        if dry_run:
            return PlannedExport(tuple(_told(part) for part in missing if part.plan.tasks))
        place.remove_remains(exported)
        files = list(_written(spark, place, missing))
        return _result(files, len(found.topics))


def _missing(found: PinnedRemote, options: ReadOptions, exported: Exported) -> Iterator[_Missing]:
    for topic in found.topics:
        name = topic.full_name
        head_seq = found.snapshot(topic).bounds.head_seq
        known = exported.topics.get(name)
        if known is not None:
            _check_same(found, topic, name, known, head_seq)
            if known["up_to"] >= head_seq:
                continue
        first_seq = known["up_to"] + 1 if known else 0
        wanted = replace(options, topics=(TopicPattern(topic.topic, topic.branch),), starting=Positions(first_seq))
        try:
            plan = found.remote.plan(wanted, replace(found.pin, topics=(topic,)), Query(frozenset(EXPORT_COLUMNS)))
        except DataLoss as loss:
            loss.hint = "--skip-lost, or skip_lost=True, exports the records after them"
            raise
        yield _Missing(name, topic, first_seq, head_seq, plan)


def _check_same(found: PinnedRemote, topic: PinnedTopic, name: str, known: dict[str, Any], head_seq: int) -> None:
    """Raise `ExportOutdated` if the export has records that the topic no longer has (EXPORT-4)."""
    vid, lsn, volumes = topic.point.vid, topic.point.lsn, found.remote.volumes
    if known["vid"] != str(vid):
        raise ExportOutdated(name, f"it has volume {vid} now, and had {known['vid']}")
    first_lsn = max(known["lsn"], volumes.boundary(vid)) + 1
    for stored in volumes.commits(vid, first_lsn, lsn) if first_lsn <= lsn else ():
        commit = stored.commit
        if commit.kind is CommitKind.TRUNCATE and (commit.truncate_from or 0) <= known["up_to"]:
            raise ExportOutdated(name, f"lsn {commit.lsn} truncated the records from seq {commit.truncate_from} on")
    if lsn >= known["lsn"] and head_seq < known["up_to"]:
        raise ExportOutdated(name, f"it ends at seq {head_seq} now")


def _written(spark: Any, place: ExportTarget, missing: list[_Missing]) -> Iterator[ExportedFile]:
    """Write the missing parts, with an object of the manifest for each round. Yield the files."""
    topics = {part.name: part.topic for part in missing}
    units = [_TopicPart.of(part.name, task) for part in missing for task in part.plan.tasks]
    work = partial(_write_part, place.url, place.kms_key_id)
    for pairs in in_rounds(spark, units, work, lambda unit: unit.task.raw_bytes, 1):
        files = [file for _, written in pairs for file in written]
        place.record({unit.name: (topics[unit.name], unit.last) for unit, _ in pairs}, files)
        yield from files
    if missing:
        place.record({part.name: (part.topic, part.up_to) for part in missing}, [])


def _told(part: _Missing) -> MissingPart:
    return MissingPart(part.name, max(part.first_seq, 1), part.up_to, part.plan.rows, part.plan.raw_bytes)


def _result(files: list[ExportedFile], topics: int) -> ExportResult:
    groups: dict[tuple[str, str], list[ExportedFile]] = {}
    for file in files:
        groups.setdefault((file.topic, file.day), []).append(file)
    rows = [
        ExportedDay(
            topic,
            day,
            min(file.first_seq for file in group),
            max(file.last_seq for file in group),
            len(group),
            sum(file.records for file in group),
            sum(file.bytes for file in group),
        )
        for (topic, day), group in sorted(groups.items())
    ]
    return ExportResult(
        tuple(rows), topics, len(files), sum(row.records for row in rows), sum(row.bytes for row in rows)
    )


@dataclass(frozen=True, slots=True)
class _TopicPart:
    """A task of one topic. `name` is the topic, with its branch if that is not main."""

    name: str
    first: int
    last: int
    task: Task

    @classmethod
    def of(cls, name: str, task: Task) -> Self:
        return cls(name, task.pieces[0].first, task.pieces[-1].last, task)


def _write_part(target: str, kms_key_id: str, part: _TopicPart) -> list[ExportedFile]:
    """Write the files of a part, and return them. Raises the errors of the scan and of the target."""
    from offload.spark.scan import scan

    days: dict[int, list[pa.RecordBatch]] = {}
    for batch in scan(part.task, export_schema()):
        for day, records in _by_day(batch):
            days.setdefault(day, []).append(records)
    place = target_of(target, kms_key_id)
    return [_write(place, part, day, batches) for day, batches in sorted(days.items())]


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the parts of a batch, each of one day. The day counts from 1970."""
    import numpy as np
    import pyarrow as pa

    days = batch.column("timestamp").view(pa.int64()).to_numpy() // _DAY_US
    starts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
    for start, end in pairwise(starts):
        yield int(days[start]), batch.slice(start, end - start)


def _write(place: ExportTarget, part: _TopicPart, day: int, batches: list[pa.RecordBatch]) -> ExportedFile:
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.Table.from_batches(batches)
    text = (_EPOCH + timedelta(days=day)).isoformat()
    name = f"day={text}/topic={part.name}/seqs-{part.first:016d}-{part.last:016d}.parquet"
    written = pa.BufferOutputStream()
    parquet.write_table(table, written)
    body = written.getvalue().to_pybytes()
    place.files.put(name, body)
    seqs = table.column("seq")
    return ExportedFile(name, part.name, text, seqs[0].as_py(), seqs[-1].as_py(), len(table), len(body))
