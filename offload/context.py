"""The parts that the services of one archive share: the log, the remote, and this directory's record of both."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass
from weakref import WeakValueDictionary

from catalog import Branches, LocalCatalog, Volumes
from catalog.objects.base import ObjectStore
from catalog.refs.state_names import Tags
from offload.handles import Handles
from offload.read.cache import open_cache
from offload.read.cold_reader import ColdReader
from offload.settings import CatalogSettings, ColdSettings
from seglog import Log
from seglog.files.clock import Clock
from seglog.process import closing_after

__all__ = ["ArchiveContext", "TopicLocks", "open_context"]


class TopicLocks:
    """A lock for each topic. Offloads, deletes and syncs of a topic take its lock. Reads take none.

    A lock that no caller has is forgotten, because names come and go.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, threading.RLock] = WeakValueDictionary()
        self._looking = threading.Lock()

    def of(self, name: str) -> threading.RLock:
        with self._looking:
            lock = self._locks.get(name)
            if lock is None:
                lock = self._locks[name] = threading.RLock()
            return lock


@dataclass(frozen=True, slots=True)
class ArchiveContext:
    """The shared parts of one archive. `writer_id` names this machine in commits and in the operations log.

    `volumes` reads and writes commits in `store`, and keeps copies of them in `local`. `branches` and `tags` are the
    names in the remote. `handles` are the names of this directory. `reader` reads records from `store`. `settings` are
    the section [catalog].
    """

    log: Log
    store: ObjectStore
    local: LocalCatalog
    volumes: Volumes
    branches: Branches
    tags: Tags
    handles: Handles
    reader: ColdReader
    settings: CatalogSettings
    clock: Clock
    writer_id: str
    locks: TopicLocks

    def close(self) -> None:
        self.reader.close()
        self.local.close()
        self.store.close()


def open_context(
    log: Log,
    store: ObjectStore,
    cold: ColdSettings,
    settings: CatalogSettings,
    clock: Clock,
    *,
    is_chosen: bool = False,
) -> ArchiveContext:
    """Open the local catalog and the caches of the log's directory. Makes no request.

    `is_chosen` says that the caller chose another remote than seglog.toml.
    """
    cache_bytes = 0 if log.is_read_only else cold.cache_bytes
    reader = ColdReader(store, cold, open_cache(cold.place_of_cache(log.path), cache_bytes))
    try:
        local = LocalCatalog(log.path / "catalog.db", read_only=log.is_read_only, make_room=log.make_room)
    except BaseException as error:
        with closing_after(error):
            reader.close()
        raise
    volumes = Volumes(store, local)
    writer_id = socket.gethostname()
    branches = Branches(volumes, writer_id)
    return ArchiveContext(
        log=log,
        store=store,
        local=local,
        volumes=volumes,
        branches=branches,
        tags=Tags(volumes, writer_id),
        handles=Handles(log, volumes, branches, local, clock, is_chosen=is_chosen),
        reader=reader,
        settings=settings,
        clock=clock,
        writer_id=writer_id,
        locks=TopicLocks(),
    )
