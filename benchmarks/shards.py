"""Do shards pay? Threads that append at fsync to 8 topics, with 1, 2 and 4 WAL shards, slice by slice in turn."""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path

import seglog
from seglog import LogSettings

TOPICS = 8
VALUE = b"x" * 200


def slice_of(directory: Path, shards: int, threads: int, seconds: float) -> float:
    """Return the acked appends a second."""
    counts = [0] * threads
    with seglog.open(directory, settings=LogSettings(wal_shards=shards)) as log:
        for topic in range(TOPICS):
            log.topic(f"t{topic}").append([VALUE])
        end = time.monotonic() + seconds

        def append(index: int) -> None:
            topic = log.topic(f"t{index % TOPICS}")
            while time.monotonic() < end:
                topic.append([VALUE])
                counts[index] += 1

        workers = [threading.Thread(target=append, args=(index,)) for index in range(threads)]
        begin = time.monotonic()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return sum(counts) / (time.monotonic() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=None, help="on the disk to measure; the default is /tmp")
    parser.add_argument("--slices", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5)
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(dir=options.directory))
    try:
        for threads in (1, 8, 32):
            rates: dict[int, list[float]] = {1: [], 2: [], 4: []}
            for number in range(options.slices):
                for shards, found in rates.items():
                    found.append(slice_of(base / f"{threads}-{shards}-{number}", shards, threads, options.seconds))
            medians = ", ".join(f"{shards}: {statistics.median(found):,.0f}/s" for shards, found in rates.items())
            print(f"{threads} threads, shards {medians}")
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
