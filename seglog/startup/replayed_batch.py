"""A batch of a producer during replay. The state of the topic has its records at once.

1  Replay reads a BATCH frame, and notes the end of its topic.
2  Replay adds each record to the topic.
3  With the last record, the topic has the batch in its producers too.
4  If the batch is torn, `drop` takes its records back. So records and producers agree (BATCHFRAME-2).
"""

from __future__ import annotations

from seglog.engine.state import TopicState
from seglog.wal.manifest import WalPosition
from seglog.wal.open_batch import OpenBatch

__all__ = ["ReplayedBatch"]


class ReplayedBatch:
    """A batch whose BATCH frame begins at `begin`, and whose records have the time `ts_ms`."""

    __slots__ = ("_begin", "_last_ts_ms", "_state", "_ts_ms", "open")

    def __init__(self, batch: OpenBatch, state: TopicState, begin: WalPosition, ts_ms: int) -> None:
        self.open = batch
        self._state = state
        self._begin = begin
        self._last_ts_ms, self._ts_ms = state.last_ts_ms, ts_ms

    def take(self, records: int) -> bool:
        """Count records that the topic has taken, and return whether the batch is whole now."""
        self.open.left -= records
        if not self.open.left:
            self._state.with_producers().publish(self.open.appended, self._ts_ms)
        return not self.open.left

    def drop(self) -> WalPosition:
        """Take the records back, and return the place of the BATCH frame."""
        first_seq = self.open.appended.batch.first_seq
        self._state.unreplay(first_seq, self._last_ts_ms)
        return self._begin
