"""Reset: a topic returns to the volume's state, and this directory follows the volume again. Local changes become a
branch or are dropped.

    step                                                              state after a crash in this step
    1 Reset sends the pending commit again until the answer is        the topic is unchanged, and one commit fewer is
      definite.                                                       in doubt
    2 With a branch, Reset forks it at the last common commit and     the branch has some of the changes; a repetition
      appends the local changes to it, in order.                      continues after the last one
    3 Reset reads back the remote objects that replace the hot        the same
      copies.
    4 Reset removes from the store the attempts that no commit names. the same
    5 Reset puts on record that the topic is written elsewhere        a replica of an older state
      (seglog.values.written_elsewhere), and deletes the topic from the log,
      if the topic is as it was in step 2.
    6 Reset turns the handle into a replica's, and moves it to the    a replica
      newest commit, of another volume if the name leads there now.

RESET-1  Reset drops a local change only after the branch has it, or after the caller passed `discard`.
RESET-2  If an append, a delete or a configuration arrives meanwhile, step 5 fails with the log's
    `ConcurrentModification`. Reset then repeats the steps from step 2 on.
RESET-3  If the log's topic was made without the archive (`Handle.topic_id`), it shares no commit with the volume.
    All of it is a local change.
RESET-4  If GC collected the volume, everything here is a local change.
    Reset skips steps 1 and 3, and the branch begins empty. After step 5, the directory follows nothing.
RESET-5  If catalog.db was lost or is older than the log, the log has released records whose commits it does not know.
    No branch can hold all these local changes, so Reset refuses step 2.
RESET-6  Without local changes, the producers and keys of the topic stay on record for the next takeover. With changes,
    they go: records that they name may be gone.
RESET-7  A configuration that no commit has goes with the topic, and the one of the volume holds. If the caller has
    offloaded the topic just now, such a configuration came since. Then Reset raises `ConcurrentModification`.

**A rescue** copies the local changes to the branch of step 2, which begins where the topic and its volume diverge.

If the topic was made without the archive (`Handle.topic_id`), the two diverge at the topic's first seq. If that is seq
1, the branch begins empty.

RESCUE-1  Records keep their seqs, tags and nodes. Deletes keep their place among the records. The records get the time
    of the rescue, because the log assigns times.
RESCUE-2  A rescue may be repeated after any crash: it continues after the last record on the branch. If the branch
    exists already, the rescue accepts it in two cases only. Either the branch was made here for the same topic of the
    log, as its attributes say. Or the branch begins at the same commit and has no commits of its own.
RESCUE-3  If GC has passed the commit where the branch begins, the branch begins at the oldest retained state. The
    branch leaves out that state's records above the last common seq.
RESCUE-4  On return, the branch is durable in this directory. The branch's offload brings it to the remote.
RESCUE-5  If GC collected the volume, the records before the local changes are gone, too. The branch then begins empty,
    and its seqs begin with 1. The branch's attributes say how much lower its seqs are, because the topic may lose its
    first records meanwhile.
RESCUE-6  On return, the branch has each live local record of the topic under its seq. If it does not, the topic was
    truncated and written again since an earlier rescue. The caller then needs another branch.
RESCUE-7  Since an earlier rescue made the branch, an offload may have published records that the branch lacks. If their
    hot copies are gone, the caller needs another branch.

Source: Graft RFC 0001 (Reset volume).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from catalog import ForkPoint, Handle, Seq, Vid, resolve
from catalog.errors import BranchCollected, BranchExists
from catalog.format.keys import ref_key
from catalog.history import retry_if_collected
from catalog.refs.oplog import Oplog
from catalog.timeline import no_time_lookup
from offload.context import ArchiveContext, OfContext
from offload.errors import HistoryBehind, LocalChangesLost
from offload.format.topic_config import RESCUED_FROM, config_change, shared_attributes
from offload.handles import split_name
from offload.replication.replica import LocalChanges, Replicas
from offload.write.attempt import AttemptState
from offload.write.offloader import Offloader
from offload.write.publisher import Publisher
from seglog import ConcurrentModification, Elsewhere, Record, Topic
from seglog.base.dataclasses import dataclass
from seglog.base.progress import count
from seglog.format.frame import DELETED, read_header, record_of

_GONE = "seglog.deleted"
"""The tag of a placeholder for a record whose bytes are gone already. The rescue deletes placeholders at once."""
_ROUNDS = 100


class Rescue(OfContext):
    def run(self, handle: Handle, topic: Topic, branch: str, common_seq: int) -> None:
        """Copy the records and deletes of `topic` above `common_seq` to the branch. Raises `BranchExists`."""
        saved = self._branch(handle, topic, branch, self._point(handle, common_seq), common_seq)
        shift = _shift(topic, saved, branch)
        if saved.head_seq + shift < min(common_seq, topic.inner.hot_floor - 1):
            raise BranchExists(split_name(handle.name)[0], branch)
        for op in sorted(topic.inner.delete_ops(), key=lambda op: op.op):
            at_seq = max(op.at_seq, common_seq)
            self._copy(topic, saved, at_seq, shift)
            before = None if op.before is None else max(op.before - shift, 1)
            if saved.head_seq == at_seq - shift:  # else an earlier rescue got further
                if op.evict_from is not None and before is not None:
                    saved.evict(before)
                else:
                    seqs = None if op.seqs is None else op.seqs.shifted(shift)
                    saved.delete(before=before, tag=op.tag, seqs=seqs)
        head_seq = topic.head_seq
        self._copy(topic, saved, head_seq, shift)
        if not _has_all(saved, topic, range(max(common_seq + 1, topic.inner.hot_floor), head_seq + 1), shift):
            raise BranchExists(split_name(handle.name)[0], branch)
        self._log.checkpoint()  # the branch is durable from here on (RESCUE-4)

    def _point(self, handle: Handle, common_seq: int) -> ForkPoint | None:
        """Return where the branch begins; None if it begins empty."""
        if handle.is_collected:
            return None
        if self._handles.is_writer(handle):
            boundary = self._volumes.boundary(handle.vid)
            if handle.lsn >= boundary:
                is_cut = bool(self._handles.waiting_truncations(handle))
                return ForkPoint(handle.vid, handle.lsn, common_seq if is_cut else None)
            return ForkPoint(handle.vid, boundary, common_seq)  # the oldest retained state (RESCUE-3)
        if common_seq == 0:
            return None
        return retry_if_collected(
            lambda: self._volumes.history(handle.vid, handle.lsn),
            lambda history: resolve(Seq(common_seq), history, no_time_lookup),
        )

    def _branch(self, handle: Handle, topic: Topic, branch: str, point: ForkPoint | None, common_seq: int) -> Topic:
        base, _ = split_name(handle.name)
        name = f"{base}@{branch}"
        vid = self._forked(base, branch, point, self._handles.find(name))
        start = self._volumes.snapshot(vid, 0)
        if not self._log.has_topic(name):
            shift = common_seq if handle.is_collected else 0  # the branch's seqs begin with 1 (RESCUE-5)
            attributes = {**shared_attributes(topic.config), RESCUED_FROM: f"{topic.inner.topic_id} {shift}"}
            config = replace(topic.config, attributes=attributes)
            first_seq, ts_floor_ms = start.bounds.head_seq + 1, start.max_ts_ms
            self._log.create_topic(name, config, first_seq=first_seq, ts_floor_ms=ts_floor_ms, is_taken_over=True)
        saved = self._log.topic(name)
        if self._handles.find(name) is None:
            self._local.save(handle=Handle(name, vid, 0, epoch=1, config=start.config, topic_id=saved.inner.topic_id))
        return saved

    def _forked(self, base: str, branch: str, point: ForkPoint | None, handle: Handle | None) -> Vid:
        if handle is None:
            try:
                return self._branches.create(base, branch, point, now_ms=self._clock.now_ms())
            except BranchExists:
                vid = self._branches.resolve(base, branch)
                self._branches.check_open(base, branch, vid, now_ms=self._clock.now_ms())
        else:
            vid = handle.vid
        parent = self._volumes.control(vid).parent
        if handle is not None:  # made here; GC may have moved the point since
            is_ours = (parent and parent.vid) == (point and point.vid)
        else:
            is_ours = parent == point and not self._volumes.newest_lsn(vid)
        if not is_ours:
            raise BranchExists(base, branch)
        return vid

    def _copy(self, topic: Topic, saved: Topic, last_seq: int, shift: int) -> None:
        """Copy the records up to `last_seq` that the branch lacks. Deleted records are copied too, because their
        deletes follow.
        """
        first_seq = saved.head_seq + shift + 1
        if first_seq > last_seq:
            return
        stood_in = False
        for frames in topic.inner.frame_batches(first_seq, last_seq):
            for (tag, node, unterminated), group in groupby(_records(frames), key=_labels):
                values = [record.value for record in group]
                saved.append(values, tag=tag, node=node, unterminated=unterminated, durability="memory")
                count("saving", len(values), "records")
                stood_in |= tag == _GONE
        if stood_in:
            saved.delete(tag=_GONE)


def _has_all(saved: Topic, topic: Topic, seqs: range, shift: int) -> bool:
    """Return whether the branch has the live records of the topic with these seqs (RESCUE-6)."""
    if not seqs:
        return True
    if saved.head_seq < seqs.start - shift:
        return not any(record.seq < seqs.stop for record in _live(topic, seqs.start))
    copies = _live(saved, max(seqs.start - shift, saved.first_seq))
    for record in _live(topic, seqs.start):
        if record.seq >= seqs.stop:
            break
        copy = next((copied for copied in copies if copied.seq >= record.seq - shift), None)
        if copy is None or copy.seq != record.seq - shift or _content(copy) != _content(record):
            return False
    return True


def _live(topic: Topic, first_seq: int) -> Iterator[Record]:
    return (item for item in topic.read(first_seq, gaps=True) if isinstance(item, Record))


def _content(record: Record) -> tuple[bytes, str | None, str | None, bool]:
    return record.value, record.tag, record.node, record.unterminated


def _shift(topic: Topic, saved: Topic, branch: str) -> int:
    """Return how much lower the branch's seqs are than the topic's (RESCUE-5).

    Raises `BranchExists` if the branch was not made for `topic` (RESCUE-2).
    """
    topic_id, _, shift = saved.config.attributes.get(RESCUED_FROM, "").partition(" ")
    if topic_id != str(topic.inner.topic_id):
        raise BranchExists(split_name(topic.name)[0], branch)
    return int(shift)


def _records(frames: Iterable[bytes]) -> Iterable[Record]:
    for frame in frames:
        header = read_header(frame)
        if header.flags & DELETED:
            yield Record(header.seq, header.ts_ms, b"", _GONE)
        else:
            yield record_of(frame, 0, header)


def _labels(record: Record) -> tuple[str | None, str | None, bool]:
    return record.tag, record.node, record.unterminated


@dataclass(frozen=True, slots=True)
class ResetResult:
    """The result of a reset. `changes` were local only: `branch` has them now, or they are dropped if `branch` is None.

    The directory follows the volume from `lsn` on. If `is_followed` is False, the volume was collected and the
    directory follows nothing. The seqs of the branch then begin with 1.
    """

    changes: LocalChanges
    branch: str | None
    lsn: int
    is_followed: bool = True


class Reset(OfContext):
    """Resets topics of one log. The caller ensures that only one thread at a time works on a topic."""

    def __init__(self, context: ArchiveContext, replicas: Replicas, offloader: Offloader, publisher: Publisher) -> None:
        super().__init__(context)
        self._replicas = replicas
        self._offloader = offloader
        self._publisher = publisher
        self._rescue = Rescue(context)
        self._oplog = Oplog(context.store, context.writer_id)

    def run(
        self, handle: Handle, *, as_branch: str | None = None, discard: bool = False, is_offloaded: bool = False
    ) -> ResetResult:
        """Reset the topic. Local changes go to the branch `as_branch`, or are dropped with `discard`.

        `is_offloaded` says that the caller has offloaded the topic just now (RESET-7). Raises `LocalChangesLost` if
        there are local changes and the caller passes neither, `BranchExists`, `HistoryBehind` (RESET-5), and what the
        store raises. After an error, the caller repeats the call.
        """
        try:
            self._handles.check_alive(handle)
        except BranchCollected:
            return self._leave(handle.name, as_branch, discard=discard)
        self._handles.check_volume(handle)
        handle = self._publisher.resolve_pending(handle)  # step 1: a commit that lost its LSN never enters the volume
        changes = LocalChanges(0, 0)
        if self._log.has_topic(handle.name):
            changes = self._let_go(handle, as_branch, discard=discard, is_offloaded=is_offloaded)
            handle = self._handles.find(handle.name) or handle
        handle = self._replicas.forward(self._handles.relocate(self._replicas.demote(handle)))
        return ResetResult(changes, as_branch if changes else None, handle.lsn)

    def note(self, name: str, operation: str, message: str) -> None:
        """Put the operator's message into the oplog, if there is one. It changes no name."""
        if message:
            key = ref_key(*split_name(name))
            self._oplog.note(operation, key, None, None, now_ms=self._clock.now_ms(), message=message)

    def _leave(self, name: str, as_branch: str | None, *, discard: bool) -> ResetResult:
        """Reset a topic whose volume was collected (RESET-4)."""
        changes, handle = LocalChanges(0, 0), self._handles.find(name)
        if handle is not None and self._log.has_topic(name):
            changes = self._let_go(handle, as_branch, discard=discard)
        self._replicas.forget(name)
        return ResetResult(changes, as_branch if changes else None, 0, is_followed=False)

    def _let_go(
        self, handle: Handle, as_branch: str | None, *, discard: bool, is_offloaded: bool = False
    ) -> LocalChanges:
        """Carry out steps 2 to 5. Return the local changes."""
        topic = self._log.topic(handle.name)
        for _ in range(_ROUNDS):
            position, changes = topic.inner.position, self._replicas.changes(handle)
            if changes and as_branch is None and not discard:
                raise LocalChangesLost(handle.name, changes.records, changes.deletes, changes.truncations)
            if is_offloaded and handle.lsn and config_change(topic.config, handle.config) is not None:
                raise ConcurrentModification(handle.name)
            if changes and as_branch is not None:
                self._check_here(handle, topic)
                self._rescue.run(handle, topic, as_branch, self._replicas.common_seq(handle))
            if self._handles.is_writer(handle) and not handle.is_collected:
                self._offloader.release(handle.name, at_once=True)
                self._offloader.read_back(handle.name)
            self._drop_attempts(handle.name)
            appends = self._log.known_appends(handle.name)
            self._log.mark_elsewhere(handle.name, Elsewhere(appends.is_fenced) if changes else appends)
            try:
                self._log.delete_topic(handle.name, position=position)
            except ConcurrentModification:
                continue
            return changes
        raise ConcurrentModification(handle.name)

    def _check_here(self, handle: Handle, topic: Topic) -> None:
        """Raise `HistoryBehind` if records that the branch needs have left this disk (RESET-5). Makes no branch."""
        common_seq = self._replicas.common_seq(handle)
        if topic.config.keep_history and common_seq < topic.inner.hot_floor - 1:
            raise HistoryBehind(handle.name, topic.inner.hot_floor - 1, common_seq)

    def _drop_attempts(self, name: str) -> None:
        for state in (AttemptState.PLANNED, AttemptState.PREPARED):
            self._offloader.discard(name, state)
        for attempt in self._local.attempts(name):  # published: the objects stay, the hot copy goes with the topic
            self._local.delete_attempt(attempt.sid)
