"""Sealed segments as open files, for a process beside this one that reads them without asking for each record.

Y1  Frames of a sealed, hot segment whose entries have no deleted flag are what `Topic.frame_batches` would give, byte
    for byte: whoever has both files open reads them alone, however long ago they were opened. Renaming, relocating and
    unlinking take nothing from an open file, and a rewritten segment is two new ones.
Y2  Everything else is asked for: what is in no such segment, a run with a deleted record in it (only the log knows
    whether the delete is listed), and whatever does not verify. The log reads that itself, and tells what is wrong.
Y3  A topic that went, or was truncated, meanwhile is told by `check`, which comes after the last record was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.files.open_file import OpenFile, Readable
from seglog.files.port import Files
from seglog.reading.read import BATCH_MAX_RECORDS, check_place
from seglog.segments.batch import Run
from seglog.segments.segment import SegmentFiles, SegmentReader

__all__ = ["OpenedSegment", "SealedFiles", "SealedPart"]


@dataclass(frozen=True, slots=True)
class SealedPart:
    """A segment of topic `topic_id` that ends with `last_seq`. It stays open for as long as this is held."""

    topic_id: int
    first_seq: int
    last_seq: int
    segment: SegmentFiles

    @property
    def fds(self) -> tuple[int, int]:
        """Of .data and .idx."""
        return self.segment.data.fd, self.segment.idx.fd

    @property
    def paths(self) -> tuple[Path, Path]:
        return self.segment.data.path, self.segment.idx.path


class SealedFiles:
    """Of one topic, for one reader. Safe for many threads."""

    def __init__(self, engine: Engine, state: TopicState, last: int) -> None:
        self._engine = engine
        self._state = state
        self._last = last
        self._cuts = len(state.cuts)

    def part(self, seq: int) -> SealedPart | None:
        """The one with that record; None if it has to be asked for. Raises as `check`."""
        self.check()
        with self._engine.committer.lock:
            info = self._state.segment_of(seq) if seq >= self._state.hot_floor else None
        if info is None or not info.sealed or not info.is_hot:
            return None
        try:
            segment = self._engine.segment(self._state.topic_id, info)
        except FileNotFoundError:  # it went meanwhile
            return None
        if not isinstance(segment, SegmentFiles):
            return None
        return SealedPart(self._state.topic_id, info.first_seq, info.last_seq, segment)

    def check(self) -> None:
        """Raises `NoSuchTopic`, `Truncated`, `LogClosed`."""
        self._engine.check_open()
        check_place(self._state, self._last, self._cuts)


class OpenedSegment(SegmentReader):
    """A `SealedPart` in another process, from the descriptors that it was given; it closes them when it goes."""

    __slots__ = ("data", "first_seq", "idx", "topic_id")

    def __init__(
        self, files: Files, topic_id: int, first_seq: int, fds: tuple[int, int], paths: tuple[Path, Path]
    ) -> None:
        self.topic_id = topic_id
        self.first_seq = first_seq
        self.data: Readable = OpenFile(files, paths[0], descriptor=fds[0])
        self.idx: Readable = OpenFile(files, paths[1], descriptor=fds[1])

    def runs(self, first: int, last: int) -> Iterator[Run]:
        """All from `first` to `last`. Raises `FileCorrupt`."""
        while first <= last:
            run = self.run(first, last, BATCH_MAX_RECORDS)
            yield run
            first = run.last_seq + 1
