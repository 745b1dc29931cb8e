"""Undos in a simulation: directories take deletes and truncations back, own ones and inherited ones, while others
write, fork, merge and undo. They also take deletes back that no commit has yet.

The model derives the effect of an undo from the journals, as it does for every commit (`Model.undo`). MODEL-4 and
MODEL-5 then judge its commit.

BACKED-1  An acked undo has a commit, which shows what the model says.
BACKED-2  An undo is refused only if nothing comes back, or new records have the seqs, or GC may have passed the state,
    or the LIST of commits was behind, or the number alone may mean two commits.

The lease on the state before the commit is longer than a process sleeps here. A lease that ends is a known limit
(docs/internals/limits-in-full.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from catalog import MAIN, CommitKind, ForkPoint, Handle, Vid
from catalog.errors import Diverged, Missing, NotUndone, OutOfWindow, RecordsGone
from catalog.format.encoding import StoredCommit, decode_commit_at
from offload.handles import split_name
from offload.services.undoing import Undone
from seglog import DeleteNotUndone, DeleteOp
from tests.seams.archive import context_of, watch_undos
from tests.simulation.directory import Directory, seqs_of
from tests.simulation.journal import Op
from tests.simulation.model import Intent
from tests.simulation.schedule import DAY_MS
from tests.simulation.tasks import TOPIC

__all__ = ["LEASE_MS", "Undoing"]

LEASE_MS = 90 * DAY_MS
_LATE_MS = 10 * DAY_MS
_FORK_RATE = 0.2
_UNDO_RATE = 0.5
_WAITING_RATE = 0.3
_HEIR_RATE = 0.4
_REMOVALS = {CommitKind.DELETE, CommitKind.TRUNCATE}


class Undoing(Directory):
    """A directory that takes deletes and truncations back."""

    begun_ms = 0
    asked: ForkPoint | tuple[object, ...] | None = None
    """The commit that the running undo is to undo, or what the delete takes that has none yet."""

    def _may_be_off_record(self, stored: StoredCommit) -> bool:
        """Judge an undo of a directory that is not the writer, and puts none on record: a second call finds it. Its
        lease must hold.

        It undoes the commit that the running call named.
        """
        commit, restored = stored.commit, stored.commit.restored
        if restored is None:
            return False
        if self.schedule.now_ms - self.begun_ms > LEASE_MS - _LATE_MS:
            self.schedule.kill(self)
        undone = restored.undone
        self._check_asked(commit.vid, undone)
        back = self.model.undo(commit.vid, commit.lsn - 1, undone)
        self.model.intents[stored.hash] = Intent(self._author, TOPIC, back=back)
        return True

    def begin(self) -> None:
        super().begin()
        watch_undos(self.archive, self._show)

    def _show(self, handle: Handle, show: Callable[[], None]) -> None:
        """Let the journal show what the log shows again, if the undo has landed."""
        assert handle.pending_body is not None
        stored = decode_commit_at(handle.pending_body, handle.vid, handle.pending_lsn or 0)
        back, journal = self.model.intents[stored.hash].back, self.journals[handle.name]
        assert back is not None
        if back.records and any(past.stored.hash == stored.hash for past in self.model.volumes[handle.vid].pasts):
            listed = [
                (op.at_seq, op.before, op.tag, seqs_of(op)) for op in self.log.topic(handle.name).inner.delete_ops()
            ]
            journal = journal.undeleted(
                self.clock.now_ms(), back.records, lambda op: (op.at_seq, op.before, op.tag, op.seqs) in listed
            )
            self.model.counts["undos in the log"] += 1
        with self._log_does(handle.name, journal):
            show()

    def prepared(self, handle: dict[str, Any], attempt: dict[str, Any] | None) -> None:
        """Judge an undo of the writer: it undoes the commit that the running call named."""
        stored = decode_commit_at(handle["pending_body"], Vid.parse(handle["vid"]), handle["pending_lsn"])
        restored = stored.commit.restored
        if restored is not None and stored.hash not in self.model.intents:
            self._check_asked(stored.commit.vid, restored.undone)
        super().prepared(handle, attempt)

    def _check_asked(self, vid: Vid, undone: ForkPoint) -> None:
        """The running call undoes the commit that it named, and then completes earlier undos (BACK-7)."""
        undos = (past.stored.commit.restored for _, past, _ in self.model.history(vid))
        is_again = any(each is not None and each.undone == undone for each in undos)
        past = self.model.volumes[undone.vid].pasts[undone.lsn - 1]
        intent = self.model.intents.get(past.stored.hash)
        is_waiting = intent is not None and intent.op is not None and self.asked == _taken_by(intent.op)
        is_meant = undone == self.asked or is_waiting or is_again
        self._hold(is_meant, f"{undone} is undone in {vid}, and {self.asked} was meant")

    @property
    def _author(self) -> str:
        return f"{self.name}, which undoes"

    def _act(self, name: str) -> None:
        removal = None if name in self.resetting else self._some_removal(name)
        waiting = self._waiting(name)
        if waiting and self.schedule.chance(_WAITING_RATE):
            self._undo_waiting(name, self.random.choice(waiting))
            return
        if removal is not None and self.schedule.chance(_FORK_RATE):
            self._fork(self.some_point())
        elif removal is not None and self.schedule.chance(_UNDO_RATE):
            self._undo(name, *removal)
        else:
            super()._act(name)

    def _name(self) -> str:
        """Prefer branches that inherited a removal."""
        heirs = [] if self.resetting else [f"{TOPIC}@{branch}" for branch in sorted(self._alive())]
        heirs = [name for name in heirs if self._removals(name, is_inherited=True)]
        return self.random.choice(heirs) if heirs and self.schedule.chance(_HEIR_RATE) else super()._name()

    def _some_removal(self, name: str) -> tuple[Vid, ForkPoint] | None:
        """Return the volume of the name, and a delete or a truncation in its history; or None."""
        inherited = self._removals(name, is_inherited=True)
        if inherited and self.schedule.chance(_HEIR_RATE):
            return self.random.choice(inherited)
        found = self._removals(name)
        return self.random.choice(found) if found else None

    def _removals(self, name: str, *, is_inherited: bool = False) -> list[tuple[Vid, ForkPoint]]:
        """Return the removals in the history of a name whose state before is within the window, each with the volume of
        the name.

        Not drawn: an inherited truncation of records above the seqs that the fork kept. No target leads to such a fork.
        """
        held = self.model.names.get((TOPIC, split_name(name)[1] or MAIN), set())
        vids = [each.vid for each in held if each.vid is not None and each.deleted_at_ms is None]
        if len(held) != 1 or not vids:
            return []
        [vid] = vids
        found: list[tuple[Vid, ForkPoint]] = []
        for point, past, seq in self.model.history(vid):
            commit = past.stored.commit
            is_whole = commit.truncate_from is None or commit.truncate_from <= seq + 1
            is_kept = commit.kind in _REMOVALS and self.model.is_promised(replace(point, lsn=point.lsn - 1))
            if is_kept and is_whole and not (is_inherited and point.vid == vid):
                found.append((vid, point))
        return found

    def _waiting(self, name: str) -> tuple[DeleteOp, ...]:
        is_here = name in self.journals and name not in self.resetting and self.log.has_topic(name)
        return self.log.topic(name).inner.delete_ops() if is_here else ()

    def _undo_waiting(self, name: str, op: DeleteOp) -> None:
        """Undo a delete that has no commit yet."""
        self.begun_ms, self.asked = self.schedule.now_ms, (op.before, op.tag, seqs_of(op))
        self.may_leave[name] = None
        try:
            done = self._with_others(lambda: self.archive.history.undo_delete(name, op.op))
        except Diverged as error:
            self._check_parted(name, error)
            self.parted.add(name)
        except (DeleteNotUndone, NotUndone):
            self.model.counts["waiting deletes not undone"] += 1
        else:
            self.model.counts["undos of waiting deletes"] += 1
            self._check_undone(name, context_of(self.archive).handles.of(name).vid, done.undone, done)

    def _undo(self, name: str, vid: Vid, point: ForkPoint) -> None:
        volume, self.begun_ms, self.asked = self.model.volumes[vid], self.schedule.now_ms, point
        commits = len(volume.pasts)
        if name in self.journals and context_of(self.archive).handles.find(name) is not None:
            self._vid(name)  # a crash may have hidden it
        self.may_leave[name] = None
        named = None if point.vid == vid and self.schedule.chance(0.5) else point.vid
        try:
            done = self._with_others(lambda: self.archive.history.undo_removal(name, point.lsn, named))
        except Diverged as error:
            self._check_parted(name, error)
            self.parted.add(name)
        except (OutOfWindow, RecordsGone) as error:
            is_behind = point.vid == vid and self._saw_too_little(error, point.lsn)
            is_kept = self.model.is_promised(replace(point, lsn=point.lsn - 1)) and not is_behind
            self._hold(not is_kept, f"{name}, {point} is refused: {error}")
        except NotUndone as error:
            if len(volume.pasts) == commits and not self.store.is_ordered:
                self._check_refused(name, vid, point, error, is_named=named is not None)
        else:
            self._check_undone(name, vid, point, done)

    def _saw_too_little(self, error: OutOfWindow | RecordsGone, lsn: int) -> bool:
        """Return True if the LIST of commits was behind, so that the commit was not found."""
        newest = (
            max(map(int, re.findall(r"lsn (\d+)", error.window)), default=0) if isinstance(error, OutOfWindow) else lsn
        )
        return self.store.is_ordered and newest < lsn

    def _check_refused(self, name: str, vid: Vid, point: ForkPoint, error: NotUndone, *, is_named: bool) -> None:
        """Check the reason of a refusal. `_undo` knows that no other commit landed meanwhile, and that no LIST was
        behind.
        """
        history = list(self.model.history(vid))
        at = [place for place, _, _ in history].index(point)
        cut = history[at][1].stored.commit.truncate_from
        own = self.journals.get(name)
        heads = [past.head_seq for _, past, _ in history[at + 1 :]] + ([own.head] if own else [])
        is_reused = cut is not None and any(head >= cut for head in heads)
        undone = [past.stored.commit.restored.undone for _, past, _ in history if past.stored.commit.restored]
        is_of_two = not is_named and any(each.lsn == point.lsn and each.vid != vid for each in undone)
        back = self.model.undo(vid, len(self.model.volumes[vid].pasts), point).records
        is_right = is_reused or is_of_two or not back
        self._hold(is_right, f"{name}, {point} is refused: {error}, and {sorted(back)} would come back")

    def _check_undone(self, name: str, vid: Vid, point: ForkPoint, done: Undone) -> None:
        made = [
            (place, intent.back)
            for place, past, _ in self.model.history(vid)
            if (intent := self.model.intents.get(past.stored.hash)) and intent.back and place.lsn == done.lsn
        ]
        made = [(place, back) for place, back in made if done.is_earlier or place.vid == vid]
        found = [(place, back) for place, back in made if back.undone == point]
        self._hold(bool(found), f"lsn {done.lsn} of {name} undoes no {point}")
        if not done.is_earlier:
            [(place, back)] = found
            author = self.model.author(self.model.volumes[vid].pasts[place.lsn - 1])
            self.model.ack(author if author == self.name else self._author, vid, place.lsn)
            again = [
                intent.back
                for at, past, _ in self.model.history(vid)
                if (intent := self.model.intents.get(past.stored.hash)) and intent.back and intent.back.undone != point
                and at.vid == vid and at.lsn > place.lsn and intent.writer in (self.name, self._author)
            ]  # fmt: skip
            records = sum(len(each.records) for each in (back, *again))
            self._hold(done.records == records, f"{name}, {point}: {done.records} came back, of {records}")
            self.model.counts["undos completed"] += bool(again)
            self.model.counts["undos of a parent"] += point.vid != vid
        self.parted.discard(name)
        self._settle(name)
        with suppress(Missing):
            self._read(name)


def _taken_by(op: Op) -> tuple[object, ...]:
    return op.before, op.tag, op.seqs
