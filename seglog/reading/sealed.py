"""Sealed segments as open files, for another process that reads them without a request for each record.

SEALED-1  In a sealed, hot segment, frames without a deleted flag are what `Topic.inner.frame_batches` yields, byte for
    byte. A process with both files open reads these frames alone, however long ago it opened the files. Renaming,
    relocating and unlinking take nothing from an open file. A rewrite makes two new files.
SEALED-2  The process asks the log for everything else. These are records in no such segment, runs with a deleted
    record, and data that does not verify. Only the log knows whether a delete is listed. The log reads such records
    itself, and reports errors.
SEALED-3  `check` reports a topic that was deleted or truncated meanwhile. The caller calls it after the last record was
    read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from seglog.base.dataclasses import dataclass
from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.files.file_system import Files, OpenFile, Readable
from seglog.reading.read import BATCH_MAX_RECORDS, check_place
from seglog.segments.batch import FrameBatch
from seglog.segments.segment import SegmentFiles, SegmentReader


@dataclass(frozen=True, slots=True)
class SealedPart:
    """A segment of topic `topic_id` that ends with `last_seq`. Its files stay open as long as this object is held."""

    topic_id: int
    first_seq: int
    last_seq: int
    segment: SegmentFiles

    @property
    def fds(self) -> tuple[int, int]:
        """The descriptors of .data and .idx."""
        return self.segment.data.fd, self.segment.idx.fd

    @property
    def paths(self) -> tuple[Path, Path]:
        return self.segment.data.path, self.segment.idx.path


class SealedFiles:
    """The sealed segments of one topic, for one reader. Safe for many threads."""

    def __init__(self, engine: Engine, state: TopicState, last: int) -> None:
        self._engine = engine
        self._state = state
        self._last = last
        self._truncations = len(state.truncations)

    def part(self, seq: int) -> SealedPart | None:
        """Return the segment that holds `seq`, or None if the log has to be asked for it. Raises as `check`."""
        self.check()
        with self._engine.committer.lock:
            info = self._state.segment_of(seq) if seq >= self._state.hot_floor else None
        if info is None or not info.sealed or not info.is_hot:
            return None
        try:
            segment = self._engine.segment(self._state.topic_id, info)
        except FileNotFoundError:  # it was removed meanwhile
            return None
        if not isinstance(segment, SegmentFiles):
            return None
        return SealedPart(self._state.topic_id, info.first_seq, info.last_seq, segment)

    def check(self) -> None:
        """Raise `NoSuchTopic` if the topic is deleted, `Truncated` if it is truncated, `LogClosed` if the log is
        closed.
        """
        self._engine.check_open()
        check_place(self._state, self._last, self._truncations)


class OpenedSegment(SegmentReader):
    """A `SealedPart` in another process, made from descriptors that it was given. It closes them when it is freed."""

    __slots__ = ("data", "first_seq", "idx", "topic_id")

    def __init__(
        self, files: Files, topic_id: int, first_seq: int, fds: tuple[int, int], paths: tuple[Path, Path]
    ) -> None:
        self.topic_id = topic_id
        self.first_seq = first_seq
        self.data: Readable = OpenFile(files, paths[0], descriptor=fds[0])
        self.idx: Readable = OpenFile(files, paths[1], descriptor=fds[1])

    def batches(self, first: int, last: int) -> Iterator[FrameBatch]:
        """Yield all batches from `first` to `last`. Raises `FileCorrupt`."""
        while first <= last:
            batch = self.batch(first, last, BATCH_MAX_RECORDS)
            yield batch
            first = batch.last_seq + 1
