"""Append the records of a stream, or of a file that grows: `seglog append`."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from offload.errors import Misuse
from offload.operations.command import Directory
from offload.operations.record_text import Batch, json_batches, line_batches, longest_line, skip
from offload.operations.result_json import HIDDEN
from seglog import AppendsHeld, BatchReused, DiskFull, ProducerBatch, ProducerGap, RecordTooLarge
from seglog.base.dataclasses import dataclass
from seglog.errors import DaemonError, DaemonGone

if TYPE_CHECKING:
    from offload.operations.growing_file import GrowingFile, Place, PlaceFile
    from seglog import Topic
    from seglog.values.producer import Appended as Answer

_ROUTERS_TOPIC = "_seglog.routers"  # as in offload.operations.router, so that a look for it imports nothing
_PAUSE_S = 0.5
_AGAIN_FROM = 429  # Too Many Requests, and statuses of a daemon in trouble: a later try may work.


class Format(enum.StrEnum):
    LINES = "lines"
    JSONL = "jsonl"


@dataclass(frozen=True, slots=True)
class Appended:
    """The records appended so far, of so many lines. The seqs are None if there are no records yet."""

    topic: str
    appended: int
    first_seq: int | None
    last_seq: int | None
    line_count: int = field(default=0, metadata=HIDDEN)
    has_unused_times: bool = field(default=False, metadata=HIDDEN)


class RecordSink(Protocol):
    """The port to a topic that takes records: a topic of an open log, or of the daemon."""

    def append(
        self, values: Sequence[bytes], *, tag: str | None, node: str | None, unterminated: bool, durability: str | None
    ) -> range:
        """Append as `Topic.append` does, and return the seqs. The topic of an open log also takes `times_ms`."""

    @property
    def append_once(self) -> Callable[..., Answer]:
        """Append as `Topic.append_once` does."""


def open_sink(directory: Directory, topic: str, durability: str | None) -> Topic:
    """Return a topic for appends by a process that then ends. Raises `Misuse` for an ephemeral append."""
    log, archive = directory.log, directory.maybe_archive
    has_routers = log.has_topic(_ROUTERS_TOPIC)
    if has_routers or not (
        archive is None or log.has_topic(topic) or not archive.replication.is_replica(_ROUTERS_TOPIC)
    ):
        from offload.operations.router import loaded_states  # imported late: most directories have no router

        # for a topic that this directory does not write yet, the append asks the store, too
        loaded_states(log, archive, may_wait=not has_routers).check_appends(topic)
    sink = log.topic(topic) if archive is None or log.has_topic(topic) else archive.open_for_append(topic)
    if (durability or sink.config.durability) == "ephemeral":
        reason = "ephemeral records end with the process that appends them, and this one ends at once"
        raise Misuse(f"{reason}; nothing was appended. Say --durability memory, disk or fsync")
    return sink


def batches(
    stream: BinaryIO,
    kind: Format,
    *,
    tag: str | None,
    node: str | None,
    max_record_bytes: int,
    is_file: bool,
    skip_lines: int = 0,
    times_from: int | None = None,
) -> Iterator[Batch]:
    """Yield the records of a stream in batches, behind `skip_lines` lines. `times_from`: see `json_batches`.

    Raises `RecordTooLarge`, `InvalidInput`, and `Misuse` if the stream has fewer lines.

    In a file of lines, the search for a line that is too long comes before the first batch. So a file goes in whole or
    not at all.
    """
    skip(stream, skip_lines)
    if kind is Format.JSONL:
        yield from json_batches(stream, tag, node, skipped=skip_lines, times_from=times_from)
        return
    if is_file:
        start = stream.tell()
        longest = longest_line(stream, max_record_bytes)
        if longest > max_record_bytes:
            raise RecordTooLarge(longest, max_record_bytes)
        stream.seek(start)
    yield from line_batches(stream, tag, node, max_record_bytes)


def append(
    sink: RecordSink, topic: str, incoming: Iterable[Batch], durability: str | None, keeps_times: bool = False
) -> Iterator[Appended]:
    """Append the batches. Yield the total so far, first before the first batch and then after each batch."""
    first = last = count = lines = 0
    is_unused = False
    yield Appended(topic, 0, None, None)
    for batch in incoming:
        seqs = sink.append(batch.values, **_options(batch, durability, keeps_times))
        first, last, count = first or seqs.start, seqs.stop - 1, count + len(seqs)
        lines, is_unused = lines + batch.line_count, is_unused or bool(batch.times_ms and not keeps_times)
        yield Appended(topic, count, first or None, last or None, lines, is_unused)


def _options(batch: Batch, durability: str | None, keeps_times: bool) -> dict[str, Any]:
    labels = {"tag": batch.tag, "node": batch.node, "unterminated": batch.unterminated, "durability": durability}
    return {**labels, "times_ms": batch.times_ms} if keeps_times else labels


@dataclass(slots=True)
class Follower:
    """Appends the lines of a file that grows, each once (offload.operations.growing_file), from `place` on.

    `batches_of` makes batches of lines. `note` gets a line about a trouble that does not end the follower.
    """

    sink: RecordSink
    growing: GrowingFile
    places: PlaceFile
    place: Place
    batches_of: Callable[[bytes], Iterator[Batch]]
    note: Callable[[str], None]
    durability: str | None = None
    keeps_times: bool = False
    _is_again: bool = field(default=True, init=False)

    def batches(self) -> Iterator[Batch]:
        """Yield the batch of the last place again, and then those of new lines, each after its place is durable."""
        text = self.growing.take_up(self.place)
        if text is None:  # the log may have a batch of that number or not
            self.place = replace(self.place, epoch=self.place.epoch + 1, number=-1)
        yield from self.batches_of(text or b"")
        for lines in self.growing.texts():
            start = 0
            for batch in self.batches_of(lines):
                stop = start + batch.size_bytes
                self.place, start = self.growing.placed(self.place, lines, start, stop), stop
                self.places.save(self.place)
                self._is_again = False
                yield batch

    def append(self, batch: Batch, check: Callable[[], None]) -> range:
        """Append the batch of `place`, and return its seqs, none if the topic had it. Try until it works.

        Each further try calls `check`, which may raise.
        """
        is_noted = False
        while True:
            producer = ProducerBatch(self.place.producer, self.place.epoch, self.place.number)
            options = _options(batch, self.durability, self.keeps_times)
            try:
                done = self.sink.append_once(batch.values, **options, producer=producer)
            except (AppendsHeld, DaemonGone, DiskFull) as error:
                trouble: Exception = error
            except (BatchReused, DaemonError, ProducerGap) as error:
                trouble, title = error, getattr(error, "title", type(error).__name__)
                if title == "BatchReused" and self._is_again:
                    return range(0)  # the topic has the batch with lines that the file has lost since
                if title == "ProducerGap":
                    self.place = replace(self.place, epoch=self.place.epoch + 1, number=0)
                    self.places.save(self.place)
                elif (getattr(error, "status", None) or 0) < _AGAIN_FROM:
                    raise
            else:
                if done.duplicate and not self._is_again:
                    reason = "the place of --follow is older than the topic: another process went on with a copy of it"
                    raise Misuse(reason)
                return range(0) if done.duplicate else done.seqs
            if not is_noted:
                self.note(f"{trouble}; trying again")
            is_noted = self._is_again = True
            time.sleep(_PAUSE_S)
            check()
