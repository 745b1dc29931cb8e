"""A load: a job that appends records to a branch in the remote without a log. Spark's writer is one.

    1  The driver opens the load (`open_load`). It finds or creates the branch, and checks that no log writes it. It
       reads the newest state: LSN L, head seq H. If the state has the load's idempotency key, the load is done.
    2  The driver knows how many rows each partition has. So the first seq of partition p is H + 1 + the rows of the
       partitions before p.
    3  A task encodes its rows as frames with these seqs (`write_part`). It uploads data and index objects under sids
       that it has just drawn. If it has other rows than counted, it fails.
    4  The task tells the driver its segments. Of several attempts of one task, Spark passes on one.
    5  The driver checks that the segments are exactly the seqs from H + 1 on, and that their times never fall.
    6  The driver puts one commit with all segments at L + 1, if that key is absent (`publish_load`).
    7  The driver makes a checkpoint of the volume, if one is due.

LOAD-1  Readers see all records of a load from step 6 on, or none at all.
    An attempt that failed, or that another attempt of its task overtook, leaves objects that no commit names. So does
    a job that ended before step 6. GC deletes them after its grace.
LOAD-2  A frame contains its seq, so the objects of a load fit one head only.
    If another writer has the LSN of step 6, only maintenance (SYNC-2) lets the driver try the next LSN. After any other
    commit the load ends with `LoadConflict`. So of two loads at once, one wins. A takeover or a promotion since step 1
    has raised the epoch, so it wins over the load, also if the load would raise the epoch as far.
LOAD-3  The idempotency key is in the commit, and in the snapshots after it (SNAP-5).
    A load whose key is among the newest 256 keys of the branch changes nothing. Step 6 looks for the key again, so two
    loads with one key at the same time write once. A truncation or a delete of its records takes no key back: a
    corrected job needs another key.
LOAD-4  A load writes only where no log writes: to a volume without commits of a writer, or after other loads.
    Its first commit raises the epoch, as a takeover does. So a log that has the volume without a commit yet is fenced.
    Later loads keep that epoch. A log becomes the writer by a takeover, and then loads are refused.
    The commit of an undo or a promotion raises the epoch, too, but no log writes by it. If no log wrote the volume
    before, the commit has the mark of a load without a key, and later loads keep its epoch (ASIDE-2).
LOAD-5  The sids of a load are no older than the time up to which the volume was collected (OFFLOAD-6).
    If GC plans to delete the objects of a slow load, a commit of GC has the LSN of step 6. Then the driver finds the
    sids too old, and the load ends with `LoadTooLate`.
LOAD-6  If the commit is certainly refused, the driver deletes the load's objects.
    If the outcome is unknown, the commit may land later. Then the driver deletes nothing.
LOAD-7  The times of a topic never fall from one seq to the next.
    The rows of a load must be in the order of their times. The first one must not be before the topic's newest time. A
    row without a time gets the time at which the load was opened, or the topic's newest time if that is later.
LOAD-8  A takeover cannot ask the log whether it runs, so it looks how old the log's newest commit is.
    A log whose topic has a `tail_interval_s` commits that often while it appends. So it counts as ended once its newest
    commit is older than twice that. Commits of maintenance do not count, because any machine makes them.
    Without that attribute, a log commits when a segment is full, which may take days. Then it counts as running, and
    only `force` takes over. The age is by the clock of the load, so one that is fast makes a running log look ended.
    A log that ended, or runs all the same, may have records that are not in the remote. Their seqs go to the load, too.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from catalog import (
    MAIN,
    Bounds,
    Branches,
    CatalogError,
    Codec,
    Commit,
    CommitKind,
    ForkPoint,
    SegmentRef,
    Sid,
    Snapshot,
    Vid,
    Volumes,
    encode_commit,
)
from catalog.checkpointer import CheckpointPolicy
from catalog.errors import BranchCollected, BranchExists, Diverged, KeyTaken, NoSuchBranch, NoSuchObject, NoSuchTopic
from catalog.format import keys
from catalog.format.commit import LoadMark
from catalog.format.control import full_name
from catalog.format.encoding import load_nonce
from catalog.objects.object_store import ObjectStore
from catalog.updates import MAINTENANCE, pull
from offload.errors import OffloadError
from offload.format.block import largest_entry
from offload.format.topic_config import config_of
from offload.settings import OffloadSettings, codec_named, encrypted_by, trigger_overrides
from offload.write.frame_batches import FrameBatches
from offload.write.publisher import make_due_checkpoint
from offload.write.segment_upload import UploadJob, delete_segment, upload_segment
from seglog.base import forms
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Conflict, Misuse
from seglog.format.frame import LENGTH_BYTES, MIN_FRAME_BYTES
from seglog.format.frames import Frames
from seglog.values.config import TopicConfig

# What a program that loads holds. Other rooms take two texts and `is_free` besides.
__all__ = [
    "InvalidRow",
    "Load",
    "LoadConflict",
    "LoadRequest",
    "LoadTooLate",
    "Loaded",
    "LoadedPart",
    "RowsChanged",
    "WrittenByLog",
    "check_load",
    "most_value_bytes",
    "open_load",
    "publish_load",
    "warn_of_done",
    "write_part",
]

_SETTINGS = OffloadSettings(concurrency=1)
BEFORE_THE_LAST = "is before the time of the record before it"
SORT_BY_TIME = 'sort the rows, df.orderBy("timestamp"), or drop the column: each row then gets the time of the load'

_log = logging.getLogger(__name__)
_ROUNDS = 20


class InvalidRow(Misuse, OffloadError):
    """A row of a load cannot become the record `seq`."""

    seq: int
    column: str
    reason: str
    hint: str | None = None
    message = "the row of record {seq}: {column} {reason}; nothing was written"


class WrittenByLog(Conflict, OffloadError):
    """A load named a branch that a log writes. Its commit would fence that log.

    `age_s` is the age of the log's newest commit, if the load was to take over, but the log may run (LOAD-8).
    """

    def __init__(self, name: str, writer_id: str, lsn: int, age_s: int | None = None) -> None:
        topic = name.partition("@")[0]
        newest = f"lsn {lsn}" if age_s is None else f"lsn {lsn}, {age_s} s ago"
        hint = (
            f"write to a branch of {topic} of its own, with the option branch; or stop that log, and give the "
            "option takeOver: the log then follows the branch, and can take it over again"
        )
        if age_s is not None:
            hint = (
                "the log may still run, and the topic loses the records that it has not offloaded: ask `seglog status` "
                "on its machine, run `seglog offload`, stop it, and give takeOver=force"
            )
        self._tell(
            f"{name} is written by the log of {writer_id} (newest commit: {newest}); nothing was written", hint=hint
        )
        self.name = name
        self.writer_id = writer_id
        self.lsn = lsn
        self.age_s = age_s


class RowsChanged(Conflict, OffloadError):
    """A partition has other rows in a task than the driver had counted, so its seqs would be wrong."""

    partition: int
    rows: int
    counted: int
    message = "partition {partition} has {rows} rows now, and had {counted} when they were counted; nothing was written"
    hint = "the input is not the same each time that Spark computes it: write it to a table first, or cache it"


class LoadTooLate(Conflict, OffloadError):
    name: str
    message = (
        "the load into {name} took longer than GC's grace, so GC may have planned to delete its objects; nothing of "
        "this load is visible"
    )
    hint = "run the job again in smaller parts, or raise gc_grace_s in the [catalog] section of seglog.toml"


class LoadConflict(Conflict, OffloadError):
    """Another writer committed at `lsn` during a load. The seqs of the load's records may be taken."""

    def __init__(self, name: str, lsn: int, writer_id: str) -> None:
        self._tell(
            f"{writer_id or 'another writer'} committed to {name} at lsn {lsn} during this load; "
            "nothing of this load is visible",
            hint="run the job again, when the other writer has ended",
        )
        self.name = name
        self.lsn = lsn
        self.writer_id = writer_id


