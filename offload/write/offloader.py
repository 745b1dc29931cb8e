"""The offloader moves a topic's history to object storage, in the topic's own order.

    OFFLOAD-1  Commits of a volume follow the order of the topic's operations: records, then the deletes that came after
        them. So every prefix of the remote history is a state that the topic once had.
    OFFLOAD-2  A commit is published only when every object that it names is whole.
    OFFLOAD-3  The offloader changes nothing of another writer. If a foreign commit has our LSN and is not mere
        maintenance (catalog.updates), the topic stops for good, with `Diverged` or `Fenced`.
    OFFLOAD-4  The caller may repeat `run` after any crash or error. It continues from the last state on record.
    OFFLOAD-5  An upload is published only if the topic is still in the epoch in which its reading began. If a
        truncation came meanwhile, the upload is discarded. A truncation that comes later is a commit after it.
    OFFLOAD-6  The id of a segment is never older than the time up to which the volume was collected (GC-3), however far
        the clock is behind. So before GC takes the segment for an orphan, a commit of GC has taken the LSN at which the
        writer would publish it.
    OFFLOAD-7  A run has an end, however much is appended, sealed and deleted during it. It fixes its last record and
        its last delete when it begins, and again after a truncation.

The states of an attempt are in `offload.write.attempt`. Source: PIP-17, Graft RFC 0001 (push).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType

from catalog import Attempt, Bounds, Commit, CommitKind, Deletions, Handle, SegmentRef, SegmentView, Sid, Snapshot
from catalog.errors import InvalidObject, NoSuchObject
from catalog.format.commit import Codec
from catalog.format.control import DEAD
from catalog.format.encoding import delete_nonce
from catalog.format.keys import commit_key
from offload.context import ArchiveContext, OfContext
from offload.format.topic_config import config_change
from offload.handles import Tip
from offload.read.delete_effects import deletions_of, entries_taken
from offload.settings import OffloadSettings, codec_named
from offload.write.attempt import AttemptState, SegmentRange, is_due, plan_range
from offload.write.merging import MergeLimits, all_to_erase, ranges_of_one_log, ranges_to_merge, to_erase
from offload.write.publisher import Published, Publisher, divergence
from offload.write.readback import check_published, check_segment
from offload.write.segment_upload import UploadJob, delete_segment
from offload.write.uploader import Uploader
from seglog import DeleteOp, Topic, TruncateOp
from seglog.base.dataclasses import dataclass
from seglog.base.progress import count

__all__ = ["Offloader", "Published"]

_NO_MESSAGES: Mapping[DeleteOp | TruncateOp, str] = MappingProxyType({})


class Offloader(OfContext):
    """Offloads topics of one log to one remote. The caller holds the log, and makes one call at a time for a topic."""

    def __init__(
        self, context: ArchiveContext, settings: OffloadSettings, publisher: Publisher, uploader: Uploader
    ) -> None:
        super().__init__(context)
        self.settings = settings
        self._publisher = publisher
        self._uploader = uploader

    def run(
        self,
        name: str,
        *,
        up_to: int | None = None,
        on_bytes: Callable[[int], None] = lambda more: count("offloading", more, "bytes"),
        messages: Mapping[DeleteOp | TruncateOp, str] = _NO_MESSAGES,
    ) -> list[Published]:
        """Offload every segment that is sealed now (and ends at or below `up_to`), and publish the deletes after them.

        Then publish the topic's configuration, if the volume does not know it. Later changes wait for a later run
        (OFFLOAD-7). Calls `on_bytes` now and then with the bytes of frames taken since. By default, they are a phase of
        the call's progress (seglog.base.progress). The commit of a delete or a truncation gets its message from
        `messages`. Raises `Diverged`, `OutcomeUnknown`, and the errors of the log and the store. After any error, acked
        records are safe, and the next run continues.
        """
        done = self.settle(name)
        try:
            return done + self._run(name, up_to, on_bytes, messages)
        except NoSuchObject:
            handle = self._handles.of(name)
            if handle.pending_body is not None or not self._publisher.is_passed(handle):
                raise
            self._publisher.fast_forward(handle)  # then its newest state can be read again
            return done + self._run(name, up_to, on_bytes, messages)

    def _run(
        self,
        name: str,
        up_to: int | None,
        on_bytes: Callable[[int], None],
        messages: Mapping[DeleteOp | TruncateOp, str],
    ) -> list[Published]:
        done: list[Published] = []
        topic = self._log.topic(name)
        limit = _limit_of(topic, up_to)
        is_first = True  # only the oldest delete of an earlier process can have its commit already
        while True:
            handle, epoch = self._handles.of(name), topic.epoch
            if limit.epoch != epoch:
                limit = _limit_of(topic, up_to)
            tip = self._handles.tip(handle)
            truncation = next(iter(topic.inner.truncate_ops()), None)
            delete = _due_delete(topic, tip.bounds.head_seq, truncation, limit.last_op)
            if topic.epoch != epoch:
                continue
            if delete is not None:
                snapshot = self._volumes.snapshot(handle.vid, handle.lsn)
                deletions = deletions_of(delete, snapshot, self._reader)
                if deletions is None or (is_first and self._has_commit(handle, delete, snapshot)):
                    topic.inner.settle_deletes(delete.op)
                    continue
                published = self._publish_delete(handle, tip, topic, delete, deletions, messages)
                is_first = published is None
                done += [published] if published else []
                continue
            if truncation is not None:
                if truncation.seq > tip.bounds.head_seq:
                    topic.inner.settle_truncation(truncation)
                    continue
                published = self._publish_truncation(handle, tip, topic, truncation, messages)
                done += [published] if published else []
                continue
            age_s = self.settings.max_object_age_s
            segment_range = plan_range(
                topic.inner.segments(),
                tip.bounds.head_seq,
                limit.last_seq,
                self.settings.max_object_bytes,
                age_s * 1000 if isinstance(age_s, int) else None,
            )
            if segment_range is None:
                return done + self._publish_config(name)
            published = self._offload_range(handle, tip, segment_range, topic, epoch, on_bytes)
            done += [published] if published else []

    def merge(self, name: str, *, on_bytes: Callable[[int], None] = lambda _: None) -> list[Published]:
        """Replace each range of small segments by one segment (offload.write.merging), with one commit for each range.

        Calls `on_bytes` now and then with the bytes of frames taken since.
        Raises the errors of `run`, and of reading a segment. The caller may repeat it after any of them.
        """
        self.settle(name)
        done: list[Published] = []
        while (views := self._to_merge(self._handles.of(name))) is not None:
            published = self._merge_range(self._handles.of(name), views, on_bytes)
            done += [published] if published else []
        return done

    def erase(
        self, name: str, *, on_bytes: Callable[[int], None] = lambda _: None, message: str = ""
    ) -> list[Published]:
        """Rewrite each segment whose objects hold deleted records, with one commit for each.

        GC deletes the old objects. Raises as `merge` does. The caller may repeat it, too.
        """
        self.settle(name)
        done: list[Published] = []
        while True:
            handle = self._handles.of(name)
            view = to_erase(self._volumes.snapshot(handle.vid, handle.lsn).segments, handle.vid)
            if view is None:
                return done
            published = self._merge_range(handle, [view], on_bytes, message)
            done += [published] if published else []

    def bytes_to_rewrite(self, handle: Handle, *, erase: bool) -> int:
        """Return about how many bytes of frames `merge` will read, or with `erase`, `erase`. Never fewer."""
        views = self._volumes.snapshot(handle.vid, handle.lsn).segments
        ranges = ranges_to_merge(views, handle.vid, self._limits)
        chosen = all_to_erase(views, handle.vid) if erase else itertools.chain(*ranges)
        return sum(view.ref.frame_bytes for view in chosen)

    def settle(self, name: str) -> list[Published]:
        """Finish the work of an earlier process: publish the pending commit, and discard attempts without a commit.

        Raises `Diverged` or `Fenced` if the topic has diverged, now or before.
        """
        handle = self._handles.of(name)
        if handle.diverged_lsn is not None:
            raise divergence(handle)
        published = self._publisher.publish(handle) if handle.pending_body is not None else None
        self.discard(name, AttemptState.PLANNED)
        return [published] if published else []

    def discard(self, name: str, state: AttemptState) -> None:
        """Remove the objects of attempts in that state from the store. No commit names them, now or later."""
        for attempt in self._local.attempts(name):
            if attempt.state == state:
                self._discard(attempt)

    def release(self, name: str, *, at_once: bool = False) -> int:
        """Delete the hot copies that are due, after reading back their remote copies. Return the last seq, or 0.

        `at_once` waives the lag, and so does the topic's retention. Neither waives the read-back (ATTEMPT-3). If a
        remote copy differs from the upload, raise `InvalidObject`: the hot copy stays.
        """
        released = 0
        topic, handle = self._log.topic(name), self._handles.of(name)
        epoch = topic.epoch
        common_seq, retention_seq = self._handles.common_seq(handle), topic.inner.due_seq
        checked: list[Attempt] = []
        for attempt in sorted(self._local.attempts(name), key=attrgetter("first_seq")):
            if attempt.state != AttemptState.PUBLISHED:
                continue
            assert attempt.published_at_ms is not None  # noqa: S101 - set with the state
            is_over = is_due(attempt.published_at_ms, self.settings.deletion_lag_s, self._clock.now_ms())
            if not (at_once or is_over or attempt.last_seq <= retention_seq):
                break
            if attempt.first_seq > (checked[-1].last_seq + 1 if checked else topic.inner.hot_floor):
                break  # what lies before it was not checked yet, and would go with it
            if attempt.last_seq > common_seq:
                break  # a truncation took its last records, and waits for its commit (PUBLISH-3)
            checked.append(attempt)
            if not _ends_with_a_segment(topic, attempt.last_seq):
                continue  # a truncation went through it: what is left goes with what was appended after it
            for copied in checked:
                self._check_remote(copied)
            topic.inner.release(attempt.last_seq, epoch=epoch)
            if topic.epoch != epoch:
                break
            for copied in checked:
                self._local.delete_attempt(copied.sid)
            checked.clear()
            released = attempt.last_seq
        return released

    def read_back(self, name: str) -> None:
        """Read back the remote copies of all hot copies that are left, before the topic is deleted.

        No hot copy is deleted without a read-back (ATTEMPT-3).
        """
        common_seq = self._handles.common_seq(self._handles.of(name))
        for attempt in self._local.attempts(name):
            if attempt.state == AttemptState.PUBLISHED and attempt.first_seq <= common_seq:
                self._check_remote(attempt)

    def _check_remote(self, attempt: Attempt) -> None:
        """Read back the attempt's commit and objects.

        If GC has passed the commit, read back all segments that hold its range in the oldest or the newest kept state.
        The oldest state has records that were deleted since, and the newest state has segments that were merged since.
        """
        try:
            check_published(self._store, attempt)
        except (NoSuchObject, InvalidObject):  # below the boundary, another writer's commit may have the key (VOL-6)
            boundary = self._volumes.boundary(attempt.vid)
            if boundary == DEAD:
                self._handles.check_alive(self._handles.of(attempt.name))
                raise
            if (attempt.lsn or 0) >= boundary:
                raise
            newest = self._volumes.snapshot(attempt.vid)
            oldest = self._volumes.snapshot(attempt.vid, min(boundary, newest.lsn))
            views = (*oldest.segments, *newest.segments)
            within = (view for view in views if view.first <= attempt.last_seq and attempt.first_seq <= view.last)
            for view in {view.ref.sid: view for view in within}.values():
                check_segment(self._store, view.vid, view.ref)

    # ------------------------------------------------------------------ one range of segments

    def _offload_range(
        self,
        handle: Handle,
        tip: Tip,
        segment_range: SegmentRange,
        topic: Topic,
        epoch: int,
        on_bytes: Callable[[int], None],
    ) -> Published | None:
        """Offload one range, and return its commit. Return None if the commit was given up.

        Return None also if the topic was truncated since `epoch`: the upload may mix records of before and after
        (OFFLOAD-5).
        """
        attempt = self._planned(handle, segment_range.first_seq, segment_range.last_seq)
        try:
            segment = self._send(attempt, on_bytes)
        except Exception:
            if topic.epoch == epoch:
                raise
        if topic.epoch != epoch:
            self.discard(handle.name, AttemptState.PLANNED)
            return None
        commit = self._publisher.commit(
            handle,
            tip,
            CommitKind.OFFLOAD,
            at_seq=segment.last_seq,
            at_ts_ms=segment.max_ts_ms,
            bounds=replace(tip.bounds, head_seq=segment.last_seq),
            segments=(segment,),
        )
        return self._published(handle.name, self._publisher.prepare(handle, commit, attempt))

    def _planned(self, handle: Handle, first_seq: int, last_seq: int) -> Attempt:
        """Put an attempt for a range on record, and return it.

        Its id is of now, or of the first time at which GC accepts segments if this is later (OFFLOAD-6).
        """
        now_ms = self._clock.now_ms()
        sid = Sid.new(max(now_ms, self._volumes.snapshot(handle.vid, handle.lsn).collected_before_ms))
        attempt = Attempt(
            sid, handle.name, handle.vid, first_seq, last_seq, state=AttemptState.PLANNED, created_at_ms=now_ms
        )
        self._local.save(attempt=attempt)
        return attempt

    def _published(self, name: str, handle: Handle) -> Published | None:
        """Publish the pending commit. If it was given up, remove its attempt and objects, and return None."""
        published = self._publisher.publish(handle)
        if published is None:
            self.discard(name, AttemptState.PLANNED)
        return published

    def _send(
        self, attempt: Attempt, on_bytes: Callable[[int], None], views: tuple[SegmentView, ...] = ()
    ) -> SegmentRef:
        job = UploadJob(
            attempt.name, attempt.vid, attempt.sid, attempt.first_seq, attempt.last_seq, self._codec(attempt.name),
            self.settings, views,
        )  # fmt: skip
        return self._uploader.upload(
            job,
            self._log.topic(attempt.name),
            on_upload_id=lambda upload_id: self._local.save(attempt=replace(attempt, upload_id=upload_id)),
            on_bytes=on_bytes,
        )

    def _codec(self, name: str) -> Codec:
        return codec_named(self._log.topic(name).config.attributes.get("codec", self.settings.codec))

    def _to_merge(self, handle: Handle) -> list[SegmentView] | None:
        """Return the oldest range to merge, or None."""
        snapshot = self._volumes.snapshot(handle.vid, handle.lsn)
        return next(ranges_of_one_log(snapshot, self._reader, self._limits), None)

    @property
    def _limits(self) -> MergeLimits:
        below = self.settings.merge_below_bytes
        below_bytes = below if isinstance(below, int) else 0  # no segment is small
        return MergeLimits(below_bytes, self.settings.max_object_bytes, self.settings.merge_count)

    def _merge_range(
        self, handle: Handle, views: list[SegmentView], on_bytes: Callable[[int], None], message: str = ""
    ) -> Published | None:
        tip, attempt = self._handles.tip(handle), self._planned(handle, views[0].first, views[-1].last)
        segment = self._send(attempt, on_bytes, tuple(views))
        # Verify the merged segment before publishing it. The hot copies of its sources may already be deleted.
        check_segment(self._store, handle.vid, segment)
        [last] = self._volumes.commits(handle.vid, handle.lsn, handle.lsn)
        commit = self._publisher.commit(
            handle,
            tip,
            CommitKind.COMPACT,
            at_seq=last.commit.at_seq,
            at_ts_ms=last.commit.at_ts_ms,
            segments=(segment,),
            removed_sids=tuple(view.ref.sid for view in views),
            message=message,
        )
        return self._published(handle.name, self._publisher.prepare(handle, commit, attempt))

    def _discard(self, attempt: Attempt) -> None:
        """Remove the objects of a dead attempt. No commit names them, so this may fail anywhere and be repeated.

        If no upload is on record, abort all uploads of the key: the process may have died before it recorded one.
        """
        delete_segment(self._store, attempt.vid, attempt.sid, attempt.upload_id)
        self._local.delete_attempt(attempt.sid)

    # ------------------------------------------------------------------ commits

    def commit_of(self, handle: Handle, op: DeleteOp) -> Commit | None:
        """Return the commit that this writer made of a delete, or None. A crash may have left the delete listed."""
        try:
            return self._search(handle, op)
        except NoSuchObject:
            return None

    def _has_commit(self, handle: Handle, op: DeleteOp, snapshot: Snapshot) -> bool:
        """Return whether a delete needs no commit any more. If GC has passed it, it takes no live record."""
        try:
            return self._search(handle, op) is not None
        except NoSuchObject:
            return not any(entries_taken(op, (), snapshot, self._reader))

    def _search(self, handle: Handle, op: DeleteOp) -> Commit | None:
        """Return the commit of a delete, or None. Raise `NoSuchObject` if GC has passed commits that may be it."""
        for lsn in range(handle.lsn, 0, -1):
            [stored] = self._volumes.commits(handle.vid, lsn, lsn)
            commit = stored.commit
            if commit.at_ts_ms < op.ts_ms:
                break
            if (commit.epoch, commit.nonce) == (handle.epoch, delete_nonce(commit.nonce, op.op)):
                if lsn < self._volumes.boundary(handle.vid):
                    raise NoSuchObject(commit_key(handle.vid, lsn))  # a late put on a key that GC has freed is none
                return commit
        return None

    def _publish_delete(
        self,
        handle: Handle,
        tip: Tip,
        topic: Topic,
        op: DeleteOp,
        deletions: Deletions,
        messages: Mapping[DeleteOp | TruncateOp, str],
    ) -> Published | None:
        kind, bounds = CommitKind.DELETE, tip.bounds
        if op.evict_from is not None:
            kind, bounds = CommitKind.EVICT, replace(bounds, first_seq=op.below, evict_floor=op.below)
        commit = self._publisher.commit(
            handle,
            tip,
            kind,
            at_seq=op.at_seq,
            at_ts_ms=op.ts_ms,
            bounds=bounds,
            deletions=deletions,
            message=messages.get(op, ""),
        )
        commit = replace(commit, nonce=delete_nonce(commit.nonce, op.op))
        published = self._publisher.publish(self._publisher.prepare(handle, commit))
        if published is not None:
            topic.inner.settle_deletes(op.op)
        return published

    def _publish_truncation(
        self, handle: Handle, tip: Tip, topic: Topic, op: TruncateOp, messages: Mapping[DeleteOp | TruncateOp, str]
    ) -> Published | None:
        bounds = tip.bounds
        commit = self._publisher.commit(
            handle,
            tip,
            CommitKind.TRUNCATE,
            # The end of the history: it never had the removed records that were appended after that.
            at_seq=bounds.head_seq,
            at_ts_ms=op.ts_ms,
            bounds=Bounds(min(bounds.first_seq, op.seq), op.seq - 1, min(bounds.evict_floor, op.seq)),
            truncate_from=op.seq,
            message=messages.get(op, ""),
        )
        published = self._publisher.publish(self._publisher.prepare(handle, commit))
        if published is not None:
            topic.inner.settle_truncation(op)
        return published

    def _publish_config(self, name: str) -> list[Published]:
        """Publish the topic's configuration, if the volume has commits and knows another configuration."""
        while True:
            handle, topic = self._handles.of(name), self._log.topic(name)
            text = config_change(topic.config, handle.config) if handle.lsn else None
            if text is None:
                return []
            snapshot = self._volumes.snapshot(handle.vid, handle.lsn)
            commit = self._publisher.commit(
                handle,
                self._handles.tip(handle),
                CommitKind.CONFIG,
                at_seq=snapshot.bounds.head_seq,
                at_ts_ms=snapshot.max_ts_ms,
                config=text,
            )
            published = self._publisher.publish(self._publisher.prepare(handle, commit))
            if published is not None:
                return [published]


