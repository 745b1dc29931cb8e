"""The charts of docs/benchmarks.md, drawn from the tables of benchmarks/results: `python -m benchmarks charts`.

A chart is an SVG whose words are text. The same tables give the same bytes, so that a test sees a chart that is out of
date. The colours are at 3:1 or more on white and on near black. seglog is blue. What the machine itself allows, such as
the bare disk, is orange. Anything else is grey.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.document import RESULTS, page_of, table, tables
from benchmarks.report import Report, Row, number, short

__all__ = ["CHARTS", "COLOURS", "FIGURES", "Bar", "Chart", "drawn", "svg", "write"]

FIGURES = Path("docs/figures")
COLOURS = {"seglog": "#4a90c2", "limit": "#c2853a", "other": "#858585"}

_WIDTH, _LABELS_END, _LONGEST = 760, 190, 300
_BAR, _LINE = 16, 24  # a bar is lower than its line
_UNITS = {"us": "µs", "records/s": "records a second"}
_LESS = {"us", "ms", "s", "requests"}
#: What a yardstick is called beside its bar, and the colour of the bar.
_YARDSTICKS = {
    "raw": ("bare disk", "limit"),
    "bare": ("bare event loop", "limit"),
    "cat": ("cat, no checks", "limit"),
    "8 MiB x 16": ("16 GETs at a time", "limit"),
    "1 MiB x 1": ("one GET of 1 MiB", "other"),
    "4 MiB x 1": ("one GET of 4 MiB", "other"),
    "upload_fileobj": ("boto3", "other"),
    "hundred": ("100 commits", "other"),
    "python -c pass": ("python -c pass", "limit"),
    "call": ("in process", "limit"),
    "sqlite": ("SQLite", "other"),
    "rocksdb": ("RocksDB", "other"),
    "lmdb": ("LMDB", "other"),
    "jetstream": ("NATS JetStream", "other"),
    "streams": ("Durable Streams", "other"),
    "parquet": ("Parquet", "other"),
    "no proxy": ("at the bucket", "other"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure of a row: seglog's under the name `label`, or the yardstick's if there is one."""

    what: str
    label: str = "seglog"
    yardstick: str | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars from one table, in groups with a heading each. All have the same unit, and one scale from zero."""

    name: str
    title: str
    unit: str
    table: str
    groups: tuple[tuple[str, tuple[Bar, ...]], ...]


def _beside(what: str, *yardsticks: str, label: str = "seglog") -> tuple[Bar, ...]:
    return (Bar(what, label), *(Bar(what, _YARDSTICKS[name][0], name) for name in yardsticks))


_STORES = ("raw", "sqlite", "rocksdb", "lmdb")
_PATHS = "30 ms, 85 MB/s"
CHARTS = (
    Chart("append-latency", "One append, acked at fsync: the median", "us", "append", (
        ("records of 200 B", _beside("one appender, 200 B, p50", *_STORES, "jetstream")),
        ("records of 1 KB", _beside("one appender, 1024 B, p50", *_STORES, "jetstream")),
    )),
    Chart("append-batches", "Batches, acked at fsync", "records/s", "append", (
        ("64 records of 200 B", _beside("batches of 64, 200 B", *_STORES)),
        ("1,024 records of 1 KB", _beside("batches of 1,024, 1024 B", *_STORES)),
    )),
    Chart("append-threads", "Threads that append 200 B at fsync", "records/s", "append", tuple(
        (heading, _beside(f"{heading}, 200 B", *_STORES)) for heading in ("1 thread", "16 threads", "64 threads")
    )),
    Chart("append-tasks", "256 asyncio tasks that append at fsync", "records/s", "append", (
        ("records of 200 B", _beside("asyncio, 256 tasks, 200 B", "bare", *_STORES, "jetstream")),
        ("records of 1 KB", _beside("asyncio, 256 tasks, 1024 B", "bare", *_STORES, "jetstream")),
    )),
    Chart("read", "Reads of local records of 1 KB, each verified", "MB/s", "read", (
        ("from the page cache", (
            *(Bar(f"{what}, 1024 B", label) for what, label in (
                ("records", "records"), ("batches", "lists"), ("lines", "lines"), ("arrow", "Arrow"),
                ("frames", "whole frames"),
            )),
            Bar("frames, 1024 B", "cat, no checks", "cat"),
        )),
    )),
    Chart("cold-scan", "A scan of offloaded records of 1 KB, verified", "MB/s", "cold-scan", (
        ("30 ms to the first byte, 85 MB/s a connection", (
            *_beside(f"chunks, {_PATHS}", label="chunks"), *_beside(f"records, {_PATHS}", label="records"),
            *_beside(f"chunks, {_PATHS}", "8 MiB x 16", "1 MiB x 1", "4 MiB x 1")[1:],
        )),
        ("MinIO on the same machine", (
            *_beside("chunks, MinIO", label="chunks"), *_beside("records, MinIO", label="records"),
            *_beside("chunks, MinIO", "8 MiB x 16")[1:],
        )),
    )),
    Chart("offload", "Offload to MinIO", "MB/s of records", "offload", tuple(
        (f"records of {size}", (
            *_beside(f"MinIO, {row}, zstd", label="zstd"),
            *_beside(f"MinIO, {row}, none", "upload_fileobj", label="not compressed"),
        )) for size, row in (("200 B", "200 B"), ("1 KB", "1024 B"))
    )),
    Chart("catalog", "Opening a snapshot after a million commits, and after 100", "ms", "catalog", (
        ("catalog in memory", _beside("snapshot, memory", "hundred", label="1,000,036 commits")),
        ("catalog in a directory", _beside("snapshot, file://", "hundred", label="1,000,036 commits")),
    )),
    Chart("recovery", "Opening a log after kill -9", "s", "recovery", (
        ("1 GiB of records of 1 KB, no checkpoint", _beside("1 GiB unclean, 1 KB", "rocksdb")),
        ("1 million records of 20 B, not sealed", _beside("1 million unsealed records, 20 B", "rocksdb")),
    )),
    Chart("spark-scan", "Spark on a cold topic of records of 200 B", "s", "spark-scan", tuple(
        (heading, _beside(f"200 B, {row}", "parquet")) for heading, row in (
            ("count(*), from the index", "count(*)"),
            ("groupBy(tag).count(), from the index", "groupBy(tag).count()"),
            ("sum(length(value)), every record verified", "sum(length(value))"),
            ("a write of Parquet from the frame", "write Parquet"),
        )
    )),
    Chart("spark-write", "A write of a Spark frame", "MB/s", "spark-write", (
        ("records of 200 B", _beside("200 B, read", "parquet")),
        ("records of 1 KB", _beside("1024 B, read", "parquet")),
    )),
    Chart("cli", "CPU time of a command", "ms", "cli", (
        ("with a daemon", (
            Bar("--help", "--help"), Bar("status, with a daemon", "status"),
            Bar("read t --limit 1, with a daemon", "read, one record"),
        )),
        ("without a daemon", (
            Bar("topic list, without a daemon", "topic list"),
            Bar("read t --limit 1, without a daemon", "read, one record"),
            Bar("status, without a daemon", "status"), Bar("log t, without a daemon", "log"),
            Bar("gc --dry-run, without a daemon", "gc --dry-run"), Bar("tail t, without a daemon", "tail"),
            Bar("tail t, without a daemon", "python -c pass", "python -c pass"),
        )),
    )),
    Chart("http-append", "Appends of 1 KB over HTTP, acked at fsync", "records/s", "http-append", (
        ("1 connection, batches of 64", _beside("1 connection, batches of 64", "call", "jetstream", "streams")),
        ("64 connections, batches of 64", _beside("64 connections, batches of 64", "call", "jetstream", "streams")),
        ("64 connections, one record", _beside("64 connections, one record", "call", "jetstream", "streams")),
    )),
    Chart("http-follow", "From an append to its receipt by a follower: the median", "us", "http-follow", tuple(
        (heading, _beside(f"{heading}, p50", "jetstream"))
        for heading in ("1 follower", "100 followers", "1,000 followers")
    )),
    Chart("delivery", "Durable acks of a cursor", "acks/s", "delivery", tuple(
        (heading, _beside(f"acks, {heading}", "jetstream")) for heading in ("one at a time", "100 at a time")
    )),
    Chart("proxy", "What the bucket gets from 100 replicas of one topic in an hour", "requests", "proxy", tuple(
        (heading, _beside(f"{row}, 100 replicas", "no proxy", label="behind a proxy")) for heading, row in (
            ("without news", "an idle hour"), ("while each takes in 1,000 commits", "an hour of 1,000 commits"),
        )
    )),
)  # fmt: skip


def write(results: Path = RESULTS, figures: Path = FIGURES) -> None:
    """Draw all charts anew."""
    for name, text in drawn(results).items():
        (figures / name).write_text(text)


def drawn(results: Path = RESULTS) -> dict[str, str]:
    """Return the text of each file of the folder of charts, from the tables."""
    return {
        f"{chart.name}.svg": svg(chart, table(tables(page_of(chart.table, results).read_text())[chart.table]))
        for chart in CHARTS
    }


def svg(chart: Chart, report: Report) -> str:
    """Return the drawing. Raises `ValueError` if the table lacks a figure of it."""
    rows = {bar: _row(bar, chart.unit, report) for _, bars in chart.groups for bar in bars}
    longest = max(_figure(bar, row) or 0 for bar, row in rows.items())
    unit = f"{_UNITS.get(chart.unit, chart.unit)}, {'less' if chart.unit in _LESS else 'more'} is better"
    parts = [f'<text y="24" font-size="18">{escape(chart.title)}</text>', _small(46, unit)]
    y = 50
    for heading, bars in chart.groups:
        y += 32
        parts.append(f'<text y="{y}">{escape(heading)}</text>')
        has_ratio = sum(bar.yardstick is None for bar in bars) == 1
        for bar in bars:
            y += _LINE
            parts += _drawn(bar, rows[bar], longest, y, has_ratio=has_ratio)
    machine, _, date = report.machine.line().rpartition(", ")
    parts += [_small(y + 38, f"Benchmark {report.name}, {date}"), _small(y + 58, machine)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 68}" width="{_WIDTH}" role="img"'
    style = f'font-family="system-ui, sans-serif" font-size="15" font-weight="600" fill="{COLOURS["other"]}"'
    title = f"<title>{escape(chart.title)}</title>"
    return "\n".join((f"{head} {style}>", *(f"  {part}" for part in (title, *parts)), "</svg>", ""))


def _row(bar: Bar, unit: str, report: Report) -> Row:
    for row in report.rows:
        if (row.what, row.unit) == (bar.what, unit) and bar.yardstick in {row.yardstick, None}:
            return row
    whose = bar.yardstick or "seglog"
    raise ValueError(f"the table of {report.name} has no figure of {whose} in {unit} for {bar.what!r}")


def _figure(bar: Bar, row: Row) -> float | None:
    return row.ours if bar.yardstick is None else row.theirs


def _drawn(bar: Bar, row: Row, longest: float, y: int, *, has_ratio: bool) -> Iterator[str]:
    """Yield a bar with its name and its figure, and with the ratio if the group has one figure for it to be of."""
    figure = _figure(bar, row)
    length = max(round((figure or 0) / longest * _LONGEST), 1)
    colour = COLOURS["seglog" if bar.yardstick is None else _YARDSTICKS[bar.yardstick][1]]
    yield f'<text x="{_LABELS_END}" y="{y}" text-anchor="end" font-weight="400">{escape(bar.label)}</text>'
    if figure is None:
        yield f'<text x="{_LABELS_END + 10}" y="{y}" font-weight="400">{escape(row.missing or "")}</text>'
        return
    yield f'<rect x="{_LABELS_END + 10}" y="{y - 13}" width="{length}" height="{_BAR}" fill="{colour}"/>'
    told = number(figure)
    if has_ratio and bar.yardstick is not None and row.ratio is not None and row.spread is not None:
        told += f'<tspan font-weight="400">  {row.ratio:.3g}x ({" to ".join(map(short, row.spread))})</tspan>'
    yield f'<text x="{_LABELS_END + 18 + length}" y="{y}" xml:space="preserve">{told}</text>'


def _small(y: int, text: str) -> str:
    return f'<text y="{y}" font-size="13" font-weight="400">{escape(text)}</text>'
