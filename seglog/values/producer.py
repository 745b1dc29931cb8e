"""Producers: an append with an identity may be repeated, and its records are there once.

A producer is a program that appends batches to a topic under an id of its own choice. It numbers its batches 0, 1, 2.
If an answer is lost, it appends the same batch with the same number again. A program that takes the place of another
one begins a higher epoch with batch 0.

    the batch has                                  the log
    an id that the log does not know, or a         appends the batch if its number is 0, or with `gaps`. Otherwise it
    higher epoch than the known one                raises `ProducerGap`
    a lower epoch                                  raises `ProducerFenced`
    the next number                                appends the batch
    a higher number                                appends it with `gaps`. Otherwise it raises `ProducerGap`
    the number of one of the last five batches     appends nothing, and returns the seqs of that batch. If that batch
                                                   had another number of records, the log raises `BatchReused`. The
                                                   log compares no values
    another lower number                           raises `BatchForgotten`

PRODUCER-1  The log decides under the lock that assigns seqs, before it takes one. So of two calls with one batch, only
    one appends. A refused batch takes no seq and no number.
PRODUCER-2  The answer to a repetition comes when the first append is durable. If the first append fails, the repetition
    fails with it.
PRODUCER-3  A topic knows up to 10,000 producers. The log forgets the producer that appended longest ago. It forgets
    a producer that has not appended for `producer_keep_s` when another one appends, or when it opens. The log takes
    a forgotten producer for a new one.
PRODUCER-4  A truncation changes no producer. A repetition of a truncated batch returns the seqs that it had. The
    deletion of a topic ends its producers, unless this directory follows the topic from then on (ELSEWHERE-2). They
    are not in an archive, so a new directory knows none.

No I/O.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

from seglog.base.arguments import WHOLE_MAX, kind_of, taken
from seglog.base.dataclasses import dataclass
from seglog.errors import BatchForgotten, BatchReused, InvalidArgument, ProducerFenced, ProducerGap

ID_MAX_BYTES = 256
_BATCHES_KEPT = 5
_KINDS: dict[str, Any] = {"id": kind_of(str), "epoch": kind_of(int), "number": kind_of(int), "gaps": kind_of(bool)}


@dataclass(frozen=True, slots=True)
class ProducerBatch:
    """The identity of one append. `id` is a text of 1 to 256 bytes in UTF-8.

    With `gaps`, the number may be any higher one than before. A bridge then takes the offset in its source.
    Raise `InvalidArgument` for a value of a wrong type or range.
    """

    id: str
    epoch: int
    number: int
    gaps: bool = False

    def __post_init__(self) -> None:
        # The common case in less time than the general case: values of the exact types and within their range.
        is_plain = type(self.id) is str and type(self.epoch) is int and type(self.number) is int
        is_fit = is_plain and 0 <= self.epoch <= WHOLE_MAX and 0 <= self.number <= WHOLE_MAX
        if not is_fit or (self.gaps is not False and self.gaps is not True):
            for name, kind in _KINDS.items():
                object.__setattr__(self, name, taken(name, getattr(self, name), kind))
        check_id(self.id)


@dataclass(frozen=True, slots=True)
class Appended:
    """The answer to an append. `duplicate` says that an earlier append made the records, and this one made none."""

    seqs: range
    duplicate: bool


class Batch(NamedTuple):
    """A batch that was appended: its number and the seqs of its records. A topic keeps up to 50,000 of these."""

    number: int
    first_seq: int
    records: int

    @property
    def seqs(self) -> range:
        return range(self.first_seq, self.first_seq + self.records)


@final
class AppendedBatch(NamedTuple):
    """A batch of a producer as the log writes it."""

    producer: str
    epoch: int
    batch: Batch

    @property
    def first_seq(self) -> int:
        return self.batch.first_seq

    @property
    def records(self) -> int:
        return self.batch.records


class Producer(NamedTuple):
    """A producer as a topic knows it: epoch, time of the newest batch, and the last batches, oldest first.

    The class is a named tuple, because each append of a producer makes one.
    """

    epoch: int
    ts_ms: int
    batches: tuple[Batch, ...]

    @property
    def number(self) -> int:
        """Return the number of the newest batch."""
        return self.batches[-1].number


def check_id(text: str, name: str = "id") -> str:
    """Return the text. Raise `InvalidArgument`, which names the argument, for a text that is empty or too long."""
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        size_bytes = 0
    if not 1 <= size_bytes <= ID_MAX_BYTES:
        raise InvalidArgument(name, text, f"a text of 1 to {ID_MAX_BYTES} bytes in UTF-8")
    return text


def repeated(topic: str, former: Producer | None, batch: ProducerBatch, values: int) -> range | None:
    """Return the seqs of the batch if the topic has it already, and None if the log appends it now.

    Raise `ProducerFenced`, `ProducerGap` or `BatchForgotten`. If the batch had another number of records than
    `values`, raise `BatchReused`.
    """
    if former is not None and batch.epoch < former.epoch:
        raise ProducerFenced(topic, batch.id, batch.epoch, former.epoch)
    newest = former.batches[-1].number if former is not None and batch.epoch == former.epoch else -1
    if batch.number > newest:
        if batch.number > newest + 1 and not batch.gaps:
            raise ProducerGap(topic, batch.id, batch.number, newest + 1)
        return None
    before = next((old for old in former.batches if old.number == batch.number), None) if former else None
    if before is None:
        raise BatchForgotten(topic, batch.id, batch.number, newest)
    if before.records != values:
        raise BatchReused(topic, batch.id, batch.epoch, batch.number, before.records)
    return before.seqs


def with_batch(former: Producer | None, epoch: int, batch: Batch, ts_ms: int) -> Producer:
    """Return the producer after it has appended the batch.

    If the batch does not follow, the log has forgotten the producer in between. Recovery cannot see that.
    """
    is_next = former is not None and former.epoch == epoch and former.batches[-1].number < batch.number
    before = former.batches[1 - _BATCHES_KEPT :] if former is not None and is_next else ()
    return Producer(epoch, ts_ms, (*before, batch))


def check_producer(producer: Producer) -> Producer:
    """Return the producer. Raise `ValueError` if its batches contradict each other."""
    numbers = [batch.number for batch in producer.batches]
    is_fit = 1 <= len(numbers) <= _BATCHES_KEPT and numbers == sorted({*numbers})
    if not is_fit or any(batch.first_seq < 1 or batch.records < 1 for batch in producer.batches):
        raise ValueError(f"the batches of a producer do not fit each other: {producer}")
    return producer
