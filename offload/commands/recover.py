"""A data directory from a remote alone: `seglog recover`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from offload import recovery
from offload.recovery import NotRecovered, Recovered

__all__ = ["recover"]


def recover(directory: Path, url: str, *, topic: str | None, writable: bool) -> Iterator[Recovered | NotRecovered]:
    """Yield each topic and branch when it is done. After all of them, raise the error of the last one that failed."""
    failed: Exception | None = None
    for each in recovery.recover(directory, url, only=topic, writable=writable):
        if isinstance(each, NotRecovered):
            failed = each.error
        yield each
    if failed is not None:
        raise failed
