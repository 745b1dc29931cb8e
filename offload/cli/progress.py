"""A progress bar on stderr, only on a terminal and only for work of 16 MiB or more."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress"]

_WORTH_A_BAR_BYTES = 16 * 1024 * 1024


@contextmanager
def progress(title: str, total_bytes: int | None) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number of bytes done since its last call."""
    if total_bytes is None or total_bytes < _WORTH_A_BAR_BYTES or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total_bytes)
        yield lambda count: bar.advance(task, count)
