"""Undos in a simulation: directories take deletes and truncations back, while others write, fork, merge and undo.

The model derives the effect of an undo from the journals, as it does for every commit (`Model.undo`). MODEL-4 and
MODEL-5 then judge its commit.

BACKED-1  An acked undo has a commit, which shows what the model says.
BACKED-2  An undo is refused only if nothing comes back, or new records have the seqs, or GC may have passed the state,
    or the LIST of commits was behind.

The lease on the state before the commit is longer than a process sleeps here. A lease that ends is a known limit
(docs/limits.md).
"""

from __future__ import annotations

import re
from contextlib import suppress

from catalog import MAIN, CommitKind, ForkPoint, Vid
from catalog.errors import Diverged, Missing, NotTakenBack, OutOfWindow, RecordsGone
from catalog.format.encoding import StoredCommit
from offload.handles import split_name
from offload.services.undoing import Undone
from tests.seams.archive import context_of
from tests.simulation.directory import Directory
from tests.simulation.model import Intent
from tests.simulation.schedule import DAY_MS
from tests.simulation.tasks import TOPIC

__all__ = ["LEASE_MS", "Undoing"]

LEASE_MS = 90 * DAY_MS
_LATE_MS = 10 * DAY_MS
_UNDO_RATE = 0.5
_REMOVALS = {CommitKind.DELETE, CommitKind.TRUNCATE}


class Undoing(Directory):
    """A directory that takes deletes and truncations back."""

    begun_ms = 0
    asked: tuple[Vid, int] | None = None
    """The commit that the running undo is to undo."""

    def _may_be_off_record(self, stored: StoredCommit) -> bool:
        """Judge an undo, which no directory puts on record: a second call finds it. Its lease must hold.

        It undoes the commit that the running call named. Undos of inherited commits stay out: the model keeps which
        commit took which records by volume, so it cannot say what one of a parent brings back. The histories of
        tests/promises/branch_world.py undo those.
        """
        commit, restored = stored.commit, stored.commit.restored
        if restored is None:
            return False
        if self.schedule.now_ms - self.begun_ms > LEASE_MS - _LATE_MS:
            self.schedule.kill(self)
        undone = restored.undone
        named = (undone.vid, undone.lsn)
        self._hold(named == self.asked, f"lsn {commit.lsn} of {commit.vid} undoes {named}, and {self.asked} was meant")
        self._hold(undone.vid == commit.vid, f"lsn {commit.lsn} of {commit.vid} undoes a commit of {undone.vid}")
        back = self.model.undo(commit.vid, undone.lsn, commit.lsn - 1)
        self.model.intents[stored.hash] = Intent(self._author, TOPIC, back=back)
        return True

    @property
    def _author(self) -> str:
        return f"{self.name}, which undoes"

    def _act(self, name: str) -> None:
        removal = None if name in self.resetting else self._some_removal(name)
        if removal is not None and self.schedule.chance(_UNDO_RATE):
            self._undo(name, *removal)
        else:
            super()._act(name)

    def _some_removal(self, name: str) -> tuple[Vid, int] | None:
        """Return a delete or a truncation whose state before is within the window, or None."""
        held = self.model.names.get((TOPIC, split_name(name)[1] or MAIN), set())
        vids = [each.vid for each in held if each.vid is not None and each.deleted_at_ms is None]
        if len(held) != 1 or not vids:
            return None
        volume = self.model.volumes[vids[0]]
        lsns = volume.promised(self.schedule.now_ms - self.model.window_ms)
        found = [lsn + 1 for lsn in lsns[:-1] if volume.pasts[lsn].stored.commit.kind in _REMOVALS]
        return (vids[0], self.random.choice(found)) if found else None

    def _undo(self, name: str, vid: Vid, lsn: int) -> None:
        volume, self.begun_ms, self.asked = self.model.volumes[vid], self.schedule.now_ms, (vid, lsn)
        commits = len(volume.pasts)
        if name in self.journals and context_of(self.archive).handles.find(name) is not None:
            self._vid(name)  # a crash may have hidden it
        self.may_leave[name] = None
        try:
            done = self._with_others(lambda: self.archive.history.undo_removal(name, lsn))
        except Diverged as error:
            self._check_parted(name, error)
            self.parted.add(name)
        except (OutOfWindow, RecordsGone) as error:
            is_kept = self.model.is_promised(ForkPoint(vid, lsn - 1)) and not self._saw_too_little(error, lsn)
            self._hold(not is_kept, f"{name}, lsn {lsn} is refused: {error}")
        except NotTakenBack as error:
            if len(volume.pasts) == commits and not self.store.is_ordered:
                self._check_refused(name, vid, lsn, error)
        else:
            self._check_undone(name, vid, lsn, done)

    def _saw_too_little(self, error: OutOfWindow | RecordsGone, lsn: int) -> bool:
        """Return True if the LIST of commits was behind, so that the commit was not found."""
        newest = (
            max(map(int, re.findall(r"lsn (\d+)", error.window)), default=0) if isinstance(error, OutOfWindow) else lsn
        )
        return self.store.is_ordered and newest < lsn

    def _check_refused(self, name: str, vid: Vid, lsn: int, error: NotTakenBack) -> None:
        """Check the reason of a refusal. `_undo` knows that no other commit landed meanwhile, and that no LIST was
        behind.
        """
        volume = self.model.volumes[vid]
        cut = volume.pasts[lsn - 1].stored.commit.truncate_from
        own = self.journals.get(name)
        heads = [volume.head_seq(each) for each in range(lsn + 1, len(volume.pasts) + 1)] + ([own.head] if own else [])
        is_reused = cut is not None and any(head >= cut for head in heads)
        back = self.model.undo(vid, lsn, len(volume.pasts)).records
        self._hold(is_reused or not back, f"{name}, lsn {lsn} is refused: {error}, and {sorted(back)} would come back")

    def _check_undone(self, name: str, vid: Vid, lsn: int, done: Undone) -> None:
        assert done.lsn is not None
        past = self.model.volumes[vid].pasts[done.lsn - 1]
        intent = self.model.intents[past.stored.hash]
        self._hold(intent.back is not None and intent.back.undone == lsn, f"lsn {done.lsn} of {name} undoes no {lsn}")
        if not done.is_earlier:
            assert intent.back is not None
            self.model.ack(self._author, vid, done.lsn)
            count = len(intent.back.records)
            self._hold(done.records == count, f"{name}, lsn {lsn}: {done.records} came back, and not {count}")
        self.parted.discard(name)
        self._settle(name)
        with suppress(Missing):
            self._read(name)
