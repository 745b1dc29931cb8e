"""How fast sealed segments become an offloaded commit: 200 B and 1 KB records, each codec, to a directory and over S3.

The timed part is `Archive.offload`: read and verify the hot segments, encode, upload, publish the commit. The yardstick
moves the bytes of the same segment files and does nothing else. For file:// it is a copy with fsync. For S3 it is
boto3's `upload_fileobj` to the same server on loopback: MinIO if it is on PATH, else moto's. The cost of the server is
in both times. Segment files are in the page cache for both.

Over S3 each run is a separate process. CPU seconds and the peak of memory are of that process, without the server's.
An S3 run has at least 1 GiB of records, in at most three rounds: a few parts say nothing about many concurrent parts.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import boto3

import offload
import seglog
from benchmarks import s3_server
from benchmarks.lines import log_lines
from benchmarks.machine import describe
from benchmarks.minio import PASSWORD, USER, serving_minio
from benchmarks.offload_once import in_a_process
from benchmarks.options import Options
from benchmarks.report import Aim, Report, Row, alone, compare
from benchmarks.runner import Figures, in_turns, settle_disk

__all__ = ["SUMMARY", "fill", "run"]

SUMMARY = "offload of sealed segments to file:// and S3 against a plain copy or upload of the same segment files"

TOPIC = "bench"
RECORD_SIZES = (200, 1024)
CODECS = ("none", "zstd")
_MB = 1_000_000
_COPY_BYTES = 8 << 20
_FILL_BATCH = 1_000
_S3_MIB = 1024
_S3_ROUNDS = 3
_SETTINGS = offload.OffloadSettings()
_PEAK_AIM_MB = (_SETTINGS.block_size * _SETTINGS.concurrency + 150_000_000) / _MB


@dataclass(frozen=True, slots=True)
class _Source:
    """A closed data directory with one sealed topic, and its segment files joined in one file."""

    log: Path
    joined: Path
    value_bytes: int


def run(options: Options) -> Report:
    rows: list[Row] = []
    large = _over_s3(options)
    for size_bytes in RECORD_SIZES:
        source = _make_source(options, size_bytes)
        for codec in CODECS:
            rows += _to_directory(options, source, codec, f"file://, {size_bytes} B, {codec}")
        shutil.rmtree(source.log.parent)
        source = _make_source(large, size_bytes)
        with _server(source.log.parent) as server:
            for codec in CODECS:
                rows += _to_s3(large, source, codec, f"{server}, {size_bytes} B, {codec}")
        shutil.rmtree(source.log.parent)
    measured = f"{SUMMARY}; {options.size_mib} MiB of records, over S3 {large.size_mib} MiB in {large.rounds} rounds"
    return Report("offload", measured, tuple(rows), describe(options.directory), options.rounds)


def fill(log: seglog.Log, name: str, size_bytes: int, total_bytes: int) -> int:
    """Append log lines of `size_bytes` until they are `total_bytes`, and seal. Return their number."""
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


def _over_s3(options: Options) -> Options:
    if options.quick:
        return options
    return replace(options, size_mib=max(options.size_mib, _S3_MIB), rounds=min(options.rounds, _S3_ROUNDS))


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


def _to_s3(options: Options, source: _Source, codec: str, label: str) -> list[Row]:
    def ours() -> Figures:
        place = _fresh_copy(source)
        url = f"s3://{s3_server.BUCKET}/{os.urandom(8).hex()}"
        figures = _of_process(source, in_a_process("seglog", str(place), TOPIC, url, codec))
        shutil.rmtree(place)
        _empty_bucket()
        return figures

    def upload() -> Figures:
        key = os.urandom(8).hex()
        figures = _of_process(source, in_a_process("upload_fileobj", str(source.joined), s3_server.BUCKET, key))
        _empty_bucket()
        return figures

    yardstick = "upload_fileobj"
    rounds = in_turns({"seglog": ours, yardstick: upload}, rounds=options.rounds, label=label)
    aims = (Aim(1.0, yardstick),) if codec == "none" else ()
    return [
        *compare(rounds, label, "MB/s of records", "value_mb_per_s", yardstick, more_is_better=True, aims=aims),
        *compare(rounds, f"{label}, stored", "MB", "stored_mb", yardstick, more_is_better=False),
        *compare(rounds, f"{label}, CPU", "s/GB", "cpu_s_per_gb", yardstick, more_is_better=False, aims=aims),
        alone(f"{label}, peak", "MB", rounds.median("seglog", "peak_mb"), at_most=_PEAK_AIM_MB),
    ]


@contextmanager
def _server(place: Path) -> Iterator[str]:
    """Yield the name of the server that serves S3 to the environment of this process."""
    program = shutil.which("minio")
    if not program:
        with s3_server.running() as endpoint:
            s3_server.empty_bucket(endpoint).close()
            yield "moto"
        return
    before = dict(os.environ)
    with serving_minio(program, place / "minio") as endpoint:
        os.environ.update(
            AWS_ENDPOINT_URL=endpoint,
            AWS_ACCESS_KEY_ID=USER,
            AWS_SECRET_ACCESS_KEY=PASSWORD,
            AWS_DEFAULT_REGION="us-east-1",
        )
        try:
            boto3.client("s3").create_bucket(Bucket=s3_server.BUCKET)
            yield "MinIO"
        finally:
            os.environ.clear()
            os.environ.update(before)


def _empty_bucket() -> None:
    """Delete all objects. Otherwise the server's disk would hold every round."""
    client = boto3.client("s3")
    for found in client.list_objects_v2(Bucket=s3_server.BUCKET).get("Contents", ()):
        client.delete_object(Bucket=s3_server.BUCKET, Key=found["Key"])
    client.close()


def _of_process(source: _Source, found: Figures) -> Figures:
    return {
        "value_mb_per_s": source.value_bytes / found["elapsed_s"] / _MB,
        "stored_mb": found["stored_bytes"] / _MB,
        "cpu_s_per_gb": found["cpu_s"] / source.value_bytes * 1e9,
        "peak_mb": found["peak_bytes"] / _MB,
    }


def _fresh_copy(source: _Source) -> Path:
    """Copy the data directory. Sealed segments are hard links: no offload changes them."""
    place = source.log.with_name("working-copy")
    shutil.copytree(source.log, place, ignore=shutil.ignore_patterns("seg-*"))
    for path in (source.log / "topics").rglob("seg-*"):
        os.link(path, place / path.relative_to(source.log))
    settle_disk()
    return place


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
    place = _fresh_copy(source)
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
