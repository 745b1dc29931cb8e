"""Many records in object storage, made without a log: the encoder's own objects, from arrays of frames.

A log takes minutes for so many records, each with a tag of its own. This module makes thousands of frames at a time, as
a load from Spark does. The values are log lines. They repeat after about 64 MiB, so that neither a chunk of ours nor a
page of Parquet sees one twice.

A hundred tags follow Zipf's law: the most frequent one has 19 % of the records, `COMMON_TAG` 1 %. One record has
`RARE_TAG`. With `in_runs`, 10,000 tags have a run of records each, as sessions and batches have. Ten records share a
millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.commits import START_MS, TopicCommits
from benchmarks.lines import log_lines
from catalog.format import keys
from catalog.format.commit import Codec, SegmentRef
from catalog.objects import LocalStore
from offload.format.encoder import SegmentEncoder
from seglog.format.dtypes import HEADERS
from seglog.format.frame import HAS_TAG, FrameType
from seglog.format.frames import Frames, assembled

__all__ = ["COMMON_TAG", "RARE_TAG", "RECORDS_OF_MS", "RUNS", "TOPIC", "ColdRecords", "make_cold", "tag_of_run"]

TOPIC = "bench"
COMMON_TAG, RARE_TAG = "tag-018", "tag-one"
RECORDS_OF_MS = 10
RUNS = 10_000
_TAGS = 100
_SEGMENTS = 8
_BLOCK_BYTES = 64 << 20
_BATCH = 20_000
_DIFFERENT_BYTES = 64 << 20
_TagsOf = Callable[[NDArray[np.int64]], NDArray[np.bytes_]]


@dataclass(frozen=True, slots=True)
class ColdRecords:
    """The records of a topic at `url`, each with a value of `size_bytes`. `heads_bytes` are all its index heads."""

    url: str
    count: int
    size_bytes: int
    heads_bytes: int

    @property
    def value_bytes(self) -> int:
        return self.count * self.size_bytes


def tag_of_run(number: int) -> str:
    return f"run-{number:05}"


def make_cold(directory: Path, size_bytes: int, total_bytes: int, *, in_runs: bool = False) -> ColdRecords:
    """Make an archive in `directory` with `total_bytes` of values, in eight segments, one commit each."""
    commits = TopicCommits(LocalStore(directory), TOPIC)
    lines = log_lines(min(total_bytes, _DIFFERENT_BYTES) // size_bytes, size_bytes)
    values = np.frombuffer(b"".join(lines), dtype=f"V{size_bytes}")
    count = total_bytes // size_bytes
    tags_of = partial(_runs, count) if in_runs else partial(_frequent, count // 2, np.random.default_rng(1))
    heads_bytes = 0
    for first in range(1, count + 1, -(-count // _SEGMENTS)):
        last = min(count, first + -(-count // _SEGMENTS) - 1)
        ref = _put_segment(commits, _batches(values, first, last, tags_of))
        heads_bytes += ref.index_head_length
        commits.publish([ref])
    return ColdRecords(commits.store.url, count, size_bytes, heads_bytes)


def _put_segment(commits: TopicCommits, batches: Iterator[Frames]) -> SegmentRef:
    encoder = SegmentEncoder(block_size=_BLOCK_BYTES, codec=Codec.ZSTD)
    blocks = [block for frames in batches for block in encoder.add(frames)]
    last_blocks, summary = encoder.finish()
    ref = commits.put_index(summary)
    commits.store.put(keys.data_key(commits.vid, ref.sid), b"".join([*blocks, *last_blocks]), {})
    return ref


def _batches(values: NDArray[np.void], first: int, last: int, tags_of: _TagsOf) -> Iterator[Frames]:
    """Yield the records `first` to `last` as frames."""
    for start in range(first, last + 1, _BATCH):
        seqs = np.arange(start, min(last, start + _BATCH - 1) + 1)
        yield _frames(seqs, tags_of(seqs), values[seqs % len(values)])


def _frequent(rare_seq: int, random: np.random.Generator, seqs: NDArray[np.int64]) -> NDArray[np.bytes_]:
    weights = 1 / np.arange(1, _TAGS + 1)
    names = np.array([f"tag-{number:03}".encode() for number in range(_TAGS)])
    tags = names[random.choice(_TAGS, len(seqs), p=weights / weights.sum())]
    tags[seqs == rare_seq] = RARE_TAG.encode()
    return tags


def _runs(count: int, seqs: NDArray[np.int64]) -> NDArray[np.bytes_]:
    names = np.array([tag_of_run(number).encode() for number in range(RUNS)])
    return names[(seqs - 1) * RUNS // count]


def _frames(seqs: NDArray[np.int64], tags: NDArray[np.bytes_], values: NDArray[np.void]) -> Frames:
    head = np.zeros(len(seqs), HEADERS)
    head["type"] = FrameType.APPEND
    head["flags"] = HAS_TAG
    head["topic_id"] = 1
    head["seq"] = seqs
    head["ts_ms"] = START_MS + seqs // RECORDS_OF_MS
    head["tag_len"] = tags.itemsize
    head["data_len"] = values.itemsize
    return assembled(head, [tag + value for tag, value in zip(tags.tolist(), values.tolist(), strict=True)])
