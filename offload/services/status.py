"""`archive.status`: where the records of a topic are, as far as this directory knows. Reads the local disk only.

Each range of segments that is or becomes one data object has a status in the terms of PIP-17.

    PIP-17           here
    uid              sid
    complete         a commit of the volume names it, and its objects are whole
    deleted          the hot copy is gone
    timestamp        when the attempt began

If a later commit merged a run into another, or truncated all of it, the run is no longer listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from catalog import Attempt, Commit, Handle, SegmentRef
from catalog.errors import CatalogError
from catalog.format.encoding import decode_commit_at
from offload.format.topic_config import PAUSED
from offload.handles import Tip
from offload.replication.replica import SyncState
from offload.reports import Lag, RunStatus, TopicStatus
from offload.services.archive_parts import OfArchive
from offload.services.erasure_dates import ErasureState, collected_after_ms, erasure_state, window_ms_here
from offload.write.attempt import AttemptState
from seglog import Topic, TruncateOp
from seglog.base.arguments import checked
from seglog.base.ownership import Owned
from seglog.values.names import BRANCH_MARK


def _run_statuses(
    segments: Iterable[SegmentRef], commits: Iterable[Commit], attempts: Iterable[Attempt], hot_floor: int
) -> tuple[RunStatus, ...]:
    """Return the runs of a volume: its own segments, its commits after that, and the attempts for it; ascending.

    Records below `hot_floor` are not hot.
    """
    runs = {str(segment.sid): _complete(segment, hot_floor) for segment in segments}
    for commit in commits:
        for sid in commit.removed_sids:
            runs.pop(str(sid), None)
        if commit.truncate_from is not None:
            runs = dict(_cut(runs, commit.truncate_from))
        again = [view.ref for view in commit.restored_views if view.vid == commit.vid]
        runs.update((str(segment.sid), _complete(segment, hot_floor)) for segment in (*commit.segments, *again))
    for attempt in attempts:
        run = RunStatus(
            str(attempt.sid),
            attempt.first_seq,
            attempt.last_seq,
            complete=False,
            hot_deleted=False,
            timestamp_ms=attempt.created_at_ms,
        )
        runs.setdefault(run.sid, run)
    return tuple(sorted(runs.values(), key=lambda run: (run.first_seq, run.timestamp_ms)))


def _cut(runs: Mapping[str, RunStatus], seq: int) -> Iterator[tuple[str, RunStatus]]:
    """Yield the runs without the records from `seq` on."""
    for sid, run in runs.items():
        if run.first_seq < seq:
            yield sid, replace(run, last_seq=min(run.last_seq, seq - 1))


def _complete(segment: SegmentRef, hot_floor: int) -> RunStatus:
    return RunStatus(
        str(segment.sid),
        segment.first_seq,
        segment.last_seq,
        complete=True,
        hot_deleted=segment.last_seq < hot_floor,
        timestamp_ms=segment.sid.created_ms,
    )


def _status_of(
    topic: Topic,
    handle: Handle | None,
    state: SyncState,
    attempts: Sequence[Attempt],
    erasure: ErasureState | None,
    *,
    offloaded_seq: int,
    is_paused: bool,
) -> TopicStatus:
    status = TopicStatus(
        name=topic.name,
        head_seq=topic.head_seq,
        hot_first_seq=topic.inner.hot_floor,
        hot_bytes=topic.inner.bytes_hot,
        sealed_seq=topic.inner.sealed_seq,
        offloaded_seq=offloaded_seq,
        unfinished_attempts=sum(attempt.state == AttemptState.PLANNED for attempt in attempts),
        waiting_deletes=len(topic.inner.delete_ops()),
        earliest_seq=topic.earliest_seq,
        evict_floor=topic.inner.evict_floor,
        epoch=topic.epoch,
        relocated_bytes=topic.inner.bytes_relocated,
        is_paused=is_paused,
        state=str(state),
        writer_epoch=handle.epoch if handle else 0,
    )
    return status if handle is None else _with_remote(status, handle, erasure)


def _status_of_replica(handle: Handle, tip: Tip, state: SyncState, erasure: ErasureState | None) -> TopicStatus:
    """Return the status of a replica, which has no hot records."""
    bounds = tip.bounds
    status = TopicStatus(
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
    return _with_remote(status, handle, erasure)


def _with_remote(status: TopicStatus, handle: Handle, erasure: ErasureState | None) -> TopicStatus:
    """Add the facts of the topic's volume."""
    return replace(
        status,
        volume=str(handle.vid),
        lsn=handle.lsn,
        pending_lsn=handle.pending_lsn,
        diverged_lsn=handle.diverged_lsn,
        fenced_epoch=handle.fenced_epoch,
        unerased_objects=erasure.objects if erasure else None,
        erased_by_ms=erasure.by_ms if erasure else None,
    )


