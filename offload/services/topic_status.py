"""The status of a topic: where its records are, as far as the local disk knows. This module does no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from catalog import Attempt, Handle
from offload.handles import Tip
from offload.replication.replica import SyncState
from offload.services.erasures import ErasureState
from offload.write.attempt import AttemptState
from seglog import Topic

__all__ = ["TopicStatus", "status_of", "status_of_replica"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatus:
    """The places of a topic's records. Seqs are inclusive; 0 means none. Bytes are bytes of frames.

    The defaults are those of a topic without a volume, or of a replica without hot records.

    `epoch` is the epoch of the log's seqs. `writer_epoch` is the epoch of the commits that this directory makes; 0 for
    a replica. `state` is the text of `offload.replication.replica.SyncState`.

    `unerased_objects` counts the objects in the remote that still hold deleted records. The deleted records in no such
    object are gone for good by `erased_by_ms`. `erased_by_ms` is None if they are gone by now. Both are None if this
    directory does not know.
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


def status_of(
    topic: Topic,
    handle: Handle | None,
    state: SyncState,
    attempts: Sequence[Attempt],
    erasure: ErasureState | None,
    *,
    offloaded_seq: int,
    is_paused: bool,
) -> TopicStatus:
    here = TopicStatus(
        name=topic.name,
        head_seq=topic.head_seq,
        hot_first_seq=topic.hot_floor,
        hot_bytes=topic.bytes_hot,
        sealed_seq=topic.sealed_seq,
        offloaded_seq=offloaded_seq,
        unfinished_attempts=sum(attempt.state == AttemptState.PLANNED for attempt in attempts),
        waiting_deletes=len(topic.delete_ops()),
        earliest_seq=topic.earliest_seq,
        evict_floor=topic.evict_floor,
        epoch=topic.epoch,
        relocated_bytes=topic.bytes_relocated,
        is_paused=is_paused,
        state=str(state),
        writer_epoch=handle.epoch if handle else 0,
    )
    return here if handle is None else _with_remote(here, handle, erasure)


def status_of_replica(handle: Handle, tip: Tip, state: SyncState, erasure: ErasureState | None) -> TopicStatus:
    """Return the status of a replica, which has no hot records."""
    bounds = tip.bounds
    here = TopicStatus(
        name=handle.name,
        head_seq=bounds.head_seq,
        hot_first_seq=bounds.head_seq + 1,
        sealed_seq=bounds.head_seq,
        offloaded_seq=bounds.head_seq,
        earliest_seq=bounds.first_seq,
        evict_floor=bounds.evict_floor,
        state=str(state),
        is_replica=True,
    )
    return _with_remote(here, handle, erasure)


def _with_remote(here: TopicStatus, handle: Handle, erasure: ErasureState | None) -> TopicStatus:
    """Add the facts of the topic's volume."""
    return replace(
        here,
        volume=str(handle.vid),
        lsn=handle.lsn,
        pending_lsn=handle.pending_lsn,
        diverged_lsn=handle.diverged_lsn,
        fenced_epoch=handle.fenced_epoch,
        unerased_objects=erasure.objects if erasure else None,
        erased_by_ms=erasure.by_ms if erasure else None,
    )
