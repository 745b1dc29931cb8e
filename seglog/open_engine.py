"""From a data directory to an engine that takes appends: recovery, the steps of an opening, and the threads of upkeep.

1  Make the directory's folders, if it is new.
2  Recover the log (seglog.startup.recovery), and change the number of shards if the settings have another one.
3  Make the first checkpoint, also on a full disk (seglog.startup.opening).
4  Start what works in the background: checkpoints, syncs, relocation and the reclaim of space.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from seglog import lazy_imports
from seglog.base.lazy import logger
from seglog.engine.engine import Engine, doing, give_up_ballast
from seglog.engine.state import reclaimable
from seglog.engine.work_thread import UpkeepFactory
from seglog.errors import (
    DirectoryNotWritable,
    DiskFull,
    InvalidArgument,
    NotADataDirectory,
    TooManyOpenFiles,
    Unavailable,
)
from seglog.files.clock import Clock
from seglog.files.directory import DirectoryLock, in_memory_kind, load_settings
from seglog.files.file_system import NO_DESCRIPTOR, Files, OsFiles
from seglog.format.arrays import dtypes, np
from seglog.lazy_imports import changes, checkpoint, relocation
from seglog.read_only_view import look
from seglog.startup import opening
from seglog.startup.recovery import Recovered, recover
from seglog.tiers.segment_store import SegmentStores
from seglog.tiers.warm_stores import WarmStores
from seglog.values.config import LogSettings
from seglog.values.layout import Layout
from seglog.wal.wal import NO_SPACE

if TYPE_CHECKING:
    from seglog.maintenance.checkpoint import Reclaimer

_logger = logger("seglog.log")
T = TypeVar("T")


def import_now() -> None:
    """Import all that a change needs, before a log is opened for changes.

    Later, a lack of memory, rights or file descriptors would fail it half-way.
    """
    import logging  # noqa: F401 - of the first warning

    import seglog.writing.stream  # noqa: F401 - of the first `append_stream`

    dtypes.ENTRIES, np.zeros  # noqa: B018 - the first use of a name imports its module
    for name in lazy_imports.__all__:
        getattr(lazy_imports, name).__name__  # noqa: B018 - the same


def opened_to_look(
    files: Files, layout: Layout, clock: Clock, settings: LogSettings | None, stores: SegmentStores | None
) -> Engine:
    """Return an engine that shows the directory and changes nothing (seglog.read_only_view)."""
    settings = load_settings(layout.settings) if settings is None else settings
    warm_stores = opening.configured_warm_stores(files, layout, settings, stores)
    if warm_stores is not None:
        warm_stores.check_owners()
    return look(files, layout, clock, settings, warm_stores)


def opened(
    make: Callable[[Engine, DirectoryLock, Reclaimer], T],
    files: Files,
    layout: Layout,
    clock: Clock,
    settings: LogSettings | None,
    upkeep: UpkeepFactory,
    stores: SegmentStores | None,
) -> T:
    """Lock the directory, which exists, and return what `make` makes of an engine that takes appends.

    A full disk costs the ballast. Whatever fails, `make` too, the lock is released.
    """
    lock = DirectoryLock(files, layout.lock)
    try:
        try:
            engine, reclaimer = _start(files, layout, clock, settings, upkeep, stores)
        except (DiskFull, OSError) as error:
            is_full = isinstance(error, DiskFull) or error.errno in NO_SPACE
            if not is_full or not give_up_ballast(files, layout):
                raise
            engine, reclaimer = _start(files, layout, clock, settings, upkeep, stores)
        _warn_if_volatile(files, layout.root)
        return make(engine, lock, reclaimer)
    except BaseException:
        lock.release()
        raise


def _warn_if_volatile(port: Files, root: Path) -> None:
    kind = in_memory_kind(root) if isinstance(port, OsFiles) else None
    if kind is not None:
        _logger.warning("%s is in memory (%s): a reboot takes all of it, what is acked at fsync too", root, kind)


def _start(
    files: Files,
    layout: Layout,
    clock: Clock,
    settings: LogSettings | None,
    upkeep: UpkeepFactory,
    stores: SegmentStores | None,
) -> tuple[Engine, Reclaimer]:
    settings = load_settings(layout.settings) if settings is None else settings
    if not opening.is_data_directory(files, layout):
        opening.make_new(files, layout)
    warm_stores = opening.configured_warm_stores(files, layout, settings, stores)
    recovered = _recover(files, layout)
    if warm_stores is not None:
        opening.adopt_warm(files, layout, recovered.topics.values(), warm_stores)
    try:
        return _engine(files, layout, clock, settings, upkeep, warm_stores, recovered)
    except BaseException:
        if warm_stores is not None:
            warm_stores.release()
        raise


def _engine(
    files: Files,
    layout: Layout,
    clock: Clock,
    settings: LogSettings,
    upkeep: UpkeepFactory,
    warm_stores: WarmStores | None,
    recovered: Recovered,
) -> tuple[Engine, Reclaimer]:
    if len(recovered.wal_ends) != settings.wal_shards:
        before = opening.engine_of(files, layout, clock, settings, recovered, warm_stores)
        with before.checkpoint_lock:
            checkpoint.checkpoint_locked(before)
        before.close()
        opening.reshard(files, layout, settings.wal_shards)
        recovered = _recover(files, layout)
    engine = opening.engine_of(files, layout, clock, settings, recovered, warm_stores)
    engine.room.begin()
    try:
        with engine.checkpoint_lock:
            checkpoint.checkpoint_locked(engine)
    except DiskFull:
        engine, recovered = opening.open_full(engine, lambda: _recover(files, layout))
    reclaimer = checkpoint.Reclaimer(engine)
    engine.upkeep = upkeep(lambda: checkpoint.relieve(engine))
    engine.syncer = upkeep(lambda: changes.sync_written(engine))
    engine.relocator = upkeep(lambda: relocation.relocate_due(engine))
    engine.reclaim = upkeep(reclaimer.run)
    for state in recovered.topics.values():
        engine.has_dead |= bool(reclaimable(state, settings.reclaim_dead_percent))
    engine.wake_relocator()
    checkpoint.wake_reclaim(engine)
    return engine, reclaimer


def _recover(files: Files, layout: Layout) -> Recovered:
    recovered = recover(files, layout)
    opening.remove_other_shards(files, layout, len(recovered.wal_ends))
    return recovered


def make_root(files: Files, root: Path) -> None:
    missing = [path for path in (root, *root.parents) if not files.is_dir(path)]
    for path in reversed(missing):
        try:
            files.make_dir(path)
        except FileExistsError as error:
            raise NotADataDirectory(root) from error
        files.sync_dir(path.parent)


@contextmanager
def plain_errors(root: Path, *, read_only: bool) -> Iterator[None]:
    """Raise an error of the log for an `OSError` about the directory as a whole."""
    try:
        with doing("open"):
            yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise DiskFull(root, "open") from error
        if error.errno in NO_DESCRIPTOR:
            raise TooManyOpenFiles(root) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            cause = os.strerror(error.errno)
            if read_only:
                hint = "check the owner and mode of the files in it"
                raise Unavailable(f"cannot read in {root}: {cause}", hint=hint) from error
            raise DirectoryNotWritable(root, cause) from error
        if error.errno == errno.ENAMETOOLONG:
            raise InvalidArgument("path", str(root), "a path that the file system takes: it is too long") from error
        raise
