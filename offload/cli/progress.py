"""Progress on standard error, for work of over a second, and only on a terminal.

the total is known      a bar with the count (bytes, topics, ...), rate and time left
the total is unknown    the count, rate and time passed
nothing is counted      the time passed

A bar of one operation hides while the command prints a result, and comes back with the next progress.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

    from offload.operations.directory import Tell

__all__ = ["Bar", "ToldBars", "progress", "while_waiting", "with_bars"]

_AFTER_S = 1.0
_MOMENT_S = 0.2

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
        with closing(Bar(f"{title}, {count} done" if count else title, None, unit=None)):
            try:
                result = next(results)
            except StopIteration:
                return
        yield result


def with_bars(run: Callable[[Tell], Iterator[_T]], *, is_shown: bool) -> Generator[_T, None, None]:
    """Yield the results of an operation that tells its progress, and show the progress between them."""
    with closing(ToldBars(is_shown=is_shown)) as bars:
        for result in run(bars.tell):
            bars.hide()
            yield result


class Bar:
    """The progress of one operation. It appears after a second, or after `after_s`, and goes away with `close`.

    `unit` is `bytes`, a noun such as `topics`, or None if nothing is counted. A thread shows the bar. So it lives on
    while the operation waits.
    """

    def __init__(
        self, title: str, total: int | None, *, unit: str | None = "bytes", after_s: float | None = None
    ) -> None:
        self._title = title
        self._total = total
        self._unit = unit
        self._done = 0
        self._lock = threading.Lock()
        self._is_due = False
        self._is_hidden = False
        self._is_closed = False
        self._shown: Progress | None = None
        self._timer = threading.Timer(_AFTER_S if after_s is None else after_s, self._appear_late)
        self._timer.daemon = True
        self._timer.start()

    def advance(self, count: int) -> None:
        self.tell(self._done + count)

    def tell(self, done: int) -> None:
        """Take the part that is done so far."""
        with self._lock:
            self._done, self._is_hidden = done, False
            self._appear()
            if self._shown is not None:
                self._shown.update(self._shown.task_ids[0], completed=done)

    def hide(self) -> None:
        """Leave the terminal to a result, until the next progress."""
        with self._lock:
            self._is_hidden = True
            if self._shown is not None:
                self._shown.stop()

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._is_closed = True
            if self._shown is not None:
                self._shown.stop()
                self._shown = None

    def _appear_late(self) -> None:
        with self._lock:
            self._is_due = True
            self._appear()

    def _appear(self) -> None:
        """Show the bar, or do nothing if it is shown already. The caller holds the lock."""
        if self._is_closed or self._is_hidden or not self._is_due:
            return
        if self._shown is None:
            from rich.console import Console
            from rich.progress import Progress

            from offload.cli.columns import progress_columns

            columns = progress_columns(self._total, self._unit)
            self._shown = Progress(*columns, console=Console(stderr=True), transient=True)
            self._shown.add_task(self._title, total=self._total, completed=self._done)
        self._shown.start()


class ToldBars:
    """The bars of an operation that tells its progress: one at a time, each with its own title.

    The first one appears after a second. From then on, a bar appears once its phase is more than a moment.
    """

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._begun_s = time.monotonic()
        self._phase: tuple[str, int | None, str] | None = None
        self._bar: Bar | None = None

    def tell(self, title: str, total: int | None, done: int, unit: str = "bytes") -> None:
        if not self._is_shown:
            return
        if self._bar is None or self._phase != (title, total, unit):
            self.close()
            after_s = max(_AFTER_S - (time.monotonic() - self._begun_s), min(_MOMENT_S, _AFTER_S))
            self._phase, self._bar = (title, total, unit), Bar(title, total, unit=unit, after_s=after_s)
        self._bar.tell(done)

    def hide(self) -> None:
        """Leave the terminal to a result, until the next progress."""
        if self._bar is not None:
            self._bar.hide()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
