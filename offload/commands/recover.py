"""A data directory from a remote alone: `seglog recover`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from offload import recovery
from offload.commands.directory import Tell
from offload.recovery import NotRecovered, Recovered

__all__ = ["recover"]


def recover(
    directory: Path, url: str, tell: Tell, *, topic: str | None, writable: bool
) -> Iterator[Recovered | NotRecovered]:
    """Yield each topic and branch when it is done. After all of them, raise the error of the last one that failed.

    `tell` takes the number of topics and branches that are done.
    """

    def on_progress(done: int, total: int) -> None:
        tell("recover", total, done, "topics")

    failed: Exception | None = None
    for each in recovery.recover(directory, url, only=topic, writable=writable, on_progress=on_progress):
        if isinstance(each, NotRecovered):
            failed = each.error
        yield each
    if failed is not None:
        raise failed
