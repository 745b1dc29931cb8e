"""Progress on standard error, for work of over a second, and only on a terminal.

the total is known      a bar with bytes, rate and time left
the total is unknown    bytes, rate and time passed
nothing is counted      the time passed
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

__all__ = ["Bar", "ToldBars", "progress", "while_waiting"]

_AFTER_S = 1.0

_T = TypeVar("_T")


@contextmanager
def progress(title: str, total_bytes: int | None, *, is_shown: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number of bytes done since its last call."""
    if not is_shown:
        yield lambda _: None
        return
    with closing(Bar(title, total_bytes)) as bar:
        yield bar.advance


def while_waiting(results: Iterator[_T], title: str, *, is_shown: bool) -> Iterator[_T]:
    """Yield the results. While the caller waits for one, show the time that passes and the number of results."""
    if not is_shown:
        yield from results
        return
    for count in itertools.count():
        with closing(Bar(f"{title}, {count} done" if count else title, None, counts_bytes=False)):
            try:
                result = next(results)
            except StopIteration:
                return
        yield result


class Bar:
    """The progress of one operation. It appears after a second, and goes away with `close`.

    A thread shows it. So it lives on while the operation waits.
    """

    def __init__(self, title: str, total_bytes: int | None, *, counts_bytes: bool = True) -> None:
        self._title = title
        self._total = total_bytes
        self._counts_bytes = counts_bytes
        self._done = 0
        self._lock = threading.Lock()
        self._is_closed = False
        self._shown: Progress | None = None
        self._timer = threading.Timer(_AFTER_S, self._show)
        self._timer.daemon = True
        self._timer.start()

    def advance(self, count: int) -> None:
        self.tell(self._done + count)

    def tell(self, done: int) -> None:
        """Take the number of bytes done so far."""
        self._done = done
        with self._lock:
            if self._shown is not None:
                self._shown.update(self._shown.task_ids[0], completed=done)

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._is_closed = True
            if self._shown is not None:
                self._shown.stop()
                self._shown = None

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import Progress

        with self._lock:
            if self._is_closed:
                return
            self._shown = Progress(*self._columns(), console=Console(stderr=True), transient=True)
            self._shown.add_task(self._title, total=self._total, completed=self._done)
            self._shown.start()

    def _columns(self) -> list[ProgressColumn]:
        from rich import progress as rich

        title = rich.TextColumn("{task.description}", markup=False)
        if not self._counts_bytes:
            return [rich.SpinnerColumn(), title, rich.TimeElapsedColumn()]
        counts = [rich.DownloadColumn(), rich.TransferSpeedColumn()]
        if self._total is None:
            return [rich.SpinnerColumn(), title, *counts, rich.TimeElapsedColumn()]
        return [title, rich.BarColumn(), *counts, rich.TimeRemainingColumn()]


class ToldBars:
    """The bars of a daemon that tells its progress: one at a time, each with its own title."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._title = ""
        self._bar: Bar | None = None

    def tell(self, title: str, total_bytes: int | None, done_bytes: int) -> None:
        if not self._is_shown:
            return
        if self._bar is None or title != self._title:
            self.close()
            self._title, self._bar = title, Bar(title, total_bytes)
        self._bar.tell(done_bytes)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
