"""The log, the remote, and this directory's record of both, which the services of one archive share."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload
from weakref import WeakValueDictionary

from catalog import LocalCatalog
from catalog.format.lazy_imports import pb, protobuf, pyroaring, timestamps
from catalog.objects.object_store import ObjectStore
from offload.handles import Handles
from offload.read.chunk_cache import open_cache
from offload.settings import CatalogSettings, ColdSettings
from seglog import Log
from seglog.files.clock import Clock
from seglog.interrupts import closing_after

if TYPE_CHECKING:
    from catalog import Branches, Volumes
    from catalog.refs.state_names import Tags
    from offload.read.cold_reader import ColdReader

T = TypeVar("T")


def host_name() -> str:
    """Return the name of this machine, as `socket.gethostname` does, without the import of `socket`."""
    return os.uname().nodename


def _import_now() -> None:
    """Import all that a change needs, before an archive is opened for changes.

    Later, a lack of memory, rights or file descriptors would fail it half-way.
    """
    import concurrent.futures.thread  # noqa: F401 - the threads of reads
    import random  # noqa: F401 - the pauses between tries

    import google_crc32c  # noqa: F401 - the checksums of parts

    pb.Commit, protobuf.Message, pyroaring.BitMap, timestamps.Timestamp  # noqa: B018 - the first use imports its module


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


class part(Generic[T]):  # noqa: N801 - a decorator, like `property`
    """An attribute that its function makes at the first use. It takes no lock.

    If two threads use it first, both make one, and both get the same one of the two. So the function only makes an
    object.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> part[T]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> T: ...
    def __get__(self, owner: object, kind: type) -> part[T] | T:
        if owner is None:  # a tool looks at the class, as `inspect` does
            return self
        built: T = vars(owner).setdefault(self._name, self._make(owner))
        return built


class ArchiveContext:
    """What the services of one archive share. `writer_id` names this machine in commits and in the operations log.

    `volumes` reads and writes commits in `store`, and keeps copies of them in `local`. `branches` and `tags` are the
    names in the remote. `handles` are the names of this directory. `reader` reads records from `store`. `settings` are
    the section [catalog].
    """

    def __init__(
        self,
        log: Log,
        store: ObjectStore,
        cold: ColdSettings,
        settings: CatalogSettings,
        clock: Clock,
        *,
        is_chosen: bool = False,
    ) -> None:
        """Open the local catalog and the chunk cache of the log's directory. Makes no request.

        `is_chosen` says that the caller chose another remote than seglog.toml.
        """
        self.log = log
        self.store = store
        self.settings = settings
        self.clock = clock
        self.writer_id = host_name()
        self.takes_over = True  # at a first append or change; a proxy takes nothing over
        self.locks = TopicLocks()
        self._cold = cold
        self._is_chosen = is_chosen
        if not log.is_read_only:
            _import_now()
        self._chunks = None if log.is_read_only else open_cache(cold.place_of_cache(log.path), cold.cache_bytes)
        try:
            self.local = LocalCatalog(log.path / "catalog.db", read_only=log.is_read_only, make_room=log.make_room)
        except BaseException as error:
            with closing_after(error):
                self._close_reader()
            raise

    @part
    def volumes(self) -> Volumes:
        from catalog import Volumes

        return Volumes(self.store, self.local)

    @part
    def branches(self) -> Branches:
        from catalog import Branches

        return Branches(self.volumes, self.writer_id)

    @part
    def tags(self) -> Tags:
        from catalog.refs.state_names import Tags

        return Tags(self.volumes, self.writer_id)

    @part
    def handles(self) -> Handles:
        return Handles(self.log, self.volumes, self.branches, self.local, self.clock, is_chosen=self._is_chosen)

    @part
    def reader(self) -> ColdReader:
        from offload.read.cold_reader import ColdReader

        return ColdReader(self.store, self._cold, self._chunks)

    def close_here(self) -> None:
        """Close what the context has opened. The store stays open."""
        self._close_reader()
        self.local.close()

    def close(self) -> None:
        self.close_here()
        self.store.close()

    def _close_reader(self) -> None:
        if "reader" in vars(self):
            self.reader.close()
        elif self._chunks is not None:
            self._chunks.close()


class OfContext:
    """A base of what works on a context: it has the parts of the context at hand, each made at its first use."""

    def __init__(self, context: ArchiveContext) -> None:
        self._context = context
        self._log, self._store, self._local = context.log, context.store, context.local
        self._locks, self._clock = context.locks, context.clock

    @part
    def _volumes(self) -> Volumes:
        return self._context.volumes

    @part
    def _branches(self) -> Branches:
        return self._context.branches

    @part
    def _tags(self) -> Tags:
        return self._context.tags

    @part
    def _handles(self) -> Handles:
        return self._context.handles

    @part
    def _reader(self) -> ColdReader:
        return self._context.reader
