"""The opening of a load: the branch, the newest state, and whether a load may write there (offload.load)."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from catalog import MAIN, Bounds, Branches, Codec, ForkPoint, Snapshot, Vid, Volumes
from catalog.errors import BranchExists, NoSuchBranch, NoSuchTopic
from catalog.format import keys
from catalog.format.control import full_name
from offload.errors import WrittenByLog
from offload.format.topic_config import config_of
from offload.settings import OffloadSettings, codec_named, encrypted_by

__all__ = ["Load", "LoadRequest", "is_free", "loaded_seq", "open_load"]

_SETTINGS = OffloadSettings(concurrency=1)


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The job as its caller wants it.

    `key` is the idempotency key, empty if there is none. `rows` has partition and number of rows of each partition that
    has any, ascending. None means that the rows were not counted. Then only partition 0 may have any. `take_over` lets
    the load write where a log writes. `codec` is a name, None for the topic's own.
    `kms_key_id` is the key of all objects of the load, empty for the bucket's own choice.
    """

    topic: str
    branch: str = MAIN
    key: str = ""
    rows: tuple[tuple[int, int], ...] | None = None
    take_over: bool = False
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
    main. Raises `WrittenByLog` (LOAD-4), `InvalidName`, `NoSuchTopic`, and what the store raises.
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
        done_seq=loaded_seq(snapshot, request),
        settings=encrypted_by(request.kms_key_id, _SETTINGS),
    )
    if not load.is_done and not request.take_over and not is_free(snapshot):
        [newest] = volumes.commits(vid, snapshot.lsn, snapshot.lsn)
        raise WrittenByLog(load.name, newest.commit.writer_id, snapshot.lsn)
    return load


def _volume(branches: Branches, volumes: Volumes, request: LoadRequest, now_ms: int) -> Vid:
    topic, branch = keys.check_name("topic", request.topic), keys.check_name("branch", request.branch)
    try:
        vid = branches.resolve(topic, branch)
        branches.check_open(topic, branch, vid, now_ms=now_ms)
    except (NoSuchTopic, NoSuchBranch):
        if branch == MAIN:
            return branches.create(topic, now_ms=now_ms)
    else:
        return vid
    parent = branches.resolve(topic)
    try:
        return branches.create(topic, branch, ForkPoint(parent, volumes.newest_lsn(parent)), now_ms=now_ms)
    except BranchExists:  # another job was faster
        return branches.resolve(topic, branch)


def loaded_seq(snapshot: Snapshot, request: LoadRequest) -> int | None:
    """Return the last seq of the load with the idempotency key, if a state has the key (LOAD-3); otherwise None."""
    found = (each.last_seq for each in snapshot.loaded if each.key == request.key)
    return next(found, None) if request.key else None


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
    config = config_of(snapshot.config, keys.commit_key(snapshot.vid, snapshot.lsn or 1))
    return codec_named(config.attributes.get("codec", _SETTINGS.codec))
