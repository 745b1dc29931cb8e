"""What one topic of an open log knows of its appends: the producers, and the keys.

    known        producers: all published batches, as a manifest has them; who appended longest ago comes first
                 keys: those of published appends, as a manifest has them, the oldest first
    in flight    producers with a batch in flight, as they are after it, and the keys of appends in flight

`Entry.assign` and `Entry.publish` change the two views under the committer's lock, as they do with seqs. The
rules are in seglog.values.producer and seglog.values.append_key.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from seglog.errors import TooManyKeys
from seglog.values.append_key import Key, KeyedAppend
from seglog.values.producer import AppendedBatch, Producer, with_batch

#: The most producers that a topic knows.
PRODUCERS_MAX = 10_000
#: The most keys that a topic knows. They take 3 MB of memory, and with 36 bytes each 0.9 MB of a manifest.
KEYS_MAX = 10_000


class Producers:
    """The producers of one topic. Not thread-safe: the caller holds the committer's lock.

    A producer that has not appended for `keep_ms` is forgotten; None: never. `forgotten` counts the producers that
    were, since the log was opened.
    """

    __slots__ = ("_in_flight", "_known", "_not_older_ms", "forgotten", "keep_ms")

    def __init__(self, producers: Iterable[tuple[str, Producer]] = ()) -> None:
        self._known: OrderedDict[str, Producer] = OrderedDict(producers)
        self._in_flight: dict[str, Producer] = {}
        self.keep_ms: int | None = None
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
        former = self._in_flight.get(producer) or self._known.get(producer)
        if former is None or former.batches[-1].number != batch.number or not _ends_with(former, appended):
            self._in_flight[producer] = with_batch(former, epoch, batch, ts_ms)

    def publish(self, appended: AppendedBatch, ts_ms: int) -> None:
        """Add a published batch. A second call, after an interrupt, has the same result."""
        producer, epoch, batch = appended
        in_flight = self._in_flight.get(producer)
        # The common case is the same batch, and needs no comparison.
        is_same = in_flight is not None and in_flight.batches[-1] is batch
        is_newest = is_same or _ends_with(in_flight, appended)
        if in_flight is not None and is_newest:
            self._known[producer] = in_flight
        elif not _ends_with(former := self._known.get(producer), appended):
            self._known[producer] = with_batch(former, epoch, batch, ts_ms)
        self._known.move_to_end(producer)
        if is_newest:
            self._in_flight.pop(producer, None)
        is_old = self.keep_ms is not None and self._not_older_ms < ts_ms - self.keep_ms
        if is_old or len(self._known) > PRODUCERS_MAX:
            self.forget_until(ts_ms)

    def forget_until(self, now_ms: int) -> None:
        """Forget the producers that are too old, or too many (PRODUCER-3)."""
        producers = self._known
        while producers:
            oldest = next(iter(producers.values()))
            is_old = self.keep_ms is not None and oldest.ts_ms < now_ms - self.keep_ms
            if not is_old and len(producers) <= PRODUCERS_MAX:
                self._not_older_ms = min(oldest.ts_ms, now_ms)
                return
            producers.popitem(last=False)
            self.forgotten += 1

    def reset_assigned(self) -> None:
        """Drop the batches in flight. The committer assigns each of them again."""
        self._in_flight.clear()


def _ends_with(producer: Producer | None, appended: AppendedBatch) -> bool:
    return producer is not None and producer.batches[-1] == appended.batch and producer.epoch == appended.epoch


class Keys:
    """The keys of one topic. Not thread-safe: the caller holds the committer's lock.

    A key whose append is older than `keep_ms` is forgotten; None: never.
    """

    __slots__ = ("_in_flight", "_known", "keep_ms")

    def __init__(self, keys: Iterable[tuple[str, Key]] = ()) -> None:
        self._known: OrderedDict[str, Key] = OrderedDict(keys)
        self._in_flight: dict[str, Key] = {}
        self.keep_ms: int | None = None

    def __len__(self) -> int:
        return len(self._known)

    def find(self, key: str) -> Key | None:
        """Return the key, also of an append in flight. The caller has called `forget_until`."""
        return self._in_flight.get(key) or self._known.get(key)

    def check_room(self, topic: str, now_ms: int) -> None:
        """Raise `TooManyKeys` if the topic has no room for one more key (KEYS-3)."""
        if len(self._known) + len(self._in_flight) >= KEYS_MAX:
            oldest = next(iter((self._known or self._in_flight).values()))
            raise TooManyKeys(topic, KEYS_MAX, max(oldest.ts_ms + (self.keep_ms or 0) + 1 - now_ms, 1))

    def all(self) -> tuple[tuple[str, Key], ...]:
        """Return the published keys, the oldest first, for a manifest."""
        return tuple(self._known.items())

    def assign(self, appended: KeyedAppend, ts_ms: int) -> None:
        """Add the key of an append in flight."""
        self._in_flight[appended.key] = Key(ts_ms, *appended[1:])

    def publish(self, appended: KeyedAppend, ts_ms: int) -> None:
        """Add the key of a published append. A second call, after an interrupt, has the same result."""
        in_flight = self._in_flight.get(appended.key)
        is_own = in_flight is not None and in_flight.first_seq == appended.first_seq
        self._known[appended.key] = in_flight if in_flight is not None and is_own else Key(ts_ms, *appended[1:])
        self._known.move_to_end(appended.key)
        if is_own:
            self._in_flight.pop(appended.key, None)

    def forget_until(self, now_ms: int) -> None:
        """Forget the keys that are too old (KEYS-3). `now_ms` is the clock's, as a record may have a later time."""
        keys = self._known
        while keys and self.keep_ms is not None and next(iter(keys.values())).ts_ms < now_ms - self.keep_ms:
            keys.popitem(last=False)

    def reset_assigned(self) -> None:
        """Drop the keys of appends in flight. The committer assigns each of them again."""
        self._in_flight.clear()
