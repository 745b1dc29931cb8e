"""One section of a journal: an open file of items, whose end is found again after a crash or an error.

When a section is opened, only the bytes behind its newest sync mark are read:

    behind the mark        verdict
    nothing                the section was closed, or synced last
    whole items            kept, written again, synced, marked
    whole items, then not  the first bytes that are no whole item begin a torn write; they and all behind them are cut,
                           synced, logged

SECTION-1  An opening never cuts bytes before a mark, and does not look at them. A reader that meets damage there
    reports it.
SECTION-2  The section writes a mark after the datasync that the mark tells of. The mark is durable with the next
    datasync at the latest.
SECTION-3  An opening writes the items behind the mark once more before it syncs them. After a failed sync, the page
    cache shows bytes that the disk does not have. A second sync of clean pages would succeed without writing them.
SECTION-4  A failed write or sync is final for the section. The exception is a lack of space: then the section is cut
    back to its last item.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from seglog.base.dataclasses import dataclass
from seglog.base.lazy import logger
from seglog.base.ownership import Owned
from seglog.errors import (
    CalledWithin,
    DiskFull,
    FileCorrupt,
    InvalidArgument,
    InvalidEntry,
    Missing,
    Misuse,
    OffsetOverflow,
    TooManyOpenFiles,
    WriterPoisoned,
)
from seglog.files.file_system import NO_DESCRIPTOR, READ_AHEAD_BYTES, Files, OpenFile, ReadAheadBuffer
from seglog.interrupts import OwnLock
from seglog.journal.item import (
    ITEM_MAX_BYTES,
    MARK_BYTES,
    OFFSET_MAX,
    SIZE,
    UNIT_BYTES,
    encode_item,
    encode_mark,
    is_mark,
    read_item,
    slot_bytes,
)
from seglog.wal.wal import NO_SPACE

_logger = logger("seglog.journal.journal")

_BATCH_ITEMS = 1024
# Bytes of one read for prefixes, or for an item of unknown size. One read covers small items. Large ones are skipped.
_FIRST_READ_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a section. `size` is the size of the whole item.

    If the caller asked for a prefix, `data` are the first bytes only.
    """

    section: int
    offset: int
    size: int
    data: bytes


