"""The appends of many tasks, merged: what a task awaits, the part that appends share, and the parts that wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextvars import Context
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, TypeAlias

from seglog.writing.append import AppendOptions

# The most bytes of merged appends. Further appends are another entry of the same group.
_MERGED_MAX_BYTES = 16 * 1024 * 1024

# The topic and the options of an append. Appends that agree in both can be merged.
Kind: TypeAlias = tuple[str, AppendOptions]

#: The first seq of the records of a part, or the error of the part.
Outcome: TypeAlias = "int | BaseException"

_Step: TypeAlias = Callable[[Any], object]
_step_of, _context_of, _values_of = attrgetter("step"), attrgetter("context"), attrgetter("values")


def _stay(_: object) -> None:
    """Stand for the step of a task that does not await its append any more."""


class Part:
    """Successive appends to a topic, of one kind. They become one entry, as if one caller had appended all values.

    `outcome` is None until the loop settles the group. `is_repeated` says that the topic had the records already.
    """

    __slots__ = ("acks", "has_cancelled", "is_repeated", "kind", "outcome", "records", "size_bytes")

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.acks: list[Ack] = []
        self.records = 0
        self.size_bytes = 0
        self.has_cancelled = self.is_repeated = False
        self.outcome: Outcome | None = None

    @property
    def values(self) -> Sequence[bytes]:
        """Return the values of all appends, in order. Those of one append are returned as they are."""
        if len(self.acks) == 1:
            return self.acks[0].values
        return list(chain.from_iterable(map(_values_of, self.acks)))

    def takes(self, kind: Kind, size_bytes: int) -> bool:
        """Return whether appends of so many bytes may join. An append with conditions goes alone."""
        if kind[1].has_conditions:
            return False
        return self.kind == kind and self.size_bytes + size_bytes <= _MERGED_MAX_BYTES

    def drop_cancelled(self) -> None:
        """Drop the appends that were cancelled before the group begins (AIO-2)."""
        if self.has_cancelled:
            acks, self.acks, self.records = self.acks, [], 0
            self.take_over(ack for ack in acks if not ack.is_cancelled)

    def split(self) -> list[Part]:
        """Return each append as a part of its own. The first part has all the bytes, those of cancelled appends too."""
        parts = []
        for ack in self.acks:
            parts.append(part := Part(self.kind))
            part.take_over([ack])
        parts[0].size_bytes = self.size_bytes
        return parts

    def take_over(self, acks: Iterable[Ack]) -> None:
        """Add appends of another part, without their bytes."""
        for ack in acks:
            ack.part, ack.offset = self, self.records
            self.acks.append(ack)
            self.records += ack.records


class Waiting:
    """The appends of this tick: parts that no group has yet. `send` is called once for each tick that has appends.

    `unsettled_bytes` counts the appends of groups too, until they are settled.
    """

    __slots__ = ("_last_of", "is_sending", "last", "loop", "parts", "send", "unsettled_bytes")

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Callable[[], object]) -> None:
        self.loop = loop
        self.send = send
        self.is_sending = False
        self.unsettled_bytes = 0
        self.parts: list[Part] = []
        # The newest part of each topic, and the newest of all.
        self._last_of: dict[str, Part] = {}
        self.last: Part | None = None

    def part_for(self, kind: Kind, size_bytes: int) -> Part:
        """Return the part that an append joins: the last one of its topic, if it may (AIO-1)."""
        part = self._last_of.get(kind[0])
        if part is None or not part.takes(kind, size_bytes):
            part = self._last_of[kind[0]] = Part(kind)
            self.parts.append(part)
        self.last = part
        return part

    def hand_over(self, to: deque[list[Part]]) -> None:
        """Append all parts to `to`. Appends that come later make new ones."""
        # No calls in these statements, because an interrupt hits only between calls.
        to += [self.parts]
        self.parts, self._last_of, self.last = [], {}, None


class Ack:
    """One append, for the task that awaits it.

    A task treats an ack as a future, because an ack has the attributes that a task asks a future for. A future of
    asyncio makes a callback in the loop for each task that it wakes. An ack keeps the step that the task would make, so
    that one callback makes the steps of all tasks of a group (`steps_of`).

    The append joins a part when the task begins to await the ack. A task that runs in another loop gets a
    `RuntimeError` instead, from asyncio.
    """

    __slots__ = (
        "_asyncio_future_blocking",
        "_loop",
        "context",
        "is_cancelled",
        "kind",
        "offset",
        "part",
        "records",
        "size_bytes",
        "step",
        "values",
        "waiting",
    )

    # An `__init__` would take a tenth of the time of an append, so the caller sets these.
    waiting: Waiting
    kind: Kind
    values: Sequence[bytes]
    records: int
    size_bytes: int
    is_cancelled: bool

    part: Part
    offset: int
    step: _Step
    context: Context

    def __await__(self) -> Generator[Any, None, None]:
        self._asyncio_future_blocking, self._loop = True, self.waiting.loop
        return iter((self,))  # type: ignore[return-value]  # an iterator of C takes less time than a generator

    def add_done_callback(self, step: _Step, *, context: Context) -> None:
        """Join a part, and keep the step of the task. Only the task that awaits this calls this, and it does so once.

        The task would never make another step if this failed. So it makes its step then, with `CancelledError`.
        """
        self.step, self.context = step, context
        try:
            waiting, kind, size_bytes = self.waiting, self.kind, self.size_bytes
            part = waiting.last
            if part is None or part.kind is not kind or part.size_bytes + size_bytes > _MERGED_MAX_BYTES:
                part = waiting.part_for(kind, size_bytes)
            self.part, self.offset = part, part.records
            part.acks += (self,)
            part.records += self.records
            part.size_bytes += size_bytes
            waiting.unsettled_bytes += size_bytes
            if not waiting.is_sending:
                # The flag comes second: an interrupt in between makes one callback more, and not one less.
                waiting.loop.call_soon(waiting.send)
                waiting.is_sending = True
        except BaseException:
            self._step_at_once(None)
            raise

    def cancel(self, msg: Any | None = None) -> bool:
        """Let the task make its step now, with `CancelledError`. Return False if its step is on its way already."""
        if self.is_cancelled or self.part.outcome is not None:
            return False
        self.part.has_cancelled = True
        self._step_at_once(msg)
        return True

    def _step_at_once(self, msg: Any | None) -> None:
        step, context, self.step, self.context = self.step, self.context, _stay, Context()
        self.is_cancelled = True
        cancelled = self._loop.create_future()
        cancelled.cancel(msg)
        self._loop.call_soon(step, cancelled, context=context)


def merged(parts: Sequence[Part]) -> list[Part]:
    """Merge the parts of several ticks, as if all appends had come in one."""
    last_of: dict[str, Part] = {}
    merged_parts = []
    for part in parts:
        last = last_of.get(part.kind[0])
        if last is None or not last.takes(part.kind, part.size_bytes):
            last_of[part.kind[0]] = part
            merged_parts.append(part)
        else:
            last.take_over(part.acks)
            last.size_bytes += part.size_bytes
            last.has_cancelled |= part.has_cancelled
    return merged_parts


def steps_of(acks: Sequence[Ack], done: asyncio.Future[None]) -> Iterator[object]:
    """Return an iterator that makes the next step of one task after the other. `done` is any future with a result.

    If a step raises an exception, the iterator continues behind it.
    """
    return map(Context.run, map(_context_of, acks), map(_step_of, acks), repeat(done))


def own_error(error: BaseException) -> BaseException:
    """Return a copy of the error for one task. If several tasks raised one exception, their tracebacks would mix."""
    own = type(error).__new__(type(error), *error.args)
    own.__dict__.update(error.__dict__)
    own.__cause__ = error
    return own
