"""The progress of a call: the parts that do the work count it, and the caller of the whole call watches.

Most parts take no time that is worth a look. So no signature passes the watcher on: `watching` sets it for the calls of
its own thread, and `count` tells it. The threads of a pool have no watcher. The part that waits for them counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field

from seglog.base.dataclasses import dataclass

Watch = Callable[[str, int, int | None, str], None]
"""Takes the progress of a run: the phase, the part that is done, the total or None, and the unit."""


def unwatched(_phase: str, _done: int, _total: int | None, _unit: str) -> None:
    """Ignore the progress."""


@dataclass(frozen=True, slots=True)
class _Watched:
    watch: Watch
    done: Counter[str] = field(default_factory=Counter[str])


_WATCHED: ContextVar[_Watched | None] = ContextVar("watched", default=None)


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Let `watch` get the progress of the calls within, if this thread makes them."""
    token = _WATCHED.set(_Watched(watch))
    try:
        yield
    finally:
        _WATCHED.reset(token)


def count(phase: str, more: int, unit: str) -> None:
    """Add to the part of a phase that is done, and tell the watcher. Without a watcher, do nothing."""
    watched = _WATCHED.get()
    if watched is not None:
        watched.done[phase] += more
        watched.watch(phase, watched.done[phase], None, unit)