@dataclass(frozen=True, slots=True)
class _OffloadLimit:
    """The end of a run (OFFLOAD-7): the run publishes records up to `last_seq`, and deletes up to number `last_op`."""

    epoch: int
    last_seq: int
    last_op: int


def _limit_of(topic: Topic, up_to: int | None) -> _OffloadLimit:
    """Return the newest sealed record and the newest delete.

    Reads the epoch first. If a truncation comes in between, the run sees a higher epoch.
    """
    epoch, sealed_seq = topic.epoch, topic.inner.sealed_seq
    last_op = max((op.op for op in topic.inner.delete_ops()), default=0)  # after the seq, to miss no delete below it
    return _OffloadLimit(epoch, sealed_seq if up_to is None else min(up_to, sealed_seq), last_op)


def _due_delete(topic: Topic, head_seq: int, truncation: TruncateOp | None, last_op: int) -> DeleteOp | None:
    """Return the next delete that may be published (OFFLOAD-1). A delete made after a waiting truncation may not."""
    below = last_op + 1 if truncation is None else min(truncation.next_op, last_op + 1)
    return next((op for op in topic.inner.delete_ops() if op.op < below and op.at_seq <= head_seq), None)


def _ends_with_a_segment(topic: Topic, seq: int) -> bool:
    return seq < topic.inner.hot_floor or any(
        segment.sealed and segment.last_seq == seq for segment in topic.inner.segments()
    )
