"""A small life of a log, a journal of its operations, and an oracle for the state after a crash.

The oracle checks bounds: durable <= recovered <= appended. Values are exact and in order, and no append is there in
part. The same bounds hold for deletes. The oracle compares the bounds of the journal at a moment (`Bounds`) with the
state that recovery finds (`Found`). Durability depends on the class:

    fsync      durable when acked, with all records appended to its topic before it
    disk       durable after a later sync
    memory     as disk, but only by chance
    ephemeral  never durable: after a crash, readers see a gap in its place. Its seq stays taken if a checkpoint or a
               later durable record covers it

If `append` returned, the oracle also compares the record's time, node and `unterminated` with the values that readers
saw. It compares the epoch and the configuration of the topic.

If a topic begins in its own segments, the oracle knows its floors exactly. If a topic begins in the cold tier, then
`earliest_seq` is not below the seqs that a delete by seq reached, and some records are released. `evict_floor` is 1, or
the record directly below it was ephemeral.

The oracle does not check:

- the time and the node of a record whose append never returned
- an attribute that no topic of this life has
- an `earliest_seq` in the cold tier that is below the first live seq after a delete by tag, as its contract allows
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import seglog
from seglog import DeleteNotUndone, DeleteOp, Gap, Log, LogSettings, Record, SeqSet, Topic, TopicConfig
from seglog.engine.work_thread import InCaller
from seglog.files.file_system import Files
from seglog.format.frame import DELETED, read_header, record_of
from seglog.values.deletes import DeleteWhere
from seglog.values.seq_set import seq_set
from tests.seglog.versions import Versions

__all__ = [
    "SETTINGS",
    "SHARDED",
    "TIERED",
    "Archive",
    "Bounds",
    "Found",
    "FoundTopic",
    "Journal",
    "check",
    "live",
    "live_on",
    "look",
]

SETTINGS = LogSettings(segment_max_events=4, wal_file_bytes=4096)
SHARDED = {shards: replace(SETTINGS, wal_shards=shards) for shards in (1, 2, 3)}
#: Settings with a warm directory beside the data directory. The test creates the warm directory.
TIERED = replace(SETTINGS, cold_dir="../cold", hot_retain_segments=0)


@dataclass
class Archive:
    """A cold tier that keeps the released records in memory."""

    records: dict[str, dict[int, Record]] = field(default_factory=dict)

    def take(self, topic: Topic, last: int) -> None:
        kept = self.records.setdefault(topic.name, {})
        for frame in topic.inner.frames(topic.inner.hot_floor, last):
            header = read_header(frame)
            # An earlier release may have failed after `take`. A record that it took may be deleted since.
            if header.flags & DELETED:
                kept.pop(header.seq, None)
            else:
                kept[header.seq] = record_of(frame, 0, header)

    def read(self, topic: str, first: int, last: int) -> Iterator[Record]:
        return (record for seq, record in self.records[topic].items() if first <= seq <= last)

    def below(self, floors: Mapping[str, int]) -> Archive:
        """Return a copy with only the records below `floors`."""
        return Archive(
            {
                name: {seq: record for seq, record in records.items() if seq < floors.get(name, 1)}
                for name, records in self.records.items()
            }
        )


@dataclass(frozen=True)
class Bounds:
    """The bounds at one moment, as pairs: the durable state (at least), and the state tried so far (at most)."""

    heads: Mapping[str, tuple[int, int]]
    floors: Mapping[str, tuple[int, int]]
    deletes: tuple[int, int]
    versions: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])


@dataclass(frozen=True)
class FoundTopic:
    """The state of a topic that recovery found.

    `live` holds seq, value and tag of each live record at or above the hot floor. `lost` holds the gaps that readers
    see.
    """

    head: int
    hot_floor: int
    live: tuple[tuple[int, bytes, str | None], ...]
    ops: tuple[DeleteOp, ...]
    lost: tuple[Gap, ...] = ()
    earliest_seq: int = 1
    details: tuple[tuple[int, Detail], ...] = ()
    kind: Kind | None = None
    evict_floor: int = 1
    is_front_warm: bool = False


Detail: TypeAlias = tuple[int, str | None, bool]
"""The time, node and `unterminated` of a record."""
Kind: TypeAlias = tuple[int, TopicConfig]
"""The epoch and the configuration of a topic."""
Found: TypeAlias = Mapping[str, FoundTopic]


class TriedDelete(NamedTuple):
    """A delete that was tried when the topic ended at `at_seq`. A condition that is None holds for every record."""

    topic: str
    at_seq: int
    before: int | None
    tag: str | None
    start: int | None
    end: int | None
    seqs: frozenset[int] | None


class TriedUndelete(NamedTuple):
    """An undelete that was tried. A listed delete reaches none of `seqs`."""

    topic: str
    seqs: frozenset[int]


@dataclass
class Journal:
    """The operations that a life tried, and the operations that are acked.

    `tried` lists the records given to `append`, in order. `ends` are the last seqs of these appends. `acked` is the
    number of durable records of each topic.
    `keepers` are the topics with `keep_history`. They lose hot records only by a release.
    `ephemeral` are the seqs of the ephemeral class. `gone` are the ephemeral seqs whose records no longer exist.
    `versions` is the oracle of other topics, which the rest of the journal does not know.
    """

    tried: dict[str, list[tuple[bytes, str | None]]] = field(default_factory=dict)
    acked: dict[str, int] = field(default_factory=dict)
    deletes_tried: list[TriedDelete | TriedUndelete] = field(default_factory=list)
    deletes_acked: int = 0
    floors_tried: dict[str, int] = field(default_factory=dict)
    floors_acked: dict[str, int] = field(default_factory=dict)
    archive: Archive = field(default_factory=Archive)
    keepers: frozenset[str] = frozenset({"kept"})
    ephemeral: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    gone: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    details: dict[str, dict[int, Detail]] = field(default_factory=dict[str, dict[int, Detail]])
    kinds: dict[str, Kind] = field(default_factory=dict[str, Kind])
    versions: Versions = field(default_factory=Versions)
    ends: dict[str, set[int]] = field(default_factory=dict[str, set[int]])

    def append(
        self,
        log: Log,
        name: str,
        count: int,
        tag: str | None = None,
        durability: str = "fsync",
        times_ms: list[int] | None = None,
    ) -> None:
        known = self.tried.setdefault(name, [])
        values = [b"%s %d " % (name.encode(), len(known) + 1 + index) * 5 for index in range(count)]
        self.note(name, values, tag, durability)
        topic, node, unterminated = log.topic(name), (None, "n1", "n2")[count % 3], count == 1
        seqs = topic.append(
            values, tag=tag, node=node, unterminated=unterminated, durability=durability, times_ms=times_ms
        )
        if durability == "fsync":
            # Other threads may have noted their records since.
            self.acked[name] = max(self.acked.get(name, 0), seqs.stop - 1)
        details = self.details.setdefault(name, {})
        details |= {each.seq: (each.ts_ms, node, unterminated) for each in topic.read(seqs.start) if each.seq in seqs}
        self.kinds[name] = (topic.epoch, topic.config)

    def note(self, name: str, values: list[bytes], tag: str | None, durability: str) -> None:
        """Record that an append of `values` is about to start."""
        known = self.tried.setdefault(name, [])
        seqs = {*range(len(known) + 1, len(known) + len(values) + 1)}
        known.extend((value, tag) for value in values)
        self.ends.setdefault(name, {0}).add(len(known))
        if durability == "ephemeral":
            self.ephemeral.setdefault(name, set()).update(seqs)

    def checkpoint(self, log: Log) -> None:
        """Run a checkpoint. Afterwards the seqs of all records are durable, whatever their class."""
        heads = {name: log.topic(name).head_seq for name in self.tried}
        log.checkpoint()
        self.acked |= heads

    def delete(
        self,
        log: Log,
        name: str,
        before: int | None = None,
        tag: str | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        seqs: Iterable[int] | None = None,
    ) -> None:
        named = None if seqs is None else frozenset(seqs)
        self.deletes_tried.append(TriedDelete(name, log.topic(name).head_seq, before, tag, start, end, named))
        where = DeleteWhere(before, tag, start, end, seq_set(named))
        if log.topic(name).inner.delete(where).op:
            self.deletes_acked = len(self.deletes_tried)
            # A delete is synced, so all earlier appends to the topic are durable with it.
            self.acked[name] = max(self.acked.get(name, 0), log.topic(name).head_seq)
            return
        delete = TriedDelete(*self.deletes_tried.pop())  # type: ignore[arg-type]
        records = [(seq, tag) for seq, (_, tag) in enumerate(self.tried[name], 1)]
        before_it = {seq for seq, tag in records if self._is_deleted(name, seq, tag, len(self.deletes_tried))}
        reached = {seq for seq, tag in records if _reaches(delete, name, seq, tag)} - before_it
        assert reached <= self.ephemeral.get(name, set())
        self.gone.setdefault(name, set()).update(reached)

    def undelete(self, log: Log, name: str, seqs: Iterable[int]) -> None:
        topic = log.topic(name)
        sealed = [seq for seq in seqs if topic.inner.hot_floor <= seq <= topic.inner.sealed_seq]
        tags = {seq: self.tried[name][seq - 1][1] for seq in sealed}
        listed = topic.inner.delete_ops()
        back = frozenset(seq for seq in sealed if not any(op.reaches(seq, tags[seq]) for op in listed))
        self.deletes_tried.append(TriedUndelete(name, back))
        topic.inner.undelete(SeqSet.of_seqs(sorted(sealed)))
        self.deletes_acked = len(self.deletes_tried)

    def undo(self, log: Log, name: str) -> None:
        """Undo the newest delete, as far as its records are there. tests/seglog/test_undo.py says which come back."""
        topic = log.topic(name)
        with suppress(DeleteNotUndone):
            seen = topic.undo(preview=True)
            back = frozenset(seq for first, last in seen.back.ranges() for seq in range(first, last + 1))
            self.deletes_tried.append(TriedUndelete(name, back))
            topic.undo(seen.delete, partial=True)
            self.deletes_acked = len(self.deletes_tried)

    def _is_deleted(self, name: str, seq: int, tag: str | None, deletes: int) -> bool:
        """Return whether the record is deleted after the first `deletes` of the tried deletes."""
        is_deleted = False
        for each in self.deletes_tried[:deletes]:
            if isinstance(each, TriedUndelete):
                is_deleted &= each.topic != name or seq not in each.seqs
            else:
                is_deleted |= _reaches(each, name, seq, tag)
        return is_deleted

    def release(self, log: Log, name: str, last: int) -> None:
        self.archive.take(log.topic(name), last)
        self.floors_tried[name] = last + 1
        log.topic(name).inner.release(last)
        self.floors_acked[name] = log.topic(name).inner.hot_floor

    def live_seqs(self, name: str, head: int, deletes: int, *, is_running: bool = False) -> list[int]:
        """Return the live seqs up to `head` after the first `deletes` of the tried deletes.

        If `is_running`, include the ephemeral records that still exist.
        """
        seqs = []
        gone = (self.gone if is_running else self.ephemeral).get(name, set())
        for seq, (_, tag) in enumerate(self.tried.get(name, [])[:head], 1):
            if not self._is_deleted(name, seq, tag, deletes) and seq not in gone:
                seqs.append(seq)
        return seqs

    def bounds(self) -> Bounds:
        names = self.tried
        return Bounds(
            {name: (self.acked.get(name, 0), len(names[name])) for name in names},
            {name: (self.floors_acked.get(name, 1), self.floors_tried.get(name, 1)) for name in names},
            (self.deletes_acked, len(self.deletes_tried)),
            self.versions.bounds(),
        )

    def lost(self, found: Found, bounds: Bounds) -> str | None:
        """Return an error text if durable state is missing, else None."""
        for name, (least, _) in bounds.heads.items():
            topic = found.get(name, _NOTHING)
            if topic.head < least:
                return f"{name} ends at {topic.head}, and {least} was acked"
            if topic.hot_floor < bounds.floors[name][0]:
                return f"{name} begins at {topic.hot_floor}, and {bounds.floors[name][0]} was acked"
            counts = range(bounds.deletes[0], bounds.deletes[1] + 1)  # the last one may be an undelete
            kept = set.intersection(*({*self.live_seqs(name, topic.head, count)} for count in counts))
            missing = kept - {seq for seq, *_ in self._all(name, topic)}
            if missing:
                return f"{name} has no {sorted(missing)}"
            untold = {seq for seq in self._untold(name, topic, bounds.deletes[1]) if seq <= topic.head}
            if untold:
                return f"{name} says nothing of {sorted(untold)}, which were ephemeral"
        return self.versions.lost(found, bounds.versions)

    def _untold(self, name: str, topic: FoundTopic, deletes: int) -> set[int]:
        told = {seq for gap in topic.lost for seq in range(gap.gap_from, gap.gap_to + 1)}
        deleted = {
            seq for seq, (_, tag) in enumerate(self.tried.get(name, []), 1) if self._is_deleted(name, seq, tag, deletes)
        }
        # An archive passes over ephemeral records in silence (docs/internals/limits-in-full.md), and `look` does not
        # read them.
        hot = {seq for seq in self.ephemeral.get(name, set()) if seq >= _first_looked_at(topic)}
        return hot - self.gone.get(name, set()) - told - deleted

    def phantom(self, found: Found, bounds: Bounds) -> str | None:
        """Return an error text if `found` has state that the life never made, deleted records or wrong places."""
        for name, topic in self._own(found).items():
            most = bounds.heads.get(name, (0, 0))[1]
            if topic.head > most:
                return f"{name} ends at {topic.head}, and {most} were appended"
            if topic.head not in self.ends.get(name, {0}):
                return f"{name} ends at {topic.head}, within an append"
            records = self._all(name, topic)
            for seq, value, tag in records:
                if (value, tag) != self.tried[name][seq - 1]:
                    return f"{name} has {value!r} at {seq}"
            known = self.details.get(name, {})
            if wrong := [(seq, detail) for seq, detail in topic.details if known.get(seq, detail) != detail]:
                return f"{name} has {wrong}, and readers saw {[known[seq] for seq, _ in wrong]}"
            if topic.kind != self.kinds.get(name, topic.kind):
                return f"{name} is {topic.kind}, and was {self.kinds[name]}"
            seqs = [seq for seq, *_ in records]
            written = {*seqs} - self.ephemeral.get(name, set())
            if any(gap.gap_from <= seq <= gap.gap_to for gap in topic.lost for seq in written):
                return f"{name} says that it lost {topic.lost}, and has {seqs}"
            counts = range(bounds.deletes[0], bounds.deletes[1] + 1)
            if seqs not in [self.live_seqs(name, topic.head, count) for count in counts]:
                return f"{name} has {seqs}, which no number of deletes in {counts} leaves"
            wrong_front = self._wrong_front(name, topic, seqs, bounds)
            if wrong_front is not None:
                return wrong_front
        return self.versions.phantom(found, bounds.versions)

    def _own(self, found: Found) -> Found:
        return {name: topic for name, topic in found.items() if name not in self.versions.known}

    def _wrong_front(self, name: str, topic: FoundTopic, live: list[int], bounds: Bounds) -> str | None:
        """Return an error text if the front of a topic is wrong, else None.

        Without history, the log deletes front segments that have no live record. It deletes other segments only after a
        release. A front in the warm store may be too low: only the relocator looks for deletes by tag there.
        """
        released = bounds.floors.get(name, (1, 1))[1]
        if topic.hot_floor > topic.head + 1 or (name in self.keepers and topic.hot_floor > released):
            return f"{name} begins at {topic.hot_floor}, and {released} was released"
        if any(released <= seq < topic.hot_floor for seq in live):
            return f"{name} begins at {topic.hot_floor}, above one of {live}"
        if any(seq < topic.earliest_seq for seq in live):
            return f"{name} has its first live record at {live[0]}, and says {topic.earliest_seq}"
        hot = [seq for seq in live if seq >= topic.hot_floor]
        first = hot[0] if hot else topic.head + 1
        is_lost = any(gap.gap_from <= topic.earliest_seq <= gap.gap_to < first for gap in topic.lost)
        is_exact = topic.earliest_seq >= topic.hot_floor and not topic.is_front_warm
        if is_exact and topic.earliest_seq != first and not is_lost:
            return f"{name} says that it begins at {topic.earliest_seq}, and {hot[:1]} is the first that is live"
        return self._wrong_floors(name, topic, bounds)

    def _wrong_floors(self, name: str, topic: FoundTopic, bounds: Bounds) -> str | None:
        """Return an error text if a floor is wrong, else None.

        Only records in the cold tier lie between `earliest_seq` and the hot floor. Every evicted record was ephemeral.
        """
        tried = self.deletes_tried[: bounds.deletes[1]]
        undeleted = [
            place for place, each in enumerate(tried, 1) if each.topic == name and isinstance(each, TriedUndelete)
        ]
        deletes = tried[max(undeleted, default=0) : bounds.deletes[0]]
        known = max(
            (
                min(delete.before, delete.at_seq + 1)
                for delete in deletes
                if isinstance(delete, TriedDelete)
                and delete.topic == name
                and delete.before
                and (delete.tag, delete.start, delete.seqs) == (None, None, None)
            ),
            default=1,
        )
        if topic.earliest_seq < known:
            return f"{name} says that it begins at {topic.earliest_seq}, and all below {known} was deleted"
        if topic.earliest_seq < topic.hot_floor and bounds.floors.get(name, (1, 1))[1] == 1:
            return (
                f"{name} says that it begins at {topic.earliest_seq}, and nothing below {topic.hot_floor} was released"
            )
        if topic.evict_floor > topic.earliest_seq:
            return f"{name} begins at {topic.earliest_seq}, and says that it lost all below {topic.evict_floor}"
        if topic.evict_floor > 1 and topic.evict_floor - 1 not in self.ephemeral.get(name, set()):
            return f"{name} says that it lost {topic.evict_floor - 1}, which was not ephemeral"
        return None

    def resumed(self, found: Found, bounds: Bounds) -> Journal:
        """Return the journal for the life after the crash: the state that recovery found is the only one tried."""
        versions, found = self.versions.resumed(found, bounds.versions), self._own(found)
        deletes = next(
            count
            for count in range(bounds.deletes[0], bounds.deletes[1] + 1)
            if all(
                [seq for seq, *_ in self._all(name, topic)] == self.live_seqs(name, topic.head, count)
                for name, topic in found.items()
            )
        )
        ephemeral = {
            name: {seq for seq in self.ephemeral.get(name, set()) if seq <= topic.head} for name, topic in found.items()
        }
        return Journal(
            ephemeral=ephemeral,
            gone={name: {*seqs} for name, seqs in ephemeral.items()},
            tried={name: self.tried.get(name, [])[: topic.head] for name, topic in found.items()},
            acked={name: topic.head for name, topic in found.items()},
            deletes_tried=self.deletes_tried[:deletes],
            deletes_acked=deletes,
            floors_tried={
                name: topic.hot_floor for name, topic in found.items() if bounds.floors.get(name, (1, 1))[1] > 1
            },
            floors_acked={name: topic.hot_floor for name, topic in found.items()},
            archive=self.archive.below({name: topic.hot_floor for name, topic in found.items()}),
            keepers=self.keepers,
            details={
                name: {seq: detail for seq, detail in self.details.get(name, {}).items() if seq <= topic.head}
                for name, topic in found.items()
            },
            kinds={name: topic.kind for name, topic in found.items() if topic.kind is not None},
            versions=versions,
            ends={
                name: {seq for seq in self.ends.get(name, {0}) if seq <= topic.head} for name, topic in found.items()
            },
        )

    def _all(self, name: str, topic: FoundTopic) -> list[tuple[int, bytes, str | None]]:
        """Return the live records, including the records that a read below the hot floor yields.

        This leaves out ephemeral records that the archive took while they existed.
        """
        ephemeral = self.ephemeral.get(name, set())
        archived = [item for item in self.archive.records.get(name, {}).items() if item[0] not in ephemeral]
        warm = [
            (seq, record.value, record.tag)
            for seq, record in archived
            if topic.earliest_seq <= seq < topic.hot_floor and not any(op.matches(record) for op in topic.ops)
        ]
        return [*warm, *topic.live]


_NOTHING = FoundTopic(0, 1, (), ())


def _first_looked_at(topic: Topic | FoundTopic) -> int:
    """Return the first seq that `look` reads. It reads nothing below the hot floor: the log may have no archive."""
    hot_floor = topic.hot_floor if isinstance(topic, FoundTopic) else topic.inner.hot_floor
    return hot_floor if topic.earliest_seq < hot_floor else 1


def look(log: Log) -> dict[str, FoundTopic]:
    """Return the state of all topics. Verify every hot frame."""
    found = {}
    for name in log.topics():
        topic = log.topic(name)
        items = list(topic.read(_first_looked_at(topic), gaps=True))
        lost = tuple(item for item in items if isinstance(item, Gap))
        live = tuple((item.seq, item.value, item.tag) for item in items if isinstance(item, Record))
        if topic.inner.record_count_hot:
            assert len(list(topic.inner.frames(topic.inner.hot_floor, topic.head_seq))) == topic.inner.record_count_hot
        details = tuple(
            (item.seq, (item.ts_ms, item.node, item.unterminated)) for item in items if isinstance(item, Record)
        )
        front = topic.earliest_seq
        is_warm = any(not info.is_hot and info.first_seq <= front <= info.last_seq for info in topic.inner.segments())
        found[name] = FoundTopic(
            topic.head_seq, topic.inner.hot_floor, live, topic.inner.delete_ops(), lost, front, details,
            (topic.epoch, topic.config), topic.inner.evict_floor, is_warm,
        )  # fmt: skip
    return found


def live(
    directory: Path,
    files: Files,
    journal: Journal,
    settings: LogSettings = SETTINGS,
    later: LogSettings | None = None,
) -> None:
    """Run every kind of operation, over two lives of the process, with rotations, rolls and interleaved topics.

    The second life has the settings `later` if given, else `settings`. No second thread runs, so the operations are the
    same in every run.
    """
    with seglog.open(directory, files=files, settings=settings, upkeep=InCaller) as log:
        log.attach_cold(journal.archive)
        log.create_topic("kept", TopicConfig(keep_history=True))
        log.create_topic("passing", TopicConfig(durability="ephemeral"))
        for _ in range(3):
            journal.append(log, "a", 2)
            journal.append(log, "kept", 1, tag="eu-1")
        journal.append(log, "a", 2, durability="disk")
        journal.delete(log, "a", before=3)
        journal.append(log, "a", 1, tag="x")
        log.topic("a").seal()
        journal.append(log, "passing", 3, durability="ephemeral")
        journal.delete(log, "passing", before=2)
        journal.append(log, "mixed", 2, times_ms=[7, 1_000])
        journal.append(log, "mixed", 2, tag="x", durability="ephemeral")
        for number in range(9):
            journal.append(log, "holes", 1, tag="x" if number % 4 else None)
        log.topic("holes").seal()
        journal.delete(log, "holes", tag="x")
        journal.append(log, "kept", 3, tag="us")
        journal.delete(log, "kept", tag="eu*")
        journal.checkpoint(log)
        journal.append(log, "passing", 1)
        journal.append(log, "mixed", 1, durability="disk")
        journal.append(log, "mixed", 3, durability="ephemeral")
        journal.delete(log, "mixed", tag="x")
        journal.release(log, "a", 8)
        journal.append(log, "a", 12, tag="x")
        journal.delete(log, "a", start=13, end=14)
        journal.delete(log, "kept", seqs=[1, 5])
        journal.delete(log, "a", tag="x", start=16)
    with seglog.open(directory, files=files, settings=later or settings, upkeep=InCaller) as log:
        for _ in range(4):
            journal.append(log, "a", 4)
            journal.append(log, "kept", 4, durability="disk")
            journal.append(log, "a", 1, durability="memory")
        journal.undo(log, "a")
        journal.delete(log, "a", start=20)
        journal.undo(log, "a")
        log.topic("kept").inner.settle_deletes(1)
        journal.undelete(log, "kept", [1, 2, 3])
        journal.delete(log, "kept", seqs=[3])
        journal.append(log, "mixed", 1, durability="memory")
        journal.append(log, "passing", 2, durability="ephemeral")
        journal.append(log, "kept", 1)


def live_on(log: Log, journal: Journal) -> None:
    """Run a short life after a crash, whatever recovery found. It has every kind of change once more."""
    for name in log.topics():
        log.topic(name).seal()
    journal.append(log, "a", 1, durability="disk")
    journal.append(log, "kept", 2, tag="eu-2", durability="disk")
    journal.append(log, "a", 2)
    journal.delete(log, "a", start=log.topic("a").head_seq)
    journal.undo(log, "a")
    journal.delete(log, "kept", tag="eu-2")
    journal.append(log, "passing", 1, durability="ephemeral")
    journal.append(log, "mixed", 1, durability="ephemeral")
    journal.append(log, "mixed", 1)
    journal.checkpoint(log)
    if log.topic("a").inner.sealed_seq >= log.topic("a").inner.hot_floor:
        journal.release(log, "a", log.topic("a").inner.sealed_seq)
    journal.append(log, "kept", 40, durability="memory")


def check(directory: Path, files: Files, journal: Journal, settings: LogSettings = SETTINGS) -> dict[str, int]:
    """Recover, compare with the journal, append to each topic, and recover again. Return the heads that were found."""
    with seglog.open(directory, files=files, settings=settings) as log:
        log.attach_cold(journal.archive)
        found = look(log)
        bounds = journal.bounds()
        assert (journal.lost(found, bounds), journal.phantom(found, bounds)) == (None, None)
        heads = {name: found.get(name, _NOTHING).head for name in journal.tried}
        for name in found:
            items = log.topic(name).read(gaps=True)
            assert [item.value for item in items if isinstance(item, Record)] == [
                value for _, value, _ in journal._all(name, found[name])
            ]
        for name, head in heads.items():
            assert log.topic(name).append([b"next"], durability="fsync") == range(head + 1, head + 2)
    with seglog.open(directory, files=files, settings=settings) as log:
        for name, head in heads.items():
            assert log.topic(name).head_seq == head + 1
            assert [record.value for record in log.topic(name).read(head + 1)] == [b"next"]
    return heads


def _reaches(delete: TriedDelete, name: str, seq: int, tag: str | None) -> bool:
    first, wanted = delete.start or 1, delete.tag
    last = min(delete.at_seq, delete.end or delete.at_seq, (delete.before or delete.at_seq + 1) - 1)
    if delete.topic != name or not first <= seq <= last or (delete.seqs is not None and seq not in delete.seqs):
        return False
    if wanted is None:
        return True
    return tag is not None and (tag.startswith(wanted[:-1]) if wanted.endswith("*") else tag == wanted)
