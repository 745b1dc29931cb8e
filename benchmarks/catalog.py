"""The cost of the catalog by the length of a history: requests first, times as ratios.

Two volumes have the same shape, one with a hundred commits, one with a million. Every commit is an offload of a
segment. Every 32nd commit also deletes old records, so that some 100 segments are live. Every 64th carries a
checkpoint. In memory each commit is complete and joined to the one before. In the directory the commits before the
newest checkpoint are empty files. No reader reads them: only their names count there.

Another volume has a checkpoint of 10,000 live segments of 1 GiB. Its counterpart has a single small segment.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

from blake3 import blake3

from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Aim, Report, Row, alone, compare
from benchmarks.runner import Figures, in_turns
from catalog import (
    NO_PARENT,
    Bounds,
    Branches,
    Codec,
    Commit,
    CommitKind,
    Control,
    Deletions,
    ForkPoint,
    LocalStore,
    MemoryStore,
    SegmentRef,
    SegmentView,
    Sid,
    Snapshot,
    Time,
    Vid,
    Volumes,
    encode_commit,
    resolve,
)
from catalog.format import keys
from catalog.format.control import CheckpointSet, Mark, Ref
from catalog.format.encoding import StoredCommit, with_checkpoint
from catalog.format.envelope import MessageType, wrap
from catalog.format.small_objects import encode_checkpoint_set, encode_control, encode_ref
from catalog.objects.object_store import ObjectStore
from catalog.objects.wrapped import WrappedStore
from catalog.snapshot import checkpoint_of
from catalog.updates import pull

__all__ = ["SUMMARY", "run"]

SUMMARY = "requests of the catalog, with a hundred commits behind it and with a million"

FEW, MANY = 100, 1_000_036  # both end 36 commits after a checkpoint
_QUICK_MANY = 1_060
_SINCE_CHECKPOINT = 36
_EVERY = 64
_DROP_EVERY, _LIVE = 32, 100
_RECORDS = 10
_START_MS = 1_700_000_000_000
_COMMIT_MS = 5_000
_GIB = 1 << 30
_SEGMENTS_OF_10_TIB = 10_240
_REPLICA_COMMITS = 1_000
_RESOLVED = 20
_CONSTANT = 3  # the marks, the checkpoint, and its list if that is a separate object
_INLINE_BYTES = 256 * 1024
_NO_SLOWER = 0.8  # as far as medians of milliseconds can show
_TOPIC = "bench"
_T = TypeVar("_T")


def run(options: Options) -> Report:
    many = _QUICK_MANY if options.quick else MANY
    rows: list[Row] = []
    memory = {"hundred": _built(MemoryStore(), FEW), "seglog": _built(MemoryStore(), many)}
    place = options.directory.resolve() / "catalog"
    place.mkdir(parents=True)
    try:
        files = {
            "hundred": _copied(memory["hundred"], LocalStore(place / "hundred"), place / "hundred"),
            "seglog": _copied(memory["seglog"], LocalStore(place / "many"), place / "many"),
        }
        for name, volumes in (("memory", memory), ("file://", files)):
            rows += _opening(name, volumes, many, options)
        rows += _names(memory["seglog"])
        rows += _following(memory["seglog"], many)
        rows += _resolving(memory["seglog"], many)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    measured = f"{SUMMARY} ({many:,}); a checkpoint every {_EVERY} commits"
    return Report("catalog", measured, tuple(rows), describe(options.directory), options.rounds)


class _Counted(WrappedStore):
    """`counts` are calls by method, `read_bytes` the bytes that GETs returned."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.counts: Counter[str] = Counter()
        self.read_bytes = 0

    def _call(self, method: str, key: str, act: Callable[[], _T]) -> _T:  # noqa: ARG002 - as the base has it
        self.counts[method] += 1
        answer = act()
        if isinstance(answer, bytes):
            self.read_bytes += len(answer)
        return answer


# ---------------------------------------------------------------- what is measured


def _opening(name: str, volumes: dict[str, _Built], many: int, options: Options) -> list[Row]:
    rows: list[Row] = []
    is_ordered = volumes["seglog"].store.is_ordered
    newest = 1 if is_ordered else 1 + 2 * (_SINCE_CHECKPOINT + 1).bit_length()
    for built, behind in ((volumes["hundred"], FEW), (volumes["seglog"], many)):
        counted = _Counted(built.store)
        assert Volumes(counted).newest_lsn(built.vid) == behind
        assert counted.counts["list"] == is_ordered
        rows.append(alone(f"newest lsn of {behind:,}, {name}", "requests", counted.counts.total(), at_most=newest))
    for built, behind in ((volumes["hundred"], FEW), (volumes["seglog"], many)):
        counted = _Counted(built.store)
        assert Volumes(counted).snapshot(built.vid).bounds.head_seq == behind * _RECORDS
        most = newest + _SINCE_CHECKPOINT + _CONSTANT
        rows += [
            alone(f"snapshot of {behind:,}, {name}", "requests", counted.counts.total(), at_most=most),
            alone(f"snapshot of {behind:,}, {name}", "bytes", counted.read_bytes),
        ]
    for what, act in (("newest lsn", _newest), ("snapshot", _snapshot)):
        rounds = in_turns(
            {subject: partial(_median_ms, built, act) for subject, built in volumes.items()},
            rounds=options.rounds,
            label=f"catalog, {what}, {name}",
        )
        aims = (Aim(_NO_SLOWER, "hundred"),) if act is _snapshot else ()
        rows += compare(rounds, f"{what}, {name}", "ms", "ms", "hundred", more_is_better=False, aims=aims)
    return rows


