"""Data directories that share a remote, for the tests of replicas, takeover, reset and recovery."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import offload
import seglog
from catalog import Vid, Volumes, make_checkpoint
from catalog.format.control import Boundary
from catalog.format.keys import Key, boundary_key, commit_key
from catalog.format.small_objects import encode_boundary
from catalog.objects import MemoryStore
from catalog.objects.object_store import ObjectStore
from offload.archive import Archive
from offload.settings import CatalogSettings
from seglog import Log, LogSettings
from seglog.files.clock import Clock

__all__ = ["SMALL_WAL", "collect", "opened", "ship", "values"]

DEFAULTS = CatalogSettings()
#: A WAL file is made in full when a log opens, and a copy of a directory has all its bytes.
SMALL_WAL = LogSettings(wal_file_bytes=1 << 20, max_record_bytes=256 << 10)


@contextmanager
def opened(
    path: Path,
    store: ObjectStore,
    clock: Clock | None = None,
    catalog: CatalogSettings = DEFAULTS,
    settings: LogSettings = SMALL_WAL,
) -> Iterator[tuple[Log, Archive]]:
    """Open a data directory with its archive over `store`."""
    with (
        seglog.open(path, clock=clock, settings=settings) as log,
        offload.attach(log, store=store, clock=clock, settings=offload.Settings().with_parts(catalog)) as archive,
    ):
        yield log, archive


def ship(archive: Archive, log: Log, name: str, *given: bytes, tag: str | None = None) -> None:
    """Append, seal and offload."""
    archive.open_for_append(name).append(list(given), tag=tag)
    log.topic(name).seal()
    archive.offload(name)


def values(archive: Archive, name: str, at: str | None = None) -> list[bytes]:
    return [record.value for record in archive.read(name, at=at)]


def collect(store: MemoryStore, vid: Vid, below: int) -> None:
    """Collect the commits of a volume below an LSN, as GC does."""
    make_checkpoint(Volumes(store), vid, below, now_ms=0)
    store.put(boundary_key(vid), encode_boundary(Boundary(vid, below)), {})
    for key in list(store.list(f"{vid}/log/")):
        if key > commit_key(vid, below):  # the newest commit comes first
            store.delete(Key(key))
