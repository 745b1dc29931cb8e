"""The opening of a log whose disk has no room for the first checkpoint, although the ballast is given up.

    1 give back    The active WAL file gives back the space that it reserved, and next.log goes. No append runs yet.
    2 by file      Recover the state at the end of the oldest WAL file, and make a checkpoint of that, which frees the
                   file. Repeat this while there are several. So they need the room of one at a time.
    3 whole        Recover the rest, and make the usual checkpoint.
    4 in place     If that has no room either, write the bytes of the WAL again, to their own places, and sync them. The
                   log opens without a checkpoint, and reads these records from the WAL.

FULL-1  After a failed fsync, the page cache may show bytes that the disk lacks, and recovery has counted them. The
    usual checkpoint writes the records once more. Step 4 does the same without space: it writes the same bytes to the
    same places, so that a crash within it changes nothing.
FULL-2  Step 2 is for one shard. With several, the state at the end of one file of each is none that the log once had
    (SHARD-1). Two topics may have one name, and a topic that is not created yet may have a lower id than one that is.
    The manifest has no place for either.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from seglog.engine.engine import Engine
from seglog.errors import DiskFull
from seglog.files.open_file import OpenFile
from seglog.maintenance.checkpoint import checkpoint_locked
from seglog.startup.opening import engine_of
from seglog.startup.recovery import Recovered, recover

__all__ = ["open_full"]

_logger = logging.getLogger("seglog.startup.full_disk")
_PIECE_BYTES = 1024 * 1024


def open_full(first: Engine, recover_all: Callable[[], Recovered]) -> tuple[Engine, Recovered]:
    """Return an engine in the place of `first`, whose checkpoint had no room, and the result of its recovery."""
    first.wals.release_space()
    first.close()
    with suppress(DiskFull):
        while _absorb_oldest(first):
            pass
    found = recover_all()
    engine = _engine(first, found)
    engine.room.begin(was_given_up=first.room.has_given_up)
    try:
        with engine.checkpoint_lock:
            checkpoint_locked(engine)
    except DiskFull as error:
        _logger.warning("the log opens without a checkpoint: %s", error)
        _write_again(engine, found)
    return engine, found


def _absorb_oldest(first: Engine) -> bool:
    """Make a checkpoint at the end of the oldest WAL file (step 2). Return whether there was one to free."""
    found = recover(first.files, first.layout, files_max=1)
    if len(found.wal_ends) > 1 or not found.older_files[0]:
        return False
    part = _engine(first, found)
    try:
        with part.checkpoint_lock:
            checkpoint_locked(part)
    finally:
        part.close()
    return True


def _engine(first: Engine, found: Recovered) -> Engine:
    return engine_of(first.files, first.layout, first.clock, first.settings, found, first.warm_stores)


def _write_again(engine: Engine, found: Recovered) -> None:
    """Write the frames that no checkpoint has absorbed to their own places, and sync them (FULL-1)."""
    folders = engine.layout.wal_folders(len(found.wal_ends))
    for folder, begin, end, older in zip(folders, found.checkpointed, found.wal_ends, found.older_files, strict=True):
        for number in (*older, end.file):
            file = OpenFile(engine.files, folder.wal_file(number))
            stop = end.offset if number == end.file else file.size()
            for offset in range(begin.offset if number == begin.file else 0, stop, _PIECE_BYTES):
                file.write(file.read_exactly(min(_PIECE_BYTES, stop - offset), offset), offset)
            file.datasync()
