"""Ctrl-C while records are appended: the batch on its way ends first, so that the command knows what is in."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import TypeVar

__all__ = ["Interrupts"]

_T = TypeVar("_T")


class Interrupts:
    """A context in which an interrupt waits for `check`, unless the input is being read. A second one does not wait."""

    def __init__(self) -> None:
        self.is_orderly = True
        self._is_reading = False
        self._is_waiting = False
        self._former: object = None

    def __enter__(self) -> Interrupts:
        own = threading.current_thread() is threading.main_thread()
        if own and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._former = signal.signal(signal.SIGINT, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._former is not None:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def during(self, found: Iterable[_T]) -> Iterator[_T]:
        """Yield the items of the input. An interrupt while the caller waits for one raises at once."""
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
        """Raise `KeyboardInterrupt` if an interrupt waits."""
        if self._is_waiting:
            raise KeyboardInterrupt

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        if not self._is_reading and not self._is_waiting:
            self._is_waiting = True
            return
        self.is_orderly = self._is_reading
        raise KeyboardInterrupt
