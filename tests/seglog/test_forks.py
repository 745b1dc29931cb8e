"""A log belongs to the process that opened it. In a forked child every call raises, and the child changes nothing."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog import DirectoryInUse, Log, LogSettings, OpenedByParent, Record, TopicConfig, TruncateOp, aio
from seglog.base.ownership import Owned, check_process, is_foreign
from seglog.inner_topic import InnerTopic
from seglog.journal.journal import Journal
from tests.children import in_child, outcome_of, quiet_fork
from tests.faults.files import UnsyncedFiles
from tests.seams.log import engine_of, lock_of, section_end
from tests.trees import tree

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

SETTINGS = LogSettings(wal_file_bytes=1024 * 1024, segment_max_events=10)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with seglog.open(tmp_path / "data", settings=SETTINGS) as log:
        log.topic("t").append([b"%d" % number for number in range(1, 26)])
        log.topic("t").seal()
        log.topic("t").append([b"26", b"27"])
        yield log


def values(directory: Path, topic: str = "t") -> list[bytes]:
    with seglog.open(directory, settings=SETTINGS) as log:
        return [record.value for record in log.topic(topic).read()]


class _NoTier:
    def read(self, topic: str, first: int, last: int) -> Iterator[Record]:
        raise NotImplementedError


def calls_on(log: Log) -> dict[str, Callable[[], Any]]:
    """Return every public call of a log and a topic by name."""
    topic = log.topic("t")
    calls: dict[str, Callable[[], Any]] = {
        "append": lambda: topic.append([b"x"]),
        "append nothing": lambda: topic.append([]),
        "append with a producer": lambda: topic.append([b"x"], producer=seglog.ProducerBatch("p", 0, 0)),
        "append under a key": lambda: topic.append([b"x"], key="k"),
        "append_stream": lambda: topic.append_stream([b"x"]),
        "append_once": lambda: topic.append_once([b"x"], producer=seglog.ProducerBatch("p", 0, 0)),
        "append at a head": lambda: topic.append([b"x"], if_head=27),
        "known_producer": lambda: topic.inner.known_producer("p"),
        "bounds": topic.bounds,
        "incarnation": topic.incarnation,
        "known_incarnation": topic.inner.known_incarnation,
        "append ephemeral": lambda: topic.append([b"x"], durability="ephemeral"),
        "delete": lambda: topic.delete(before=2),
        "undo": topic.undo,
        "evict": lambda: topic.evict(2),
        "truncate": lambda: topic.truncate(3),
        "seal": topic.seal,
        "release": lambda: topic.inner.release(3),
        "settle_deletes": lambda: topic.inner.settle_deletes(1),
        "undelete": lambda: topic.inner.undelete(seglog.SeqSet.of([(1, 1)])),
        "has_bytes": lambda: topic.inner.has_bytes(seglog.SeqSet.of([(1, 1)])),
        "settle_truncation": lambda: topic.inner.settle_truncation(TruncateOp(3, 1, 1)),
        "delete_ops": topic.inner.delete_ops,
        "truncate_ops": topic.inner.truncate_ops,
        "topic retention": topic.enforce_retention,
        "read": topic.read,
        "read_batches": topic.read_batches,
        "read_arrays": topic.read_arrays,
        "read_arrow": topic.read_arrow,
        "frames": lambda: topic.inner.frames(1, 2),
        "frame_batches": lambda: topic.inner.frame_batches(1, 2),
        "sealed_files": lambda: topic.inner.sealed_files(1, 2),
        "follow": topic.follow,
        "follower": topic.inner.follower,
        "seq_at": lambda: topic.seq_at(0),
        "changed_since": lambda: topic.inner.changed_since(0),
        "knows_since": lambda: topic.inner.knows_since(0),
        "sealed_version": lambda: topic.inner.sealed_version(1),
        "segments": topic.inner.segments,
        "ephemeral_seqs": lambda: topic.inner.ephemeral_seqs(1, 2),
        "sync": topic.inner.sync,
        "topic": lambda: log.topic("t"),
        "get_topic": lambda: log.get_topic("t"),
        "create_topic": lambda: log.create_topic("new"),
        "configure": lambda: log.configure("t", TopicConfig()),
        "reconfigure": lambda: log.reconfigure("t", lambda config: config),
        "delete_topic": lambda: log.delete_topic("t"),
        "has_topic": lambda: log.has_topic("t"),
        "topics": log.topics,
        "checkpoint": log.checkpoint,
        "log retention": log.enforce_retention,
        "log seal": lambda: log.seal(["t"]),
        "versions": log.versions,
        "reclaim": log.reclaim,
        "upgrade": log.upgrade,
        "remove": log.remove,
        "detach_cold": log.detach_cold,
        "attach_cold": lambda: log.attach_cold(_NoTier()),
        "mark_elsewhere": lambda: log.mark_elsewhere("t", None),
        "known_appends": lambda: log.known_appends("t"),
        "hold_appends": lambda: log.hold_appends("x"),
        "make_room": log.make_room,
        "append_upkeep": lambda: log.append_upkeep("t", b"x"),
        "disk_reject_bytes =": lambda: setattr(log, "disk_reject_bytes", 0),
        "check_writable": log.check_writable,
        "topic_defaults =": lambda: setattr(log, "topic_defaults", TopicConfig()),
    }
    for name in (
        "path",
        "is_read_only",
        "settings",
        "topic_defaults",
        "is_poisoned",
        "wal_bytes",
        "elsewhere",
        "disk_reject_bytes",
    ):
        calls[name] = lambda name=name: getattr(log, name)  # type: ignore[misc]
    for name in ("exists", "config", "first_seq", "head_seq", "earliest_seq", "epoch", "last_ts_ms"):
        calls[name] = lambda name=name: getattr(topic, name)  # type: ignore[misc]
    for name, member in vars(InnerTopic).items():
        if isinstance(member, property):
            calls[name] = lambda name=name: getattr(topic.inner, name)  # type: ignore[misc]
    return calls


# ---------------------------------------------------------------- every call is refused


def test_each_call_in_a_child_raises_and_the_parent_goes_on(tmp_path: Path, log: Log) -> None:
    calls = calls_on(log)
    outcomes = in_child(lambda: {name: outcome_of(call) for name, call in calls.items()})
    assert outcomes == dict.fromkeys(calls, "OpenedByParent")
    assert log.topic("t").append([b"28"]) == range(28, 29)
    log.close()
    assert values(tmp_path / "data") == [b"%d" % number for number in range(1, 29)]


def test_no_public_call_is_missing_here(log: Log) -> None:
    """The classes Log, Topic and InnerTopic list the public calls."""
    named = {name.split()[-1] for name in calls_on(log)} | {"enforce_retention", "topic_defaults", "disk_reject_bytes"}
    kinds = (Log, *seglog.Topic.__mro__[:-1], InnerTopic)
    there = {name for kind in kinds for name in vars(kind) if not name.startswith("_")}
    # A child may call `close`. `name` is an attribute of the topic object, and so is `inner`.
    assert there - named == {"close", "form", "inner", "name"}


def test_the_error_says_what_to_do(log: Log) -> None:
    def hint() -> tuple[str, str | None, int]:
        try:
            log.topics()
        except OpenedByParent as error:
            return str(error), error.hint, error.parent
        raise AssertionError

    message, advice, parent = in_child(hint)
    assert parent == os.getpid()
    assert f"process {os.getpid()} opened it" in message
    assert advice is not None
    assert "open it in this process" in advice
    assert "daemon" in advice
    assert "spawn" in advice


def test_readers_on_their_way_end_at_their_next_record(log: Log) -> None:
    topic = log.topic("t")
    readers: dict[str, Iterator[Any]] = {
        "read": topic.read(),
        "with gaps": topic.read(gaps=True),
        "from the WAL": topic.read(26),
        "batches": topic.read_batches(),
        "arrays": topic.read_arrays(),
        "Arrow": topic.read_arrow(),
        "frame batches": topic.inner.frame_batches(1, 27),
        "follow": topic.follow(),
    }
    for reader in readers.values():
        next(reader)
    outcomes = in_child(lambda: {name: outcome_of(lambda reader=reader: reader) for name, reader in readers.items()})  # type: ignore[misc]
    assert outcomes == dict.fromkeys(readers, "OpenedByParent")
    assert [record.seq for record in readers["read"]] == list(range(2, 28))
    assert [record.seq for record in readers["from the WAL"]] == [27]


def test_a_log_that_is_open_for_reading_only_is_the_parents_too(tmp_path: Path, log: Log) -> None:
    with seglog.open(log.path, read_only=True) as view:
        reader = view.topic("t").read()
        next(reader)
        assert in_child(lambda: [outcome_of(view.topics), outcome_of(lambda: reader)]) == ["OpenedByParent"] * 2
        assert len(list(reader)) == 26


# ---------------------------------------------------------------- close in the child


def test_a_child_that_leaves_the_with_block_changes_nothing(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data", settings=SETTINGS) as log:
        log.topic("t").append([b"1"])
        pid = quiet_fork()
        if not pid:
            # A child that leaves the block runs `__exit__`, then `close`, and deletes the object.
            log.__exit__(None, None, None)
            log.close()
            del log
            os._exit(0)
        assert os.waitpid(pid, 0) == (pid, 0)
        sizes = {path.stat().st_size for path in (tmp_path / "data").rglob("*")}
        assert SETTINGS.wal_file_bytes in sizes
        log.topic("t").append([b"2"])
    assert values(tmp_path / "data") == [b"1", b"2"]


def test_a_child_writes_nothing(tmp_path: Path, log: Log) -> None:
    root, before = log.path, tree(log.path)

    def everything() -> bool:
        for name, call in calls.items():
            assert outcome_of(call) == "OpenedByParent", name
        log.close()
        return True

    calls = calls_on(log)
    assert in_child(everything)
    assert tree(root) == before


CHILD_THAT_EXITS = """
import atexit, os, sys, seglog
from seglog.journal.journal import Journal
log = seglog.open(sys.argv[1])
journal = Journal(sys.argv[1] + "-journal")
log.topic("t").append([b"1"])
journal.append(1, b"1")
atexit.register(log.close)
atexit.register(journal.close)
held = log.topic("t").read()
next(held, None)
pid = os.fork()
if not pid:
    sys.exit(7)  # with finalizers and all that is registered for the end
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert log.topic("t").append([b"2"]) == range(2, 3)
journal.append(1, b"2")
journal.sync(1)
os._exit(0)
"""


def test_a_child_that_ends_with_all_its_finalizers_changes_nothing(disk_path: Path) -> None:
    """The parent is killed after the child exits. The acked records survive."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", CHILD_THAT_EXITS, str(disk_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert values(disk_path / "data") == [b"1", b"2"]
    with Journal(disk_path / "data-journal") as journal:
        assert [item.data for item in journal.replay()] == [b"1", b"2"]


def test_the_lock_is_the_parents_and_ends_with_it(tmp_path: Path) -> None:
    log = seglog.open(tmp_path / "data")
    journal = Journal(tmp_path / "j")
    ours, childs = socket.socketpair()
    pid = quiet_fork()
    if not pid:
        childs.send(b"x")  # the child runs, and has closed its copies of the descriptors
        childs.recv(1)
        os._exit(0)
    try:
        assert ours.recv(1) == b"x"
        with pytest.raises(DirectoryInUse):
            seglog.open(tmp_path / "data")
        with pytest.raises(DirectoryInUse):
            Journal(tmp_path / "j")
        log.close()
        journal.close()
        # The child still runs.
        seglog.open(tmp_path / "data").close()
        Journal(tmp_path / "j").close()
    finally:
        ours.send(b"x")
        os.waitpid(pid, 0)
        ours.close()
        childs.close()


def test_a_child_has_no_descriptor_of_the_directory(tmp_path: Path, log: Log) -> None:
    list(log.topic("t").read())
    root = str(log.path)

    def links() -> list[str]:
        found = []
        for path in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.append(str(path.readlink()))
        return [link for link in found if link.startswith(root)]

    assert links()
    assert in_child(links) == []


def test_a_child_opens_the_log_itself_once_the_parent_has_closed_it(tmp_path: Path, log: Log) -> None:
    path = log.path
    reading, writing = os.pipe()

    def append() -> list[int]:
        assert os.read(reading, 1) == b"x"
        with seglog.open(path, settings=SETTINGS) as own:
            own.topic("t").append([b"of the child"])
            return [record.seq for record in own.topic("t").read()]

    closing = threading.Timer(0.3, lambda: (log.close(), os.write(writing, b"x")))
    closing.start()
    try:
        assert in_child(append) == list(range(1, 29))
    finally:
        closing.join()
        os.close(reading)
        os.close(writing)


def test_a_childs_own_log_is_the_grandchilds_parents(tmp_path: Path) -> None:
    def with_child() -> Any:
        with seglog.open(tmp_path / "data") as log:
            log.topic("t").append([b"x"])
            return in_child(lambda: outcome_of(log.topics)), log.topics()

    assert in_child(with_child) == ("OpenedByParent", ["t"])


# ---------------------------------------------------------------- locks and threads of the parent


def test_a_child_waits_for_no_lock_that_a_thread_of_the_parent_holds(log: Log) -> None:
    engine = engine_of(log)
    calls = calls_on(log)

    def everything() -> dict[str, str]:
        outcomes = {name: outcome_of(call) for name, call in calls.items()}
        log.close()
        return outcomes

    with engine.retention_lock, engine.checkpoint_lock, engine.committer.lock:
        outcomes = in_child(everything)
    assert outcomes == dict.fromkeys(calls, "OpenedByParent")


@pytest.mark.long
def test_a_child_of_a_parent_that_appends_from_several_threads(tmp_path: Path) -> None:
    """Fork at any moment. The children try to append, to close, and to exit with finalizers."""
    acked: dict[int, list[bytes]] = {number: [] for number in range(4)}
    stop = threading.Event()
    failures: list[BaseException] = []
    settings = LogSettings(wal_file_bytes=256 * 1024, segment_max_events=500)
    with seglog.open(tmp_path / "data", settings=settings, files=UnsyncedFiles()) as log:

        def appends(number: int) -> None:
            try:
                count = 0
                while not stop.is_set():
                    value = b"%d %d %s" % (number, count, b"x" * 300)
                    log.topic(f"t{number}").append([value], durability=("fsync", "memory")[count % 2])
                    acked[number].append(value)
                    count += 1
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=appends, args=(number,)) for number in acked]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 60
        while not all(acked.values()) and time.monotonic() < deadline:
            time.sleep(0.01)

        def misuse() -> list[str]:
            outcomes = [outcome_of(lambda: log.topic("t0").append([b"of a child"])), outcome_of(log.checkpoint)]
            log.close()
            return outcomes

        for _ in range(15):
            assert in_child(misuse) == ["OpenedByParent"] * 2
        stop.set()
        for thread in threads:
            thread.join()
        assert not failures
        assert not log.is_poisoned
    with seglog.open(tmp_path / "data", settings=settings) as log:
        for number, expected in acked.items():
            assert [record.value for record in log.topic(f"t{number}").read()] == expected
    assert not seglog.verify(tmp_path / "data").damages


