"""Back to what the volume has: local changes go, or become a branch, and the topic is followed again.

    step                                                              what a crash after it leaves
    1 the pending commit is sent again until its answer is definite   the topic as it was, and one doubt less
    2 with a branch: it is forked at the last commit in common, and   some of them are there; a repetition goes on after
      what only this directory has is appended to it, in order        the last one
    3 hot copies of what the volume has are read back there           the same
    4 attempts that no commit names are removed from the store        the same
    5 the topic goes from the log, if it is as it was in step 2       a replica, of an older state
    6 the handle is a replica's, and goes on to the newest commit     a replica

X1  Nothing that only this directory has goes before it is on the branch, or before `discard` said so.
X2  An append or delete that comes meanwhile stops step 5 (`TopicMoved` of the log): from step 2 on again.
X3  A topic of that name which came past the archive has no commit in common with the volume (`Handle.topic_id`): all
    of it is only here.
X4  Where the volume was collected, all that is here is only here: steps 1 and 3 fall away, the branch begins with
    nothing, and nothing is followed after step 5.
X5  If catalog.db was lost or is older than the log, the log has released records that it knows no commit for. Then no
    branch can hold all that it takes for local, and step 2 is refused.

Source: Graft RFC 0001 (Reset volume).
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog import Branches, Handle, LocalCatalog, Volumes
from catalog.errors import BranchCollected
from offload.errors import HistoryBehind, LocalChangesLost
from offload.handles import Handles
from offload.replication.replica import LocalChanges, Replicas
from offload.replication.rescue import Rescue
from offload.write.attempt import AttemptState
from offload.write.offloader import Offloader
from offload.write.publisher import Publisher
from seglog import Log, Topic, TopicMoved
from seglog.files.clock import Clock

__all__ = ["Reset", "ResetResult"]

_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class ResetResult:
    """`changes` were local only: they are on `branch`, or gone if that is None. `lsn` is followed from now on.

    Nothing is if not `is_followed`: the volume was collected. Seqs of the branch begin with 1 then.
    """

    changes: LocalChanges
    branch: str | None
    lsn: int
    is_followed: bool = True


class Reset:
    """Of topics of one log. The caller sees to it that one thread at a time is at a topic."""

    def __init__(
        self,
        log: Log,
        volumes: Volumes,
        branches: Branches,
        handles: Handles,
        local: LocalCatalog,
        replicas: Replicas,
        offloader: Offloader,
        publisher: Publisher,
        clock: Clock,
    ) -> None:
        self._log = log
        self._handles = handles
        self._local = local
        self._replicas = replicas
        self._offloader = offloader
        self._publisher = publisher
        self._rescue = Rescue(log, volumes, branches, handles, local, clock)

    def run(self, handle: Handle, *, as_branch: str | None = None, discard: bool = False) -> ResetResult:
        """Raises `LocalChangesLost` if there are any and neither is given, `BranchExists`, `HistoryBehind` (X5), and
        what the store raises.

        Repeat it after any of them.
        """
        try:
            self._handles.check_alive(handle)
        except BranchCollected:
            return self._leave(handle.name, as_branch, discard=discard)
        self._handles.check_remote(handle)
        handle = self._publisher.settled(handle)  # step 1: what lost its LSN is not in the volume, nor will it be
        changes = LocalChanges(0, 0)
        if self._log.has_topic(handle.name):
            changes = self._let_go(handle, as_branch, discard=discard)
            handle = self._handles.find(handle.name) or handle
        handle = self._replicas.forward(self._replicas.demote(handle))
        return ResetResult(changes, as_branch if changes else None, handle.lsn)

    def _leave(self, name: str, as_branch: str | None, *, discard: bool) -> ResetResult:
        """X4."""
        changes, handle = LocalChanges(0, 0), self._handles.find(name)
        if handle is not None and self._log.has_topic(name):
            changes = self._let_go(handle, as_branch, discard=discard)
        self._replicas.forget(name)
        return ResetResult(changes, as_branch if changes else None, 0, is_followed=False)

    def _let_go(self, handle: Handle, as_branch: str | None, *, discard: bool) -> LocalChanges:
        """Steps 2 to 5."""
        topic = self._log.topic(handle.name)
        for _ in range(_ROUNDS):
            position, changes = topic.position, self._replicas.changes(handle)
            if changes and as_branch is None and not discard:
                raise LocalChangesLost(handle.name, changes.records, changes.deletes, changes.truncations)
            if changes and as_branch is not None:
                self._check_here(handle, topic)
                self._rescue.run(handle, topic, as_branch, self._replicas.common_seq(handle))
            if self._handles.is_writer(handle) and not handle.is_collected:
                self._offloader.release(handle.name, at_once=True)
                self._offloader.read_back(handle.name)
            self._drop_attempts(handle.name)
            try:
                self._log.delete_topic(handle.name, position=position)
            except TopicMoved:
                continue
            return changes
        raise TopicMoved(handle.name)

    def _check_here(self, handle: Handle, topic: Topic) -> None:
        """Raise `HistoryBehind` before a branch is made, if records that it needs left this disk (X5)."""
        common_seq = self._replicas.common_seq(handle)
        if topic.config.keep_history and common_seq < topic.hot_floor - 1:
            raise HistoryBehind(handle.name, topic.hot_floor - 1, common_seq)

    def _drop_attempts(self, name: str) -> None:
        for state in (AttemptState.PLANNED, AttemptState.PREPARED):
            self._offloader.discard(name, state)
        for attempt in self._local.attempts(name):  # published: the objects stay, the hot copy goes with the topic
            self._local.delete_attempt(attempt.sid)