def _newest(built: _Built) -> None:
    Volumes(built.store).newest_lsn(built.vid)


def _snapshot(built: _Built) -> None:
    Volumes(built.store).snapshot(built.vid)


def _median_ms(built: _Built, act: Callable[[_Built], None]) -> Figures:
    times: list[float] = []
    for _ in range(5):
        start = time.perf_counter()
        act(built)
        times.append((time.perf_counter() - start) * 1000)
    return {"ms": statistics.median(times)}


def _names(history: _Built) -> list[Row]:
    """Measure a commit, and branches of a small topic and a large one."""
    rows: list[Row] = []
    store = MemoryStore()
    sizes = {"1 MB": _described(store, 1, 1_000_000), "10 TiB": _described(store, _SEGMENTS_OF_10_TIB, _GIB)}
    for what, built in sizes.items():
        counted = _Counted(store)
        volumes = Volumes(counted)
        point = ForkPoint(built.vid, volumes.newest_lsn(built.vid))
        counted.counts.clear()
        Branches(volumes).create(_TOPIC, f"of-{built.vid}", point, now_ms=_START_MS)
        puts = counted.counts["put_new"] + counted.counts["swap"] + counted.counts["put"]
        rows += [
            alone(f"branch of {what}", "PUTs", puts, at_most=4),
            alone(f"branch of {what}", "requests", counted.counts.total()),
        ]
    counted = _Counted(history.store)
    volumes = Volumes(counted)
    tip = volumes.snapshot(history.vid)
    commit = _commit(history.vid, tip.lsn + 1, tip.head_hash)
    counted.counts.clear()
    volumes.publish(history.vid, commit.lsn, encode_commit(commit)[0])
    history.store.delete(keys.commit_key(history.vid, commit.lsn))
    return [*rows, alone("commit, beyond its segment's own", "requests", counted.counts.total(), at_most=2)]


def _following(built: _Built, many: int) -> list[Row]:
    counted = _Counted(built.store)
    commits = min(_REPLICA_COMMITS, many)
    volumes = Volumes(counted)
    [behind] = volumes.commits(built.vid, many - commits, many - commits)
    counted.counts.clear()
    assert pull(volumes, built.vid, many - commits, behind.hash, each=False).lsn == many
    # The replica makes a few requests before it sees how far behind it is. The others:
    # the newest LSN, the marks, the boundary, and a request that finds nothing.
    most = 15 + _CONSTANT + _SINCE_CHECKPOINT + 3
    return [alone(f"follow {commits:,} commits", "requests", counted.counts.total(), at_most=most)]


def _resolving(built: _Built, many: int) -> list[Row]:
    random, found = Random(1), list[int]()
    for _ in range(_RESOLVED):
        lsn = random.randint(2, many - 2)
        counted = _Counted(built.store)
        point = resolve(Time(_ms_of(lsn)), Volumes(counted).history(built.vid), _asks_no_index)
        assert point.lsn == lsn
        found.append(counted.counts.total())
    return [
        alone("time to lsn, mean", "requests", statistics.mean(found)),
        alone("time to lsn, most", "requests", max(found), at_most=2 * _EVERY + 16),
    ]


def _asks_no_index(_vid: Vid, ref: SegmentRef, _ms: int) -> int:
    raise AssertionError(f"{ref.sid} lies on one side of the time")


# ---------------------------------------------------------------- what it is measured on


@dataclass(frozen=True, slots=True)
class _Built:
    store: ObjectStore
    vid: Vid
    newest_lsn: int


def _ms_of(lsn: int) -> int:
    return _START_MS + lsn * _COMMIT_MS


def _segment(lsn: int, frame_bytes: int = 4_000) -> SegmentRef:
    first = (lsn - 1) * _RECORDS + 1
    return SegmentRef(
        sid=Sid(bytes([Sid.TYPE]) + _ms_of(lsn).to_bytes(6, "big") + b"\x80" + lsn.to_bytes(8, "big")),
        first_seq=first,
        last_seq=first + _RECORDS - 1,
        min_ts_ms=_ms_of(lsn),
        max_ts_ms=_ms_of(lsn),
        data_length=frame_bytes // 4,
        data_hash=blake3(lsn.to_bytes(8, "big")).digest(),
        index_head_length=500,
        index_trailer_length=90,
        index_head_hash=blake3(lsn.to_bytes(9, "big")).digest(),
        codec=Codec.ZSTD,
        frame_bytes=frame_bytes,
        live_records=_RECORDS,
    )


