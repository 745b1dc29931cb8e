"""Seams of an archive, of its readers, of the daemon and of the command."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from catalog import Handle
from catalog.format.commit import ForkPoint
from catalog.volume import Volumes
from offload import Archive
from offload.context import ArchiveContext
from offload.daemon.http import bodies
from offload.daemon.service import Service
from offload.format.block import ChunkRef
from offload.operations import status
from offload.read import cold_reader
from offload.read.chunk_cache import ChunkCache
from offload.read.chunk_fetcher import ChunkFetcher, Fetch
from offload.read.cold_reader import ColdReader, SingleFlight
from offload.read.ledger import OffloadedLedgers
from offload.replication.reset import Rescue
from offload.reports import TopicStatus
from offload.services import states, waiting_deletes
from offload.services.restoring import offloaded_point
from offload.worker import child
from offload.worker.child import FramesRead
from offload.worker.pool import WorkerPool
from offload.write.offloader import Offloader
from offload.write.uploader import Uploader
from seglog import Record, Topic
from seglog.files.file_system import Files
from seglog.format.frames import Frames

__all__ = [
    "after_a_waiting_delete_is_found",
    "change_ts_ms",
    "change_uploader",
    "context_of",
    "count_flights",
    "count_waiting",
    "describe_status",
    "drop_attempts",
    "drop_last_entry",
    "fetcher_of",
    "files_of",
    "forget_snapshots",
    "kept_point",
    "lock_of_fetcher",
    "looks_of",
    "many_records",
    "note_threads_of_bodies",
    "offloader_of",
    "records_one_by_one",
    "reported_by_child",
    "rescue_of",
    "running_fetches",
    "skip_check_of_remote",
    "start_worker",
    "watch_undos",
]


def context_of(archive: Archive) -> ArchiveContext:
    """Return the parts of an archive. A test looks at the local catalog, or leaves it as a crash would."""
    return archive._context


def watch_undos(archive: Archive, watch: Callable[[Handle, Callable[[], None]], None]) -> None:
    """Call `watch` with the handle, and with what lets the log show the records of an undo again, in place of it."""
    publisher = archive._parts.publisher
    show = publisher._show
    publisher._show = lambda handle, *rest: watch(handle, lambda: show(handle, *rest))  # type: ignore[method-assign]


# ---------------------------------------------------------------- steps of a protocol, one by one


def kept_point(archive: Archive, name: str, target: str) -> ForkPoint:
    """Return the point of a target, as `restore` finds it. A test pins that point, which the archive does not offer."""
    return offloaded_point(archive._parts, name, target, lambda: None)


def offloader_of(archive: Archive) -> Offloader:
    """Return the offloader. A test appends records after each of its runs."""
    return archive._parts.offloader


def change_uploader(archive: Archive, change: Callable[[Uploader], Any]) -> None:
    """Put the result of `change` in the uploader's place. A test truncates the topic while the uploader reads it."""
    offloader = offloader_of(archive)
    offloader._uploader = change(offloader._uploader)


def rescue_of(archive: Archive) -> Rescue:
    """Return the part of a reset that saves records on a branch. A test appends records after each of its runs."""
    return archive._parts.reset._rescue


def drop_attempts(archive: Archive, name: str) -> None:
    """Take one step of a reset. A test ends the process after it."""
    archive._parts.reset._drop_attempts(name)


def skip_check_of_remote(archive: Archive, name: str) -> None:
    """Let the handle count as checked. A test then fails the request after the check, and not the check."""
    context_of(archive).handles._checked.add(name)


def forget_snapshots(volumes: Volumes) -> None:
    """Forget the snapshots in memory, as a new process would."""
    volumes._known.clear()


def change_ts_ms(patch: pytest.MonkeyPatch, change: Callable[[Callable[[Topic, int], int]], Any]) -> None:
    """Replace the look-up of a record's time. A test moves the records just before one."""
    patch.setattr(states, "_ts_ms", change(states._ts_ms))