_REFUSALS = (BranchCollected, InvalidRow, LoadConflict, LoadTooLate, RowsChanged)


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The job as its caller wants it.

    `key` is the idempotency key, empty if there is none. `rows` has partition and number of rows of each partition that
    has any, ascending. None means that the rows were not counted. Then only partition 0 may have any. `take_over` lets
    the load write where a log writes, and with `unless_running` only if that log seems to have ended (LOAD-8).
    With `must_exist`, a branch that does not exist is an error, also if it went while the rows were computed.
    `codec` is a name, None for the topic's own. `kms_key_id` is the key of all objects of the load, empty for the
    bucket's own choice.
    """

    topic: str
    branch: str = MAIN
    key: str = ""
    rows: tuple[tuple[int, int], ...] | None = None
    take_over: bool = False
    unless_running: bool = False
    must_exist: bool = False
    codec: str | None = None
    kms_key_id: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """An open load, as its tasks get it. Times are milliseconds since 1970.

    `lsn`, `bounds` and `head_hash` are the state that the commit follows. `start_ms` is the time of rows that have
    none, and `newest_ms` is the topic's newest time. If the state has the key (LOAD-3), `done_seq` is the last seq of
    the load that wrote it; None if it has not.
    """

    request: LoadRequest
    vid: Vid
    lsn: int
    bounds: Bounds
    head_hash: bytes
    epoch: int
    start_ms: int
    newest_ms: int
    collected_before_ms: int
    codec: Codec
    done_seq: int | None
    settings: OffloadSettings

    @property
    def is_done(self) -> bool:
        return self.done_seq is not None

    @property
    def name(self) -> str:
        return full_name(self.request.topic, self.request.branch)

    def rows_of(self, partition: int) -> int | None:
        """Return how many rows a partition has; None if they were not counted."""
        if self.request.rows is None:
            return None if partition == 0 else 0
        return dict(self.request.rows).get(partition, 0)

    def first_seq_of(self, partition: int) -> int:
        """Return the seq of the first row of a partition."""
        rows = self.request.rows or ()
        before = bisect_left(rows, (partition, 0))
        return self.bounds.head_seq + 1 + sum(count for _, count in rows[:before])


def open_load(volumes: Volumes, request: LoadRequest, *, writer_id: str, now_ms: int) -> Load:
    """Find or create the branch, and return the load on its newest state.

    A topic without a main branch is created. Another branch that does not exist is forked from the newest state of
    main. Raises `WrittenByLog` (LOAD-4), `InvalidName`, `NoSuchTopic`, `NoSuchBranch`, and what the store raises.
    """
    vid = _volume(Branches(volumes, writer_id), volumes, request, now_ms)
    snapshot = volumes.snapshot(vid)
    load = Load(
        request=request,
        vid=vid,
        lsn=snapshot.lsn,
        bounds=snapshot.bounds,
        head_hash=snapshot.head_hash,
        epoch=_epoch(snapshot),
        start_ms=max(now_ms, snapshot.max_ts_ms),
        newest_ms=snapshot.max_ts_ms,
        collected_before_ms=snapshot.collected_before_ms,
        codec=_codec(snapshot, request),
        done_seq=_loaded_seq(snapshot, request),
        settings=encrypted_by(request.kms_key_id, _SETTINGS),
    )
    if not load.is_done:
        _check_writer(volumes, snapshot, request, now_ms, sum(rows for _, rows in request.rows or ()))
    return load


def check_load(volumes: Volumes, request: LoadRequest, *, now_ms: int) -> int | None:
    """Return the most bytes of value and labels; None, with a warning, if the load is done (LOAD-3).

    Raises the errors of `open_load`, which may come now, and makes nothing. So a job is refused, or ends, before its
    rows are computed. A branch of a topic that is missing raises `NoSuchTopic`.
    """
    branches = Branches(volumes)
    vid = _existing(branches, request, now_ms)
    if vid is None:
        if request.branch != MAIN or request.must_exist:
            branches.resolve(request.topic, request.branch if request.must_exist else MAIN)
        codec = codec_named(request.codec or _SETTINGS.codec)
    else:
        snapshot = volumes.snapshot(vid)
        done_seq = _loaded_seq(snapshot, request)
        if done_seq is not None:
            warn_of_done(request, done_seq)
            return None
        _check_writer(volumes, snapshot, request, now_ms)
        codec = _codec(snapshot, request)
    return most_value_bytes(codec)


def warn_of_done(request: LoadRequest, done_seq: int) -> None:
    """Say that the load writes nothing, because another one brought its key."""
    _log.warning(
        "%s has the idempotency key %r, of a load up to seq %d: nothing is written. If its records were truncated "
        "or deleted since, give the job another key",
        full_name(request.topic, request.branch), request.key, done_seq,
    )  # fmt: skip


def most_value_bytes(codec: Codec) -> int:
    """Return the most bytes of value, node and tag together: a record lies in one block."""
    return largest_entry(_SETTINGS.block_size, codec) + LENGTH_BYTES - MIN_FRAME_BYTES


def _check_writer(volumes: Volumes, snapshot: Snapshot, request: LoadRequest, now_ms: int, rows: int = 0) -> None:
    """Raise `WrittenByLog` if a log writes the volume (LOAD-4, LOAD-8). A takeover of `rows` rows is a warning."""
    if is_free(snapshot):
        return
    name = full_name(request.topic, request.branch)
    newest = _newest_of_log(volumes, snapshot)
    age_s = max(now_ms - newest.created_at_ms, 0) // 1000
    if not request.take_over:
        raise WrittenByLog(name, newest.writer_id, newest.lsn)
    if request.unless_running and _may_run(snapshot, age_s):
        raise WrittenByLog(name, newest.writer_id, newest.lsn, age_s)
    if rows:
        first = snapshot.bounds.head_seq + 1
        _log.warning(
            "%s is taken over from the log of %s, which committed %d s ago. That log may have given the seqs %d to %d "
            "to other records, which then stay in its directory until `seglog reset`",
            name, newest.writer_id, age_s, first, first + rows - 1,
        )  # fmt: skip


def _newest_of_log(volumes: Volumes, snapshot: Snapshot) -> Commit:
    """Return the newest commit that is no maintenance, among those that GC has left."""
    [newest] = volumes.commits(snapshot.vid, snapshot.lsn, snapshot.lsn)
    commit = newest.commit
    while commit.kind in MAINTENANCE and commit.lsn > 1:
        try:
            [before] = volumes.commits(snapshot.vid, commit.lsn - 1, commit.lsn - 1)
        except NoSuchObject:  # collected, so the log's own is older still
            break
        commit = before.commit
    return commit


def _may_run(snapshot: Snapshot, age_s: int) -> bool:
    """Return whether a log may run that committed `age_s` ago (LOAD-8)."""
    interval_s = trigger_overrides(_config_of(snapshot).attributes).get("tail_interval_s")
    return not isinstance(interval_s, int) or age_s < 2 * interval_s


def _existing(branches: Branches, request: LoadRequest, now_ms: int) -> Vid | None:
    topic, branch = keys.check_name("topic", request.topic), keys.check_name("branch", request.branch)
    try:
        vid = branches.resolve(topic, branch)
        branches.check_open(topic, branch, vid, now_ms=now_ms)
    except (NoSuchTopic, NoSuchBranch):
        return None
    return vid


def _volume(branches: Branches, volumes: Volumes, request: LoadRequest, now_ms: int) -> Vid:
    vid, topic, branch = _existing(branches, request, now_ms), request.topic, request.branch
    if vid is not None:
        return vid
    if request.must_exist:
        return branches.resolve(topic, branch)
    if branch == MAIN:
        return branches.create(topic, now_ms=now_ms)
    parent = branches.resolve(topic)
    try:
        return branches.create(topic, branch, ForkPoint(parent, volumes.newest_lsn(parent)), now_ms=now_ms)
    except BranchExists:  # another job was faster
        return branches.resolve(topic, branch)


def _loaded_seq(snapshot: Snapshot, request: LoadRequest) -> int | None:
    """Return the last seq of the load with the idempotency key, if a state has the key (LOAD-3); otherwise None."""
    seqs = (load.last_seq for load in snapshot.loaded if load.key == request.key)
    return next(seqs, None) if request.key else None


def is_free(snapshot: Snapshot) -> bool:
    """Return whether no log writes the volume, as far as its commits tell (LOAD-4)."""
    return snapshot.epoch == 0 or snapshot.load_epoch == snapshot.epoch


def _epoch(snapshot: Snapshot) -> int:
    if snapshot.epoch and snapshot.load_epoch == snapshot.epoch:
        return snapshot.epoch
    return snapshot.next_epoch


def _codec(snapshot: Snapshot, request: LoadRequest) -> Codec:
    if request.codec is not None:
        return codec_named(request.codec)
    return codec_named(_config_of(snapshot).attributes.get("codec", _SETTINGS.codec))


def _config_of(snapshot: Snapshot) -> TopicConfig:
    return config_of(snapshot.config, keys.commit_key(snapshot.vid, snapshot.lsn or 1))


@dataclass(frozen=True, slots=True)
class LoadedPart:
    """The rows of one partition as segments, ascending. Without rows there are none."""

    partition: int
    rows: int
    segments: tuple[SegmentRef, ...] = ()


def write_part(
    store: ObjectStore, load: Load, partition: int, batches: Iterable[Frames], *, now_ms: Callable[[], int]
) -> LoadedPart:
    """Upload the frames of a partition, and return its segments. Memory holds one block, beside the batches.

    The first frame has the seq `load.first_seq_of(partition)`. A segment has at most `max_object_bytes`. Raises
    `RowsChanged`, and the errors of `batches` and of the store. Then the objects are deleted, if that works.
    """
    sids: list[Sid] = []

    def new_sid() -> Sid:
        sids.append(Sid.new(max(now_ms(), load.collected_before_ms)))
        return sids[-1]

    try:
        return _written(store, load, partition, FrameBatches(batches), new_sid)
    except BaseException:
        _discard_segments(store, load, sids)
        raise


def _written(
    store: ObjectStore, load: Load, partition: int, waiting: FrameBatches, new_sid: Callable[[], Sid]
) -> LoadedPart:
    segments: list[SegmentRef] = []
    rows, counted = 0, load.rows_of(partition)
    while waiting.first_seq is not None and counted != 0:
        job = UploadJob(load.name, load.vid, new_sid(), waiting.first_seq, 0, load.codec, load.settings)
        frames = waiting.up_to(load.settings.max_object_bytes)
        segments.append(upload_segment(store, job, frames, on_upload_id=lambda _: None))
        rows = segments[-1].last_seq - segments[0].first_seq + 1
    if waiting.first_seq is not None or (counted is not None and rows != counted):
        raise RowsChanged(partition, rows + sum(map(len, waiting)), counted or 0)
    return LoadedPart(partition, rows, tuple(segments))


def _discard_segments(store: ObjectStore, load: Load, sids: Iterable[Sid]) -> None:
    """Delete the objects of segments that no commit will name. GC deletes what an error leaves."""
    for sid in sids:
        try:
            delete_segment(store, load.vid, sid)
        except CatalogError as trouble:
            _log.warning("segment %s stays behind for GC: %s", sid, trouble)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of a load. `lsn` is its commit, None if it made none: no rows, or its key was there before.

    Then `done_seq` is the last seq of the load that brought the key. Its records may have been truncated since.
    """

    lsn: int | None
    first_seq: int
    last_seq: int
    done_seq: int | None = None


