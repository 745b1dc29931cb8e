"""seglog itself, as applications use it, and without group commit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import seglog
from benchmarks.stores import Append, Store
from seglog.files.file_system import OsFiles
from seglog.format.appends import encode_appends
from seglog.values.layout import Layout
from seglog.wal.wal import Wal, create_first

__all__ = ["opened", "ungrouped"]


def opened(durability: str = "fsync", settings: seglog.LogSettings | None = None) -> Store:
    """Return a store that appends to one topic with `Topic.append`."""

    @contextmanager
    def store(directory: Path) -> Iterator[Append]:
        with seglog.open(directory / "data", settings=settings) as log:
            log.create_topic("bench", seglog.TopicConfig(durability=durability))
            yield log.topic("bench").append

    return store


@contextmanager
def ungrouped(directory: Path) -> Iterator[Append]:
    """Yield an append for a single writer that needs no queue: frames, one write, one datasync, its mark."""
    files, folder = OsFiles(), Layout(directory).wal_folders(1)[0]
    files.make_dir(folder.path)
    wal = Wal(files, folder, seglog.LogSettings().wal_file_bytes, create_first(files, folder))
    seq = 1

    def append(values: Sequence[bytes]) -> None:
        nonlocal seq
        now_ms = time.time_ns() // 1_000_000
        seqs = range(seq, seq + len(values))
        frames = encode_appends(1, seqs, now_ms, values, tag=None, node=None, unterminated=False, durable=True)
        wal.write(frames[0], len(seqs), frames[2])
        wal.sync()
        seq = seqs.stop
        if wal.older_files:
            wal.remove_below(wal.end.file)

    yield append
    wal.forget()
