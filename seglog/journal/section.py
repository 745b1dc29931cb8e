"""One section of a journal: an open file of items, with its end found again after whatever happened.

When a section is opened, only what lies behind its newest sync mark is read:

    behind the mark        verdict
    nothing                it was closed, or synced last
    whole items            kept, written again, synced, marked
    whole items, then not  what is not whole is a torn write, and all behind it: cut, synced, logged

N1  What lies before a mark is never cut and not looked at: damage there is reported by whoever reads it.
N2  A mark is written after the datasync that it tells of, and is durable with the next one at the latest.
N3  What was found behind the mark is written again before it is synced: after a failed sync the page cache shows what
    the disk does not have, and a second sync of clean pages would succeed without it.
N4  A failed write or sync is final for the section, but for a lack of space: then it is cut back to its last item.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seglog.errors import (
    CalledWithin,
    DiskFull,
    FileCorrupt,
    InvalidItem,
    ItemTooLarge,
    NoSuchItem,
    OffsetOverflow,
    TooManyOpenFiles,
    WriterPoisoned,
    WrongSize,
)
from seglog.files.open_file import OpenFile
from seglog.files.port import NO_DESCRIPTOR, Files
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
from seglog.process.own_lock import OwnLock
from seglog.process.ownership import Owned
from seglog.reading.read_ahead import WINDOW_BYTES, Window
from seglog.wal.wal import NO_SPACE

__all__ = ["Item", "Section"]

_logger = logging.getLogger("seglog.journal.journal")

_BATCH_ITEMS = 1024
# One read for an item whose size is not known, and for prefixes: small items come along, large ones are skipped.
_FIRST_READ_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Item:
    """`data` are its first bytes if only a prefix was asked for; `size` is that of the whole."""

    section: int
    offset: int
    size: int
    data: bytes


class Section(Owned):
    """Safe for many threads. Whatever changes it waits for its sync; reads wait for nothing."""

    __slots__ = (
        "_file",
        "_files",
        "_has_entry",
        "_lock",
        "_mark_waits",
        "_marked_end",
        "_poison",
        "_waits",
        "end",
        "number",
    )

    def __init__(self, files: Files, path: Path, number: int, flags: int = os.O_RDWR) -> None:
        """Opens it and cuts a torn tail. Raises `DiskFull`, `WriterPoisoned`."""
        self.number = number
        self._files = files
        self._file = OpenFile(files, path, flags)
        self._lock = OwnLock()
        self._poison: str | None = None
        self._waits = self._mark_waits = False
        size = self._file.size()
        self.end = self._marked_end = self._newest_mark(size)
        # No mark, no sync so far: perhaps the directory does not have the file yet.
        self._has_entry = self.end > 0
        if self.end < size:
            self._settle(size)

    @property
    def path(self) -> Path:
        return self._file.path

    def check_apart(self) -> None:
        """Raises `CalledWithin` if `close` would wait for this thread."""
        if self._lock.is_mine:
            raise CalledWithin

    def append(self, data: bytes) -> int:
        """The offset of the new item. Raises `OffsetOverflow`, `ItemTooLarge`, `DiskFull`, `WriterPoisoned`."""
        if len(data) > ITEM_MAX_BYTES:
            raise ItemTooLarge(len(data), ITEM_MAX_BYTES)
        with self._lock.once:
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
        """What was appended is durable on return. Raises `WriterPoisoned`."""
        with self._lock.once:
            self._check_sound()
            self._sync()

    def close(self) -> None:
        """As `sync`, and the mark is durable too."""
        with self._lock.once:
            if self._poison is not None:
                return
            self._sync()
            if self._mark_waits:
                self._datasync()

    def get(self, offset: int, exact: int | None) -> bytes:
        """Raises `NoSuchItem`, `FileCorrupt`, `WrongSize`."""
        position, end = offset * UNIT_BYTES, self.end
        if not 0 <= position < end:
            raise NoSuchItem(self.number, offset)
        wanted = _FIRST_READ_BYTES if exact is None else slot_bytes(exact)
        buffer = self._file.read(min(wanted, end - position), position)
        if is_mark(buffer, 0, self.number, position):
            raise NoSuchItem(self.number, offset)
        size = _size_at(buffer, 0)
        if exact is not None and size != exact:
            raise WrongSize(self.number, offset, exact, len(self.get(offset, None)))
        if len(buffer) < slot_bytes(size) <= end - position:
            buffer = self._file.read(slot_bytes(size), position)
        try:
            return read_item(buffer)
        except InvalidItem as error:
            raise FileCorrupt(self.path, position, f"no item begins here, or it is damaged: {error.reason}") from error

    def batches(self, end: int, prefix: int | None) -> Iterator[list[Item]]:
        """The items before `end`, some at a time. Raises `FileCorrupt`, when those before the damage were taken."""
        batch: list[Item] = []
        taken = 0
        try:
            for _, item in self._walk(0, end, prefix):
                batch.append(item)
                taken += len(item.data)
                if len(batch) == _BATCH_ITEMS or taken >= WINDOW_BYTES:
                    yield batch
                    batch, taken = [], 0
        except InvalidItem as error:
            if batch:
                yield batch
            raise FileCorrupt(self.path, error.position, error.reason) from error
        if batch:
            yield batch

    def _walk(self, start: int, end: int, prefix: int | None) -> Iterator[tuple[int, Item]]:
        """Where each item ends, and the item. Raises `InvalidItem` with its position in the file."""
        window = Window(self._file, end, WINDOW_BYTES if prefix is None else _FIRST_READ_BYTES)
        position = start
        while position < end:
            index = window.index(position, UNIT_BYTES)
            if is_mark(window.buffer, index, self.number, position):
                position += MARK_BYTES
                continue
            size = _size_at(window.buffer, index)
            slot = slot_bytes(size)
            if position + slot > end:
                raise InvalidItem(position, f"an item of {size} bytes goes past the end")
            if prefix is None or not size:
                index = window.index(position, slot)
                try:
                    data = read_item(window.buffer, index)
                except InvalidItem as error:
                    raise InvalidItem(position, error.reason) from error
            else:
                kept = SIZE.size + min(prefix, size)
                index = window.index(position, kept)
                data = window.buffer[index + SIZE.size : index + kept]
            begin, position = position, position + slot
            yield position, Item(self.number, begin // UNIT_BYTES, size, data)

    def _newest_mark(self, size: int) -> int:
        """Where it ends; 0 if there is none. Looks backwards, so it reads what was not synced and little more."""
        high = size // UNIT_BYTES * UNIT_BYTES
        look_bytes = _FIRST_READ_BYTES  # a section that was closed ends with its mark
        while high:
            low = max(0, high - look_bytes)
            buffer = self._file.read(high - low, low)
            for position in range(high - MARK_BYTES, low - 1, -UNIT_BYTES):
                if is_mark(buffer, position - low, self.number, position):
                    return position + MARK_BYTES
            high, look_bytes = low, WINDOW_BYTES
        return 0

    def _settle(self, size: int) -> None:
        """The table above, for a section that does not end with a mark."""
        start = self.end
        try:
            for end, _ in self._walk(start, size, None):
                self.end = end
        except InvalidItem as error:
            _logger.warning(
                "%s: cut at offset %d, where a torn write begins: %s", self.path, error.position, error.reason
            )
        try:
            if self.end < size:
                self._file.truncate(self.end)
            for position in range(start, self.end, WINDOW_BYTES):
                piece = self._file.read_exactly(min(WINDOW_BYTES, self.end - position), position)
                self._file.write(piece, position)
        except OSError as error:
            self._give_up(error)
            raise
        self._waits = True
        self._sync()

    def _sync(self) -> None:
        """The lock is held."""
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
        """Without space there is none, and what is durable stays so."""
        try:
            self._file.write(encode_mark(self.number, self.end), self.end)
        except OSError as error:
            if error.errno not in NO_SPACE:
                self._give_up(error)
            self._cut_back()
            return
        self.end += MARK_BYTES
        self._marked_end = self.end
        self._mark_waits = True

    def _give_up(self, error: BaseException) -> None:
        """N4. Raises what the caller is to see, if it is not the error itself."""
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
    """What an item there says it has. Of less than a unit, read_item makes an error: 0 will do."""
    return int(SIZE.unpack_from(buffer, index)[0]) if len(buffer) - index >= SIZE.size else 0
