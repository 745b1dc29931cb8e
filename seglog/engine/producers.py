"""The producers of one topic in an open log (seglog.values.producer).

    known        all published batches, as a manifest has them; the producer that appended longest ago comes first
    in flight    producers with a batch in flight, as they are after it

`Entry.assign` and `Entry.publish` change the two views under the committer's lock, as they do with seqs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from seglog.values.producer import AppendedBatch, Producer, with_batch

__all__ = ["PRODUCERS_MAX", "Producers"]

#: The most producers that a topic knows.
PRODUCERS_MAX = 10_000


class Producers:
    """The producers of one topic. Not thread-safe: the caller holds the committer's lock.

    A producer that has not appended for `keep_ms` is forgotten; None: never. `forgotten` counts the producers that
    were, since the log was opened.
    """

    __slots__ = ("_in_flight", "_known", "_not_older_ms", "forgotten", "keep_ms")

    def __init__(self, known: Iterable[tuple[str, Producer]] = (), keep_ms: int | None = None) -> None:
        self._known: OrderedDict[str, Producer] = OrderedDict(known)
        self._in_flight: dict[str, Producer] = {}
        self.keep_ms = keep_ms
        self.forgotten = 0
        self._not_older_ms = 0  # no published producer is older

    def __len__(self) -> int:
        return len(self._known)

    def find(self, producer: str) -> Producer | None:
        """Return the producer, with its batches in flight."""
        return self._in_flight.get(producer) or self._known.get(producer)

    def published(self, producer: str) -> Producer | None:
        """Return the producer without its batches in flight."""
        return self._known.get(producer)

    def all(self) -> tuple[tuple[str, Producer], ...]:
        """Return the published producers by id, for a manifest."""
        return tuple(self._known.items())

    def assign(self, appended: AppendedBatch, ts_ms: int) -> None:
        """Add a batch in flight."""
        producer, epoch, batch = appended
        known = self._in_flight.get(producer) or self._known.get(producer)
        if known is None or known.batches[-1].number != batch.number or not _ends_with(known, appended):
            self._in_flight[producer] = with_batch(known, epoch, batch, ts_ms)

    def publish(self, appended: AppendedBatch, ts_ms: int) -> None:
        """Add a published batch. A second call, after an interrupt, has the same result."""
        producer, epoch, batch = appended
        in_flight = self._in_flight.get(producer)
        # The common case is the same batch, and needs no comparison.
        is_same = in_flight is not None and in_flight.batches[-1] is batch
        is_newest = is_same or _ends_with(in_flight, appended)
        if in_flight is not None and is_newest:
            self._known[producer] = in_flight
        elif not _ends_with(known := self._known.get(producer), appended):
            self._known[producer] = with_batch(known, epoch, batch, ts_ms)
        self._known.move_to_end(producer)
        if is_newest:
            self._in_flight.pop(producer, None)
        is_old = self.keep_ms is not None and self._not_older_ms < ts_ms - self.keep_ms
        if is_old or len(self._known) > PRODUCERS_MAX:
            self.forget_until(ts_ms)

    def forget_until(self, now_ms: int) -> None:
        """Forget the producers that are too old, or too many (PRODUCER-3)."""
        known = self._known
        while known:
            oldest = next(iter(known.values()))
            is_old = self.keep_ms is not None and oldest.ts_ms < now_ms - self.keep_ms
            if not is_old and len(known) <= PRODUCERS_MAX:
                self._not_older_ms = min(oldest.ts_ms, now_ms)
                return
            known.popitem(last=False)
            self.forgotten += 1

    def reset_assigned(self) -> None:
        """Drop the batches in flight. The committer assigns each of them again."""
        self._in_flight.clear()


def _ends_with(producer: Producer | None, appended: AppendedBatch) -> bool:
    return producer is not None and producer.batches[-1] == appended.batch and producer.epoch == appended.epoch
