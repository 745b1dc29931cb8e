"""The status of a topic: where its records are, as far as the local disk knows. This module does no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from catalog import Attempt, Handle
from offload.handles import Tip
from offload.replication.replica import SyncState
from offload.reports import TopicStatus
from offload.services.erasures import ErasureState
from offload.write.attempt import AttemptState
from seglog import Topic

__all__ = ["status_of", "status_of_replica"]


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
