"""Reading on as a topic grows: a follower reads what is there, then sleeps until somebody wakes it.

N1  Who publishes wakes: appends, truncation, deletion of the topic, close. There is no polling.
N2  A follower registers under the lock that publishing holds, after it has looked once more: no news falls in between.
N3  It ends when the log closes, and when there was no news for `timeout_s`; for anything else it raises.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from seglog.engine import Engine
from seglog.errors import LogClosed
from seglog.read import check_place, continue_records
from seglog.record import Gap, Record
from seglog.state import TopicState

__all__ = ["follow_records"]


def follow_records(
    engine: Engine, state: TopicState, first: int, cuts: int, timeout_s: float | None, *, gaps: bool
) -> Iterator[Record | Gap]:
    """From `first` on. `cuts` is how often the topic had been truncated when the caller chose it."""
    seq = first
    try:
        while True:
            head = state.head_seq
            check_place(state, seq, cuts)
            for item in continue_records(engine, state, seq, head, cuts, gaps=gaps):
                seq = (item.gap_to if isinstance(item, Gap) else item.seq) + 1
                yield item
            # Below the head there may have been deleted ones at the end. After a cut the head is lower than it was.
            seq = max(seq, min(head, state.head_seq) + 1)
            if not _wait(engine, state, seq, cuts, timeout_s):
                return
    except LogClosed:
        return


def _wait(engine: Engine, state: TopicState, seq: int, cuts: int, timeout_s: float | None) -> bool:
    """Until there is a record `seq`, or the topic was cut or deleted; False at the time-out. Raises `LogClosed`."""
    news = threading.Event()
    while True:
        with engine.committer.lock:
            engine.check_open()
            is_below = seq > min(state.cuts[cuts:], default=seq)
            if state.head_seq >= seq or is_below or state.is_gone:
                return True
            news.clear()
            state.waiters.append(news.set)
        if not news.wait(timeout_s):
            with engine.committer.lock:
                if news.set in state.waiters:
                    state.waiters.remove(news.set)
            return False
