"""Reads of relocated segments through the store of their topic. Readers verify them as they verify hot segments.

WSTORE-1  The log holds no lock while it calls a store, because the call may never return. Only the calling reader
    waits.
WSTORE-2  An .idx is read whole, and must have the XXH3-64 in the manifest. So a reader gets the .idx that was put last,
    and no older .idx undoes a delete. Each .idx stays in memory, up to a limit. Above the limit, the least
    recently used one is dropped.
WSTORE-3  If a part is missing, cut, or differs from the part that was put, `FileCorrupt` names its place in the store.
    If the store has trouble, the reader gets `WarmStoreFailed`.
"""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xxhash import xxh3_64_intdigest

from seglog.base.lazy import logger
from seglog.errors import (
    FileCorrupt,
    InvalidEntry,
    NoSuchSegment,
    SeglogError,
    SegmentCut,
    WarmDirectoryNotApart,
    WarmDirectoryTaken,
    WarmStoreFailed,
    is_own,
)
from seglog.files.file_system import Files
from seglog.format.index import ENTRY, read_entries
from seglog.interrupts import OwnLock
from seglog.segments.segment import SegmentInfo, SegmentReader
from seglog.tiers.segment_store import LocalSegmentStore, OwnedStores, Part, SegmentId, SegmentStore, SegmentStores
from seglog.tiers.warm_directory import IsOurs, WarmDirectory, log_id
from seglog.values.layout import Layout, number_in

