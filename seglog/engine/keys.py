"""The keys of one topic in an open log (seglog.values.append_key).

    known        the keys of published appends, as a manifest has them, the oldest first
    in flight    the keys of appends in flight

`Entry.assign` and `Entry.publish` change the two views under the committer's lock, as they do with seqs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from seglog.errors import TooManyKeys
from seglog.values.append_key import Key, KeyedAppend

__all__ = ["KEYS_MAX", "Keys"]

#: The most keys that a topic knows. They take 3 MB of memory, and with 36 bytes each 0.9 MB of a manifest.
KEYS_MAX = 10_000


class Keys:
    """The keys of one topic. Not thread-safe: the caller holds the committer's lock.

    A key whose append is older than `keep_ms` is forgotten; None: never.
    """

    __slots__ = ("_in_flight", "_known", "keep_ms")

    def __init__(self, known: Iterable[tuple[str, Key]] = (), keep_ms: int | None = None) -> None:
        self._known: OrderedDict[str, Key] = OrderedDict(known)
        self._in_flight: dict[str, Key] = {}
        self.keep_ms = keep_ms

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
        known = self._known
        while known and self.keep_ms is not None and next(iter(known.values())).ts_ms < now_ms - self.keep_ms:
            known.popitem(last=False)

    def reset_assigned(self) -> None:
        """Drop the keys of appends in flight. The committer assigns each of them again."""
        self._in_flight.clear()
