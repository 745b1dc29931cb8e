"""Test that an archive belongs to the process that attached it, with its threads, its caches and its local catalog."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import offload
import seglog
from catalog.objects.memory import MemoryStore
from offload import Archive, ColdSettings, OffloadSettings
from offload.read.chunk_cache import open_cache
from offload.worker.pool import WorkerPool
from seglog import Log
from tests.children import in_child, outcome_of, quiet_fork
from tests.seams.archive import context_of, lock_of_fetcher, start_worker

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

RECORDS = 300
COLD = ColdSettings(cache_bytes=64 * 1024 * 1024)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with seglog.open(tmp_path / "data") as log:
        yield log


@pytest.fixture
def archive(log: Log, tmp_path: Path) -> Iterator[Archive]:
    url = (tmp_path / "remote").as_uri()
    with offload.attach(log, url, settings=offload.Settings().with_parts(COLD)) as archive:
        topic = log.topic("t")
        for _ in range(3):
            topic.append([os.urandom(16_000) for _ in range(RECORDS // 3)])
            topic.seal()
            archive.offload("t", drop_hot=True)
        topic.append([b"hot"])
        yield archive


def calls_on(archive: Archive) -> dict[str, Callable[[], Any]]:
    branches, tags, history = archive.branches, archive.tags, archive.history
    replication, upkeep, status = archive.replication, archive.upkeep, archive.status
    return {
        "branches that the parent holds": lambda: branches.list("t"),
        "tags that the parent holds": lambda: tags.list("t"),
        "a history that the parent holds": lambda: history.snapshot("t"),
        "a replication that the parent holds": lambda: replication.sync("t"),
        "an upkeep that the parent holds": lambda: upkeep.compact("t"),
        "a status that the parent holds": lambda: status.topic("t"),
        "offload": lambda: archive.offload("t"),
        "release": lambda: archive.release("t"),
        "read": lambda: archive.read("t"),
        "read at": lambda: archive.read("t", at="seq:5"),
        "read_arrays": lambda: archive.read_arrays("t"),
        "read_arrow": lambda: archive.read_arrow("t", at="seq:5"),
        "snapshot": lambda: archive.history.snapshot("t"),
        "history": lambda: archive.history.commits("t"),
        "point": lambda: archive.history.point("t", "seq:5"),
        "restore": lambda: archive.restore("t", to="seq:5", name="half"),
        "pull": lambda: archive.replication.pull("t"),
        "fetch": lambda: archive.replication.fetch("t"),
        "sync": lambda: archive.replication.sync("t"),
        "reset": lambda: archive.replication.reset("t"),
        "take_over": lambda: archive.replication.take_over("t"),
        "delete_topic": lambda: archive.delete_topic("t"),
        "diff": lambda: archive.history.diff("t", "t"),
        "cache_counts": archive.cache_counts,
        "url": lambda: archive.url,
    }


def test_each_call_in_a_child_raises_and_the_parent_goes_on(archive: Archive, log: Log) -> None:
    calls = calls_on(archive)

    def everything() -> dict[str, str]:
        outcomes = {name: outcome_of(call) for name, call in calls.items()}
        archive.close()
        archive.__exit__(None, None, None)
        log.close()
        return outcomes

    assert in_child(everything) == dict.fromkeys(calls, "OpenedByParent")
    assert len(list(archive.read("t", 1))) == RECORDS + 1
    log.topic("t").seal()
    archive.offload("t", drop_hot=True)
    assert len(list(log.topic("t").read(1))) == RECORDS + 1


def test_cold_readers_on_their_way_end_after_what_they_have_in_memory(archive: Archive, log: Log) -> None:
    readers = {
        "of the log": log.topic("t").read(1),
        "with gaps": log.topic("t").read(1, gaps=True),
        "of the archive": archive.read("t", 1, at=f"seq:{RECORDS}"),
        "batches": log.topic("t").read_batches(1),
        "arrays": log.topic("t").read_arrays(1),
        "Arrow of the archive": archive.read_arrow("t", 1, at=f"seq:{RECORDS}"),
    }
    for reader in readers.values():
        next(reader)

    def rest(reader: Iterator[Any]) -> tuple[str, bool]:
        """Return the error that ends the reader, and True if it returned more than half of the records before.

        If the reader ends without an error, return "nothing" and True.
        """
        count = 0
        try:
            for item in reader:
                count += len(item) if isinstance(item, list) else 1
        except Exception as error:
            return type(error).__name__, count > RECORDS // 2
        return "nothing", True

    outcomes = in_child(lambda: {name: rest(reader) for name, reader in readers.items()})
    assert outcomes == dict.fromkeys(readers, ("OpenedByParent", False))
    assert sum(1 for _ in readers["of the log"]) == RECORDS
    assert sum(1 for _ in readers["of the archive"]) == RECORDS - 1


def test_a_child_waits_for_no_turn_of_the_parent(archive: Archive) -> None:
    calls = calls_on(archive)

    def everything() -> dict[str, str]:
        outcomes = {name: outcome_of(call) for name, call in calls.items()}
        archive.close()
        return outcomes

    outcomes: list[dict[str, str]] = []
    forks = threading.Thread(target=lambda: outcomes.append(in_child(everything)))
    with context_of(archive).locks.of("t"), lock_of_fetcher(context_of(archive).reader):
        forks.start()
        forks.join()
    assert outcomes == [dict.fromkeys(calls, "OpenedByParent")]


def test_the_chunk_cache_is_free_for_the_next_owner_though_a_child_is_there(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, 1 << 20)
    assert cache is not None
    reading, writing = os.pipe()
    ready, is_ready = os.pipe()
    pid = quiet_fork()
    if not pid:
        os.write(is_ready, b"x")
        os.read(reading, 1)
        os._exit(0)
    try:
        os.read(ready, 1)
        assert open_cache(tmp_path, 1 << 20) is None
        cache.close()
        again = open_cache(tmp_path, 1 << 20)
        assert again is not None
        again.close()
    finally:
        os.write(writing, b"x")
        os.waitpid(pid, 0)
        for descriptor in (reading, writing, ready, is_ready):
            os.close(descriptor)


def test_a_child_ends_none_of_its_parents_worker_processes(tmp_path: Path) -> None:
    pool = WorkerPool("file:///nowhere", ColdSettings(), OffloadSettings(), limiter=None)  # type: ignore[arg-type]
    worker = start_worker(pool)
    try:
        in_child(pool.close)
        assert worker.is_alive
    finally:
        worker.end()
        pool.close()


def test_a_worker_process_has_no_descriptor_of_the_data_directory(log: Log, tmp_path: Path) -> None:
    """The worker is a new program and inherits only the descriptors that its parent passes.

    So the worker does not hold the lock of a parent that was killed.
    """
    log.topic("t").append([b"x"])
    pool = WorkerPool("file:///nowhere", ColdSettings(), OffloadSettings(), limiter=None)  # type: ignore[arg-type]
    worker = start_worker(pool)
    try:
        links = []
        for path in Path(f"/proc/{worker.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # the worker starts up and closes files
                links.append(path.readlink())
        assert not [link for link in links if link.is_relative_to(tmp_path)]
    finally:
        worker.end()
        pool.close()


def test_an_archive_over_a_store_in_memory_too(log: Log) -> None:
    with offload.attach(log, store=MemoryStore()) as archive:
        log.topic("t").append([b"x"])
        assert in_child(lambda: outcome_of(lambda: archive.offload("t"))) == "OpenedByParent"
        log.topic("t").seal()
        archive.offload("t", drop_hot=True)