_logger = logger("seglog.tiers.warm_stores")
_KEPT_BYTES = 32 * 1024 * 1024


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn errors of a store into `FileCorrupt` or `WarmStoreFailed` (WSTORE-3)."""
    try:
        yield
    except NoSuchSegment as error:
        raise FileCorrupt(path, 0, "the segment is missing in the warm store") from error
    except SegmentCut as error:
        raise FileCorrupt(path, error.offset, "the file is cut short") from error
    except MemoryError:
        raise
    except Exception as error:
        if is_own(error):
            raise
        raise WarmStoreFailed(path, str(error) or type(error).__name__) from error


@contextmanager
def _logged() -> Iterator[None]:
    """Log trouble with a warm directory, and let the opening continue.

    Every call that changes something in the directory checks it again. Raises `WarmDirectoryNotApart` and
    `WarmDirectoryTaken`.
    """
    try:
        yield
    except (WarmDirectoryNotApart, WarmDirectoryTaken):
        raise
    except (SeglogError, OSError) as error:
        _logger.warning("the warm directory is not taken for now: %s", error)


class StoredPart:
    """One part of a segment in a store, with the reads of an open file."""

    __slots__ = ("_part", "_segment", "_store", "path")

    def __init__(self, store: SegmentStore, segment: SegmentId, part: Part, path: Path) -> None:
        self._store = store
        self._segment = segment
        self._part = part
        self.path = path

    def read_exactly(self, length: int, offset: int) -> bytes:
        with store_errors(self.path):
            return self._store.read_range(self._segment, self._part, offset, length)

    def read(self, length: int, offset: int) -> bytes:
        return self.read_exactly(max(0, min(length, self.size() - offset)), offset)

    def size(self) -> int:
        with store_errors(self.path):
            return self._store.length(self._segment, self._part)


class _Bytes:
    """One part of a segment in memory."""

    __slots__ = ("body", "path")

    def __init__(self, path: Path, body: bytes) -> None:
        self.path = path
        self.body = body

    def read_exactly(self, length: int, offset: int) -> bytes:
        return self.body[offset : offset + length]

    def read(self, length: int, offset: int) -> bytes:
        return self.read_exactly(length, offset)

    def size(self) -> int:
        return len(self.body)


class WarmSegment(SegmentReader):
    """A reader of a relocated segment: its .data is in the store, its .idx in memory."""

    __slots__ = ("data", "first_seq", "idx", "topic_id")

    def __init__(self, topic_id: int, first_seq: int, data: StoredPart, idx: _Bytes) -> None:
        self.topic_id = topic_id
        self.first_seq = first_seq
        self.data = data
        self.idx = idx


class WarmStores:
    """The warm stores of one log. Safe for many threads.

    `make` returns the store of a topic. `root` names the stores in errors.
    `data` is the log's data directory. Directories among the stores must be apart from it.
    """

    def __init__(
        self, make: SegmentStores, root: Path, kept_bytes: int = _KEPT_BYTES, data: Layout | None = None
    ) -> None:
        self._make = make
        self._layout = Layout(root)
        self._data = data
        self._claims = OwnLock()
        self._directories: dict[Path, WarmDirectory] = {}
        self._is_claimed = not isinstance(make, OwnedStores)
        self.is_ours: IsOurs = lambda _topic_id, _segment: False
        self._kept_bytes = kept_bytes
        # Reentrant, as in seglog.segments.segment.
        self._lock = threading.RLock()
        self._stores: dict[int, SegmentStore] = {}
        self._kept: OrderedDict[tuple[int, int, int], _Bytes] = OrderedDict()
        self._size_bytes = 0

    def check_apart(self, files: Files) -> None:
        """Raise `WarmDirectoryNotApart` if a warm directory is not apart from the data directory.

        The opening calls this before it recovers or moves anything.
        """
        assert self._data is not None  # noqa: S101 - it is configured
        with _logged():
            names = files.list_dir(self._data.topics) if files.is_dir(self._data.topics) else []
            for topic_id in filter(None, (number_in("topic", name) for name in names)):
                self.store(topic_id)
            for directory in self._directories.values():
                directory.check_apart()
                directory.check_topics()

    def check_owners(self) -> None:
        """Raise `WarmDirectoryTaken` if a directory is another log's. Write nothing."""
        for directory in list(self._directories.values()):
            with _logged():
                directory.check_owner()

    def claim(self) -> None:
        """Take all warm directories for a log that is open for writing.

        Raises `WarmDirectoryNotApart`, `WarmDirectoryTaken`. If the disk has trouble, no segment moves there until a
        later claim succeeds.
        """
        for directory in list(self._directories.values()):
            with _logged(), self._claims.exclusive:
                directory.claim(self.is_ours)

    def release(self) -> None:
        """Release the LOCK of each directory."""
        with self._claims.exclusive:
            for directory in self._directories.values():
                directory.release()

    def give_up(self) -> None:
        """Give up all directories: the log is gone, and another one may take them."""
        with self._claims.exclusive:
            for directory in self._directories.values():
                directory.give_up()

    def _claim_stores(self, files: Files) -> None:
        """Claim stores that are no directories.

        The thread that moves segments calls this, and no opening does.
        """
        if self._is_claimed or self._data is None:
            return
        with self._claims.exclusive:
            if isinstance(self._make, OwnedStores):
                self._make.claim(log_id(files, self._data), str(self._data.root), self.is_ours)
            self._is_claimed = True

    def changing(self, topic_id: int, files: Files) -> SegmentStore:
        """Return the store of a topic for a call that puts or deletes.

        Raises `WarmDirectoryNotApart`, `WarmDirectoryTaken`, and errors of the disk.
        """
        store = self.store(topic_id)
        directory = self._directory(store)
        self._claim_stores(files)
        if directory is not None:
            directory.check_apart(topic_id)
            with self._claims.exclusive:
                is_there = directory.claim(self.is_ours)
            if not is_there:
                raise FileNotFoundError(errno.ENOENT, "the directory does not exist", str(directory.root))
        return store

    def store(self, topic_id: int) -> SegmentStore:
        with self._lock:
            store = self._stores.get(topic_id)
            if store is None:
                store = self._stores[topic_id] = self._make(topic_id)
                if isinstance(store, LocalSegmentStore) and self._data is not None:
                    self._directories.setdefault(store.root, WarmDirectory(store.files, store.root, self._data))
            return store

    def _directory(self, store: SegmentStore) -> WarmDirectory | None:
        return self._directories.get(store.root) if isinstance(store, LocalSegmentStore) else None

    def part(self, topic_id: int, first_seq: int, part: Part) -> StoredPart:
        name = self._layout.data if part is Part.DATA else self._layout.idx
        return StoredPart(self.store(topic_id), SegmentId(first_seq), part, name(topic_id, first_seq))

    def segment(self, topic_id: int, info: SegmentInfo) -> WarmSegment:
        """Return a relocated segment. If the store hangs, the call waits.

        Raises `FileCorrupt`, `WarmStoreFailed`.
        """
        data = self.part(topic_id, info.first_seq, Part.DATA)
        return WarmSegment(topic_id, info.first_seq, data, self._idx(topic_id, info))

    def _idx(self, topic_id: int, info: SegmentInfo) -> _Bytes:
        assert info.warm_check is not None  # noqa: S101 - it is relocated
        key = (topic_id, info.first_seq, info.warm_check)
        with self._lock:
            cached = self._kept.get(key)
            if cached is not None:
                self._kept[key] = self._kept.pop(key, cached)
                return cached
        part = self.part(topic_id, info.first_seq, Part.IDX)
        idx = _Bytes(part.path, part.read_exactly(info.records * ENTRY.size, 0))
        if xxh3_64_intdigest(idx.body) != info.warm_check:
            _check_damaged(idx, info.first_seq)
            return idx
        self._keep(key, idx)
        return idx

    def _keep(self, key: tuple[int, int, int], idx: _Bytes) -> None:
        with self._lock:
            if key in self._kept:
                return
            self._kept[key] = idx
            size_bytes = len(idx.body)
            self._size_bytes += size_bytes
            while self._size_bytes > self._kept_bytes:
                _, gone = self._kept.popitem(last=False)
                size_bytes = len(gone.body)
                self._size_bytes -= size_bytes


def _check_damaged(idx: _Bytes, first_seq: int) -> None:
    """Raise `FileCorrupt` if all entries of an .idx with another checksum are sound.

    A damaged entry explains the other checksum, and costs only the records around it.
    """
    try:
        read_entries(idx.body, first_seq)
    except InvalidEntry:
        return
    raise FileCorrupt(idx.path, 0, "it is sound, but differs from the file that was put there: flags may be missing")
