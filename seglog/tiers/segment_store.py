"""The port to a topic's sealed segments: one store for each topic and tier. A call puts or deletes a whole segment.

Implementations: `LocalSegmentStore` (a directory), `MemorySegmentStore` (for tests), `TopicTier` (a hot store before a
warm one). One conformance suite runs over all of them (tests/seglog/test_stores.py). The tests of other stores
run it too.

SEGSTORE-1  `put` returns when both parts are durable. `list` shows a segment only if both parts are there.
SEGSTORE-2  A segment may be put again, with other flags in the .idx, or rewritten without the bytes of deleted records
    (seglog.segments.rewrite). After a crash in the middle of that, the two parts need not fit each other. No reader
    reads a segment there before the manifest says that it is there.
SEGSTORE-3  A segment that is not there is `NoSuchSegment`, and nothing else is. Trouble is any other error. A store
    never takes trouble for absence.
SEGSTORE-4  Calls are synchronous and independent. Any thread may make them at any time.

A slow or dead store never delays an append or a read of hot data. So no thread holds a lock of the log over a call
here.

A store in a directory is laid out as a data directory: <root>/topics/<8 hex>/seg-<first seq>.data and .idx.

The store writes each part beside its place, syncs it, renames it, then syncs the directory. So a part is always whole.
If a crash left one part of a segment, `list` does not show that segment. The store never makes the root. So if a disk
is not mounted, nothing is written below the mount point.

Source: topics engine architecture, section 3.6.
"""

from __future__ import annotations

import enum
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NewType, Protocol, TypeAlias, runtime_checkable

from seglog.errors import NoSuchSegment, SegmentCut
from seglog.files.file_system import Files, OpenFile, replace_atomically
from seglog.values.layout import Layout, number_in

SegmentId = NewType("SegmentId", int)
"""The segment's first seq."""


class Part(enum.Enum):
    DATA = "data"
    IDX = "idx"


