"""The room on the disk of a log. Appends stop while some is left, and a ballast lets upkeep work when none is.

    free space                                     appends    upkeep
    `disk_reject_bytes` or more                    work       keeps the ballast: a file that reserves space
    less                                           refused    works in the space that is left
    none: a write of upkeep fails                  refused    gives up the ballast, and makes the write again
    enough for the ballast, and the bound above    work       makes the ballast again

SPACE-1  Upkeep is what frees space, or must be done first: a checkpoint, and with it seal and close, a delete, an
    eviction, a truncation, an opening, and the writes of the local catalog. An append never gives up the ballast.
SPACE-2  The ballast is for one checkpoint: one and a half times `wal_file_bytes`, because an index entry takes half as
    much as the smallest frame, and `_SPARE_BYTES` for manifests and the local catalog. A log whose write-ahead log has
    not come to the middle of its first file keeps `_SPARE_BYTES`, and one of less than that none.
SPACE-3  The log looks at the free space at its opening, after each checkpoint, and when the upkeep prepares a WAL file:
    once in half a WAL file. While it refuses appends, it looks at each of them. An append that is taken costs no look.
SPACE-4  The content of the ballast means nothing. So nothing syncs it, and a crash at any moment does no harm.
SPACE-5  The log looks only where the operating system tells the free space: with `OsFiles`. With another port it has no
    ballast, and a full disk shows at the write.

A bound that ended appends lets them begin again when a tenth more is free, so that the state does not flap.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from seglog.errors import DiskFull
from seglog.files.port import Files, OpenFile, OsFiles
from seglog.process import new_lock, try_lock
from seglog.values.config import LogSettings
from seglog.values.layout import Layout
from seglog.wal.wal import Wals, first_ordinal

__all__ = ["HINT", "Room", "doing", "give_up_ballast"]

_logger = logging.getLogger("seglog.engine.room")
_SPARE_BYTES = 1024 * 1024
HINT = "free some space on its disk, or lower log.disk_reject_bytes and open the log again; appends then work again"


class Room:
    """The room on the disk of one log. `refusal` is the reason for which appends are refused now, or None.

    `reject_bytes` is the setting `disk_reject_bytes`. Whoever changes it calls `look`.
    """

    def __init__(
        self, files: Files, layout: Layout, settings: LogSettings, wals: Wals, on_change: Callable[[], None]
    ) -> None:
        self.refusal: str | None = None
        self._files = files
        self._layout = layout
        self.reject_bytes = settings.disk_reject_bytes
        self._wal_file_bytes = settings.wal_file_bytes
        self._wals = wals
        self._on_change = on_change
        self._looking = new_lock()
        self._is_used = False
        self._ballast_bytes = 0
        self._given_up_bytes = 0

    @property
    def has_given_up(self) -> bool:
        """Return whether the ballast was given up, and is not there again."""
        return bool(self._given_up_bytes)

    def begin(self, *, was_given_up: bool = False) -> None:
        """Look at the disk for the first time. `was_given_up` says that the opening had to give up the ballast."""
        self._is_used = isinstance(self._files, OsFiles)
        if self._is_used:
            self._ballast_bytes = _size(self._files, self._layout)
            self._given_up_bytes = self._wanted_bytes() if was_given_up else 0
            self.look()

    def look(self) -> None:
        """Look at the free space: refuse appends or take them again, and make the ballast if there is room for it.

        If another thread looks, do nothing.
        """
        if not self._is_used or not try_lock(self._looking):
            return
        try:
            self._look()
        finally:
            self._looking.release()

    def _look(self) -> None:
        free_bytes = self._free_bytes()
        if free_bytes is None:
            return
        reject_bytes = self.reject_bytes
        wanted_bytes = self._wanted_bytes()
        if self._ballast_bytes < wanted_bytes:
            # It takes nothing that appends may use, and leaves some space in any case.
            needed_bytes = wanted_bytes - self._ballast_bytes
            if free_bytes - needed_bytes >= max(reject_bytes + reject_bytes // 10, needed_bytes // 4):
                free_bytes -= self._make(wanted_bytes)
        name, bound_bytes = "log.disk_reject_bytes", reject_bytes
        again_bytes = self._given_up_bytes + self._given_up_bytes // 4
        if again_bytes > reject_bytes:
            name, bound_bytes = "the room for its ballast, which upkeep gave up,", again_bytes
        needed_bytes = bound_bytes + (bound_bytes // 10 if self.refusal is not None else 0)
        reason = f"the disk has only {free_bytes} bytes left, and {name} is {bound_bytes}"
        self._refuse(reason if free_bytes < needed_bytes else None)

    def make_room(self) -> None:
        """Give up the ballast if the disk has no room for small writes, such as those of a database."""
        free_bytes = self._free_bytes() if self._ballast_bytes else None
        if free_bytes is not None and free_bytes < _SPARE_BYTES:
            self.give_up()

    def give_up(self) -> bool:
        """Remove the ballast, and refuse appends until it is there again. Return whether there was one."""
        if not self._ballast_bytes or not give_up_ballast(self._files, self._layout):
            return False
        _logger.warning("the disk of %s is full: %d bytes of ballast given up", self._layout.root, self._ballast_bytes)
        self._given_up_bytes, self._ballast_bytes = self._ballast_bytes, 0
        self.look()
        return True

    def _make(self, size_bytes: int) -> int:
        """Make or enlarge the ballast, and return the bytes that it took: 0 if there is no room after all."""
        path, before_bytes = self._layout.ballast, self._ballast_bytes
        try:
            ballast = OpenFile(self._files, path, os.O_RDWR | os.O_CREAT)
            self._files.allocate(ballast.fd, size_bytes)
        except OSError as error:
            _logger.debug("no ballast: %s", error)
            with suppress(OSError):
                self._files.unlink(path)
            self._ballast_bytes = 0
            return 0
        self._ballast_bytes, self._given_up_bytes = size_bytes, 0
        return size_bytes - before_bytes

    def _wanted_bytes(self) -> int:
        """Return the size of the ballast (SPACE-2)."""
        wals, file_bytes = self._wals.each, self._wal_file_bytes
        for shard, wal in enumerate(wals):
            if wal.number != first_ordinal(shard, len(wals)) or wal.offset > wal.half_bytes:
                return file_bytes + file_bytes // 2 + _SPARE_BYTES
        return _SPARE_BYTES if any(wal.offset >= _SPARE_BYTES for wal in wals) else 0

    def _refuse(self, reason: str | None) -> None:
        if reason is not None and self.refusal is None:
            _logger.warning("appends to %s are refused: %s", self._layout.root, reason)
        elif reason is None and self.refusal is not None:
            _logger.info("appends to %s work again", self._layout.root)
        self.refusal = reason
        self._on_change()

    def _free_bytes(self) -> int | None:
        try:
            found = os.statvfs(self._layout.root)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize


def give_up_ballast(files: Files, layout: Layout) -> bool:
    """Remove the ballast, and return whether there was one."""
    with suppress(OSError):
        files.unlink(layout.ballast)
        return True
    return False


@contextmanager
def doing(operation: str) -> Iterator[None]:
    """Give a `DiskFull` from within the name of the caller's operation."""
    try:
        yield
    except DiskFull as error:
        if error.operation == operation:
            raise
        raise error.named(operation) from error


def _size(files: Files, layout: Layout) -> int:
    try:
        return OpenFile(files, layout.ballast, os.O_RDONLY).size()
    except OSError:
        return 0
