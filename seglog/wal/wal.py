"""The write-ahead log of a shard: one stream of the frames of its topics, in numbered files.

    wal-<number>.log   frames from offset 0 on; after the last one zeros (reserved space), or the end of the file
    CURRENT            name of the active file and a newline
    next.log           sometimes: zeros, reserved for the file after the active one, whose number is not known yet

WAL-1  The writer writes frames only to the file that CURRENT names.
    Every file with a lower number is whole, durable, and cut to its last frame.
WAL-2  A new file is durable before CURRENT names it, and CURRENT is durable before the writer writes to the new file.
    So a file with a higher number than the one in CURRENT holds no frames: it is empty, or reserved zeros. `next.log`
    never holds frames, because the writer gives it a number before it writes to it.
WAL-3  After every datasync the writer adds a SYNC_MARK frame: all bytes before the mark are durable.
    If a mark follows invalid bytes, they are damage. If no mark follows, they are a torn write that was never acked.
    No two files of a data directory share a number, and a mark names its file's number. So a file in the place of
    another file is damage too.
WAL-4  If a write fails for lack of space, the writer truncates the file to its last good frame.
    That truncation is durable before the writer uses the space again.
WAL-5  After an interrupt a step can run again, because it writes the same bytes to the same place.
WAL-6  The writer writes zeros a quarter of a MiB ahead, and then overwrites them with frames.
    The zeros change no byte that is read. They halve the time of a sync: with blocks that are only reserved, a sync
    must also commit the file system's journal.
WAL-7  If the process has no file descriptor left for the next file, the writer continues in the active file.
    Nothing else changes. The writer refuses an append only where offsets end. Every later append tries the next file
    first.
WAL-8  The size of the active file is durable before the writer writes a frame to it.
    So a crash leaves no frame that extends past the end of the file. A crash leaves no file that ends before the
    position that a manifest names. Such a file was cut by hand or by another program.
WAL-9  A sync mark has the secret of the log's marks, a random number that only the manifest tells (MANIFEST-11).
    A client chooses the values, and can know at which offset they lie. Without the secret, a value could hold a mark of
    its own place. A torn write of that value would then look like damage. The marks of an older release have no secret,
    and any secret fits as long as the manifest has none.

A `Wal` is not thread-safe: seglog.wal.group_commit lets one thread at a time lead. The docstring of a method says if
one other thread may call it at the same time.
Source: topics engine architecture, sections 2.1 to 2.4; the sync mark is ours (WAL-3).

**Sums** are hashes of large pieces of WAL files, taken when the pieces were written.

A checkpoint reads the frames of the WAL back and verifies them. For a piece with a hash, one hash over all of its
bytes takes the place of one for each frame. If the bytes are the ones that were written, every frame is sound. If they
are not, the checkpoint verifies the frames one by one, and finds the damaged one.

The hashes are in memory only. After an opening, the records that recovery found have none.

**Shards.** A topic is in shard `xxh3_64(topic_id, 8 bytes little-endian) % n`.

SHARD-1  The frames of a topic are in one shard, in their order.
    The frames of topics in different shards have no order. So a topic in another shard can take the name of a deleted
    topic only when the TOPIC_DELETE frame is durable.
SHARD-2  If there is one shard, ordinals begin with 1. Otherwise they begin with (shard + 1) * 10^14 + 1.
    So no two shards have a file number in common (WAL-3).
SHARD-3  A failure of one shard poisons all shards, because they share one state in memory.
"""

from __future__ import annotations

import contextlib
import errno
import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from xxhash import xxh3_64_intdigest

from seglog.base.lazy import logger
from seglog.base.ownership import Owned
from seglog.errors import DiskFull, FileCorrupt, InvalidFrame, OffsetOverflow, TooManyOpenFiles
from seglog.files.file_system import NO_DESCRIPTOR, Files, OpenFile, replace_atomically
from seglog.format.arrays import NDArray, np
from seglog.format.frame import MIN_FRAME_BYTES, FrameType, encode, encode_sync_mark, read_header
from seglog.format.index import OFFSET_END
from seglog.values.layout import WalFolder
from seglog.wal.manifest import WalPosition

#: A smaller piece gets no hash: batches of a checkpoint would get small with it.
SUMMED_MIN_BYTES = 64 * 1024


class _Sum(NamedTuple):
    """The hash of the `size` bytes from `offset` of a WAL file on."""

    offset: int
    size: int
    digest: int