class StatusService(OfArchive, Owned):
    """The calls that say what this directory knows of a topic."""

    @checked
    def topic(self, name: str) -> TopicStatus:
        """Return where the records of a topic are. Reads the local disk only, except as HANDLE-6 says.

            >>> archive.status.topic("orders").offloaded_seq
            3

        Raises:
            NoSuchTopic: This directory has none, and follows none.
        """
        handle = self._handles.find(name)
        if handle is not None:
            self._handles.check_chosen(handle)
        if handle is not None and not self._log.has_topic(name):
            tip, state = self._handles.tip(handle), self._replicas.state(handle)
            status = _status_of_replica(handle, tip, state, self._erasure(handle))
            return replace(status, committed_at_ms=tip.made_at_ms)
        topic = self._log.get_topic(name)
        status = _status_of(
            topic,
            handle,
            self._replicas.sync_state(name),
            self._local.attempts(name),
            self._erasure(handle),
            offloaded_seq=self._handles.offloaded_seq(name),
            is_paused=self.is_paused(name),
        )
        if handle is None or handle.is_collected:
            return status
        return replace(status, committed_at_ms=self._handles.tip(handle).made_at_ms)

    def _erasure(self, handle: Handle | None) -> ErasureState | None:
        """Return the erasure state of a topic.

        Returns None if nothing was offloaded, or if this directory lacks commits that it needs.
        """
        if handle is None:
            return None
        try:
            snapshot = self._volumes.offline().snapshot(handle.vid, handle.lsn)
        except CatalogError:
            return None
        return erasure_state(snapshot, collected_after_ms(self._context, handle.name, snapshot), self._clock.now_ms())

    @checked
    def runs(self, name: str) -> tuple[RunStatus, ...]:
        """Return each range of segments that is in the topic's own volume or on its way there, ascending.

        Reads the local disk only, so the result covers what this directory knows. Raises `NoSuchTopic`.
        """
        topic = self._log.get_topic(name)
        handle = self._handles.find(name)
        if handle is None:
            return ()
        bodies = self._local.commit_bodies(handle.vid, 1, handle.lsn)
        lsns = sorted(bodies)
        gaps = [number for number, (before, after) in enumerate(pairwise(lsns), 1) if before + 1 < after]
        commits = [decode_commit_at(bodies[lsn], handle.vid, lsn) for lsn in lsns[max(gaps, default=0) :]]
        before = (
            self._volumes.snapshot(handle.vid, commits[0].commit.lsn) if commits and commits[0].checkpoint else None
        )
        return _run_statuses(
            [view.ref for view in before.segments if view.vid == handle.vid] if before else [],
            [stored.commit for stored in commits[1 if before else 0 :]],
            self._local.attempts(name),
            topic.inner.hot_floor,
        )

    @checked
    def is_paused(self, name: str) -> bool:
        return PAUSED in self._log.topic(name).config.attributes

    @checked
    def is_unfinished(self, name: str) -> bool:
        """Return whether a commit, an attempt, a truncation or a delete waits that needs no new records.

        Reads the local disk only.
        """
        handle = self._handles.find(name)
        offloaded_seq = self._handles.offloaded_seq(name)
        return (
            (handle is not None and handle.pending_lsn is not None)
            or any(attempt.state == AttemptState.PLANNED for attempt in self._local.attempts(name))
            or bool(self._waiting_truncations(name))
            or (
                handle is not None
                and any(op.at_seq <= offloaded_seq for op in self._log.topic(name).inner.delete_ops())
            )
        )

    def _waiting_truncations(self, name: str) -> tuple[TruncateOp, ...]:
        handle = self._handles.find(name)
        return () if handle is None else self._handles.waiting_truncations(handle)

    @checked
    def is_diverged(self, name: str) -> bool:
        handle = self._handles.find(name)
        return handle is not None and handle.diverged_lsn is not None

    @checked
    def offloaded_seq(self, name: str) -> int:
        """Return the last seq in the remote; 0 if there is none.

        Reads the local disk only, unless the copy of the newest commit is missing there, or damaged.
        """
        return self._handles.offloaded_seq(name)

    @checked
    def offloaded_seq_here(self, name: str) -> int | None:
        """Return `offloaded_seq` as far as this directory knows it, without a request; None if it does not."""
        handle = self._handles.find(name)
        is_known = handle is None or self._handles.is_tip_here(handle)
        return self._handles.offloaded_seq(name) if is_known else None

    @checked
    def waiting_bytes(self, name: str, up_to: int | None = None) -> int:
        """Return the frame bytes of the sealed segments that `offload` would upload."""
        offloaded = self._handles.offloaded_seq(name)
        return sum(
            segment.data_bytes
            for segment in self._log.get_topic(name).inner.segments()
            if segment.sealed and segment.last_seq > offloaded and (up_to is None or segment.last_seq <= up_to)
        )

    @checked
    def lag(self, name: str) -> Lag:
        """Return what the remote does not have yet of a topic of the log.

            >>> log.topic("orders").append([b"sofa"])
            range(4, 5)
            >>> archive.status.lag("orders").lag_records
            1

        Asks no warm store.

        Raises:
            NoSuchTopic: The log has none.
        """
        topic, offloaded = self._log.get_topic(name), self._handles.offloaded_seq(name)
        if topic.head_seq <= offloaded:
            return Lag(0, 0, None)
        waiting = [segment for segment in topic.inner.segments() if segment.last_seq > offloaded]
        sent = sum(segment.data_bytes for segment in topic.inner.segments() if segment.last_seq <= offloaded)
        if waiting:
            oldest_ms = waiting[0].min_ts_ms
        else:
            newest = next(topic.read(max(offloaded + 1, topic.earliest_seq, topic.inner.hot_floor)), None)
            oldest_ms = topic.last_ts_ms if newest is None else newest.ts_ms
        size = topic.inner.bytes_hot + topic.inner.bytes_relocated - sent
        age_s = max(0, self._clock.now_ms() - oldest_ms) / 1000
        return Lag(topic.head_seq - max(offloaded, topic.first_seq - 1), size, age_s)

    @checked
    def kept_from_ms(self, name: str) -> int | None:
        """Return the time from which GC keeps each state of the topic, as far as this directory knows; None without a
        volume. Tags and pins may keep older states. Reads the local disk only.
        """
        handle = self._handles.find(name)
        if handle is None or handle.is_collected:
            return None
        since_ms = self._clock.now_ms() - window_ms_here(self._context, name, lambda: handle.config)
        begins_here = BRANCH_MARK not in name  # a branch also has the states of its parent
        return max(since_ms, handle.vid.created_ms) if begins_here else since_ms

    @checked
    def with_hot_copies(self, lag_s: int = 0) -> set[str]:
        """Return the names of the topics with a hot copy of a range that was published `lag_s` ago or earlier."""
        return self._local.names_published(AttemptState.PUBLISHED, max(0, self._clock.now_ms() - lag_s * 1000))

    def versions(self) -> Mapping[str, int]:
        """Return a number for each name, which is another one after each change of its offload state here; none: 0."""
        return self._local.versions.all