# ---------------------------------------------------------------- readers


def fetcher_of(reader: ColdReader) -> ChunkFetcher:
    """Return the GETs that readers share. A test joins one, and checks the bytes that they hold."""
    return reader._fetcher


def running_fetches(reader: ColdReader) -> set[Fetch]:
    """Return the GETs that run or wait. A test waits until readers have joined one."""
    return set(reader._fetcher._fetches.values())


def lock_of_fetcher(reader: ColdReader) -> threading.Lock:
    """Return the lock of the shared GETs. A test holds it while the process forks."""
    return reader._fetcher._lock


def count_flights(flights: SingleFlight[Any, Any]) -> int:
    """Return for how many keys work runs. A test checks that none is left."""
    return len(flights._flights)


def count_waiting(flights: SingleFlight[Any, Any], key: object) -> int:
    """Return how many callers wait for the work of another. A test waits until all of them do."""
    return len(flights._flights[key]._condition._waiters)  # type: ignore[attr-defined]


def files_of(cache: ChunkCache) -> Files:
    """Return the files of a chunk cache. A test drops an entry between two calls of them."""
    return cache._files


def records_one_by_one(raw: bytes, chunk: ChunkRef, topic_id: int, key: str, first: int, last: int) -> Iterator[Record]:
    """Read records by the slow way, which the reader takes after damage. A test compares the two ways."""
    return cold_reader._one_by_one(raw, chunk, topic_id, key, first, last)


def many_records(raw: bytes, chunk: ChunkRef, topic_id: int, first: int, last: int) -> list[Record] | None:
    """Read records by the fast way alone, which gives None after damage."""
    return cold_reader._many(raw, chunk, topic_id, first, last)


def drop_last_entry(ledgers: OffloadedLedgers) -> int:
    """Let the only ledger lack its last entry, and return the entry's id. No index object can say so by itself."""
    [ledger] = ledgers._ledgers
    assert ledger.last_entry_id is not None
    ledgers._ledgers = (replace(ledger, last_entry_id=ledger.last_entry_id + 1),)
    return ledger.last_entry_id + 1


# ---------------------------------------------------------------- the daemon and the command


def note_threads_of_bodies(patch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Return a list that gets the thread of each part of a body that the daemon takes apart."""
    threads: list[threading.Thread] = []
    batches = bodies.batches_of

    def noting(*arguments: Any, **named: Any) -> Any:
        threads.append(threading.current_thread())
        return batches(*arguments, **named)

    patch.setattr(bodies, "batches_of", noting)
    return threads


def start_worker(pool: WorkerPool) -> Any:
    """Start a worker process, as an upload does. A test forks while the worker runs."""
    return pool._take(lambda: None)


def reported_by_child(tell: Callable[[FramesRead], None], source: Iterator[Frames]) -> Iterator[Frames]:
    """Return the frames as the child reads them. `tell` gets the child's reports."""
    return child._reported(cast("Any", SimpleNamespace(tell=tell)), source)


def describe_status(found: TopicStatus) -> str:
    """Return the trouble that `seglog status` tells of a topic of which no offload runs."""
    topic = status.ArchivedTopic(found, None, None, None, None, None, None)
    return "\n".join(text for text, _ in status._trouble(topic))


def looks_of(service: Service) -> Mapping[str, Callable[[], Awaitable[None]]]:
    """Return what each background task does at a time, by its name. A test counts the work of one look."""
    return service._background._looks


@contextmanager
def after_a_waiting_delete_is_found(act: Callable[[], object]) -> Iterator[None]:
    """Call `act` between the look-up of a delete to undo and the lock of its topic, as another thread might."""
    wanted = waiting_deletes.WaitingDeletes._looked_up

    def found_and_act(*given: Any) -> Any:
        found = wanted(*given)
        act()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting_deletes.WaitingDeletes, "_looked_up", found_and_act)
        yield