def _commit(vid: Vid, lsn: int, parent_hash: bytes) -> Commit:
    ref = _segment(lsn)
    drops = lsn % _DROP_EVERY == 0 and lsn > _LIVE
    return Commit(
        vid=vid,
        lsn=lsn,
        kind=CommitKind.OFFLOAD,
        bounds=Bounds(1, ref.last_seq),
        parent_hash=parent_hash,
        nonce=lsn.to_bytes(16, "big"),
        created_at_ms=_ms_of(lsn),
        writer_id="bench",
        epoch=1,
        at_seq=ref.last_seq,
        at_ts_ms=_ms_of(lsn),
        segments=(ref,),
        deletions=Deletions(_first_live(lsn) if drops else 0),
    )


def _first_live(lsn: int) -> int:
    """Return the first seq that stays live after a commit with deletes."""
    return (lsn - _LIVE) * _RECORDS + 1


def _built(store: MemoryStore, commits: int) -> _Built:
    vid = Vid.new(_START_MS)
    _put_control(store, vid, f"{_TOPIC}-{commits}")
    views: list[SegmentView] = []
    marks: list[Mark] = []
    parent_hash, before_seq = NO_PARENT, 0
    for lsn in range(1, commits + 1):
        commit = _commit(vid, lsn, parent_hash)
        body, parent_hash = encode_commit(commit)
        [ref] = commit.segments
        views.append(SegmentView(ref, vid, lsn, ref.first_seq, ref.last_seq))
        if commit.deletions.before_seq:
            before_seq = commit.deletions.before_seq
            views = [view for view in views if view.first >= before_seq]
        if lsn % _EVERY == 0:
            whole = Snapshot(
                vid, lsn, commit.bounds, tuple(views), before_seq, parent_hash, ref.last_seq, _ms_of(lsn), 1
            )
            body = with_checkpoint(body, checkpoint_of(whole, now_ms=_ms_of(lsn)), "")
            marks.append(Mark(lsn, _ms_of(lsn), ref.last_seq))
        store.put_new(keys.commit_key(vid, lsn), body)
    store.put_new(keys.checkpoints_key(vid), encode_checkpoint_set(CheckpointSet(vid, tuple(marks))))
    return _Built(store, vid, commits)


def _copied(built: _Built, store: LocalStore, place: Path) -> _Built:
    """Copy to a directory what a reader of the newest state needs.

    The other commits become empty files with their names.
    """
    vid = built.vid
    last_mark = built.newest_lsn // _EVERY * _EVERY
    needed = [keys.commit_key(vid, lsn) for lsn in range(last_mark, built.newest_lsn + 1)]
    for key in (keys.control_key(vid), keys.checkpoints_key(vid), *needed):
        store.put_new(key, built.store.get(key))
    for lsn in range(1, last_mark):
        (place / keys.commit_key(vid, lsn)).touch()
    return replace(built, store=store)


def _described(store: MemoryStore, segments: int, segment_bytes: int) -> _Built:
    """Return a volume of one commit, with a checkpoint that lists so many segments."""
    vid = Vid.new(_START_MS + segments)
    _put_control(store, vid, f"{_TOPIC}-{segments}")
    refs = [_segment(number, segment_bytes) for number in range(1, segments + 1)]
    commit = replace(_commit(vid, 1, NO_PARENT), bounds=Bounds(1, refs[-1].last_seq), segments=(refs[-1],))
    body, digest = encode_commit(commit)
    views = tuple(SegmentView(ref, vid, 1, ref.first_seq, ref.last_seq) for ref in refs)
    stored = StoredCommit(commit, digest)
    whole = Snapshot(vid, 1, commit.bounds, views, 0, stored.hash, refs[-1].last_seq, commit.at_ts_ms, 1)
    made = checkpoint_of(whole, now_ms=_START_MS)
    if made.views is not None and made.views_length > _INLINE_BYTES:
        store.put_new(keys.list_key(vid, 1, made.views_hash), wrap(MessageType.SEGMENT_LIST, made.views))
        made = replace(made, views=None)
    store.put_new(keys.commit_key(vid, 1), with_checkpoint(body, made, ""))
    store.put_new(keys.checkpoints_key(vid), encode_checkpoint_set(CheckpointSet(vid, (Mark(1, _START_MS, 1),))))
    return _Built(store, vid, 1)


def _put_control(store: ObjectStore, vid: Vid, topic: str) -> None:
    store.put_new(keys.control_key(vid), encode_control(Control(vid, None, _START_MS, topic, "main")))
    store.put_new(keys.ref_key(topic, "main"), encode_ref(Ref(vid, _START_MS)))
