"""A GC plan over a million objects: time, memory and requests.

The store is simulated in memory. Commits, checkpoints and names are real; the segments' objects exist only in a LIST.
There are 50 topics of 10,000 segments each, in 100 offloads. Merges before the window replaced 20 % of the segments.
Another 1 % were never committed. Half of the commits are older than the window. Memory is the peak of Python's
allocations (tracemalloc) above the store's own. A separate run measures it, because tracing makes the run slower.
"""

from __future__ import annotations

import gc
import heapq
import time
import tracemalloc
from collections.abc import Iterator

from benchmarks.commits import segment_of
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Report, Row, alone
from catalog.checkpointer import make_checkpoint
from catalog.format.commit import NO_PARENT, Bounds, Commit, CommitKind
from catalog.format.control import Control, Ref
from catalog.format.encoding import encode_commit
from catalog.format.ids import Sid, Vid
from catalog.format.keys import Key, commit_key, control_key, data_key, index_key, ref_key
from catalog.format.small_objects import encode_control, encode_ref
from catalog.gc.collector import Collector
from catalog.gc.policy import GcPolicy, GcReport
from catalog.objects import MemoryStore, ObjectStore
from catalog.objects.wrapped import WrappedStore
from catalog.volume import Volumes

__all__ = ["SUMMARY", "run"]

SUMMARY = "a GC plan over a million objects: time, memory and requests"

TOPICS = 50
_OFFLOADS = 100
_SEGMENTS = 100  # of each offload
_RECORDS = 10  # of each segment
_MERGED_OFFLOADS = 20
_ORPHANS = 100
_START_MS = 1_760_000_000_000
_STEP_MS = 3_600_000
_WINDOW_OFFLOADS = 50


class _SimulatedStore(MemoryStore):
    """Lists objects of segments that it does not hold. It keeps their sids in order, 16 bytes each."""

    def __init__(self) -> None:
        super().__init__()
        self.sids: dict[str, list[bytes]] = {}

    def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
        there = super().list(prefix, limit=limit, start_after=start_after)
        vid, slash, _ = prefix.partition("/")
        if limit is not None or not slash or vid not in self.sids:
            return there
        shown = (key for key in self._segments(vid) if key.startswith(prefix) and key > start_after)
        return heapq.merge(there, shown)

    def _segments(self, vid: str) -> Iterator[Key]:
        volume = Vid.parse(vid)
        for raw in self.sids[vid]:
            yield data_key(volume, Sid(raw))
            yield index_key(volume, Sid(raw))


class _Counted(WrappedStore):
    """Passes listings through key by key. A list of a million keys would itself be the measured memory."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.requests = 0

    def _call(self, method, key, act):  # type: ignore[no-untyped-def]  # noqa: ARG002
        self.requests += 1
        return act()

    def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
        self.requests += 1
        for number, key in enumerate(self.inner.list(prefix, limit=limit, start_after=start_after)):
            self.requests += number % 1000 == 999  # S3 returns 1,000 keys an answer
            yield key


def run(options: Options) -> Report:
    topics = 1 if options.quick else TOPICS
    store = _SimulatedStore()
    for number in range(topics):
        _make_topic(store, number)
    objects = sum(2 * len(sids) for sids in store.sids.values())
    counted = _Counted(store)
    began = time.perf_counter()
    report = _plan(counted)
    took_s = time.perf_counter() - began
    expected = topics * (_MERGED_OFFLOADS * _SEGMENTS + _ORPHANS)
    if report.planned["segments"] != expected or report.blocked:
        raise RuntimeError(f"{report.planned}, {report.blocked}: the figures would be wrong")
    gc.collect()
    tracemalloc.start()
    _plan(store)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    rows: list[Row] = [
        alone(f"a plan over {objects:,} objects", "s", took_s),
        alone("objects looked at", "objects/s", objects / took_s),
        alone("memory at its highest", "MB", peak / 1e6, at_most=200),
        alone("requests", "for 1,000 objects", counted.requests * 1000 / objects),
        alone("found to be garbage", "segments", report.planned["segments"]),
    ]
    return Report("gc-plan", SUMMARY, tuple(rows), describe(options.directory), 1)


def _plan(store: ObjectStore) -> GcReport:
    """Plan as a dry run: GC counts the plan page by page, and does not write it."""
    now_ms = _START_MS + (_OFFLOADS + 1) * _STEP_MS
    policy = GcPolicy(_WINDOW_OFFLOADS * _STEP_MS // 1000, 3600)
    return Collector(store, policy, clock=lambda: now_ms, writer_id="benchmark").run(dry_run=True)


def _make_topic(store: _SimulatedStore, number: int) -> None:
    vid = Vid(_id(Vid.TYPE, _START_MS, number, 0))
    topic = f"topic-{number}"
    store.put_new(control_key(vid), encode_control(Control(vid, None, _START_MS, topic, "main")))
    store.put_new(ref_key(topic, "main"), encode_ref(Ref(vid, _START_MS)))
    parent_hash, head = NO_PARENT, 0
    before_merge: list[Sid] = []
    sids: list[bytes] = []
    for lsn, offload in enumerate(range(_OFFLOADS + 1), 1):
        now_ms = _START_MS + offload * _STEP_MS
        is_merge = offload == _MERGED_OFFLOADS
        firsts = [1] if is_merge else [head + at * _RECORDS + 1 for at in range(_SEGMENTS)]
        last = head if is_merge else firsts[-1] + _RECORDS - 1
        segments = tuple(
            segment_of(
                Sid(_id(Sid.TYPE, now_ms, number, at)), first, head if is_merge else first + _RECORDS - 1, now_ms
            )
            for at, first in enumerate(firsts)
        )
        commit = Commit(
            vid=vid,
            lsn=lsn,
            kind=CommitKind.COMPACT if is_merge else CommitKind.OFFLOAD,
            bounds=Bounds(1, last),
            parent_hash=parent_hash,
            nonce=bytes(16),
            created_at_ms=now_ms,
            writer_id="benchmark",
            epoch=1,
            at_seq=last,
            at_ts_ms=now_ms,
            segments=segments,
            removed_sids=tuple(before_merge) if is_merge else (),
        )
        body, parent_hash = encode_commit(commit)
        store.put_new(commit_key(vid, lsn), body)
        head = last
        sids += [ref.sid.raw for ref in segments]
        before_merge = [] if is_merge else [*before_merge, *(ref.sid for ref in segments)]
    sids += [_id(Sid.TYPE, _START_MS, number, 1_000_000 + at) for at in range(_ORPHANS)]
    store.sids[str(vid)] = sorted(sids)
    make_checkpoint(Volumes(store), vid, 64, now_ms=_START_MS)


def _id(kind: int, now_ms: int, topic: int, number: int) -> bytes:
    return bytes([kind]) + now_ms.to_bytes(6, "big") + b"\x80" + topic.to_bytes(4, "big") + number.to_bytes(4, "big")
