"""A small life of a log, told to a journal, and what has to be true of it after any crash."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import seglog
from seglog import Log, LogSettings, Record, Topic, TopicConfig
from seglog.files import Files
from seglog.frame import DELETED, read_header, record_of
from seglog.upkeep import InCaller

__all__ = ["SETTINGS", "Archive", "Journal", "check", "live"]

SETTINGS = LogSettings(segment_max_events=4, wal_file_bytes=4096)


@dataclass
class Archive:
    """A cold tier: the frames it was given."""

    records: dict[str, dict[int, Record]] = field(default_factory=dict)

    def take(self, topic: Topic, last: int) -> None:
        kept = self.records.setdefault(topic.name, {})
        for frame in topic.frames(topic.hot_floor, last):
            header = read_header(frame)
            if not header.flags & DELETED:
                kept[header.seq] = record_of(frame, 0, header)

    def read(self, topic: str, first: int, last: int) -> Iterator[Record]:
        return (record for seq, record in self.records[topic].items() if first <= seq <= last)


@dataclass
class Journal:
    """`tried` is what was handed to append, in order; `acked` counts what came back at fsync."""

    tried: dict[str, list[tuple[bytes, str | None]]] = field(default_factory=dict)
    acked: dict[str, int] = field(default_factory=dict)
    deletes_tried: list[tuple[str, int, int | None, str | None]] = field(default_factory=list)
    deletes_acked: int = 0
    floors_tried: dict[str, int] = field(default_factory=dict)
    floors_acked: dict[str, int] = field(default_factory=dict)
    archive: Archive = field(default_factory=Archive)

    def append(self, log: Log, name: str, count: int, tag: str | None = None, durability: str = "fsync") -> None:
        known = self.tried.setdefault(name, [])
        values = [b"%s %d " % (name.encode(), len(known) + 1 + index) * 5 for index in range(count)]
        known.extend((value, tag) for value in values)
        log.topic(name).append(values, tag=tag, durability=durability)
        if durability == "fsync":
            self.acked[name] = len(known)

    def delete(self, log: Log, name: str, before: int | None = None, tag: str | None = None) -> None:
        self.deletes_tried.append((name, log.topic(name).head_seq, before, tag))
        log.topic(name).delete(before=before, tag=tag)
        self.deletes_acked = len(self.deletes_tried)

    def release(self, log: Log, name: str, last: int) -> None:
        self.archive.take(log.topic(name), last)
        self.floors_tried[name] = last + 1
        log.topic(name).release(last)
        self.floors_acked[name] = log.topic(name).hot_floor

    def live_seqs(self, name: str, head: int, deletes: int) -> list[int]:
        """After that many of the deletes that were tried."""
        seqs = []
        for seq, (_, tag) in enumerate(self.tried[name][:head], 1):
            if not any(_reaches(delete, name, seq, tag) for delete in self.deletes_tried[:deletes]):
                seqs.append(seq)
        return seqs


def live(directory: Path, files: Files, journal: Journal) -> None:
    """Every kind of operation, over two lives of the process, with rotations, rolls and interleaved topics.

    Without a second thread, so that the operations are the same ones every time.
    """
    with seglog.open(directory, files=files, settings=SETTINGS, upkeep=InCaller) as log:
        log.attach_cold(journal.archive)
        log.create_topic("kept", TopicConfig(keep_history=True))
        for _ in range(3):
            journal.append(log, "a", 2)
            journal.append(log, "kept", 1, tag="eu-1")
        journal.append(log, "a", 2, durability="disk")
        journal.delete(log, "a", before=3)
        journal.append(log, "a", 1, tag="x")
        log.topic("a").seal()
        journal.append(log, "kept", 3, tag="us")
        journal.delete(log, "kept", tag="eu*")
        log.checkpoint()
        journal.release(log, "a", 8)
        journal.append(log, "a", 12, tag="x")
        journal.delete(log, "a", tag="x")
    with seglog.open(directory, files=files, settings=SETTINGS, upkeep=InCaller) as log:
        for _ in range(4):
            journal.append(log, "a", 4)
            journal.append(log, "kept", 4, durability="disk")
        log.topic("kept").settle_deletes(1)
        journal.append(log, "kept", 1)


def check(directory: Path, files: Files, journal: Journal) -> dict[str, int]:
    """Recover, compare with the journal, go on, recover again. Returns the heads that were found."""
    with seglog.open(directory, files=files, settings=SETTINGS) as log:
        log.attach_cold(journal.archive)
        heads = {name: _check_topic(log, journal, name) for name in journal.tried}
        for name, head in heads.items():
            assert log.topic(name).append([b"next"]) == range(head + 1, head + 2)
    with seglog.open(directory, files=files, settings=SETTINGS) as log:
        for name, head in heads.items():
            assert log.topic(name).head_seq == head + 1
            assert [record.value for record in log.topic(name).read(head + 1)] == [b"next"]
    return heads


def _check_topic(log: Log, journal: Journal, name: str) -> int:
    topic = log.topic(name)
    assert journal.acked.get(name, 0) <= topic.head_seq <= len(journal.tried[name])
    assert journal.floors_acked.get(name, 1) <= topic.hot_floor <= journal.floors_tried.get(name, 1)
    if not topic.exists:
        return 0
    found = [(record.seq, record.value, record.tag) for record in topic.read()]
    counts = range(journal.deletes_acked, len(journal.deletes_tried) + 1)
    lives = [journal.live_seqs(name, topic.head_seq, count) for count in counts]
    assert [seq for seq, _, _ in found] in lives
    assert all((value, tag) == journal.tried[name][seq - 1] for seq, value, tag in found)
    frames = list(topic.frames(topic.hot_floor, topic.head_seq)) if topic.hot_floor <= topic.head_seq else []
    assert len(frames) == topic.record_count_hot
    return topic.head_seq


def _reaches(delete: tuple[str, int, int | None, str | None], name: str, seq: int, tag: str | None) -> bool:
    topic, at_seq, before, wanted = delete
    if topic != name or seq > at_seq or (before is not None and seq >= before):
        return False
    if wanted is None:
        return True
    return tag is not None and (tag.startswith(wanted[:-1]) if wanted.endswith("*") else tag == wanted)
