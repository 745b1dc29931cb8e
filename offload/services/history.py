"""The calls of an archive that compare and count past states."""

from __future__ import annotations

from catalog import History, Snapshot
from catalog.history import retry_if_collected
from offload.read.deletes import count_live, last_live_seq
from offload.services.diff import BranchDiff, diff_of
from offload.services.past import PastCalls
from seglog import Record
from seglog.arguments import checked

__all__ = ["HistoryCalls"]


class HistoryCalls(PastCalls):
    """A mixin of `offload.archive.Archive`."""

    @checked
    def diff(self, left: str, right: str) -> BranchDiff:
        """Return the differences between two branches of a topic, as far as the remote has them."""

        def compared(past: History) -> BranchDiff:
            return diff_of(self.snapshot(left), past, self.snapshot(right), self.history(right), self._reader)

        return retry_if_collected(lambda: self.history(left), compared)

    @checked
    def count(self, snapshot: Snapshot) -> tuple[int, Record | None]:
        """Return the number of live records in `snapshot`, and the last of them, which the call reads; 0 and None for
        no record.

        The commits give the number. That takes a few requests, however many segments there are (`count_live` names the
        exception).
        """
        counts = [count_live(view, self._reader) for view in snapshot.segments]
        last = next((view for view, live in zip(snapshot.segments[::-1], counts[::-1], strict=True) if live), None)
        if last is None:
            return 0, None
        last_seq = last_live_seq(last, self._reader)
        return sum(counts), next(self._reader.records(snapshot, last_seq, last_seq))
