"""The records that main got after the fork, appended to the branch that becomes main: `branch promote --carry`.

    1 The directory takes the branch over, and notes in its configuration where the records come from, and the branch's
      last seq before them.
    2 It appends the live records of main above the shared seq, in order, with their tags and nodes. They get new seqs
      and the time of now, because the log assigns both. Deletes stay in the former main.
    3 It offloads the branch.

CARRY-1  A second call after a crash continues after the last record that the branch has. It compares each record that
    is there. So no record is carried twice.
CARRY-2  A call that ended notes the last record that it carried, with its time here and in main. A later call carries
    only what main got since.
CARRY-3  A note counts as long as the branch has the records that it speaks of. A record that took the seq of a
    truncated one is newer than the note says. If none of the carried records is left, the call begins anew. If some
    are, it compares them as after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, replace
from itertools import groupby, islice, takewhile

from catalog import Snapshot, Vid
from catalog.errors import KeyChanged
from catalog.format import keys
from offload.context import ArchiveContext
from offload.errors import CarriedOtherwise
from offload.format.topic_config import CARRIED_FROM
from offload.handles import split_name
from offload.replication.takeover import Writers
from offload.write.offloader import Offloader
from seglog import Gap, Record, Topic
from seglog.base.arguments import WHOLE_MAX
from seglog.base.progress import count

__all__ = ["Carrying"]

_BATCH_RECORDS = 1024


class Carrying:
    """Carries records to a branch. The caller holds the lock of the branch."""

    def __init__(self, context: ArchiveContext, writers: Writers, offloader: Offloader) -> None:
        self._log = context.log
        self._handles = context.handles
        self._reader = context.reader
        self._writers = writers
        self._offloader = offloader

    def run(self, main: Snapshot, shared_seq: int, branch: str, vid: Vid) -> range:
        """Carry the live records of `main` above the shared seq to `branch`. Return the seqs there of those that this
        call carried, or an earlier one that did not end.

        Raises `CarriedOtherwise` if other records follow those of an earlier call (CARRY-1). Raises `KeyChanged` if
        the branch leads to another volume than `vid` by now, and what the store raises.
        """
        topic = self._writers.topic(branch)
        if self._handles.of(branch).vid != vid:
            raise KeyChanged(keys.ref_key(*split_name(branch)))
        note = self._begin(topic, main, shared_seq)
        records = (each for each in self._above(main, shared_seq) if not note.covers(each))
        _last_alike(topic.read(note.begun + 1, gaps=True), records, CarriedOtherwise(branch, note.begun))
        for labels, values in _batches(records):
            self._save(topic, note)
            tag, node, unterminated = labels
            topic.append(values, tag=tag, node=node, unterminated=unterminated)
            count("carrying", len(values), "records")
        carried = range(note.begun + 1, topic.head_seq + 1)
        if carried:
            upto, upto_ms = main.bounds.head_seq, main.max_ts_ms
            self._save(topic, replace(note, end=carried[-1], end_ms=topic.last_ts_ms, upto=upto, upto_ms=upto_ms))
        topic.seal()
        self._offloader.run(branch)
        return carried

    def _above(self, main: Snapshot, shared_seq: int) -> Iterator[Record]:
        """Return the live records of main that the branch does not have by its fork."""
        return self._reader.records(main, max(shared_seq + 1, main.bounds.evict_floor), main.bounds.head_seq)

    def _begin(self, topic: Topic, main: Snapshot, shared_seq: int) -> _Note:
        """Return the note on record as far as it counts (CARRY-3), or a new one. Puts nothing on record."""
        head, note, origin = topic.head_seq, _noted(topic), f"{main.vid} {shared_seq}"
        new = _Note(origin, head, head, topic.last_ts_ms, shared_seq, 0, head)
        if note is None or note.origin != origin:
            return new
        if _has(topic, note.end, note.end_ms):
            return note if note.end <= note.begun <= head else replace(note, begun=head)
        if note.end == note.base or not _has(topic, note.base + 1, note.end_ms):
            return new
        left = takewhile(lambda each: _is_at_most(each, note.end_ms), topic.read(note.base + 1, gaps=True))
        last = _last_alike(left, self._above(main, shared_seq), CarriedOtherwise(topic.name, note.base))
        if last is None:
            return new
        here, there = last
        return replace(note, end=here.seq, upto=there.seq, upto_ms=there.ts_ms, begun=head)

    def _save(self, topic: Topic, note: _Note) -> None:
        if note != _noted(topic):
            self._log.reconfigure(
                topic.name,
                lambda config: replace(config, attributes={**config.attributes, CARRIED_FROM: note.text}),
            )


@dataclass(frozen=True, slots=True)
class _Note:
    """What the attribute `CARRIED_FROM` says. `origin` is main's volume and the shared seq.

    The branch had its head at `base` before the first call, and at `begun` before the newest one. Of the calls that
    ended, `end` is the last carried record, and `upto` the last seq of main. Neither is newer than its time in ms. If
    `begun` is not below `end`, the newest call has not ended.
    """

    origin: str
    base: int
    end: int
    end_ms: int
    upto: int
    upto_ms: int
    begun: int

    @property
    def text(self) -> str:
        return " ".join(map(str, astuple(self)))

    def covers(self, record: Record) -> bool:
        """Return whether a call that ended carried this record of main."""
        return record.seq <= self.upto and record.ts_ms <= self.upto_ms


def _noted(topic: Topic) -> _Note | None:
    vid, *numbers = topic.config.attributes.get(CARRIED_FROM, "").split() or [""]
    match [int(number) for number in numbers]:
        case [shared_seq, base]:  # of a version that noted no more, also after the end
            return _Note(f"{vid} {shared_seq}", base, base, WHOLE_MAX, shared_seq, 0, base)
        case [shared_seq, base, end, end_ms, upto, upto_ms, begun]:
            return _Note(f"{vid} {shared_seq}", base, end, end_ms, upto, upto_ms, begun)
    return None


def _has(topic: Topic, seq: int, newest_ms: int) -> bool:
    """Return whether the topic still has the record that had this seq at that time. A deleted or lost one counts."""
    if not 0 < seq <= topic.head_seq:
        return seq == 0
    return all(_is_at_most(each, newest_ms) for each in topic.read(seq, seq, gaps=True))


def _is_at_most(item: Record | Gap, newest_ms: int) -> bool:
    return isinstance(item, Gap) or item.ts_ms <= newest_ms


def _last_alike(
    there: Iterable[Record | Gap], records: Iterator[Record], otherwise: CarriedOtherwise
) -> tuple[Record, Record] | None:
    """Take from `records` one for each that is there. Return the last of both. Raises the error if two differ."""
    last = None
    for each in there:
        record = next(records, None)
        if isinstance(each, Gap) or record is None or _content(each) != _content(record):
            raise otherwise
        last = each, record
    return last


def _batches(records: Iterable[Record]) -> Iterator[tuple[tuple[str | None, str | None, bool], list[bytes]]]:
    for labels, group in groupby(records, key=lambda each: (each.tag, each.node, each.unterminated)):
        while values := [each.value for each in islice(group, _BATCH_RECORDS)]:
            yield labels, values


def _content(record: Record) -> tuple[bytes, str | None, str | None, bool]:
    return record.value, record.tag, record.node, record.unterminated
