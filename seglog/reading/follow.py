"""Follow a topic as it grows: a follower reads the records up to the head, then sleeps until a publisher wakes it.

FOLLOW-1  Every publisher wakes its followers: an append, a truncation, a deletion of the topic, and close. There is no
    polling.
FOLLOW-2  A follower looks once more and then registers, both under the lock that publishing holds. So no news falls in
    between.
FOLLOW-3  A follower ends when the log closes, or when `timeout_s` passes without a record for its caller. In any other
    case it raises.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.errors import LogClosed
from seglog.reading.read import check_place, continue_records
from seglog.reading.times import expired_seq
from seglog.values.record import Gap, Record, selected


class Follower:
    """The position of a reader in a topic. The reader continues from there; `seq` is the next seq that it wants.

    `epoch` is the topic's epoch when the follower began. While the topic has it, the follower's records are of it.
    """

    def __init__(
        self,
        engine: Engine,
        state: TopicState,
        first: int,
        truncations: int,
        *,
        epoch: int,
        gaps: bool,
        expired: int = 1,
    ) -> None:
        """Begin at `first`, chosen when the topic had `truncations` truncations and the expiry floor `expired`."""
        self.seq = first
        self.epoch = epoch
        self._engine = engine
        self._state = state
        self._truncations = truncations
        self._gaps = gaps
        self._expired: int | None = expired

    def new_items(self) -> Iterator[Record | Gap]:
        """Yield the records from `seq` on. Raises what a read raises, also `LogClosed`."""
        state = self._state
        head = state.head_seq
        check_place(state, self.seq, self._truncations)
        # The first time, use the floor of the call: a record that expires after the call is no reason to fail.
        expired = expired_seq(self._engine, state, self.seq) if self._expired is None else self._expired
        self._expired = None
        items = continue_records(
            self._engine, state, self.seq, head, self._truncations, gaps=self._gaps, expired=expired
        )
        for item in items:
            self.seq = (item.gap_to if isinstance(item, Gap) else item.seq) + 1
            yield item
        # The last records up to the head may be deleted. After a cut, the head is lower than before.
        self.seq = max(self.seq, min(head, state.head_seq) + 1)

    def poll(self, waiter: Callable[[], None]) -> bool:
        """Return whether record `seq` exists, or the topic was cut or deleted. If not, register `waiter` (FOLLOW-2).

        The next news calls `waiter` once. `waiter` must neither block nor raise. Raises `LogClosed`.
        """
        state = self._state
        with self._engine.committer.lock:
            self._engine.check_open()
            is_below = self.seq > min(state.truncations[self._truncations :], default=self.seq)
            if state.head_seq >= self.seq or is_below or state.is_gone:
                return True
            state.waiters.append(waiter)
            return False

    def forget(self, waiter: Callable[[], None]) -> None:
        with self._engine.committer.lock:
            if waiter in self._state.waiters:
                self._state.waiters.remove(waiter)


def follow_records(follower: Follower, timeout_s: float | None, tag: str | None = None) -> Iterator[Record | Gap]:
    """Yield records with the tag until the follower ends (FOLLOW-3). This runs in the caller's thread."""
    patience = Patience(timeout_s)
    try:
        while True:
            for item in selected(follower.new_items(), tag, None) if tag is not None else follower.new_items():
                yield item
                patience.begin()
            if not _wait(follower, patience.left_s):
                return
    except LogClosed:
        return


class Patience:
    """The time that a follower still waits. It begins again with each record."""

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self.begin()

    def begin(self) -> None:
        self._begin_s = time.monotonic()

    @property
    def left_s(self) -> float | None:
        return None if self._timeout_s is None else max(0.0, self._begin_s + self._timeout_s - time.monotonic())


def _wait(follower: Follower, timeout_s: float | None) -> bool:
    """Wait until there is news; return False at the time-out. Raises `LogClosed`."""
    # Not an `Event`: the publisher may be interrupted, and a lock is released by one call.
    woken = threading.Lock()
    woken.acquire()

    def wake() -> None:
        if woken.locked():
            woken.release()

    while not follower.poll(wake):
        if not woken.acquire(timeout=-1 if timeout_s is None else timeout_s):
            follower.forget(wake)
            return False
    return True