def test_a_child_that_was_forked_within_an_append_writes_nothing(tmp_path: Path) -> None:
    """A signal handler may fork anywhere. If it forks within an append, the child returns into that append."""
    pids: list[int] = []

    class ForksInTheWrite(UnsyncedFiles):
        is_armed = False

        def pwritev(self, fd: int, pieces: Any, offset: int) -> None:
            if self.is_armed:
                self.is_armed = False
                pids.append(quiet_fork())
                if not pids[-1]:
                    signal.alarm(60)
                    return  # only the parent writes
            super().pwritev(fd, pieces, offset)

    files = ForksInTheWrite()
    with seglog.open(tmp_path / "data", files=files) as log:
        log.topic("t").append([b"1"])
        files.is_armed = True
        outcome = outcome_of(lambda: log.topic("t").append([b"2"]))
        if not pids[-1]:
            os._exit(0 if outcome == "OpenedByParent" else 1)
        assert os.waitpid(pids[-1], 0) == (pids[-1], 0)
        assert outcome == "nothing"
        log.topic("t").append([b"3"])
    assert values(tmp_path / "data") == [b"1", b"2", b"3"]


# ---------------------------------------------------------------- multiprocessing and concurrent.futures

_shared: Log | None = None


def _append_in_worker(number: int) -> str:
    assert _shared is not None
    return outcome_of(lambda: _shared.topic("t").append([b"of worker %d" % number]))


