"""A topic in which the newest record of each key counts: its replay, and its compaction.

    1  A program keeps a state for each key in memory. Each change is a record of the topic, durable before it counts.
    2  A later process replays the topic, and takes the newest state of each key.
    3  If most of the records are outdated, it appends each state again and deletes the records before them.

KEYED-1  A record that is no state is reported with its seq, and the replay continues, so other keys work. This is safe:
    a program writes whole states only, and checksums find damage before this. So such a record holds no state, or is of
    a later version. A key that it names is unreadable: an earlier state does not hold again.
KEYED-2  A topic with an unreadable key is not compacted, so that the later version finds its record.
KEYED-3  The records before a compaction go only once all states are durable behind them. A crash in between leaves
    some states twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Generic, TypeVar

from seglog.topic import Topic
from seglog.values.record import Record

_OUTDATED_MAX = 10_000
_AT_ONCE = 1000

State = TypeVar("State")


class UnreadableState(ValueError):
    """A record holds no state that this version reads. `key` is the key that it names, or None."""

    def __init__(self, text: str, key: str | None) -> None:
        super().__init__(text)
        self.key = key


class KeyedTopic(Generic[State]):
    """What a replay of such a topic has found.

    `decode` returns the key and the state of a record. `report` takes a line about a record that is no state.
    """

    def __init__(self, name: str, decode: Callable[[Record], tuple[str, State]], report: Callable[[str], None]) -> None:
        self.name = name
        self.unreadable: dict[str, int] = {}  # key, and the seq of its newest record
        self._decode = decode
        self._report = report
        self.records = 0  # of the topic, as far as its writer counts them

    def replay(self, records: Iterable[Record], take: Callable[[State], None], forget: Callable[[str], None]) -> None:
        """Give each state to `take`, in order, and to `forget` each key that is unreadable from here on (KEYED-1)."""
        self.records = 0
        self.unreadable.clear()
        for record in records:
            self.records += 1
            try:
                key, state = self._decode(record)
            except UnreadableState as error:
                self._report(f"record {record.seq} of {self.name}: {error}")
                if error.key is not None:
                    self.unreadable[error.key] = record.seq
                    forget(error.key)
            else:
                self.unreadable.pop(key, None)
                take(state)

    def is_outdated(self, newest: int) -> bool:
        """Return whether to compact the topic, of which `newest` states count (KEYED-2)."""
        return self.records > 2 * newest + _OUTDATED_MAX and not self.unreadable


def compact(topic: Topic, states: Sequence[tuple[bytes, str | None]], delete: Callable[[int], object]) -> None:
    """Append each state, with its tag, and delete all records before them (KEYED-3).

    `delete` takes the first seq that stays. Raise what an append raises, with nothing deleted.
    """
    first = topic.head_seq + 1
    for tag, group in groupby(states, key=itemgetter(1)):
        values = [value for value, _ in group]
        for at in range(0, len(values), _AT_ONCE):
            topic.append(values[at : at + _AT_ONCE], tag=tag, durability="fsync")
    delete(first)
