"""A test double of a segment store: segments in memory, which do not survive the process."""

from __future__ import annotations

import threading

from seglog.errors import NoSuchSegment, SegmentCut
from seglog.tiers.segment_store import Part, SegmentId

__all__ = ["MemorySegmentStore"]


class MemorySegmentStore:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: dict[SegmentId, dict[Part, bytes]] = {}

    def put(self, segment: SegmentId, data: bytes, idx: bytes) -> None:
        with self._lock:
            self._parts[segment] = {Part.DATA: bytes(data), Part.IDX: bytes(idx)}

    def read_range(self, segment: SegmentId, part: Part, offset: int, length: int) -> bytes:
        body = self._get(segment, part)
        if offset + length > len(body):
            raise SegmentCut(segment, part.value, len(body), offset + length)
        return body[offset : offset + length]

    def delete(self, segment: SegmentId) -> None:
        with self._lock:
            self._parts.pop(segment, None)

    def list(self) -> list[SegmentId]:
        with self._lock:
            return sorted(self._parts)

    def exists(self, segment: SegmentId, part: Part) -> bool:
        with self._lock:
            return part in self._parts.get(segment, ())

    def length(self, segment: SegmentId, part: Part) -> int:
        return len(self._get(segment, part))

    def _get(self, segment: SegmentId, part: Part) -> bytes:
        with self._lock:
            if segment not in self._parts:
                raise NoSuchSegment(segment)
            return self._parts[segment][part]
