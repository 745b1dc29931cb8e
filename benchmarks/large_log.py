"""Large logs whose catalog is real and whose data objects are absent.

of_segments    a topic of up to 10,240 segments of 1 GiB each, in memory
of_commits     a data directory that follows a topic of many commits. Copies of all commits are in its local catalog
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import offload
import seglog
from benchmarks.commits import START_MS, TopicCommits, segment_of
from catalog import Commit, CommitKind, Handle, LocalCatalog, Sid, Volumes, encode_commit, make_checkpoint
from catalog.format import keys
from catalog.format.commit import Bounds, Deletions, SegmentRef
from catalog.objects import LocalStore, MemoryStore, ObjectStore
from catalog.objects.wrapped import WrappedStore
from offload.operations.init import init

__all__ = ["SEGMENTS", "TOPIC", "CountedStore", "of_commits", "of_segments"]

SEGMENTS = 10_240
TOPIC = "t"
_RECORDS = 10  # of an offload
_CHECKPOINTS = 10_000
_DELETES, _MERGES = 10, 100  # a delete every so many commits, and a merge
_T = TypeVar("_T")


class CountedStore(WrappedStore):
    """A store that counts its requests by method."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.counts: Counter[str] = Counter()

    def _call(self, method: str, key: str, act: Callable[[], _T]) -> _T:  # noqa: ARG002 - as the base has it
        self.counts[method] += 1
        return act()

    def taken(self) -> Counter[str]:
        """Return the counts since the last call."""
        counts, self.counts = self.counts, Counter()
        return counts


def of_segments(path: Path, segments: int) -> MemoryStore:
    """Return a store with a topic whose commit names `segments` segments of 1 GiB each, and a small last one.

    The last one is real. `path` is for the log that makes it.
    """
    store = MemoryStore()
    with (
        seglog.open(path) as log,
        offload.attach(log, store=store, settings=offload.Settings().with_parts(offload.OffloadSettings())) as archive,
    ):
        for count in (SEGMENTS, 5):
            log.topic(TOPIC).append([b"x"] * count)
            log.topic(TOPIC).seal()
            archive.offload(TOPIC)
        tip = archive.history.snapshot(TOPIC)
        large = tip.segments[0].ref
        many = tuple(
            replace(large, sid=Sid.new(number), first_seq=number, last_seq=number, live_records=1, frame_bytes=1 << 30)
            for number in range(1, SEGMENTS + 1)
        )
        commit = Commit(
            vid=tip.vid,
            lsn=tip.lsn + 1,
            kind=CommitKind.COMPACT,
            bounds=tip.bounds,
            parent_hash=tip.head_hash,
            nonce=bytes(16),
            created_at_ms=tip.max_ts_ms,
            writer_id="test",
            epoch=tip.epoch,
            at_seq=tip.bounds.head_seq,
            at_ts_ms=tip.max_ts_ms,
            segments=many if segments > 1 else (replace(large, sid=Sid.new(1)),),
            removed_sids=(large.sid,),
            form=tip.form,
        )
        Volumes(store).publish(tip.vid, commit.lsn, encode_commit(commit)[0])
        return store


def of_commits(directory: Path, count: int) -> None:
    """Make a data directory with a replica of `TOPIC`, whose volume has `count` commits.

    One commit in ten is a delete, and one in a hundred merges the segments since the last merge. The remote is beside
    the directory. It has the names, the checkpoints and the newest commit.
    """
    remote = directory.with_name(f"{directory.name}-remote").absolute()
    init(directory, remote.as_uri(), lambda: offload.Settings({}, {}))
    commits = TopicCommits(MemoryStore(), TOPIC)
    made = _Made(commits)
    for lsn in range(1, count + 1):
        made.publish(lsn)
        if lsn % _CHECKPOINTS == 0 or lsn == count - 1:
            make_checkpoint(commits.volumes, commits.vid, lsn, now_ms=START_MS)
    vid = commits.vid
    with closing(LocalStore(remote)) as store, LocalCatalog(directory / "catalog.db") as local:
        log = keys.commits_prefix(vid)
        for key in commits.store.list(""):
            if not key.startswith(log):
                store.put(keys.check_key(key), commits.store.get(keys.check_key(key)), {})
        newest = keys.commit_key(vid, count)
        store.put(newest, commits.store.get(newest), {})
        for first in range(1, count + 1, _CHECKPOINTS):
            lsns = range(first, min(first + _CHECKPOINTS, count + 1))
            local.put_commits(vid, [(lsn, commits.store.get(keys.commit_key(vid, lsn))) for lsn in lsns])
        local.save(handle=Handle(TOPIC, vid, count))


class _Made:
    """Publishes the commits of `of_commits`, each right after the one before."""

    def __init__(self, commits: TopicCommits) -> None:
        self._commits = commits
        self._head = 0
        self._deleted_before = 0
        self._unmerged: list[SegmentRef] = []

    def publish(self, lsn: int) -> None:
        now_ms = START_MS + lsn * 1000
        if lsn % _MERGES == 0:
            merged = segment_of(Sid.new(now_ms), self._unmerged[0].first_seq, self._head, now_ms)
            removed = tuple(ref.sid for ref in self._unmerged)
            self._put(CommitKind.COMPACT, now_ms, segments=(merged,), removed_sids=removed)
            self._unmerged = []
        elif lsn % _DELETES == 0:
            self._deleted_before += 1
            self._put(CommitKind.DELETE, now_ms, deletions=Deletions(before_seq=self._deleted_before))
        else:
            ref = segment_of(Sid.new(now_ms), self._head + 1, self._head + _RECORDS, now_ms)
            self._head += _RECORDS
            self._unmerged.append(ref)
            self._put(CommitKind.OFFLOAD, now_ms, segments=(ref,))

    def _put(
        self,
        kind: CommitKind,
        now_ms: int,
        *,
        segments: tuple[SegmentRef, ...] = (),
        removed_sids: tuple[Sid, ...] = (),
        deletions: Deletions | None = None,
    ) -> None:
        self._commits.put(
            kind, Bounds(1, self._head), now_ms, segments, removed_sids=removed_sids, deletions=deletions or Deletions()
        )
