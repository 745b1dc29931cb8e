"""A process that fills a store and dies before any cleanup: `python -m benchmarks.killed_writer`.

Its arguments: "seglog" or "rocksdb", the directory, the size of a record, the number of records. All records are on the
disk, and only in the write-ahead log.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import seglog
from benchmarks.lines import log_lines
from benchmarks.stores.rocksdb import library

__all__ = ["fill_and_be_killed"]

_BATCH = 1_000
_DISTINCT = 20 * _BATCH
_MUCH_BYTES = 8 << 30


class _NoUpkeep:
    """An upkeep that makes no checkpoint."""

    def __init__(self, work: Callable[[], None]) -> None:
        pass

    def wake(self) -> None:
        pass

    def wake_later(self, delay_s: float) -> None:
        pass

    def close(self, patience_s: float | None = None) -> bool:  # noqa: ARG002 - nothing is done in between
        return True


def fill_and_be_killed(store: str, directory: Path, size_bytes: int, records: int) -> None:
    """Run the writer in a separate process. Return when it is dead."""
    arguments = [store, str(directory), str(size_bytes), str(records)]
    ended = subprocess.run([sys.executable, "-m", "benchmarks.killed_writer", *arguments])
    if ended.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the writer ended with {ended.returncode}: the figure would be wrong")
    if any(directory.glob("*.sst")):
        raise RuntimeError("RocksDB has written tables, so it has less to recover: the figure would be wrong")


def _batches(size_bytes: int, records: int) -> list[list[bytes]]:
    lines = log_lines(min(records, _DISTINCT), size_bytes)
    parts = [lines[start : start + _BATCH] for start in range(0, len(lines), _BATCH)]
    return [parts[number % len(parts)] for number in range(-(-records // _BATCH))]


def _fill_seglog(directory: Path, batches: Sequence[Sequence[bytes]]) -> None:
    log = seglog.open(directory, settings=seglog.LogSettings(wal_max_files=1024), upkeep=_NoUpkeep)
    topic = log.topic("bench")
    for batch in batches[:-1]:
        topic.append(batch, durability="memory")
    topic.append(batches[-1])
    _die()


def _fill_rocksdb(directory: Path, batches: Sequence[Sequence[bytes]]) -> None:
    rocksdict = library()
    options = rocksdict.Options(raw_mode=True)
    options.set_write_buffer_size(_MUCH_BYTES)
    options.set_max_total_wal_size(_MUCH_BYTES)
    database = rocksdict.Rdict(str(directory), options)
    write = rocksdict.WriteOptions()
    seq = 1
    for number, batch in enumerate(batches):
        together = rocksdict.WriteBatch(raw_mode=True)
        for value in batch:
            together.put(seq.to_bytes(8, "big"), value)
            seq += 1
        write.sync = number == len(batches) - 1
        database.write(together, write)
    # Die within the function: RocksDB closes a database that has no references left, and writes its records to a table.
    _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _main(arguments: Sequence[str]) -> None:
    store, directory, size_bytes, records = arguments
    fill = _fill_seglog if store == "seglog" else _fill_rocksdb
    fill(Path(directory), _batches(int(size_bytes), int(records)))


if __name__ == "__main__":
    _main(sys.argv[1:])