@pytest.fixture
def shared(log: Log) -> Iterator[Log]:
    global _shared
    _shared = log
    yield log
    _shared = None


def test_workers_of_multiprocessing_that_are_forked(tmp_path: Path, shared: Log) -> None:
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        assert pool.map(_append_in_worker, range(4)) == ["OpenedByParent"] * 4
    process = context.Process(target=shared.close)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert shared.topic("t").append([b"28"]) == range(28, 29)


def test_workers_of_an_executor_that_are_forked(tmp_path: Path, shared: Log) -> None:
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        assert list(pool.map(_append_in_worker, range(4))) == ["OpenedByParent"] * 4
    assert shared.topic("t").append([b"28"]) == range(28, 29)


# ---------------------------------------------------------------- the journal


def test_a_journal_belongs_to_its_process_too(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        for section in (1, 2, 3):
            for number in range(3000):
                journal.append(section, b"%d" % number)
        journal.sync(1)
        replays = {count: journal.replay(concurrency=count) for count in (1, 4)}
        for replay in replays.values():
            next(replay)
        calls: dict[str, Callable[[], Any]] = {
            "append": lambda: journal.append(1, b"x"),
            "get": lambda: journal.get(1, 0),
            "sync": lambda: journal.sync(1),
            "prune": lambda: journal.prune(2),
            "replay": journal.replay,
            "sections": lambda: journal.sections,
            "path": lambda: journal.path,
            "replay under way": lambda: replays[1],
            "several under way": lambda: replays[4],
        }

        def everything() -> dict[str, str]:
            outcomes = {name: outcome_of(call) for name, call in calls.items()}
            journal.close()
            return outcomes

        with lock_of(journal):
            assert in_child(everything) == dict.fromkeys(calls, "OpenedByParent")
        assert len(list(replays[4])) == 8999
        assert journal.append(1, b"x") == section_end(journal, 1) // 16 - 1
    with Journal(tmp_path / "j") as journal:
        assert len(list(journal.replay())) == 9001


# ---------------------------------------------------------------- asyncio


def test_asyncio_objects_belong_to_their_process_too(tmp_path: Path) -> None:
    def step(coroutine: Any) -> str:
        """Run the first step of the coroutine and return its outcome. No event loop runs in the child."""
        try:
            coroutine.send(None)
        except Exception as error:
            return type(error).__name__
        return "it waits"

    async def whole() -> None:
        async with aio.open(tmp_path / "data") as log:
            topic = log.topic("t")
            await topic.append([b"%d" % number for number in range(3000)])
            under_way = {"read": topic.read(), "with gaps": topic.read(gaps=True), "follow": topic.follow()}
            for reader in under_way.values():
                await anext(reader)
            calls: dict[str, Callable[[], Any]] = {
                "append": lambda: topic.append([b"x"]),
                "read": lambda: anext(topic.read()),
                "read with gaps": lambda: anext(topic.read(gaps=True)),
                "follow": lambda: anext(topic.follow()),
                "delete": lambda: topic.delete(before=2),
                "undo": topic.undo,
                "evict": lambda: topic.evict(2),
                "truncate": lambda: topic.truncate(2),
                "seq_at": lambda: topic.seq_at(1),
                "seal": topic.seal,
                "incarnation": topic.incarnation,
                "topic retention": topic.enforce_retention,
                "create_topic": lambda: log.create_topic("new"),
                "configure": lambda: log.configure("t", TopicConfig()),
                "delete_topic": lambda: log.delete_topic("t"),
                "checkpoint": log.checkpoint,
                "log retention": log.enforce_retention,
                "reclaim": log.reclaim,
                "upgrade": log.upgrade,
                "remove": log.remove,
            }
            calls["topics"] = log.topics
            plain = {"topic": lambda: log.topic("t"), "get_topic": lambda: log.get_topic("t")}

            def everything() -> dict[str, str]:
                outcomes = {name: step(call()) for name, call in calls.items()}
                outcomes |= {name: outcome_of(call) for name, call in plain.items()}  # type: ignore[arg-type]
                for name, reader in under_way.items():
                    # The reader first yields the records of its batch that are in memory.
                    while (outcome := step(anext(reader))) == "StopIteration":
                        pass
                    outcomes[f"{name} under way"] = outcome
                assert step(log.close()) == "StopIteration"
                assert step(log.__aexit__(None, None, None)) == "StopIteration"
                return outcomes

            outcomes = in_child(everything)
            assert set(outcomes.values()) == {"OpenedByParent"}, outcomes
            assert await topic.append([b"last"]) == range(3001, 3002)

    asyncio.run(whole())
    assert len(values(tmp_path / "data")) == 3001


# ---------------------------------------------------------------- the mechanism


class Half(Owned):
    """An object whose `__init__` has not finished when the process forks."""

    def _leave_to_parent(self) -> None:
        os.close(self.fd)  # type: ignore[attr-defined]


class Slotted(Owned):
    __slots__ = ("given", "missing")

    def __init__(self) -> None:
        self.given = 1


def test_an_object_that_is_half_made_is_no_trouble() -> None:
    half, slotted = Half(), Slotted()
    assert not is_foreign(half)
    assert outcome_of(lambda: slotted.missing) == "AttributeError"

    def look() -> list[Any]:
        return [is_foreign(half), outcome_of(lambda: slotted.given), outcome_of(lambda: check_process(slotted))]

    assert in_child(look) == [True, "OpenedByParent", "OpenedByParent"]
    assert slotted.given == 1
