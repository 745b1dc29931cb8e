"""The appends of many tasks, merged: what one task awaits, and the entry that several appends share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from itertools import islice
from operator import attrgetter
from typing import Any, TypeAlias

from seglog.writing.append import AppendOptions

__all__ = ["MERGED_MAX_BYTES", "Ack", "Kind", "Outcome", "Part"]

# The most bytes of merged appends. Further appends are another entry of the same group.
MERGED_MAX_BYTES = 16 * 1024 * 1024

# The topic and the options of an append. Appends that agree in both can be merged.
Kind: TypeAlias = tuple[str, AppendOptions]
Outcome: TypeAlias = "range | BaseException"
_is_cancelled = attrgetter("is_cancelled")


class Ack(asyncio.Future[range]):
    """The seqs of one append of `records` values, for the task that awaits them.

    A future of asyncio makes a callback in the loop for each task that it wakes. This one keeps the step that the task
    would make, and the queue makes the steps of all tasks of a group in one callback.
    """

    records = 0
    step: Callable[[Ack], object] | None = None
    context: Context
    is_cancelled = False

    def add_done_callback(self, step: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Keep the step of the task that awaits this. Only that task calls this, and it does so once."""
        self.step, self.context = step, copy_context() if context is None else context

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel as any future does: the task makes its step in a callback of its own."""
        if not super().cancel(msg):
            return False
        self.is_cancelled = True
        step, self.step = self.step, None
        if step is not None:
            self.get_loop().call_soon(step, self, context=self.context)
        return True


class Part:
    """Successive appends to a topic, of one kind. They become one entry, as if one caller had appended all values."""

    __slots__ = ("acks", "kind", "size_bytes", "values")

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.values: list[bytes] = []
        self.acks: list[Ack] = []
        self.size_bytes = 0

    def drop_cancelled(self) -> None:
        """Drop the appends that were cancelled before the group begins (AIO-2)."""
        if any(map(_is_cancelled, self.acks)):
            wanted = [own for own in self.split() if not own.acks[0].is_cancelled]
            self.acks = [own.acks[0] for own in wanted]
            self.values = [value for own in wanted for value in own.values]

    def split(self) -> list[Part]:
        """Return each append as a part of its own. The first part has all the bytes, those of cancelled appends too."""
        values, parts = iter(self.values), []
        for ack in self.acks:
            parts.append(part := Part(self.kind))
            part.values, part.acks = list(islice(values, ack.records)), [ack]
        parts[0].size_bytes = self.size_bytes
        return parts

    def settle(self, outcome: Outcome) -> None:
        """Give each append its result. Its task does not run yet."""
        if isinstance(outcome, BaseException):
            for ack in self.acks:
                if not ack.is_cancelled:
                    ack.set_exception(_own(outcome))
            return
        first = outcome.start
        for ack in self.acks:
            stop = first + ack.records
            if not ack.is_cancelled:
                ack.set_result(range(first, stop))
            first = stop


def _own(error: BaseException) -> BaseException:
    """Return a copy of the error for one task. If several tasks raised one exception, their tracebacks would mix."""
    own = type(error).__new__(type(error), *error.args)
    own.__dict__.update(error.__dict__)
    own.__cause__ = error
    return own
