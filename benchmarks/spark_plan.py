"""The cost of a plan for Spark, by the number of segments: time, requests, tasks, and the bytes of the tasks' messages.

The store is in memory. Commits and index objects are real. Data objects are absent, because a plan reads none. Each
segment has four chunks of 1 MiB and no tags, and a commit has up to 1,000 of them. The last commit is a checkpoint.

There is no network, so the time shows decoding, choosing, packing and encoding. The requests show the cost that a
network would add: a plan makes 16 of them at a time. "again" is a second query of the same session. The planner has the
index heads in memory then, as far as its cache holds them. A plan is for 32 tasks at a time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from pyroaring import BitMap

from benchmarks.commits import START_MS, TopicCommits
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Report, Row, alone
from catalog.checkpointer import make_checkpoint
from catalog.format.commit import Codec
from catalog.objects import MemoryStore, ObjectStore
from catalog.objects.wrapped import WrappedStore
from offload.format.block import BLOCK_HEADER_LENGTH, ChunkRef
from offload.format.encoder import SegmentSummary
from offload.spark.aggregates import Aggregate
from offload.spark.messages import encode_message, encode_task
from offload.spark.options import ReadOptions, parse_options
from offload.spark.pin import Pin
from offload.spark.query_plan import Plan, Query, Remote
from offload.spark.task import Filter, Op

__all__ = ["SUMMARY", "run"]

SUMMARY = "a plan for Spark over 1, 1,000 and 100,000 segments: time, requests, tasks"

SEGMENTS = (1, 1_000, 100_000)
_QUICK_SEGMENTS = (1, 20)
_TOPIC = "bench"
_OF_COMMIT = 1_000
_CHUNKS = 4
_RECORDS = 4_200  # of a chunk
_ENTRY_BYTES = 250
_STORED_BYTES = 256 << 10
_MOST_ROUNDS = 3
_PARALLELISM = 32
_EVERYTHING = Query(frozenset({"seq", "tag", "value"}), parallelism=_PARALLELISM)
_T = TypeVar("_T")


class _Counted(WrappedStore):
    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.requests = 0

    def _call(self, method: str, key: str, act: Callable[[], _T]) -> _T:  # noqa: ARG002 - as the base has it
        self.requests += 1
        return act()


def run(options: Options) -> Report:
    rows: list[Row] = []
    rounds = min(options.rounds, _MOST_ROUNDS)
    for count in _QUICK_SEGMENTS if options.quick else SEGMENTS:
        store = MemoryStore()
        _make_topic(store, count)
        rows += _rows(_Counted(store), count, rounds)
    return Report("spark-plan", SUMMARY, tuple(rows), describe(options.directory), rounds)


@dataclass(frozen=True, slots=True)
class _Figures:
    took_s: float
    requests: int
    tasks: int = 0
    sent_bytes: int = 0


def _rows(store: _Counted, count: int, rounds: int) -> list[Row]:
    found = [_round(store, count) for _ in range(rounds)]
    rows: list[Row] = []
    for name in found[0]:
        what = f"{count:,} segments, {name}"
        each = [figures[name] for figures in found]
        rows.append(alone(what, "ms", statistics.median(figures.took_s for figures in each) * 1000))
        for unit, value in (
            ("requests", each[0].requests),
            ("tasks", each[0].tasks),
            ("kB of messages", each[0].sent_bytes / 1000),
        ):
            rows += [alone(what, unit, value)] if value else []
    return rows


def _round(store: _Counted, count: int) -> dict[str, _Figures]:
    """Return the figures of each call of a new planner, by the call's name."""
    options = parse_options({"path": store.url, "topic": _TOPIC})
    middle = count * _CHUNKS * _RECORDS // 2 + 1
    one = Query(_EVERYTHING.columns, (Filter("seq", Op.EQ, (middle,)),), parallelism=_PARALLELISM)
    with closing(Remote(store)) as remote:
        pin, loading = _measured(store, lambda: remote.pin(options))
        counted, counting = _measured(store, lambda: remote.aggregate(options, pin, (), [Aggregate("count")]))
        if counted != [count * _CHUNKS * _RECORDS]:
            raise RuntimeError(f"counted {counted}: the figures would be wrong")
        found = {"load": loading, "count(*)": counting}
        for name, query in {"one seq": one, "all": _EVERYTHING, "all, again": _EVERYTHING}.items():
            found[name] = _planned(store, remote, options, pin, query)
    return found


def _planned(store: _Counted, remote: Remote, options: ReadOptions, pin: Pin, query: Query) -> _Figures:
    (tasks, sent_bytes), figures = _measured(store, lambda: _sent(remote.plan(options, pin, query)))
    return replace(figures, tasks=tasks, sent_bytes=sent_bytes)


def _measured(store: _Counted, work: Callable[[], _T]) -> tuple[_T, _Figures]:
    """Return what `work` returns, with its time and its requests."""
    requests, start = store.requests, time.perf_counter()
    found = work()
    return found, _Figures(time.perf_counter() - start, store.requests - requests)


def _sent(plan: Plan) -> tuple[int, int]:
    """Encode the tasks as the planner does. Return their number and their bytes."""
    return len(plan.tasks), sum(len(encode_message({"id": 1, "task": encode_task(task)})) for task in plan.tasks)


def _make_topic(store: ObjectStore, count: int) -> None:
    commits = TopicCommits(store, _TOPIC)
    for first in range(0, count, _OF_COMMIT):
        numbers = range(first, min(count, first + _OF_COMMIT))
        commits.publish([commits.put_index(_summary(number)) for number in numbers])
    make_checkpoint(commits.volumes, commits.vid, commits.lsn, now_ms=START_MS)


_LIVE = BitMap(range(_CHUNKS * _RECORDS)).serialize()
_LENGTHS = tuple(np.full(_RECORDS, _ENTRY_BYTES - 12, np.uint32) for _ in range(_CHUNKS))


def _summary(number: int) -> SegmentSummary:
    """Return the description of segment `number`, from 0."""
    first = number * _CHUNKS * _RECORDS + 1
    chunks = tuple(_chunk(at, first + at * _RECORDS) for at in range(_CHUNKS))
    return SegmentSummary(
        topic_id=1,
        first_seq=first,
        last_seq=chunks[-1].last_seq,
        min_ts_ms=chunks[0].min_ts_ms,
        max_ts_ms=chunks[-1].max_ts_ms,
        codec=Codec.ZSTD,
        block_size=64 << 20,
        data_length=BLOCK_HEADER_LENGTH + _CHUNKS * _STORED_BYTES,
        data_hash=number.to_bytes(32, "big"),
        frame_bytes=_CHUNKS * _RECORDS * _ENTRY_BYTES,
        chunks=chunks,
        entry_lengths=_LENGTHS,
        live=_LIVE,
        live_records=_CHUNKS * _RECORDS,
        tags={},
    )


def _chunk(at: int, first_seq: int) -> ChunkRef:
    last_seq = first_seq + _RECORDS - 1
    return ChunkRef(
        offset=BLOCK_HEADER_LENGTH + at * _STORED_BYTES,
        stored_length=_STORED_BYTES,
        raw_length=_RECORDS * _ENTRY_BYTES,
        first_seq=first_seq,
        last_seq=last_seq,
        min_ts_ms=START_MS + first_seq,
        max_ts_ms=START_MS + last_seq,
        xxh3=first_seq,
    )
