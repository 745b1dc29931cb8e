"""A life of a log with producers and keys, and the state of its topics after each step.

A dry run notes the state after each step. Then a later run crashes. Each topic must show the state after one step, with
records, producers and keys of the same one. That step is the last durable one, the one in progress, or one in between.
Then the callers repeat each append that may be lost, as they would if they never had an answer. Every record must be
there once.

    durable   an append at `fsync`, every step that is no append, and every step before these
    lost      at most the appends at `disk` and `memory` since then, and the append in progress

Each value is unique. A crash never leaves a part of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import seglog
from seglog import Log, LogSettings, Producer, ProducerBatch, Record, TopicConfig
from seglog.engine.work_thread import InCaller
from seglog.files.file_system import Files
from seglog.values.append_key import Key, digest_of
from tests.seams.log import keys_of, producers_of
from tests.worlds.clock import HandClock

__all__ = ["SETTINGS", "STEPS", "Keyed", "Send", "Shown", "Step", "TopicShown", "live", "shown", "window"]

SETTINGS = LogSettings(segment_max_events=4, wal_file_bytes=4096)


@dataclass(frozen=True)
class TopicShown:
    """The state of a topic: its head, its records, its producers in the order of their last batch, and its keys."""

    epoch: int = 0
    head: int = 0
    records: tuple[tuple[int, bytes], ...] = ()
    producers: tuple[tuple[str, Producer], ...] = ()
    keys: tuple[tuple[str, Key], ...] = ()


Shown: TypeAlias = Mapping[str, TopicShown]


@dataclass(frozen=True)
class Send:
    """A step that appends a batch of a producer. `size` is the size of each value."""

    topic: str
    producer: str
    epoch: int
    number: int
    count: int
    durability: str = "fsync"
    size: int = 40
    gaps: bool = False

    @property
    def values(self) -> list[bytes]:
        name = f"{self.topic} {self.producer} {self.epoch} {self.number}"
        return [f"{name} {index} ".encode().ljust(self.size, b".") for index in range(self.count)]

    def __call__(self, log: Log) -> range:
        batch = ProducerBatch(self.producer, self.epoch, self.number, self.gaps)
        return log.topic(self.topic).append(self.values, producer=batch, durability=self.durability)


@dataclass(frozen=True)
class Keyed:
    """A step that appends under a key. `note` tells apart the values of appends under one key."""

    topic: str
    key: str
    count: int
    durability: str = "fsync"
    size: int = 40
    note: str = ""

    @property
    def values(self) -> list[bytes]:
        name = f"{self.topic} {self.key} {self.note}"
        return [f"{name} {index} ".encode().ljust(self.size, b".") for index in range(self.count)]

    def __call__(self, log: Log) -> range:
        return log.topic(self.topic).append(self.values, key=self.key, durability=self.durability)

    def fits(self, topic: str, key: str, known: Key) -> bool:
        """Return whether the key that the topic knows is that of this step."""
        return (self.topic, self.key) == (topic, key) and known.digest == digest_of(self.values)


@dataclass(frozen=True)
class Plain:
    """A step that appends without a producer. The values are `value`, and then `more` others."""

    topic: str
    value: bytes
    durability: str = "fsync"
    more: int = 0

    def __call__(self, log: Log) -> range:
        values = [self.value, *(b"%s %d" % (self.value, number) for number in range(self.more))]
        return log.topic(self.topic).append(values, durability=self.durability)


@dataclass(frozen=True)
class Other:
    """Any other step, which is durable when it returns. `topic` is empty if it concerns all topics."""

    topic: str
    act: Callable[[Log], object]

    def __call__(self, log: Log) -> object:
        return self.act(log)


Step: TypeAlias = Send | Plain | Other


def _checkpoint() -> Other:
    return Other("", lambda log: log.checkpoint())


def _truncate(topic: str, seq: int) -> Other:
    return Other(topic, lambda log: log.topic(topic).truncate(seq))


def _delete(topic: str) -> Other:
    return Other(topic, lambda log: log.delete_topic(topic))


STEPS: tuple[Step, ...] = (
    Send("a", "p", 0, 0, 3),
    Send("a", "p", 0, 1, 1),
    Send("b", "q", 5, 0, 2, "memory"),
    Keyed("b", "one", 2, "memory"),
    Send("a", "r", 0, 0, 2, "disk"),
    Keyed("d", "one", 3),
    Keyed("d", "two", 1, "memory"),
    Plain("a", b"plain 1"),
    Plain("a", b"several", more=29),
    Plain("b", b"in memory", "memory", more=2),
    Send("a", "p", 0, 2, 4, "memory"),
    Send("a", "p", 0, 3, 1, "memory"),
    Send("b", "q", 5, 1, 1),
    Send("a", "p", 0, 4, 2),
    Send("a", "p", 0, 5, 2, size=700),  # more than a sector for each record
    Send("a", "p", 0, 6, 1),
    Keyed("d", "three", 2, "disk", size=700),
    _checkpoint(),
    Send("a", "p", 1, 0, 2),
    Plain("d", b"passing", "ephemeral"),
    Keyed("d", "four", 2),  # behind a HEAD_WATERMARK frame
    _truncate("d", 4),  # through a segment
    Keyed("d", "five", 2, "memory"),
    Send("a", "r", 0, 7, 3, "disk", gaps=True),
    Plain("a", b"passing", "ephemeral"),
    Send("a", "p", 1, 1, 2),  # behind a HEAD_WATERMARK frame
    _truncate("a", 52),  # in the tail
    Send("a", "p", 1, 2, 2),
    _truncate("a", 6),  # through a segment
    Send("a", "p", 1, 3, 2, "memory"),
    Send("b", "q", 6, 0, 3, "memory", size=500),
    Send("b", "q", 6, 1, 3, size=500),
    Send("a", "s", 0, 0, 40, "fsync"),  # many records: replay takes them as arrays
    Send("b", "q", 6, 2, 1, "memory"),
    Keyed("a", "many", 40, "memory"),
    Keyed("a", "one", 1),
    Send("a", "s", 0, 1, 40, "memory"),
    Send("a", "p", 1, 4, 1),
    Other("a", lambda log: log.topic("a").delete(before=9)),
    _delete("b"),
    Send("b", "q", 0, 0, 2),
    Send("b", "q", 0, 1, 2, "disk"),
    Keyed("b", "one", 1, "memory", note="of another topic of this name"),
    Other("c", lambda log: log.create_topic("c", TopicConfig(keep_history=True))),
    Send("c", "p", 0, 0, 2, "memory"),
    Send("c", "p", 0, 1, 2),
    _checkpoint(),
    Send("c", "p", 0, 2, 1, "memory"),
    Keyed("c", "one", 2, "memory"),
    Send("a", "t", 0, 0, 1, "memory"),
)


def live(
    directory: Path, files: Files, done: list[Shown | None], settings: LogSettings = SETTINGS, *, look: bool = False
) -> None:
    """Run all steps. Append an entry to `done` at the opening and after each step: the state, if `look` is set."""
    with seglog.open(directory, files=files, settings=settings, clock=HandClock(1_000), upkeep=InCaller) as log:
        done.append({} if look else None)
        for step in STEPS:
            step(log)
            done.append(shown(log) if look else None)


def shown(log: Log) -> Shown:
    found = {}
    for name in log.topics():
        topic = log.topic(name)
        records = tuple((item.seq, item.value) for item in topic.read(gaps=True) if isinstance(item, Record))
        found[name] = TopicShown(topic.epoch, topic.head_seq, records, producers_of(log, name), keys_of(log, name))
    return found


def window(topic: str, done: int) -> range:
    """Return the states that the topic may have after a crash, as indexes of the dry run.

    `done` is the number of entries that `live` had appended before the crash.
    """
    last = min(done, len(STEPS))
    for index in range(max(done - 1, 0), 0, -1):
        step = STEPS[index - 1]
        if step.topic in ("", topic) and not (isinstance(step, (Send, Keyed, Plain)) and step.durability != "fsync"):
            return range(index, last + 1)
    return range(last + 1)