class Section(Owned):
    """An open section. Safe for many threads. A change waits for a running sync, and a read waits for nothing."""

    __slots__ = (
        "_file",
        "_files",
        "_has_entry",
        "_lock",
        "_mark_waits",
        "_marked_end",
        "_poison",
        "_secret",
        "_waits",
        "end",
        "number",
    )

    def __init__(self, files: Files, path: Path, number: int, secret: bytes, flags: int = os.O_RDWR) -> None:
        """Open the section, and cut a torn tail. Raises `DiskFull`, `WriterPoisoned`."""
        self.number = number
        self._secret = secret
        self._files = files
        self._file = OpenFile(files, path, flags)
        self._lock = OwnLock()
        self._poison: str | None = None
        self._waits = self._mark_waits = False
        size = self._file.size()
        self.end = self._marked_end = self._newest_mark(size)
        # Without a mark there was no sync so far. The file may not be durable in its directory.
        self._has_entry = self.end > 0
        if self.end < size:
            self._settle(size)

    @property
    def path(self) -> Path:
        return self._file.path

    def check_apart(self) -> None:
        """Raise `CalledWithin` if `close` would wait for this thread."""
        if self._lock.is_mine:
            raise CalledWithin

    def append(self, data: bytes) -> int:
        """Append an item, and return its offset.

        Raises `OffsetOverflow`, `Misuse` for an item that is too large, `DiskFull`, `WriterPoisoned`.
        """
        if len(data) > ITEM_MAX_BYTES:
            text = f"an item of {len(data)} bytes is over the limit of {ITEM_MAX_BYTES}; nothing was appended"
            raise Misuse(text)
        with self._lock.exclusive:
            self._check_sound()
            offset = self.end // UNIT_BYTES
            if offset > OFFSET_MAX:
                raise OffsetOverflow(self.path, OFFSET_MAX, hint="begin another section")
            try:
                self._files.pwritev(self._file.fd, encode_item(data), self.end)
            except BaseException as error:
                self._give_up(error)
                raise
            self.end += slot_bytes(len(data))
            self._waits = True
            return offset

    def sync(self) -> None:
        """Make all appended items durable. Raises `WriterPoisoned`."""
        with self._lock.exclusive:
            self._check_sound()
            self._sync()

    def close(self) -> None:
        """Make all appended items durable, and their sync mark too."""
        with self._lock.exclusive:
            if self._poison is not None:
                return
            self._sync()
            if self._mark_waits:
                self._datasync()

    def get(self, offset: int, exact: int | None) -> bytes:
        """Return the data of an item. Raises `Missing`, `FileCorrupt`, and `InvalidArgument` if `exact` is wrong."""
        position, end = offset * UNIT_BYTES, self.end
        if not 0 <= position < end:
            raise no_item(self.number, offset)
        read_bytes = _FIRST_READ_BYTES if exact is None else slot_bytes(exact)
        buffer = self._file.read(min(read_bytes, end - position), position)
        if is_mark(buffer, 0, self.number, position, self._secret):
            raise no_item(self.number, offset)
        size = _size_at(buffer, 0)
        if exact is not None and size != exact:
            wanted = f"{len(self.get(offset, None))}, the size of the item at offset {offset} of section {self.number}"
            raise InvalidArgument("exact", exact, wanted)
        if len(buffer) < slot_bytes(size) <= end - position:
            buffer = self._file.read(slot_bytes(size), position)
        try:
            return read_item(buffer)
        except InvalidEntry as error:
            raise FileCorrupt(self.path, position, f"no item begins here, or it is damaged: {error.reason}") from error

    def batches(self, end: int, prefix: int | None) -> Iterator[list[Item]]:
        """Yield the items before `end` in batches. Raises `FileCorrupt` after the items before the damage."""
        batch: list[Item] = []
        size_bytes = 0
        try:
            for _, item in self._walk(0, end, prefix):
                batch.append(item)
                size_bytes += len(item.data)
                if len(batch) == _BATCH_ITEMS or size_bytes >= READ_AHEAD_BYTES:
                    yield batch
                    batch, size_bytes = [], 0
        except InvalidEntry as error:
            if batch:
                yield batch
            raise FileCorrupt(self.path, error.position, error.reason) from error
        if batch:
            yield batch

    def _walk(self, start: int, end: int, prefix: int | None) -> Iterator[tuple[int, Item]]:
        """Yield the end of each item, and the item.

        Raises `InvalidEntry` with the item's position in the file.
        """
        window = ReadAheadBuffer(self._file, end, READ_AHEAD_BYTES if prefix is None else _FIRST_READ_BYTES)
        position = start
        while position < end:
            index = window.index(position, UNIT_BYTES)
            if is_mark(window.buffer, index, self.number, position, self._secret):
                position += MARK_BYTES
                continue
            size = _size_at(window.buffer, index)
            slot = slot_bytes(size)
            if position + slot > end:
                raise InvalidEntry(position, f"an item of {size} bytes goes past the end")
            if prefix is None or not size:
                index = window.index(position, slot)
                try:
                    data = read_item(window.buffer, index)
                except InvalidEntry as error:
                    raise InvalidEntry(position, error.reason) from error
            else:
                read_bytes = SIZE.size + min(prefix, size)
                index = window.index(position, read_bytes)
                data = window.buffer[index + SIZE.size : index + read_bytes]
            begin, position = position, position + slot
            yield position, Item(self.number, begin // UNIT_BYTES, size, data)

    def _newest_mark(self, size: int) -> int:
        """Return the end of the newest mark. Without one, return 0.

        The search goes backwards. So it reads the bytes that were not synced, and little more.
        """
        high = size // UNIT_BYTES * UNIT_BYTES
        look_bytes = _FIRST_READ_BYTES  # a section that was closed ends with its mark
        while high:
            low = max(0, high - look_bytes)
            buffer = self._file.read(high - low, low)
            for position in range(high - MARK_BYTES, low - 1, -UNIT_BYTES):
                if is_mark(buffer, position - low, self.number, position, self._secret):
                    return position + MARK_BYTES
            high, look_bytes = low, READ_AHEAD_BYTES
        return 0

    def _settle(self, size: int) -> None:
        """Apply the table above to a section that does not end with a mark."""
        start = self.end
        try:
            for end, _ in self._walk(start, size, None):
                self.end = end
        except InvalidEntry as error:
            _logger.warning(
                "%s: cut at offset %d, where a torn write begins: %s", self.path, error.position, error.reason
            )
        try:
            if self.end < size:
                self._file.truncate(self.end)
            for position in range(start, self.end, READ_AHEAD_BYTES):
                piece = self._file.read_exactly(min(READ_AHEAD_BYTES, self.end - position), position)
                self._file.write(piece, position)
        except OSError as error:
            self._give_up(error)
            raise
        self._waits = True
        self._sync()

    def _sync(self) -> None:
        """Make the file's directory entry and all items durable, then write a mark. The lock is held."""
        if not self._has_entry:
            try:
                self._files.sync_dir(self.path.parent)
            except BaseException as error:
                if isinstance(error, OSError) and error.errno in NO_DESCRIPTOR:
                    raise TooManyOpenFiles(self.path) from error
                self._give_up(error)
                raise
            self._has_entry = True
        if self._waits:
            self._datasync()
        if self.end != self._marked_end:
            self._mark()

    def _datasync(self) -> None:
        try:
            self._file.datasync()
        except BaseException as error:
            self._poison = str(error) or type(error).__name__
            if isinstance(error, OSError):
                raise WriterPoisoned(self.path, self._poison) from error
            raise
        self._waits = self._mark_waits = False

    def _mark(self) -> None:
        """Write a sync mark. If no space is left, write none: durable items stay durable."""
        try:
            self._file.write(encode_mark(self.number, self.end, self._secret), self.end)
        except OSError as error:
            if error.errno not in NO_SPACE:
                self._give_up(error)
            self._cut_back()
            return
        self.end += MARK_BYTES
        self._marked_end = self.end
        self._mark_waits = True

    def _give_up(self, error: BaseException) -> None:
        """Cut the section back if no space is left, and poison it after any other error (SECTION-4).

        Raises `DiskFull` or `WriterPoisoned` in place of an `OSError`.
        """
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            self._cut_back()
            raise DiskFull(self.path) from error
        self._poison = str(error) or type(error).__name__
        if isinstance(error, OSError):
            raise WriterPoisoned(self.path, self._poison) from error

    def _cut_back(self) -> None:
        try:
            self._file.truncate(self.end)
        except OSError as error:
            self._poison = str(error)
            raise WriterPoisoned(self.path, self._poison) from error
        self._datasync()

    def _check_sound(self) -> None:
        if self._poison is not None:
            raise WriterPoisoned(self.path, self._poison)


def _size_at(buffer: bytes, index: int) -> int:
    """Return the size field of the item at `index`.

    If less than a size field is left, return 0. The caller then finds that the item goes past the end.
    """
    return int(SIZE.unpack_from(buffer, index)[0]) if len(buffer) - index >= SIZE.size else 0


def no_item(section: int, offset: int) -> Missing:
    return Missing(f"the journal has no item at offset {offset} of section {section}")
