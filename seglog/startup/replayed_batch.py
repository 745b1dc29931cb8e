"""A batch of a producer, or an append under a key, during replay. The state of the topic has its records at once.

1  Replay reads a BATCH or a KEY frame, and notes the end of its topic.
2  Replay adds each record to the topic.
3  With the last record, the topic has the batch in its producers too, or the key in its keys.
4  If the unit is torn, `drop` takes its records back. So records agree with producers and keys (BATCHFRAME-2).
"""

from __future__ import annotations

from seglog.engine.state import TopicState
from seglog.wal.manifest import WalPosition
from seglog.wal.scan import OpenBatch

__all__ = ["ReplayedBatch"]


class ReplayedBatch:
    """A unit whose first frame begins at `begin`, and whose records have the time `ts_ms`."""

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
            self._state.publish_unit(self.open.unit, self._ts_ms)
        return not self.open.left

    def drop(self) -> WalPosition:
        """Take the records back, and return the place of the first frame."""
        self._state.unreplay(self.open.unit.first_seq, self._last_ts_ms)
        return self._begin
