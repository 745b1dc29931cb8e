"""The texts of `seglog delete`, `evict` and `truncate`."""

from __future__ import annotations

from collections.abc import Callable

from offload.cli.preview import taking_lines
from offload.operations.removal import RecordsDeleted, RecordsEvicted, RecordsRemoved
from offload.operations.units import counted

__all__ = [
    "print_deleted",
    "print_evicted",
    "print_truncated",
]


def deleted_text(done: RecordsDeleted) -> str:
    count = "records" if done.deleted is None else counted(done.deleted)
    return f"deleted {count} of {done.topic}{_commit(done.lsn)}{_undo(done)}"


def evicted_text(done: RecordsEvicted) -> str:
    count = "records" if done.evicted is None else counted(done.evicted)
    begin = f"which begins with seq {done.earliest_seq} now{_commit(done.lsn)}"
    return f"evicted {count} of {done.topic}, {begin}{_undo(done)}"


def truncated_text(done: RecordsRemoved) -> str:
    end = f"which ends with seq {done.head_seq} now{_commit(done.lsn)}"
    return f"removed {counted(done.removed)} of {done.topic}, {end}{_undo(done)}"


def waiting_note(verb: str) -> Callable[[RecordsDeleted | RecordsEvicted | RecordsRemoved], str]:
    """Return a function that says why the commit in the remote comes later. It returns "" if there is no reason."""

    def told(done: RecordsDeleted | RecordsEvicted | RecordsRemoved) -> str:
        reason = done.waits_for
        return f"{verb} here; the remote learns of it later, it waits for: {reason}" if reason else ""

    return told


def _commit(lsn: int | None) -> str:
    return f" (lsn {lsn})" if lsn else ""


def _undo(done: RecordsDeleted | RecordsEvicted | RecordsRemoved) -> str:
    return f"\n  undo: `{done.undo}`, until {done.until}" if done.undo else ""


print_deleted = taking_lines(deleted_text, waiting_note("deleted"))
print_evicted = taking_lines(evicted_text, waiting_note("evicted"))
print_truncated = taking_lines(truncated_text, waiting_note("truncated"))