def publish_load(
    volumes: Volumes,
    load: Load,
    parts: Sequence[LoadedPart],
    *,
    writer_id: str,
    now_ms: int,
    checkpoints: CheckpointPolicy | None = None,
) -> Loaded:
    """Make the records of all parts visible by one commit.

    Raises `RowsChanged` and `InvalidRow` if the parts do not fit together, `LoadConflict`, `LoadTooLate`,
    `BranchCollected`, and `OutcomeUnknown`. After `OutcomeUnknown`, only a load with the same key can tell.
    """
    segments = [segment for part in sorted(parts, key=lambda part: part.partition) for segment in part.segments]
    if not segments:
        return _nothing(load, load.done_seq)
    try:
        _check_fit(load, parts, segments)
        newest = volumes.snapshot(load.vid, load.lsn)
        for _ in range(_ROUNDS):
            done_seq = _loaded_seq(newest, load.request)
            if done_seq is not None:
                _discard_segments(volumes.store, load, (segment.sid for segment in segments))
                return _nothing(load, done_seq)
            if any(segment.sid.created_ms < newest.collected_before_ms for segment in segments):
                raise LoadTooLate(load.name)
            commit = _commit(load, newest, segments, writer_id, now_ms)
            try:
                volumes.publish(load.vid, commit.lsn, encode_commit(commit)[0])
            except BranchCollected:
                raise
            except Diverged:
                newest = _after(volumes, load, newest)
                continue
            make_due_checkpoint(volumes, load.vid, commit.lsn, checkpoints or CheckpointPolicy(), now_ms=now_ms)
            return Loaded(commit.lsn, segments[0].first_seq, segments[-1].last_seq)
        raise KeyTaken(keys.commit_key(load.vid, newest.lsn + 1))
    except _REFUSALS:  # after any other error, the commit may still land (LOAD-6)
        _discard_segments(volumes.store, load, (segment.sid for segment in segments))
        raise


