"""Ctrl-C and SIGTERM while records are appended: the batch on its way ends first, so the command knows what is in."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import Any, TypeVar

from offload.cli.interrupt import SIGNALS, is_raised, stop_of

__all__ = ["Interrupts"]

_T = TypeVar("_T")


class Interrupts:
    """A context in which a signal waits for `check`. A second one does not wait.

    No signal waits before `during` begins, nor while the input is being read. After the last item a signal stops
    nothing any more, because all of the input is in.
    """

    def __init__(self) -> None:
        self.is_orderly = True
        self._is_reading = True
        self._waiting: int | None = None
        self._former: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in filter(is_raised, SIGNALS):
                self._former[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)

    def during(self, found: Iterable[_T]) -> Iterator[_T]:
        """Yield the items of the input. A signal while the caller waits for one raises at once."""
        items = iter(found)
        while True:
            self._is_reading = True
            self.check()
            try:
                item = next(items)
            except StopIteration:
                return
            finally:
                self._is_reading = False
            yield item

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if a signal waits."""
        if self._waiting is not None:
            raise stop_of(self._waiting)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        if not self._is_reading and self._waiting is None:
            self._waiting = number
            return
        self.is_orderly = self._is_reading
        raise stop_of(number)