class Sums:
    """The hashes of one shard. One thread at a time adds them, and one other thread may look them up meanwhile."""

    __slots__ = ("_by_file",)

    def __init__(self) -> None:
        self._by_file: dict[OpenFile, list[_Sum]] = {}

    @property
    def is_empty(self) -> bool:
        return not any(self._by_file.values())

    def add(self, file: OpenFile, offset: int, pieces: Sequence[bytes]) -> None:
        """Take the hashes of the large ones of these pieces, which were written one after the other.

        After an interrupt the caller calls this again.
        """
        sums = self._by_file.setdefault(file, [])
        while sums and sums[-1].offset >= offset:
            sums.pop()
        for piece in pieces:
            if len(piece) >= SUMMED_MIN_BYTES:
                sums.append(_Sum(offset, len(piece), xxh3_64_intdigest(piece)))
            offset += len(piece)

    def drop(self, file: OpenFile) -> None:
        self._by_file.pop(file, None)

    def clear(self) -> None:
        self._by_file.clear()

    def fitting(self, file: OpenFile, entries: NDArray[Any]) -> int:
        """Return how many of the entries (ENTRIES) to verify together: all, or those of one piece, or those before it.

        The result is never less than half of the entries, because each batch has a cost of its own.
        """
        sums = self._by_file.get(file)
        begin = int(entries[0]["offset"])
        at = bisect_left(sums, begin, key=_offset_of) if sums else 0
        if not sums or at == len(sums):
            return len(entries)
        end = sums[at].offset + (sums[at].size if sums[at].offset == begin else 0)
        count = int(np.searchsorted(entries["offset"], end, "left"))
        return count if count * 2 >= len(entries) else len(entries)

    def is_as_written(self, file: OpenFile, offset: int, buffer: bytes) -> bool:
        """Return whether `buffer`, read from `offset` on, is a piece that was written there, unchanged."""
        sums = self._by_file.get(file, [])
        at = bisect_left(sums, offset, key=_offset_of)
        if at == len(sums) or sums[at][:2] != (offset, len(buffer)):
            return False
        return sums[at].digest == xxh3_64_intdigest(buffer)


def _offset_of(piece: _Sum) -> int:
    return piece.offset


_logger = logger("seglog.wal.wal")

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SYNC_MARK_BYTES = MIN_FRAME_BYTES
_LOOK_BYTES = 1024 * 1024
_ZEROS = bytes(_LOOK_BYTES)
_BLANK_BYTES = 256 * 1024


