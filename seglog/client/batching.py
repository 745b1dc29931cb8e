"""The records that a producer collects, and the batches that it makes of them. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from seglog.base.arguments import kind_of, taken
from seglog.client.requests import AppendLabels
from seglog.client.window import NumberedBatch, Window, added, due, has_room, wait_s
from seglog.errors import InvalidArgument, SeglogError

__all__ = ["Batching", "Outbox"]

_HEAD_BYTES = 4
_KINDS = {"batch_bytes": kind_of(int), "batch_records": kind_of(int), "linger_s": kind_of(float)}


@dataclass(frozen=True, slots=True)
class Batching:
    """When a batch is full: at so many bytes or records, or `linger_s` after its first record.

    The daemon takes a body of up to a MiB as one piece of work, so the default leaves room in it.
    """

    batch_bytes: int = 512 * 1024
    batch_records: int = 10_000
    linger_s: float = 0.005

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            object.__setattr__(self, name, taken(name, getattr(self, name), kind))
        for name in ("batch_bytes", "batch_records"):
            if getattr(self, name) < 1:
                raise InvalidArgument(name, getattr(self, name), "1 or more")


class Outbox:
    """The open batch, which has no number yet, and the window. All records of a batch have the same labels.

    A driver calls it under its lock, and sends what `step` returns.
    """

    def __init__(self, batching: Batching, window: Window) -> None:
        self.window = window
        self._batching = batching
        self._values: list[bytes] = []
        self._labels = AppendLabels()
        self._size_bytes = 0
        self._due_s = 0.0

    @property
    def has_values(self) -> bool:
        return bool(self._values)

    @property
    def error(self) -> SeglogError | None:
        return self.window.error

    def lacks_answers(self, last: int) -> bool:
        """Return whether a batch below number `last` has no number yet, or no answer, and may get one."""
        if self.window.error is None and self.window.next_number < last:
            return True
        return any(each.number < last for each in self.window.open_batches)

    @property
    def senders(self) -> int:
        """Return the number of batches that may be on their way: those of the window, and the open one."""
        return len(self.window.batches) + self.has_values

    def takes(self, value: bytes, labels: AppendLabels) -> bool:
        """Return whether the value may join the open batch. An empty batch takes a value of any size."""
        if not self._values:
            return True
        is_small = self._size_bytes + _HEAD_BYTES + len(value) <= self._batching.batch_bytes
        return is_small and len(self._values) < self._batching.batch_records and labels == self._labels

    def add(self, value: bytes, labels: AppendLabels, now_s: float) -> bool:
        """Add a value to the open batch. Return whether a sender has news: the batch is new, or full."""
        is_first = not self._values
        if is_first:
            self._labels, self._due_s = labels, now_s + self._batching.linger_s
        self._values.append(value)
        self._size_bytes += _HEAD_BYTES + len(value)
        if self._is_full:
            self._due_s = now_s
        return is_first or self._is_full

    def close_batch(self, now_s: float) -> None:
        """Let the open batch get its number as soon as there is room."""
        self._due_s = now_s

    def step(self, now_s: float) -> NumberedBatch | None:
        """Give the open batch its number if it is due, and return the batch that a sender sends now."""
        if self._values and now_s >= self._due_s and has_room(self.window):
            values, self._values, self._size_bytes = tuple(self._values), [], 0
            self.window = added(self.window, values, self._labels)
        return due(self.window, now_s)

    def wait_s(self, now_s: float) -> float | None:
        """Return the wait until `step` has a batch, or None if only an answer or a new record brings one."""
        waits = [wait_s(self.window, now_s)]
        if self._values and has_room(self.window):
            waits.append(max(0.0, self._due_s - now_s))
        return min((each for each in waits if each is not None), default=None)

    @property
    def _is_full(self) -> bool:
        batching = self._batching
        return self._size_bytes >= batching.batch_bytes or len(self._values) >= batching.batch_records
