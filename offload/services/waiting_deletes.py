"""The undo of a delete that no commit has yet.

A commit of the delete comes first, and then its undo (offload.services.undoing). So the remote has what happened, in
its order, and the log and the remote agree after a crash in any step.

    step                                                              state after a crash in this step
    1 The directory offloads what it has of the topic. Records that   the delete waits still, or has its commit; the
      were appended before the delete go with their bytes, and then   next call finds either
      the delete is a commit.
    2 The commit is undone.                                           as in offload.services.undoing

PENDING-1  The delete is looked up before the caller waits for an offload that is running. If that offload makes the
    commit, the call undoes it.
PENDING-2  The commit has no number, and is found by its nonce (catalog.format.encoding.delete_nonce).
PENDING-3  A record that another delete took as well stays deleted (UNDO-1). A delete that reaches no record has no
    commit, and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from catalog import Commit, CommitKind
from catalog.errors import Missing, NotUndone
from catalog.undo_plan import TAKES_AWAY
from offload.read.delete_effects import entries_taken
from offload.services.archive_parts import OfArchive
from offload.services.direct_commits import DirectCommits
from offload.services.undoing import Undoing, Undone
from seglog import DeleteNotUndone, DeleteOp, SeqSet, Topic, Undeleted
from seglog.format.frame import DELETED, read_header, tag_of

_OF_NO_RECORD = frozenset({CommitKind.CONFIG, CommitKind.COMPACT})


class WaitingDeletes(OfArchive):
    """Undoes deletes of topics of one log, before a commit has them."""

    def preview(self, name: str, number: int | None) -> Undeleted:
        """Return the records that `run` would bring back. Change nothing."""
        return self._looked_up(self._log.get_topic(name), number)[1]

    def run(self, name: str, number: int | None, *, partial: bool, message: str) -> Undone:
        """Undo the delete with that number, or with None the newest one that waits and took a record.

        Raises `DeleteNotUndone`, also in place of `NotUndone`, and what else `Undoing.run` raises.
        """
        self._log.check_writable()
        topic = self._log.get_topic(name)
        op, _ = self._looked_up(topic, number)  # (PENDING-1)
        with self._locks.of(name):
            DirectCommits(self._parts).offload(name)
            commit = self._commit_of(name, op)
            if commit is None:
                raise DeleteNotUndone(name, f"delete {op.op} has no commit, because other changes took its records")
            try:
                return Undoing(self._parts).run(name, commit.lsn, commit.vid, partial=partial, message=message)
            except NotUndone as refused:  # but the offload has changed the remote
                reason = f"delete {op.op} has its commit now, and lsn:{commit.lsn} cannot be undone: {refused.reason}"
                raise DeleteNotUndone(name, reason, refused.hint) from refused

    def _looked_up(self, topic: Topic, number: int | None) -> tuple[DeleteOp, Undeleted]:
        """Return the delete, and what its undo brings back. Raise `DeleteNotUndone` if it has none (PENDING-3)."""
        waiting = topic.inner.delete_ops()
        wanted = [op for op in reversed(waiting) if number in {None, op.op}]
        if not wanted:
            which = "no delete waits" if number is None else f"delete {number} is none that waits"
            named = ", ".join(f"delete:{op.op}" for op in waiting)
            hint = f"these wait: {named}" if named else self._way_back(topic.name, number)
            raise DeleteNotUndone(topic.name, f"{which} for its commit", hint)
        for op in wanted:
            seen = self._seen(topic, op, [other for other in waiting if other.op != op.op])
            if seen.back or seen.stay or self._commit_of(topic.name, op) is not None:
                return op, seen
        raise DeleteNotUndone(topic.name, f"delete {wanted[0].op} took no record")

    def _seen(self, topic: Topic, op: DeleteOp, others: Sequence[DeleteOp]) -> Undeleted:
        """Return the records that `op` reaches: `back` those that none of `others` takes, `stay` the rest."""
        name = topic.name
        offloaded_seq = self._handles.offloaded_seq(name)
        back, reached = self._in_remote(name, replace(op, at_seq=min(op.at_seq, offloaded_seq)), others)
        first = max(topic.inner.hot_floor, offloaded_seq + 1)
        for frame in topic.inner.frames(first, op.at_seq) if first <= op.at_seq else ():
            header = read_header(frame)
            if not header.flags & DELETED and op.reaches(header.seq, tag := tag_of(frame, 0, header)):
                reached.append(header.seq)
                if not any(other.reaches(header.seq, tag) for other in others):
                    back.append(header.seq)
        all_back = SeqSet.of_seqs(sorted(back))
        return Undeleted(op.op, all_back, SeqSet.of(()), SeqSet.of_seqs(sorted(reached)) - all_back)

    def _way_back(self, name: str, number: int | None) -> str:
        """Return how the newest commit is undone, if it took records away and no other one may be meant."""
        lists = f"`seglog log {name} --kind delete,evict,truncate` lists the commits that an undo takes back"
        try:
            history = self._parts.states.history(name)
        except Missing:
            return lists
        if number is not None:
            return f"if it has its commit, `seglog undo {name} lsn:N` takes that back: {lists}"
        past = next((past for past in history if past.commit.kind not in _OF_NO_RECORD), None)
        if past is None or past.commit.kind not in TAKES_AWAY:
            return lists
        return f"`seglog undo {name} {history.target_of(past.commit)}` undoes the newest commit"

    def _in_remote(self, name: str, op: DeleteOp, others: Sequence[DeleteOp]) -> tuple[list[int], list[int]]:
        """Return the live records of the remote that `op` took and no other listed delete, and all that it reaches."""
        if self._handles.find(name) is None:
            return [], []
        snapshot = self._parts.states.newest(name)
        whole = replace(snapshot, segments=tuple(replace(view, deleted=None) for view in snapshot.segments))
        back, reached = (
            [view.ref.first_seq + entry for view, entries in found for entry in entries]
            for found in (
                entries_taken(op, others, snapshot, self._reader),
                entries_taken(op, (), whole, self._reader),
            )
        )
        return back, reached

    def _commit_of(self, name: str, op: DeleteOp) -> Commit | None:
        handle = self._handles.find(name)
        return None if handle is None else self._parts.offloader.commit_of(handle, op)
