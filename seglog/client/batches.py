"""The batches of a producer: made of the records that it collects, and kept until each has a definite answer. No I/O.

    state of a batch     meaning                                              it leaves the state when
    ready                it may be sent, now or after a wait                  a sender takes it
    sent                 a sender writes it, and then waits for its answer    the answer comes, or is lost
    behind               it came before a lower one, and the log refused it   each lower batch has its answer
    gone                 the log has it; the window drops it
    refused              the error ends the producer

The timeline and the rules (CLIENT-5 to CLIENT-10) are in `seglog.client`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from seglog.base.arguments import kind_of, taken
from seglog.base.dataclasses import dataclass
from seglog.client.answers import error_of, receipt_of
from seglog.client.connections import Answer, Outcome, Request
from seglog.client.requests import AppendLabels, append_request
from seglog.client.retries import Call, Retries, after, is_reached
from seglog.errors import AppendUnknown, BatchReused, DaemonError, InvalidArgument, ProducerGap, SeglogError
from seglog.values.producer import ProducerBatch

IN_FLIGHT: Final = 5
"""The log knows the seqs of the last five batches of a producer (seglog.values.producer)."""
_HEAD_BYTES = 4
_KINDS = {"batch_bytes": kind_of(int), "batch_records": kind_of(int), "linger_s": kind_of(float)}


@dataclass(frozen=True, slots=True)
class NumberedBatch:
    """A batch with its number. `before` is the number of records that the producer sent in lower batches.

    `call` has the request and its tries so far, and is None before the first one. `due_s` is the time of the next try.
    `was_lowest`: when it was last sent, no lower batch lacked its answer. `is_unsure`: the daemon got a try before
    those of `call`.
    """

    number: int
    values: tuple[bytes, ...]
    labels: AppendLabels
    before: int
    call: Call | None = None
    due_s: float = 0.0
    is_sent: bool = False
    is_written: bool = False
    is_behind: bool = False
    was_lowest: bool = False
    is_unsure: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """The batches of a producer without a definite answer, in order, and what came of the others.

    `given` and `acked` count records. `early` counts the batches that came before a lower one. `failed` is the lowest
    batch that is refused, with its error. `is_reached`: a daemon got a request. `ends` are the last seqs of the newest
    batches that are in, each with its number.
    """

    topic: str
    producer: str
    epoch: int
    address: str
    retries: Retries
    batches: tuple[NumberedBatch, ...] = ()
    next_number: int = 0
    given: int = 0
    acked: int = 0
    last_seq: int | None = None
    incarnation: str | None = None
    failed: tuple[int, SeglogError] | None = None
    early: int = 0
    is_reached: bool = False
    ends: tuple[tuple[int, int], ...] = ()

    @property
    def is_settled(self) -> bool:
        """Return whether each batch has its answer, or none that lacks it will be sent again."""
        return not self.open_batches

    @property
    def error(self) -> SeglogError | None:
        return None if self.failed is None else self.failed[1]

    @property
    def open_batches(self) -> tuple[NumberedBatch, ...]:
        """Return the batches that still get an answer: those below the one that is refused."""
        return tuple(batch for batch in self.batches if self.failed is None or batch.number < self.failed[0])


def has_room(window: Window) -> bool:
    """Return whether another batch may get its number (CLIENT-6)."""
    oldest = window.batches[0].number if window.batches else window.next_number
    return window.failed is None and window.next_number < oldest + IN_FLIGHT


def added(window: Window, values: tuple[bytes, ...], labels: AppendLabels) -> Window:
    """Give the values the next number (CLIENT-5)."""
    batch = NumberedBatch(window.next_number, values, labels, window.given)
    return replace(
        window, batches=(*window.batches, batch), next_number=window.next_number + 1, given=window.given + len(values)
    )


def due(window: Window, now_s: float) -> NumberedBatch | None:
    """Return the lowest batch that a sender sends now, or None."""
    for batch in _candidates(window):
        if batch.due_s <= now_s:
            return batch
    return None


def wait_s(window: Window, now_s: float) -> float | None:
    """Return the wait until a batch is due, or None if only an answer or a new batch can make one due."""
    waits = [batch.due_s - now_s for batch in _candidates(window)]
    return max(0.0, min(waits)) if waits else None


def sent(window: Window, number: int, now_s: float) -> tuple[Window, Request]:
    """Return the window in which the batch is sent, and its request, the same each time (CLIENT-5)."""
    batch = _found(window, number)
    call = batch.call
    if call is None or (call.request.incarnation is None and window.incarnation is not None):
        request = append_request(
            window.topic,
            batch.values,
            batch.labels,
            producer=ProducerBatch(window.producer, window.epoch, number),
            incarnation=window.incarnation,
        )
        begun = call or Call.begun(request, window.address, window.retries, now_s, is_reached=window.is_reached)
        call = replace(begun, request=request)
    was_lowest = window.batches[0].number == number
    return _with(window, replace(batch, call=call, is_sent=True, is_written=False, was_lowest=was_lowest)), call.request


def written(window: Window, number: int) -> Window:
    """Return the window after the whole request of a batch went to the daemon, so that the next one may go."""
    return _with(window, replace(_found(window, number), is_written=True))


def answered(window: Window, number: int, outcome: Outcome, now_s: float, chance: float) -> Window:
    """Return the window after the outcome of a try of a batch."""
    batch = _found(window, number)
    call = batch.call
    assert call is not None  # noqa: S101 - it was sent
    window = replace(window, is_reached=window.is_reached or is_reached(outcome))
    if window.is_reached:
        call = replace(call, connect_until_s=None)
    if isinstance(outcome, Answer) and outcome.status < 400:
        return _acked(window, batch, call, outcome)
    if not batch.was_lowest and isinstance(error_of(call.request, outcome, window.address), ProducerGap):
        # The batch came before a lower one, so it is not in (CLIENT-7). Its next try is as the first one.
        is_behind = window.batches[0].number < number
        again = replace(batch, call=None, due_s=now_s, is_sent=False, is_behind=is_behind, is_unsure=True)
        return replace(_with(window, again), early=window.early + 1)
    try:
        next_try = after(call, outcome, now_s, chance)
    except SeglogError as final:
        return _refused(window, batch, final)
    return _with(window, replace(batch, call=next_try.call, due_s=now_s + next_try.wait_s, is_sent=False))


def _candidates(window: Window) -> list[NumberedBatch]:
    """Return the batches that a sender may take, now or later.

    One batch is written at a time, so that batches seldom come too early. While a batch is behind, only the lowest one
    is sent: others would come too early again.
    """
    candidates = window.open_batches
    if any(batch.is_sent and not batch.is_written for batch in window.batches):
        return []
    if any(batch.is_behind for batch in candidates):
        candidates = candidates[:1]
    return [batch for batch in candidates if not batch.is_sent]


def _acked(window: Window, batch: NumberedBatch, call: Call, answer: Answer) -> Window:
    try:
        receipt = receipt_of(call.request, answer)
    except DaemonError as error:
        unknown = AppendUnknown(window.topic, str(error))
        unknown.__cause__ = error
        return _refused(window, batch, unknown)
    if receipt.duplicate and not (batch.is_unsure or call.is_unsure):  # CLIENT-10: the records are of another program
        reused = BatchReused(window.topic, window.producer, window.epoch, batch.number, receipt.appended)
        return _refused(window, batch, reused)
    remaining = tuple(other for other in window.batches if other.number != batch.number)
    if remaining and remaining[0].number > batch.number:
        remaining = (replace(remaining[0], is_behind=False), *remaining[1:])
    after_it = replace(
        window,
        batches=remaining,
        acked=window.acked + len(batch.values),
        last_seq=max(window.last_seq or 0, receipt.last_seq or 0) or None,
        incarnation=window.incarnation or receipt.incarnation,
        ends=tuple(sorted([*window.ends, (batch.number, receipt.last_seq or 0)])[-2 * IN_FLIGHT :]),
    )
    if after_it.failed is not None:
        number, failure = after_it.failed
        if isinstance(failure, AppendUnknown):
            return replace(after_it, failed=(number, _unknown(after_it, failure, number, failure.records)))
    return after_it


def _refused(window: Window, batch: NumberedBatch, error: SeglogError) -> Window:
    """Return the window after a batch that the producer gives up (CLIENT-9)."""
    if isinstance(error, AppendUnknown):
        error = _unknown(window, error, batch.number, batch.before)
    after_it = _with(window, replace(batch, is_sent=False))
    if window.failed is not None and window.failed[0] < batch.number:
        return after_it
    return replace(after_it, failed=(batch.number, error))


def _unknown(window: Window, error: AppendUnknown, number: int, records: int | None) -> AppendUnknown:
    """Return the error with the last seq of the batches below `number`. A higher batch may be in as well."""
    after_seq = max((seq for batch_number, seq in window.ends if batch_number < number), default=None)
    unknown = AppendUnknown(window.topic, error.reason, number=number, records=records, after_seq=after_seq)
    unknown.__cause__ = error.__cause__
    return unknown


def _found(window: Window, number: int) -> NumberedBatch:
    return next(batch for batch in window.batches if batch.number == number)


def _with(window: Window, batch: NumberedBatch) -> Window:
    """Return the window with another state of one batch."""
    return replace(window, batches=tuple(batch if old.number == batch.number else old for old in window.batches))


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
        return any(batch.number < last for batch in self.window.open_batches)

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
        return min((wait for wait in waits if wait is not None), default=None)

    @property
    def _is_full(self) -> bool:
        batching = self._batching
        return self._size_bytes >= batching.batch_bytes or len(self._values) >= batching.batch_records
