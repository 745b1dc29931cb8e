"""Commits and segments for the tests: fixed ones, and helpers that make a history."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace

from blake3 import blake3
from pyroaring import BitMap

from catalog.format.commit import (
    NO_PARENT,
    Bounds,
    Checkpoint,
    Codec,
    Commit,
    CommitKind,
    Deletions,
    ForkPoint,
    LoadedKey,
    LoadMark,
    Restored,
    SegmentRef,
    SegmentView,
)
from catalog.format.control import Boundary, CheckpointSet, Control, Fork, Mark, NameChange, OplogEntry, Pin, Ref, Tag
from catalog.format.encoding import StoredCommit, commit_hash, encode_views, load_nonce
from catalog.format.ids import Sid, Vid

HOUR_MS = 3_600_000
START_MS = 1_763_111_523_000  # 2025-11-14T09:12:03Z


def vid(number: int) -> Vid:
    return Vid(bytes([Vid.TYPE]) + START_MS.to_bytes(6, "big") + b"\x80" + number.to_bytes(8, "big"))


def sid(number: int) -> Sid:
    return Sid(bytes([Sid.TYPE]) + START_MS.to_bytes(6, "big") + b"\x80" + number.to_bytes(8, "big"))


def ts_of(seq: int) -> int:
    """Return the time of record `seq`. In the samples it is `seq` seconds after the start."""
    return START_MS + seq * 1_000


def segment(first: int, last: int, number: int | None = None) -> SegmentRef:
    name = sid(first * 1_000 + last if number is None else number)
    return SegmentRef(
        sid=name,
        first_seq=first,
        last_seq=last,
        min_ts_ms=ts_of(first),
        max_ts_ms=ts_of(last),
        data_length=1_000 * (last - first + 1),
        data_hash=hashlib.sha256(name.raw).digest(),
        index_head_length=500,
        index_trailer_length=90,
        index_head_hash=hashlib.sha256(b"index" + name.raw).digest(),
        codec=Codec.ZSTD,
        frame_bytes=4_000 * (last - first + 1),
        live_records=last - first + 1,
    )


class HistoryMaker:
    """Makes commits of one volume as an offloader would. Each commit names the hash of the one before it."""

    def __init__(self, volume: Vid, head_seq: int = 0, parent_hash: bytes = NO_PARENT) -> None:
        self.vid = volume
        self.stored: list[StoredCommit] = []
        self.head_seq = head_seq
        self._parent_hash = parent_hash

    def offload(self, *ranges: tuple[int, int]) -> Commit:
        segments = tuple(segment(first, last) for first, last in ranges)
        self.head_seq = ranges[-1][1]
        return self._add(CommitKind.OFFLOAD, at_seq=self.head_seq, segments=segments)

    def delete(self, at_seq: int, before: int = 0, seqs: Iterable[int] = (), of: SegmentRef | None = None) -> Commit:
        bitmaps = {of.sid: BitMap([seq - of.first_seq for seq in seqs]).serialize()} if of else {}
        return self._add(CommitKind.DELETE, at_seq=at_seq, deletions=Deletions(before, bitmaps))

    def truncate(self, at_seq: int, first_removed: int) -> Commit:
        self.head_seq = first_removed - 1
        return self._add(CommitKind.TRUNCATE, at_seq=at_seq, truncate_from=first_removed)

    def compact(self, removed: Iterable[SegmentRef], *added: SegmentRef) -> Commit:
        sids = tuple(ref.sid for ref in removed)
        return self._add(CommitKind.COMPACT, at_seq=self.head_seq, segments=added, removed_sids=sids)

    def configure(self, text: str, collected_before_ms: int | None = None) -> Commit:
        at_seq = self.head_seq
        return self._add(CommitKind.CONFIG, at_seq, config=text, collected_before_ms=collected_before_ms)

    def load(self, key: str, first: int, last: int, epoch: int = 2) -> Commit:
        """Add a load of one segment."""
        self.head_seq, mark = last, LoadMark(key, bytes(16))
        added = (segment(first, last),)
        return self._add(CommitKind.OFFLOAD, last, segments=added, load=mark, nonce=load_nonce(mark), epoch=epoch)

    def _add(self, kind: CommitKind, at_seq: int, **fields: object) -> Commit:
        common = {"nonce": bytes(16), "epoch": 1, **fields}
        commit = Commit(
            vid=self.vid,
            lsn=len(self.stored) + 1,
            kind=kind,
            bounds=Bounds(1, self.head_seq),
            parent_hash=self._parent_hash,
            created_at_ms=ts_of(at_seq),
            writer_id="test",
            at_seq=at_seq,
            at_ts_ms=ts_of(at_seq),
            **common,  # type: ignore[arg-type]
        )
        self._parent_hash = commit_hash(commit)
        self.stored.append(StoredCommit(commit, self._parent_hash))
        return commit


GOLDEN_COMMIT = Commit(
    vid=vid(1),
    lsn=7,
    kind=CommitKind.COMPACT,
    bounds=Bounds(3, 5_000, 2),
    parent_hash=bytes(range(32)),
    nonce=bytes(range(16)),
    created_at_ms=START_MS + 123,
    writer_id="host-1",
    epoch=4,
    at_seq=5_100,
    at_ts_ms=START_MS + 99,
    message="every field is set",
    segments=(segment(1, 100), segment(101, 5_000)),
    removed_sids=(sid(9), sid(8)),
    deletions=Deletions(3, {sid(1100): BitMap([4, 5, 70]).serialize(), sid(7): BitMap([0]).serialize()}),
    truncate_from=5_001,
)
GOLDEN_CONTROL = Control(vid(2), ForkPoint(vid(1), 7, 4_321), START_MS + 500, "orders", "half")
GOLDEN_FORK = Fork(vid(2), ForkPoint(vid(1), 7, 4_321))
GOLDEN_REF = Ref(vid(2), START_MS + 501)
GOLDEN_DELETED_REF = Ref(vid(2), START_MS + 501, START_MS + 900, bytes(range(16)))
GOLDEN_TAG = Tag(ForkPoint(vid(1), 7, 4_321), "main", START_MS + 502, "before the import")
GOLDEN_DELETED_TAG = replace(GOLDEN_TAG, deleted_at_ms=START_MS + 901, nonce=bytes(range(16)))
GOLDEN_PIN = Pin(ForkPoint(vid(1), 7), START_MS + 600_000, "spark job 7", bytes(range(16)))
GOLDEN_BOUNDARY = Boundary(vid(1), 5)
GOLDEN_CLOSING_BOUNDARY = Boundary(vid(1), 5, is_closing=True, nonce=bytes(range(16)))
GOLDEN_CHECKPOINTS = CheckpointSet(vid(1), (Mark(3, START_MS, 100), Mark(7, START_MS + 99, 5_100)))
GOLDEN_LONG_CHECKPOINTS = CheckpointSet(vid(1), tuple(Mark(64 * n, START_MS + n, 5_000 * n) for n in range(1, 45)))
GOLDEN_PRUNED_CHECKPOINTS = replace(GOLDEN_CHECKPOINTS, floor=7, nonce=bytes(range(16)))
GOLDEN_OPLOG_ENTRY = OplogEntry(
    START_MS + 503, "host-1", "branch create", "refs/orders/half", None, b"the new ref", bytes(range(16)), "why"
)
GOLDEN_OPLOG_ENTRY_OF_TWO = OplogEntry(
    START_MS + 504,
    "host-1",
    "branch rename",
    "refs/orders/fix",
    None,
    b"the new ref",
    bytes(range(16)),
    "was half",
    (NameChange("refs/orders/half", b"the old ref", b"the deleted ref"),),
)
GOLDEN_CONFIG_COMMIT = Commit(
    vid=vid(1),
    lsn=8,
    kind=CommitKind.CONFIG,
    bounds=Bounds(3, 5_000, 2),
    parent_hash=commit_hash(GOLDEN_COMMIT),
    nonce=bytes(range(16)),
    created_at_ms=START_MS + 200,
    writer_id="host-2",
    epoch=5,
    at_seq=5_100,
    at_ts_ms=START_MS + 99,
    config='{"codec":"none"}',
    collected_before_ms=START_MS - 1,
)
_GOLDEN_MARK = LoadMark("the import of 14 November, für orders", bytes(range(16)))
GOLDEN_LOAD_COMMIT = Commit(
    vid=vid(1),
    lsn=9,
    kind=CommitKind.OFFLOAD,
    bounds=Bounds(3, 6_000, 2),
    parent_hash=commit_hash(GOLDEN_CONFIG_COMMIT),
    nonce=load_nonce(_GOLDEN_MARK),
    created_at_ms=START_MS + 300,
    writer_id="spark on host-3",
    epoch=6,
    at_seq=6_000,
    at_ts_ms=START_MS + 299,
    message="load",
    segments=(segment(5_001, 5_400), segment(5_401, 6_000)),
    load=_GOLDEN_MARK,
)
GOLDEN_VIEWS = (
    SegmentView(segment(1, 100), vid(3), 2, 4, 90, BitMap([4, 5, 70]).serialize()),
    SegmentView(segment(101, 5_000), vid(1), 7, 101, 5_000),
)
GOLDEN_RESTORE_COMMIT = Commit(
    vid=vid(1),
    lsn=10,
    kind=CommitKind.RESTORE,
    bounds=Bounds(1, 6_000),
    parent_hash=commit_hash(GOLDEN_LOAD_COMMIT),
    nonce=bytes(range(16)),
    created_at_ms=START_MS + 400,
    writer_id="host-1",
    epoch=7,
    at_seq=6_000,
    at_ts_ms=START_MS + 400,
    message="it was the wrong topic",
    restored=Restored(ForkPoint(vid(3), 5), 2, GOLDEN_VIEWS),
)
GOLDEN_CHECKPOINT = Checkpoint(
    made_at_ms=START_MS + 300,
    views=encode_views(GOLDEN_VIEWS),
    views_hash=blake3(encode_views(GOLDEN_VIEWS)).digest(),
    views_length=len(encode_views(GOLDEN_VIEWS)),
    before_seq=4,
    max_seq=5_100,
    max_ts_ms=START_MS + 99,
    config='{"codec":"none"}',
    collected_before_ms=START_MS - 1,
    put_out_ms=START_MS + 123,
)
GOLDEN_LOAD_CHECKPOINT = replace(
    GOLDEN_CHECKPOINT, load_epoch=6, loaded=(LoadedKey("one", 4_000), LoadedKey(_GOLDEN_MARK.key, 6_000))
)
