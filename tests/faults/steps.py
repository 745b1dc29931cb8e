"""Crash code that works on a data directory and a store at each of its steps, one kind of step after the other.

    kind      a step is
    files     an effect of the log on the disk, with torn writes
    catalog   a transaction of the local catalog, before and after it is durable
    requests  an effect on the store, before and after it happened, with its answer lost; and a read that gets none

Each crash happens in a copy of the prepared place, so the preparation runs once.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import offload
import seglog
from catalog import LocalCatalog
from catalog.errors import CatalogError
from catalog.objects.memory import MemoryStore
from offload import context as archive_context
from offload.archive import Archive
from seglog import Log
from tests.faults.files import CrashingFiles, SimulatedCrash, UnsyncedFiles
from tests.faults.store import Fault, FaultyStore, lost, unreachable

__all__ = ["Place", "crashes"]

Act = Callable[[Log, Archive], object]
#: Each step copies the directory, and a copy has all bytes of the WAL.
_SMALL_WAL = seglog.LogSettings(wal_file_bytes=1 << 20, max_record_bytes=256 << 10)


class Place:
    """A directory and a store, which can be copied."""

    def __init__(self, path: Path, store: MemoryStore | None = None) -> None:
        self.path = path
        self.store = MemoryStore() if store is None else store

    def copied(self, path: Path) -> Place:
        shutil.copytree(self.path, path)
        copy = Place(path)
        for key in self.store.list(""):
            copy.store.put(key, self.store.get(key), {})
        return copy

    @contextmanager
    def opened(self, files: seglog.Files | None = None, store: object = None) -> Iterator[tuple[Log, Archive]]:
        with (
            seglog.open(self.path, files=files or UnsyncedFiles(), settings=_SMALL_WAL) as log,
            offload.attach(log, store=store or self.store) as archive,  # type: ignore[arg-type]
        ):
            yield log, archive


def crashes(base: Place, scratch: Path, act: Act, every: int = 1) -> Iterator[tuple[str, Place]]:
    """Yield a place for each step of `act` at which the run crashed. The last run of each kind ends without a crash.

    With `every`, crash only at every nth step of a kind. The first step differs from kind to kind.
    """
    begins = itertools.count(1)
    for name, attempt in (("files", _files), ("files torn", _torn)):
        for step in itertools.count(next(begins) % every + 1, every):
            place = base.copied(scratch / f"{name}-{step}".replace(" ", "-"))
            has_ended = attempt(place, step, act)
            yield f"{name} {step}", place
            if not has_ended:
                break
    for when in ("before", "after"):
        for step in itertools.count(next(begins) % every + 1, every):
            place = base.copied(scratch / f"catalog-{when}-{step}")
            has_ended = _catalog(place, step, when, act)
            yield f"catalog {when} {step}", place
            if not has_ended:
                break
    faults = [
        lambda nth: Fault(nth, "before", lost),
        lambda nth: Fault(nth, "after", lost),
        lambda nth: Fault(nth, "before", unreachable, "get"),
    ]
    for number, fault in enumerate(faults):
        for step in itertools.count(next(begins) % every + 1, every):
            place = base.copied(scratch / f"request-{number}-{step}")
            faulty = FaultyStore(place.store, [fault(step)])
            with contextlib.suppress(CatalogError), place.opened(store=faulty) as (log, archive):
                act(log, archive)
            yield f"request {fault(step)}", place
            if not faulty.struck:
                break


def _files(place: Place, step: int, act: Act, *, tear: bool = False) -> bool:
    files = CrashingFiles(UnsyncedFiles(), step, tear=tear)
    with contextlib.suppress(SimulatedCrash), place.opened(files) as (log, archive):
        act(log, archive)
    return files.has_crashed


def _torn(place: Place, step: int, act: Act) -> bool:
    return _files(place, step, act, tear=True)


def _catalog(place: Place, step: int, when: str, act: Act) -> bool:
    transactions = 0

    class Crashing(LocalCatalog):
        @contextmanager
        def _transaction(self):  # type: ignore[no-untyped-def]
            nonlocal transactions
            transactions += 1
            if transactions > step or (transactions == step and when == "before"):
                raise SimulatedCrash
            with super()._transaction() as run:
                yield run
            if transactions == step:
                raise SimulatedCrash

    original = archive_context.LocalCatalog
    archive_context.LocalCatalog = Crashing  # type: ignore[misc]
    try:
        with contextlib.suppress(SimulatedCrash), place.opened() as (log, archive):
            act(log, archive)
    finally:
        archive_context.LocalCatalog = original  # type: ignore[misc]
    return transactions >= step
