"""Reports of the archive that the command line shows: of a topic, of a range of segments, and of one side of a diff.

A client of the daemon gets them as well. So this module imports neither the catalog nor the log.
"""

from __future__ import annotations

from dataclasses import field

from seglog.base.dataclasses import dataclass

_HIDDEN = {"json": "hidden"}  # `HIDDEN` of offload.operations.result_json, which lies above


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatus:
    """The places of a topic's records. Seqs are inclusive; 0 means none. Bytes are bytes of frames.

    The defaults are those of a topic without a volume, or of a replica without hot records.

    `epoch` is the epoch of the log's seqs. `writer_epoch` is the epoch of the commits that this directory makes; 0 for
    a replica. `state` is the text of `offload.replication.replica.SyncState`.

    `unerased_objects` counts the objects in the remote that still hold deleted records. The deleted records in no such
    object are gone for good by `erased_by_ms`. `erased_by_ms` is None if they are gone by now. Both are None if this
    directory does not know. `committed_at_ms` is the time of the newest commit that this directory knows.
    """

    name: str
    head_seq: int
    hot_first_seq: int
    hot_bytes: int = 0
    sealed_seq: int
    offloaded_seq: int
    volume: str | None = None
    lsn: int = 0
    pending_lsn: int | None = None
    diverged_lsn: int | None = None
    unfinished_attempts: int = 0
    waiting_deletes: int = 0
    earliest_seq: int
    evict_floor: int
    epoch: int = 0
    relocated_bytes: int = 0
    is_paused: bool = False
    state: str
    is_replica: bool = False
    writer_epoch: int = 0
    fenced_epoch: int | None = None
    unerased_objects: int | None = None
    erased_by_ms: int | None = None
    committed_at_ms: int | None = field(default=None, metadata=_HIDDEN)


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The status of one run. Seqs are inclusive, the time is in ms since the epoch."""

    sid: str
    first_seq: int
    last_seq: int
    complete: bool
    hot_deleted: bool
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Lag:
    """The part of a topic that only this directory has: its records, bytes of frames, and the age of the oldest record.

    Sealed and unsealed records count. `lag_s` is None if there is no such record.
    """

    lag_records: int
    lag_bytes: int
    lag_s: float | None


@dataclass(frozen=True, slots=True)
class Side:
    """One branch's side of a diff.

    `appended` counts the branch's records above the shared seq, which run from `first_seq` to `last_seq`. Both are None
    if there are none. `deleted` counts the records up to the shared seq that the other branch shows and this branch
    does not.
    """

    appended: int
    first_seq: int | None
    last_seq: int | None
    deleted: int
