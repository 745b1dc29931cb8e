"""How fast sealed segments become an offloaded commit: 200 B and 1 KB records, each codec, to a directory and over S3.

The timed part is `Archive.offload`: read and verify the hot segments, encode, upload, publish the commit. The
yardstick moves the bytes of the same segment files and does nothing else: for file:// a copy with fsync, for S3
boto3's `upload_fileobj` to the same server (moto's, on loopback: its own cost is in both figures). Segment files are
in the page cache for both. CPU seconds are those of this process, so without the server's.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import offload
import seglog
from benchmarks import s3_server
from benchmarks.lines import log_lines
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Report, Row, compare
from benchmarks.runner import Figures, in_turns, settle_disk

__all__ = ["SUMMARY", "fill", "run"]

SUMMARY = "offload of sealed segments to file:// and S3 against a plain copy or upload of the same segment files"

TOPIC = "bench"
RECORD_SIZES = (200, 1024)
CODECS = ("none", "zstd")
_MB = 1_000_000
_COPY_BYTES = 8 << 20
_FILL_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class _Source:
    """A closed data directory with one sealed topic, and its segment files joined in one file."""

    log: Path
    joined: Path
    value_bytes: int


def run(options: Options) -> Report:
    rows: list[Row] = []
    for size_bytes in RECORD_SIZES:
        source = _make_source(options, size_bytes)
        for codec in CODECS:
            rows += _to_directory(options, source, codec, f"file://, {size_bytes} B, {codec}")
        with s3_server.running() as endpoint:
            for codec in CODECS:
                rows += _to_s3(options, source, codec, endpoint, f"s3://, {size_bytes} B, {codec}")
        shutil.rmtree(source.log.parent)
    measured = f"{SUMMARY}; {options.size_mib} MiB of records"
    return Report("offload", measured, tuple(rows), describe(options.directory), options.rounds)


def fill(log: seglog.Log, name: str, size_bytes: int, total_bytes: int) -> int:
    """Append log lines of `size_bytes` until they are `total_bytes`, and seal. Returns how many."""
    topic = log.topic(name)
    lines = log_lines(min(total_bytes // size_bytes, 100_000), size_bytes)
    count = 0
    while count * size_bytes < total_bytes:
        start = count % len(lines)
        batch = lines[start : start + _FILL_BATCH]
        topic.append(batch, durability="memory")
        count += len(batch)
    topic.seal()
    return count


def _make_source(options: Options, size_bytes: int) -> _Source:
    place = options.directory / f"offload-{size_bytes}"
    if place.exists():
        shutil.rmtree(place)
    place.mkdir(parents=True)
    with seglog.open(place / "log") as log:
        count = fill(log, TOPIC, size_bytes, options.size_mib << 20)
    joined = place / "joined"
    with joined.open("wb") as whole:
        for segment in sorted((place / "log" / "topics").rglob("*.data")):
            with segment.open("rb") as piece:
                shutil.copyfileobj(piece, whole, _COPY_BYTES)
    return _Source(place / "log", joined, count * size_bytes)


def _to_directory(options: Options, source: _Source, codec: str, label: str) -> list[Row]:
    remote = options.directory.resolve() / "offload-remote"

    def ours() -> Figures:
        remote.mkdir()
        figures = _offload(source, codec, remote.as_uri())
        shutil.rmtree(remote)
        return figures

    def copy() -> Figures:
        remote.mkdir()
        figures = _timed(source, lambda: _copy(source.joined, remote / "copy"))
        shutil.rmtree(remote)
        return figures

    if remote.exists():
        shutil.rmtree(remote)
    return _rows(options, label, "copy+fsync", ours, copy)


def _to_s3(options: Options, source: _Source, codec: str, endpoint: str, label: str) -> list[Row]:
    def ours() -> Figures:
        s3_server.empty_bucket(endpoint)
        return _offload(source, codec, f"s3://{s3_server.BUCKET}/tenant")

    def upload() -> Figures:
        client = s3_server.empty_bucket(endpoint)
        with source.joined.open("rb") as joined:
            return _timed(source, lambda: client.upload_fileobj(joined, s3_server.BUCKET, "tenant/joined"))

    return _rows(options, label, "upload_fileobj", ours, upload)


def _rows(
    options: Options, label: str, yardstick: str, ours: Callable[[], Figures], theirs: Callable[[], Figures]
) -> list[Row]:
    rounds = in_turns({"seglog": ours, yardstick: theirs}, rounds=options.rounds, label=label)
    return [
        *compare(rounds, label, "MB/s of records", "value_mb_per_s", yardstick, more_is_better=True),
        *compare(rounds, f"{label}, stored", "MB", "stored_mb", yardstick, more_is_better=False),
        *compare(rounds, f"{label}, CPU", "s", "cpu_s", yardstick, more_is_better=False),
    ]


def _offload(source: _Source, codec: str, url: str) -> Figures:
    place = source.log.with_name("working-copy")
    shutil.copytree(source.log, place)
    with seglog.open(place) as log:
        log.configure(TOPIC, seglog.TopicConfig(keep_history=True, attributes={"codec": codec}))
        archive = offload.attach(log, url)
        results: list[offload.OffloadResult] = []
        figures = dict(_timed(source, lambda: results.append(archive.offload(TOPIC))))
        archive.close()
    stored = [one.segment.data_length for one in results[0].published if one.segment is not None]
    figures["stored_mb"] = sum(stored) / _MB
    shutil.rmtree(place)
    return figures


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as reading, target.open("wb") as writing:
        shutil.copyfileobj(reading, writing, _COPY_BYTES)
        writing.flush()
        os.fsync(writing.fileno())


def _timed(source: _Source, work: Callable[[], object]) -> Figures:
    settle_disk()
    cpu = time.process_time()
    start = time.perf_counter()
    work()
    elapsed = time.perf_counter() - start
    return {
        "value_mb_per_s": source.value_bytes / elapsed / _MB,
        "stored_mb": source.joined.stat().st_size / _MB,
        "cpu_s": time.process_time() - cpu,
    }
