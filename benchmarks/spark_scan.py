"""How fast Spark scans a topic that is only in object storage, beside the same records in Parquet, in one session.

There are records of 200 B and of 1 KB, `--bulk-mib` of each (2 GiB by default), zstd, on `file://`. The session has two
tasks at a time. `load()` makes each frame once. So the planning of an action is in its time, and the pin is not. Each
subject has two warm-ups. CPU seconds are those of the benchmark's process and all that it started: the JVM, the
planner, Python's daemon and workers.

    subject          what it is
    seglog           our reader in the JVM as it comes: it checks each record that it reads
    verify=record    the same, and every record is read and checked, even if the query needs no data object
    verify=chunk     the same, and only chunks are checked
    Python reader    our reader in Python, which gives all columns; "narrow" gives those that the query needs
    ceiling          a Python source that yields one batch again and again: benchmarks.spark_ceiling
    parquet          snappy, the same columns, written from the same frame
    text             one line a record, for the queries over values alone
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import spark_session
from benchmarks.cold_records import TOPIC, ColdRecords, make_cold
from benchmarks.options import Options
from benchmarks.report import Aim, Report, Row, compare
from benchmarks.runner import Figures, Rounds, in_turns, settle_disk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SUMMARY", "run"]

SUMMARY = "Spark: count, sum, groupBy and a Parquet write over a cold topic, beside Parquet, text and the Python API"

RECORD_SIZES = (200, 1024)
_WARM_UPS = 2
_PYTHON_AIM = 0.7
_SCHEMA = "topic,seq,timestamp,node,tag,value,lsn"


@dataclass(frozen=True, slots=True)
class _Query:
    """A query, the columns that it needs, and our aim: how many times as fast as Parquet.

    `ask` gets a frame and returns the answer, which must be `answer` of the records. `in_text` is the same for a file
    of lines; None if lines cannot tell.
    """

    name: str
    columns: str
    aim: float
    ask: Callable[[DataFrame], int]
    answer: Callable[[ColdRecords], int]
    in_text: Callable[[DataFrame], int] | None = None
    is_told_by_index: bool = False


def run(options: Options) -> Report:
    return spark_session.report_of_sizes(options, "spark-scan", SUMMARY, RECORD_SIZES, _of_size)


def _of_size(options: Options, spark: SparkSession, place: Path, size_bytes: int) -> list[Row]:
    (place / "remote").mkdir(parents=True)
    cold = make_cold(place / "remote", size_bytes, options.bulk_mib << 20)
    frames = _frames(spark, place, cold)
    settle_disk()
    rows: list[Row] = []
    for query in (*_QUERIES, _write_query(place / "written")):
        label = f"{size_bytes} B, {query.name}"
        subjects = {
            name: partial(_asked, query.in_text if name == "text" and query.in_text else query.ask, frame, query, cold)
            for name, frame in _subjects(spark, query, cold, frames).items()
        }
        warm_ups = 0 if options.quick else _WARM_UPS
        rows += _rows(query, label, in_turns(subjects, rounds=options.rounds, label=label, warm_ups=warm_ups))
    return rows


def _asked(ask: Callable[[DataFrame], int], frame: DataFrame, query: _Query, cold: ColdRecords) -> Figures:
    return spark_session.timed(lambda: ask(frame), query.answer(cold))


def _frames(spark: SparkSession, place: Path, cold: ColdRecords) -> dict[str, DataFrame]:
    """Return the frames of the subjects that give all columns. Parquet and text are written from ours."""
    found = {
        "seglog": spark_session.cold_frame(spark, cold.url, TOPIC),
        "verify=record": spark_session.cold_frame(spark, cold.url, TOPIC, verify="record"),
        "verify=chunk": spark_session.cold_frame(spark, cold.url, TOPIC, verify="chunk"),
        "Python reader": spark_session.cold_frame(spark, cold.url, TOPIC, reader="python"),
        "ceiling": _ceiling(spark, cold, _SCHEMA),
    }
    found["seglog"].write.parquet(str(place / "parquet"))
    found["seglog"].selectExpr("decode(value, 'UTF-8')").write.text(str(place / "text"))
    found["parquet"] = spark.read.parquet(str(place / "parquet"))
    found["text"] = spark.read.text(str(place / "text"))
    return found


def _subjects(
    spark: SparkSession, query: _Query, cold: ColdRecords, frames: Mapping[str, DataFrame]
) -> dict[str, DataFrame]:
    found = dict(frames)
    if query.in_text is None:
        del found["text"]
    if not query.is_told_by_index:
        del found["verify=record"]  # the same as without the option
    if query.columns != _SCHEMA:
        narrow = spark_session.cold_frame(spark, cold.url, TOPIC, reader="python", columns=query.columns)
        found["Python reader, narrow"] = narrow
        found["ceiling, narrow"] = _ceiling(spark, cold, query.columns)
    return found


def _ceiling(spark: SparkSession, cold: ColdRecords, columns: str) -> DataFrame:
    reader = spark.read.format("ceiling").option("rows", cold.count).option("size", cold.size_bytes)
    return reader.option("columns", columns).load()


def _rows(query: _Query, label: str, rounds: Rounds) -> list[Row]:
    there = rounds.by_subject
    beside = ("parquet", "text") if "text" in there else ("parquet",)
    rows = _compared(rounds, "seglog", label, beside, Aim(query.aim, "parquet"))
    for name in ("verify=record", "verify=chunk"):
        rows += _compared(rounds, name, f"{label}, {name}", ("parquet",)) if name in there else []
    aim = Aim(_PYTHON_AIM, "ceiling")
    rows += _compared(rounds, "Python reader", f"{label}, Python reader", ("ceiling", "parquet"), aim)
    if "ceiling, narrow" in there:
        name, yardstick = "Python reader, narrow", "ceiling, narrow"
        rows += _compared(rounds, name, f"{label}, {name}", (yardstick,), Aim(_PYTHON_AIM, yardstick))
    return rows


def _compared(rounds: Rounds, ours: str, what: str, beside: tuple[str, ...], *aims: Aim) -> list[Row]:
    """Return the rows of one subject: wall seconds, then CPU seconds."""
    called = rounds.called("seglog", ours)
    return [
        *compare(called, what, "s", "s", *beside, more_is_better=False, aims=aims),
        *compare(called, f"{what}, CPU", "s", "cpu_s", beside[0], more_is_better=False),
    ]


def _count(frame: DataFrame) -> int:
    return int(frame.count())


def _sum(expression: str, frame: DataFrame) -> int:
    [row] = frame.selectExpr(f"sum({expression})").collect()
    return int(row[0])


def _groups(frame: DataFrame) -> int:
    """Return the sum of the groups' counts. Spark collects the counts of all tags."""
    return sum(row["count"] for row in frame.groupBy("tag").count().collect())


def _write(out: Path, frame: DataFrame) -> int:
    frame.write.mode("overwrite").parquet(str(out))
    return 0


_QUERIES = (
    _Query("count(*)", "seq", 2.0, _count, lambda cold: cold.count, _count, is_told_by_index=True),
    _Query(
        "sum(length(value))",
        "value",
        1.3,
        partial(_sum, "length(value)"),
        lambda cold: cold.value_bytes,
        partial(_sum, "octet_length(value)"),
    ),
    _Query("groupBy(tag).count()", "tag", 1.0, _groups, lambda cold: cold.count, is_told_by_index=True),
)


def _write_query(out: Path) -> _Query:
    return _Query("write Parquet", _SCHEMA, 1.0, partial(_write, out), lambda _: 0)
