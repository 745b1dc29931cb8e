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
      (seglog.values.elsewhere), and deletes the topic from the log,
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

Source: Graft RFC 0001 (Reset volume).
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog import Handle
from catalog.errors import BranchCollected
from catalog.format.keys import ref_key
from catalog.refs.oplog import Oplog
from offload.context import ArchiveContext
from offload.errors import HistoryBehind, LocalChangesLost
from offload.format.topic_config import config_change
from offload.handles import split_name
from offload.replication.replica import LocalChanges, Replicas
from offload.replication.rescue import Rescue
from offload.write.attempt import AttemptState
from offload.write.offloader import Offloader
from offload.write.publisher import Publisher
from seglog import ConcurrentModification, Elsewhere, Topic

__all__ = ["Reset", "ResetResult"]

_ROUNDS = 100


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


class Reset:
    """Resets topics of one log. The caller ensures that only one thread at a time works on a topic."""

    def __init__(self, context: ArchiveContext, replicas: Replicas, offloader: Offloader, publisher: Publisher) -> None:
        self._log = context.log
        self._handles = context.handles
        self._local = context.local
        self._replicas = replicas
        self._offloader = offloader
        self._publisher = publisher
        self._rescue = Rescue(context)
        self._oplog = Oplog(context.store, context.writer_id)
        self._clock = context.clock

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
            position, changes = topic.position, self._replicas.changes(handle)
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
            known = self._log.known_appends(handle.name)
            self._log.mark_elsewhere(handle.name, Elsewhere(known.is_fenced) if changes else known)
            try:
                self._log.delete_topic(handle.name, position=position)
            except ConcurrentModification:
                continue
            return changes
        raise ConcurrentModification(handle.name)

    def _check_here(self, handle: Handle, topic: Topic) -> None:
        """Raise `HistoryBehind` if records that the branch needs have left this disk (RESET-5). Makes no branch."""
        common_seq = self._replicas.common_seq(handle)
        if topic.config.keep_history and common_seq < topic.hot_floor - 1:
            raise HistoryBehind(handle.name, topic.hot_floor - 1, common_seq)

    def _drop_attempts(self, name: str) -> None:
        for state in (AttemptState.PLANNED, AttemptState.PREPARED):
            self._offloader.discard(name, state)
        for attempt in self._local.attempts(name):  # published: the objects stay, the hot copy goes with the topic
            self._local.delete_attempt(attempt.sid)
