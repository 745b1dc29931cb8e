"""Batches of frames that a task takes one by one, with a look at the first one that is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field

from seglog.base.dataclasses import dataclass
from seglog.format.frames import Frames


@dataclass(slots=True)
class FrameBatches:
    """Batches of frames with a look at the first one that is left."""

    batches: Iterable[Frames]
    _rest: Iterator[Frames] = field(init=False)
    _next: Frames | None = field(init=False)

    def __post_init__(self) -> None:
        self._rest = iter(self.batches)
        self._next = next(self._rest, None)

    @property
    def first_seq(self) -> int | None:
        return None if self._next is None else int(self._next.headers["seq"][0])

    def up_to(self, max_bytes: int) -> Iterator[Frames]:
        """Yield batches of together at most `max_bytes`, but at least one."""
        size = 0
        while self._next is not None and (size == 0 or size + self._next.size_bytes <= max_bytes):
            frames, self._next = self._next, None
            size += frames.size_bytes
            yield frames
            del frames
            self._next = next(self._rest, None)

    def __iter__(self) -> Iterator[Frames]:
        while self._next is not None:
            yield self._next
            self._next = next(self._rest, None)