def _nothing(load: Load, done_seq: int | None) -> Loaded:
    return Loaded(None, load.bounds.head_seq + 1, load.bounds.head_seq, done_seq)


def _check_fit(load: Load, parts: Sequence[LoadedPart], segments: Iterable[SegmentRef]) -> None:
    """Check that the segments are the seqs that the load assigns, in the order of their times (LOAD-7)."""
    by_partition = {part.partition: part for part in parts}
    for partition, counted in load.request.rows or ():
        rows = by_partition[partition].rows if partition in by_partition else 0
        if rows != counted:
            raise RowsChanged(partition, rows, counted)
    seq, newest_ms = load.bounds.head_seq + 1, load.newest_ms
    for segment in segments:
        if segment.first_seq != seq:
            raise InvalidRow(segment.first_seq, "seq", f"is not {seq}, which follows the records before it")
        if segment.min_ts_ms < newest_ms:
            raise InvalidRow(seq, "timestamp", BEFORE_THE_LAST, hint=SORT_BY_TIME)
        seq, newest_ms = segment.last_seq + 1, segment.max_ts_ms


def _commit(load: Load, newest: Snapshot, segments: Sequence[SegmentRef], writer_id: str, now_ms: int) -> Commit:
    mark = LoadMark(load.request.key, os.urandom(16))
    return Commit(
        vid=load.vid,
        lsn=newest.lsn + 1,
        kind=CommitKind.OFFLOAD,
        bounds=replace(load.bounds, head_seq=segments[-1].last_seq),
        parent_hash=newest.head_hash,
        nonce=load_nonce(mark),
        created_at_ms=now_ms,
        writer_id=writer_id,
        epoch=load.epoch,
        at_seq=segments[-1].last_seq,
        at_ts_ms=segments[-1].max_ts_ms,
        message=f"load {load.request.key}" if load.request.key else "load",
        segments=tuple(segments),
        load=mark,
        form=newest.form or forms.NEWEST,
    )


def _after(volumes: Volumes, load: Load, base: Snapshot) -> Snapshot:
    """Return the state after the commits that took the load's LSN. Raises `LoadConflict` if they are not maintenance.

    A commit that raises the epoch is none, also up to the load's own epoch: it began a writer since the load was
    opened. A commit with the load's key is no conflict.
    """
    updates = pull(volumes, load.vid, base.lsn, base.head_hash)
    newest = volumes.snapshot(load.vid, updates.lsn)
    if _loaded_seq(newest, load.request) is not None:
        return newest
    if updates.is_empty or not updates.is_maintenance(load.bounds, base.epoch):
        writer_id = updates.commits[0].commit.writer_id if updates.commits else ""
        raise LoadConflict(load.name, base.lsn + 1, writer_id)
    _log.info("%s: lsn %d was taken by maintenance, going on after lsn %d", load.name, base.lsn + 1, newest.lsn)
    return newest