class Wal(Owned):
    def __init__(
        self,
        files: Files,
        folder: WalFolder,
        file_bytes: int,
        end: WalPosition,
        older: Sequence[int] = (),
        mark_secret: int = 0,
    ) -> None:
        """Continue at `end`, the end of the active file's last frame. `older` are the numbers of the other files."""
        self._files = files
        self._mark_secret = mark_secret
        self._folder = folder
        self._file_bytes = file_bytes
        self.half_bytes = file_bytes // 2
        self.number, self.offset, self.ordinal = end.file, end.offset, end.ordinal
        self._open = {number: OpenFile(files, folder.wal_file(number)) for number in (*older, end.file)}
        self.older = {number: self._open[number].size() for number in older}
        self._reserved = self._open[end.file].size()
        self._blanked = end.offset
        self._synced = end.offset
        self._next: OpenFile | None = None
        self._was_prepared_in = 0
        self._is_overlong = False
        #: The end is `offset` in the file `number`, and `ordinal` is the number of the next frame. `written_at` is the
        #: file and offset of the last `write`. `older` has the sizes of the other files, which a checkpoint would free.
        self.written_at = (end.file, end.offset)
        self.sums = Sums()

    @property
    def end(self) -> WalPosition:
        return WalPosition(self.number, self.offset, self.ordinal)

    @property
    def used_bytes(self) -> int:
        return sum(list(self.older.values())) + self.offset

    @property
    def older_files(self) -> int:
        """The number of files beside the active one."""
        return len(self.older)

    @property
    def needs_upkeep(self) -> bool:
        """True if files wait for a checkpoint, or if `prepare_next` has work in the second half of the active file."""
        return bool(self.older) or (self.offset > self.half_bytes and self._was_prepared_in != self.number)

    def prepare_next(self) -> None:
        """Reserve space for the next file, so that no append has to wait for that. One other thread may call this."""
        if self._was_prepared_in == self.number or self._next is not None:
            return
        self._was_prepared_in = self.number
        try:
            self._next = self._reserve(self._folder.wal_next)
        except OSError as error:
            if error.errno not in (*NO_SPACE, *NO_DESCRIPTOR):
                raise
            self._unlink_if_there(self._folder.wal_next)

    def file(self, number: int) -> OpenFile:
        return self._open[number]

    def write(self, pieces: Sequence[bytes], frames: int, size: int) -> tuple[int, int]:
        """Write `pieces`, which hold `frames` whole frames of `size` bytes in all, and return `written_at`.

        `sync` makes them durable.

        Raises `DiskFull`, `TooManyOpenFiles` and `OffsetOverflow` with nothing changed. After an `OSError` the caller
        must not use the writer again.
        """
        if size + SYNC_MARK_BYTES > OFFSET_END:
            raise OffsetOverflow(self._open[self.number].path, OFFSET_END)
        if self.offset + size + SYNC_MARK_BYTES > self._blanked:
            self._make_room(size + SYNC_MARK_BYTES)
        active = self._open[self.number]
        try:
            self._files.pwritev(active.fd, pieces, self.offset)
        except OSError as error:
            self._give_up_if_full(error)
            raise
        offset = self.offset
        if size >= SUMMED_MIN_BYTES:
            self.sums.add(active, offset, pieces)
        # One statement, because an interrupt hits only between calls (WAL-5).
        self.written_at, self.offset, self.ordinal = (self.number, offset), offset + size, self.ordinal + frames
        return self.written_at

    def sync(self) -> None:
        """Make all written frames durable, then write a sync mark (WAL-3).

        After an `OSError` the caller must not use the writer again.
        """
        if self._synced == self.offset:
            return
        active = self._open[self.number]
        self._files.datasync(active.fd)
        self._files.pwrite(active.fd, encode_sync_mark(self.number, self.offset, self._mark_secret), self.offset)
        end = self.offset + SYNC_MARK_BYTES
        self.offset, self.ordinal, self._synced = end, self.ordinal + 1, end

    def remove_below(self, number: int) -> None:
        """Unlink the files before `number`. A durable manifest covers their frames. One other thread may call this."""
        for old in sorted(self.older):
            if old < number:
                self._unlink_if_there(self._folder.wal_file(old))
                self.sums.drop(self._open[old])
                del self.older[old], self._open[old]

    def release_space(self) -> None:
        """Give reserved and unused space back to the file system. The caller has synced, and no other thread writes."""
        if self._reserved > self.offset:
            self._open[self.number].truncate(self.offset)
            self._reserved = self._blanked = self.offset
        self._next = None
        self._unlink_if_there(self._folder.wal_next)

    def forget(self) -> None:
        """Drop the references to the files, so that each file closes after its last read."""
        self._open.clear()
        self.sums.clear()

    def _make_room(self, size: int) -> None:
        if self.offset and self.offset + size > self._file_bytes:
            self._rotate_or_go_on(size)
        needed = self.offset + size
        active = self._open[self.number]
        is_larger = needed > self._reserved
        try:
            if is_larger:
                self._reserve_up_to(active, needed)
            self._blank_from(active, needed)
        except OSError as error:
            self._give_up_if_full(error)
            raise
        if is_larger:
            # The size is durable before the first frame (WAL-8). A failure is final, also for lack of space, because
            # unsynced frames may be lost.
            active.datasync()

    def _reserve_up_to(self, active: OpenFile, needed: int) -> None:
        """Reserve space up to the size of a WAL file. If the disk has no room for that, reserve up to `needed`."""
        try:
            self._files.allocate(active.fd, max(needed, self._file_bytes))
            self._reserved = max(needed, self._file_bytes)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self._files.allocate(active.fd, needed)
            self._reserved = needed

    def _blank_from(self, active: OpenFile, needed: int) -> None:
        """Write zeros from `needed` on, ahead of the frames (WAL-6)."""
        end = max(needed, min(needed + _BLANK_BYTES, self._reserved, self._file_bytes))
        if end > needed:
            active.write(_ZEROS[: end - needed], needed)
        self._blanked = end

    def _rotate_or_go_on(self, size: int) -> None:
        """Rotate to the next file. Without a file descriptor for it, let the active file grow (WAL-7)."""
        try:
            self._rotate()
        except TooManyOpenFiles as error:
            if self.offset + size > OFFSET_END:
                raise
            is_first, self._is_overlong = not self._is_overlong, True
            if is_first:  # the flag comes first, because a logging handler may raise
                _logger.warning("the active file goes on: %s", error)

    def _rotate(self) -> None:
        """Truncate the active file (WAL-1), then make CURRENT name the next one (WAL-2).

        Raises `DiskFull` and `TooManyOpenFiles` with nothing changed.
        """
        number = self.ordinal
        path = self._folder.wal_file(number)
        active = self._open[self.number]
        try:
            fresh = self._take_next(path) or self._reserve(path)
            self._files.sync_dir(self._folder.path)
        except OSError as error:
            self._drop_if_refused(path, error)
            raise
        # Without space or not, a failure of this truncation or sync is final: the file may have lost frames.
        active.truncate(self.offset)
        self._reserved = self._blanked = self.offset
        active.datasync()
        try:
            point_to(self._files, self._folder, number)
        except TooManyOpenFiles:
            self._unlink_if_there(path)
            raise
        except OSError as error:
            if read_current(self._files, self._folder) == active.path.name:
                self._drop_if_refused(path, error)
            raise
        self._open[number] = fresh
        self.older[self.number] = self.offset
        self.number, self.offset, self._synced = number, 0, 0
        self._reserved, self._blanked = self._file_bytes, 0
        self._is_overlong = False

    def _drop_if_refused(self, path: Path, error: OSError) -> None:
        """If space or a file descriptor is missing, unlink the new file and raise. CURRENT does not name that file."""
        if error.errno in (*NO_SPACE, *NO_DESCRIPTOR):
            self._unlink_if_there(path)
            raise (DiskFull if error.errno in NO_SPACE else TooManyOpenFiles)(path) from error

    def _reserve(self, path: Path) -> OpenFile:
        fresh = OpenFile(self._files, path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self._files.allocate(fresh.fd, self._file_bytes)
        fresh.datasync()
        return fresh

    def _take_next(self, path: Path) -> OpenFile | None:
        """Rename the prepared file to `path` and return it, or return None without one.

        Until the rename is done, `prepare_next` makes no other file.
        """
        fresh = self._next
        if fresh is not None:
            try:
                self._files.rename(fresh.path, path)
            except FileNotFoundError:
                # An earlier call renamed the file, and an interrupt hid that (WAL-5).
                if path.name not in self._files.list_dir(self._folder.path):
                    raise
            fresh.path = path
            self._next = None
        return fresh

    def _unlink_if_there(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(path)

    def _give_up_if_full(self, error: OSError) -> None:
        """If the error is a lack of space, truncate the file to its last good frame and raise `DiskFull` (WAL-4)."""
        if error.errno not in NO_SPACE:
            return
        active = self._open[self.number]
        active.truncate(self.offset)
        active.datasync()
        self._reserved = self._blanked = self.offset
        raise DiskFull(active.path) from error


def create_first(files: Files, folder: WalFolder, number: int = 1) -> WalPosition:
    """Make the first file of a new WAL, empty, and CURRENT."""
    first = create_first_file(files, folder, number)
    point_to(files, folder, number)
    return first


def create_first_file(files: Files, folder: WalFolder, number: int = 1) -> WalPosition:
    """Make the first file of a new WAL, empty, and no CURRENT yet."""
    OpenFile(files, folder.wal_file(number), os.O_RDWR | os.O_CREAT | os.O_TRUNC).datasync()
    files.sync_dir(folder.path)
    return WalPosition(number, 0, number)


def point_to(files: Files, folder: WalFolder, number: int) -> None:
    """Make CURRENT name the file `number`."""
    replace_atomically(files, folder.current, folder.wal_file(number).name.encode() + b"\n")


def is_blank(file: OpenFile, start: int, end: int) -> bool:
    """Return whether the bytes [start, end) are all zero."""
    for offset in range(start, end, _LOOK_BYTES):
        piece = file.read(min(_LOOK_BYTES, end - offset), offset)
        if piece != _ZEROS[: len(piece)]:
            return False
    return True


def durable_after(file: OpenFile, number: int, start: int, end: int, secret: int) -> int | None:
    """Return the offset of a sync mark of file `number` in [start, end), or None. All bytes before it were durable.

    A copy of a mark inside a record's value does not match, because it names another file or another offset. A mark
    that a client made does not match, because it lacks the secret (WAL-9). With the secret 0, any secret fits.
    """
    head = encode(FrameType.SYNC_MARK, topic_id=number, seq=0, ts_ms=0)[:14]
    return next((offset for offset, _ in _marks(file, head, start, end, secret)), None)


def foreign_mark(file: OpenFile, number: int, start: int, end: int, secret: int) -> int | None:
    """Return the offset of a sync mark that names another file than `number`, or None.

    The mark lies at the offset that it names, and has the secret. So the bytes belong to that other file of this log.
    """
    head = encode(FrameType.SYNC_MARK, topic_id=0, seq=0, ts_ms=0)[:6]
    marks = _marks(file, head, start, end, secret)
    return next((offset for offset, other in marks if other != number), None)


def _marks(file: OpenFile, head: bytes, start: int, end: int, secret: int) -> Iterator[tuple[int, int]]:
    """Yield the offset of each sync mark that begins with `head`, and the number of the file that it names.

    The mark lies in [start, end), at the offset that it names, and has the secret.
    """
    base = start
    while base < end:
        window = file.read(min(_LOOK_BYTES + SYNC_MARK_BYTES, end - base), base)
        position = window.find(head)
        while position >= 0:
            with contextlib.suppress(InvalidFrame):
                header = read_header(window, position)
                if header.seq == base + position and secret in (0, header.ts_ms):
                    yield base + position, header.topic_id
            position = window.find(head, position + 1)
        base += _LOOK_BYTES


def read_current(files: Files, folder: WalFolder) -> str:
    """Return the name in CURRENT.

    Raises `FileNotFoundError` without CURRENT, and `FileCorrupt` if CURRENT does not end with a newline.
    """
    file = OpenFile(files, folder.current, os.O_RDONLY)
    text = file.read(file.size(), 0)
    if not text.endswith(b"\n"):
        raise FileCorrupt(folder.current, len(text), "it does not end with a newline")
    return text[:-1].decode(errors="replace")


_ORDINALS = 10**14


def shard_of(topic_id: int, shards: int) -> int:
    return xxh3_64_intdigest(topic_id.to_bytes(8, "little")) % shards if shards > 1 else 0


def first_ordinal(shard: int, shards: int) -> int:
    """Return the ordinal of the first frame of the shard (SHARD-2)."""
    return (shard + 1) * _ORDINALS + 1 if shards > 1 else 1


def open_wals(
    files: Files,
    folders: Sequence[WalFolder],
    file_bytes: int,
    ends: Sequence[WalPosition],
    older: Sequence[Sequence[int]],
    mark_secret: int,
) -> Wals:
    """Open the WAL of each shard. `folders`, `ends` and `older` have one item for each shard, as `Wal` takes it."""
    parts = zip(folders, ends, older, strict=True)
    return Wals([Wal(files, folder, file_bytes, end, numbers, mark_secret) for folder, end, numbers in parts])


class Wals:
    """The WAL of each shard, and the operations on all of them."""

    def __init__(self, wals: Sequence[Wal]) -> None:
        self.each = tuple(wals)

    def __len__(self) -> int:
        return len(self.each)

    def file(self, topic_id: int, number: int) -> OpenFile:
        """Return the WAL file `number` of the topic's shard."""
        return self.each[shard_of(topic_id, len(self.each))].file(number)

    def sums(self, topic_id: int) -> Sums:
        """Return the hashes of the pieces in the topic's shard."""
        return self.each[shard_of(topic_id, len(self.each))].sums

    @property
    def used_bytes(self) -> int:
        return sum(wal.used_bytes for wal in self.each)

    @property
    def older_files(self) -> int:
        """The number of files that a checkpoint would free, in the shard with the most of them."""
        wals = self.each
        return wals[0].older_files if len(wals) == 1 else max(wal.older_files for wal in wals)

    @property
    def needs_upkeep(self) -> bool:
        return any(wal.needs_upkeep for wal in self.each)

    def prepare_next(self) -> None:
        for wal in self.each:
            if wal.needs_upkeep:
                wal.prepare_next()

    def remove_below(self, ends: Sequence[WalPosition]) -> None:
        for wal, end in zip(self.each, ends, strict=True):
            wal.remove_below(end.file)

    def release_space(self) -> None:
        for wal in self.each:
            wal.release_space()

    def forget(self) -> None:
        for wal in self.each:
            wal.forget()
