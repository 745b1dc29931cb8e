"""One offload, or one plain upload, in a separate process with its own memory. Prints its figures as JSON.

    python -m benchmarks.offload_once seglog DIRECTORY TOPIC URL CODEC
    python -m benchmarks.offload_once upload_fileobj FILE BUCKET KEY

The process inherits the caller's AWS environment. Times cover the call alone. The peak of memory covers the whole
process. It does not come from getrusage, which begins with the peak of the parent process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import boto3

import offload
import seglog
from benchmarks.runner import Figures

__all__ = ["in_a_process"]

_STATUS = Path("/proc/self/status")
_KIB = 1024


def in_a_process(*arguments: str) -> Figures:
    """Make that call in a separate process. Return its `elapsed_s`, `cpu_s`, `stored_bytes` and `peak_bytes`."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.offload_once", *arguments], stdout=subprocess.PIPE, check=True
    )
    return cast("Figures", json.loads(done.stdout))


def _offload(directory: str, topic: str, url: str, codec: str) -> Figures:
    with seglog.open(Path(directory)) as log:
        log.configure(topic, seglog.TopicConfig(keep_history=True, attributes={"codec": codec}))
        with offload.attach(log, url) as archive:
            results: list[offload.OffloadResult] = []
            figures = _timed(lambda: results.append(archive.offload(topic)))
    segments = [one.segment for one in results[0].published if one.segment is not None]
    return {**figures, "stored_bytes": sum(segment.data_length for segment in segments)}


def _upload(path: str, bucket: str, key: str) -> Figures:
    client = boto3.client("s3")
    with Path(path).open("rb") as file:
        figures = _timed(lambda: client.upload_fileobj(file, bucket, key))
    return {**figures, "stored_bytes": Path(path).stat().st_size}


def _timed(work: Callable[[], object]) -> Figures:
    cpu, start = time.process_time(), time.perf_counter()
    work()
    return {"elapsed_s": time.perf_counter() - start, "cpu_s": time.process_time() - cpu}


def _peak_bytes() -> int:
    [line] = [line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * _KIB


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    found = _offload(*rest) if kind == "seglog" else _upload(*rest)
    print(json.dumps({**found, "peak_bytes": _peak_bytes()}))