class SegmentStore(Protocol):
    def put(self, segment: SegmentId, data: bytes, idx: bytes) -> None:
        """Store both parts, durable on return."""

    def read_range(self, segment: SegmentId, part: Part, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes from `offset` on.

        Raises `NoSuchSegment`, and `SegmentCut` if the part ends before.
        """

    def delete(self, segment: SegmentId) -> None:
        """Delete the whole segment, durably. A missing segment is no error, and neither is half of one."""

    def list(self) -> list[SegmentId]:
        """Return the segments that have both parts, oldest first."""

    def exists(self, segment: SegmentId, part: Part) -> bool: ...

    def length(self, segment: SegmentId, part: Part) -> int:
        """Return the length of a part in bytes. Raises `NoSuchSegment`."""


@runtime_checkable
class OwnedStores(Protocol):
    """Stores that know their owner.

    Without an owner, two logs with the same place would replace each other's segments.
    """

    def __call__(self, topic_id: int) -> SegmentStore: ...
    def claim(self, log_id: str, path: str, is_ours: Callable[[int, SegmentId], bool]) -> None:
        """Take the stores for one log. The log calls this before the first put or delete of an opening.

        `path` is the data directory, for the error that another log gets. `is_ours` is described in
        seglog.tiers.warm_directory.
        Raises `WarmDirectoryTaken`, and errors of the store.
        """


SegmentStores: TypeAlias = Callable[[int], SegmentStore]
"""Return the store of a topic id. The log calls it once a topic and opening. The call opens nothing that may hang."""


class LocalSegmentStore:
    """The store of one topic.

    If a crash left a temporary file, the next `put` of its segment replaces it.
    """

    def __init__(self, files: Files, layout: Layout, topic_id: int) -> None:
        self._files = files
        self._layout = layout
        self._topic_id = topic_id

    @property
    def files(self) -> Files:
        return self._files

    @property
    def root(self) -> Path:
        return self._layout.root

    def path(self, segment: SegmentId, part: Part) -> Path:
        return self._layout.part(part.value, self._topic_id, segment)

    def identity(self, segment: SegmentId, part: Part) -> tuple[int, int] | None:
        """Return device and inode of the file. None: the file does not exist."""
        return self._files.identity(self.path(segment, part))

    def put(self, segment: SegmentId, data: bytes, idx: bytes) -> None:
        self._make_directory()
        replace_atomically(self._files, self._layout.data(self._topic_id, segment), data)
        replace_atomically(self._files, self._layout.idx(self._topic_id, segment), idx)

    def read_range(self, segment: SegmentId, part: Part, offset: int, length: int) -> bytes:
        body = self._open(segment, part).read(length, offset)
        if len(body) < length:
            raise SegmentCut(segment, part.value, offset + len(body), offset + length)
        return body

    def delete(self, segment: SegmentId) -> None:
        for kind in ("idx", "data", "tags"):
            try:
                self._files.unlink(self._layout.part(kind, self._topic_id, segment))
            except FileNotFoundError:
                continue
        try:
            self._files.sync_dir(self._layout.topic(self._topic_id))
        except FileNotFoundError:
            self._check_root()

    def list(self) -> list[SegmentId]:
        try:
            names = self._files.list_dir(self._layout.topic(self._topic_id))
        except FileNotFoundError:
            return []
        data, idx = ({number_in(kind, name) for name in names} - {None} for kind in ("data", "idx"))
        return sorted(SegmentId(number) for number in data & idx if number is not None)

    def exists(self, segment: SegmentId, part: Part) -> bool:
        try:
            self._open(segment, part)
        except NoSuchSegment:
            return False
        return True

    def length(self, segment: SegmentId, part: Part) -> int:
        return self._open(segment, part).size()

    def _open(self, segment: SegmentId, part: Part) -> OpenFile:
        path_of = self._layout.data if part is Part.DATA else self._layout.idx
        try:
            return OpenFile(self._files, path_of(self._topic_id, segment), os.O_RDONLY)
        except FileNotFoundError as error:
            self._check_root()
            raise NoSuchSegment(segment) from error

    def _check_root(self) -> None:
        """Raise `FileNotFoundError` if the root does not exist.

        Without its disk, a missing segment is trouble and not absence (SEGSTORE-3).
        """
        if not self._files.is_dir(self._layout.root):
            raise FileNotFoundError(errno.ENOENT, "the directory does not exist", str(self._layout.root))

    def _make_directory(self) -> None:
        for directory in (self._layout.topics, self._layout.topic(self._topic_id)):
            self._files.make_dir(directory)
            self._files.sync_dir(directory.parent)


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


class Tier(enum.Enum):
    HOT = "hot"
    WARM = "warm"


class TopicTier:
    """A segment store over a hot and a warm store.

    `put` goes to the hot store. `delete` goes to both.
    """

    def __init__(self, hot: SegmentStore, warm: SegmentStore | None = None) -> None:
        self.hot = hot
        self.warm = warm

    def resolve(self, segment: SegmentId) -> Tier | None:
        """Return the tier that reads of the segment use. None: no store has it whole.

        The warm store is asked only if the hot one does not have the segment.
        """
        if is_whole(self.hot, segment):
            return Tier.HOT
        return Tier.WARM if self.warm is not None and is_whole(self.warm, segment) else None

    def put(self, segment: SegmentId, data: bytes, idx: bytes) -> None:
        self.hot.put(segment, data, idx)

    def read_range(self, segment: SegmentId, part: Part, offset: int, length: int) -> bytes:
        # Read without a look first: the hot copy may go between the look and the read.
        try:
            return self.hot.read_range(segment, part, offset, length)
        except NoSuchSegment:
            if self.warm is None:
                raise
        return self.warm.read_range(segment, part, offset, length)

    def delete(self, segment: SegmentId) -> None:
        self.hot.delete(segment)
        if self.warm is not None:
            self.warm.delete(segment)

    def list(self) -> list[SegmentId]:
        warm = [] if self.warm is None else self.warm.list()
        return sorted({*self.hot.list(), *warm})

    def exists(self, segment: SegmentId, part: Part) -> bool:
        return self.hot.exists(segment, part) or (self.warm is not None and self.warm.exists(segment, part))

    def length(self, segment: SegmentId, part: Part) -> int:
        try:
            return self.hot.length(segment, part)
        except NoSuchSegment:
            if self.warm is None:
                raise
        return self.warm.length(segment, part)


def is_whole(store: SegmentStore, segment: SegmentId) -> bool:
    """Tell whether the store has both parts of the segment."""
    return all(store.exists(segment, part) for part in Part)
