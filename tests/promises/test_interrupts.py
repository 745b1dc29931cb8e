"""An interrupt (Ctrl-C, a signal whose handler raises) stops the call that it hits, and no other thread.

every point   An interrupt hits a change of a topic at each point where the interpreter looks for signals, while the
              change leads a group. Then another thread appends. Every acked record is there, before and after a reopen.
failed sync   The sync of the group fails too. No thread syncs again, and the writer is poisoned.
close         It waits for the threads that write, and raises the interrupt only then.
a process     Several threads append. The main thread appends too, and gets SIGINT over and over.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType as StackFrame

import pytest

import seglog
from seglog import Log, LogSettings, ProducerBatch, WriterPoisoned
from seglog.files.file_system import OsFiles
from tests.faults.disk import SimulatedDisk
from tests.faults.interrupts import interrupted, points
from tests.faults.stride import every
from tests.seams.log import engine_of, keys_of, producers_of
from tests.work import tell

DIRECTORY = Path("/log")
SETTINGS = LogSettings(segment_max_events=5, wal_file_bytes=4096)
# The last one is this module, because of `_Disk`.
MODULES = (
    "seglog.wal.group_commit",
    "seglog.engine.entries",
    "seglog.engine.state",
    "seglog.engine.tail",
    "seglog.wal.wal",
    "seglog.writing.append",
    "seglog.writing.changes",
    __name__,
)
# Another thread makes checkpoints, as usual.
CHANGES: dict[str, Callable[[Log], object]] = {
    "append": lambda log: log.topic("t").append([b"x", b"y"]),
    "append of many": lambda log: log.topic("t").append([b"x"] * 50),
    "append that rotates": lambda log: log.topic("t").append([b"x" * 3000]),
    "append that rotates to a file made ready": lambda log: log.topic("t").append([b"x" * 3000]),
    "first append": lambda log: log.topic("new").append([b"x"]),
    "delete": lambda log: log.topic("t").delete(before=2),
    "create": lambda log: log.create_topic("new"),
    "delete topic": lambda log: log.delete_topic("t"),
    "flush": lambda log: engine_of(log).committer.flush(),
}


class _Disk(SimulatedDisk):
    """An interrupt hits work on files where it would hit `OsFiles`: the work is done, but the call does not return."""

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        return super().open(path, flags, mode)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        super().pwrite(fd, data, offset)

    def pwritev(self, fd: int, pieces: Sequence[bytes], offset: int) -> None:
        super().pwritev(fd, pieces, offset)

    def allocate(self, fd: int, length: int) -> None:
        super().allocate(fd, length)

    def truncate(self, fd: int, length: int) -> None:
        super().truncate(fd, length)

    def datasync(self, fd: int) -> None:
        super().datasync(fd)

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        super().unlink(path)

    def sync_dir(self, path: Path) -> None:
        super().sync_dir(path)


class _FailingDisk(_Disk):
    """A disk whose next sync fails once `is_failing` is set. `later` counts the syncs after that."""

    is_failing = has_failed = False
    later = 0

    def datasync(self, fd: int) -> None:
        self.later += self.has_failed
        if self.is_failing and not self.has_failed:
            error = OSError(errno.EIO, "no")
            self.has_failed = True  # and no call from here on, so that an interrupt hits before the failure or after it
            raise error
        super().datasync(fd)


class _BusyDisk(SimulatedDisk):
    """A disk on which another append waits behind the first sync after `log` is set."""

    log: Log | None = None
    behind: threading.Thread | None = None

    def datasync(self, fd: int) -> None:
        if self.log is not None and self.behind is None:
            topic, state = self.log.topic("t"), engine_of(self.log).state("t")
            before = state.assigned_seq
            self.behind = threading.Thread(target=topic.append, args=([b"behind"],), daemon=True)
            self.behind.start()
            while state.assigned_seq == before:
                time.sleep(0.0005)
        super().datasync(fd)


def _open(disk: SimulatedDisk) -> Log:
    return seglog.open(DIRECTORY, files=disk, settings=SETTINGS)


def _begin(what: str, disk: SimulatedDisk | None = None) -> Log:
    log = _open(disk or _Disk())
    log.topic("t").append([b"a" * 1000])
    if what.endswith("made ready"):
        with engine_of(log).checkpoint_lock:
            engine_of(log).wals.each[0].prepare_next()
    return log


def _others_go_on(log: Log) -> None:
    done: list[range] = []
    thread = threading.Thread(target=lambda: done.append(log.topic("t").append([b"after"])), daemon=True)
    thread.start()
    thread.join(60)
    assert done, "another thread waits for ever, or was refused"


@pytest.mark.parametrize("what", CHANGES)
def test_an_interrupt_at_any_point_stops_nobody_else(what: str) -> None:
    change = CHANGES[what]
    with _begin(what) as log:
        count = points(lambda: change(log), MODULES)
    assert count > 20
    for at in range(1, count + 1):
        log = _begin(what)
        assert interrupted(lambda log=log: change(log), MODULES, at), at  # type: ignore[misc]
        try:
            _others_go_on(log)
            assert not log.is_poisoned
            records = {name: list(log.topic(name).read()) for name in log.topics()}
            for name in log.topics():
                seqs = [record.seq for record in records[name]]
                assert seqs == list(range(seqs[0], log.topic(name).head_seq + 1)) if seqs else True
                assert engine_of(log).state(name).in_flight_bytes == 0
            log.close()
            with _open(engine_of(log).files) as again:
                assert {name: list(again.topic(name).read()) for name in again.topics()} == records
        except BaseException as problem:
            problem.add_note(f"interrupted at point {at} of {count}")
            raise


@pytest.mark.parametrize("under_keys", [False, True], ids=["producer", "keys"])
@every(9, part=2)
def test_an_interrupt_at_any_point_leaves_a_batch_once(under_keys: bool, every: int) -> None:
    """The caller repeats the batch that it was interrupted in. Another thread appends, and the log is opened again."""
    modules = (*MODULES, "seglog.writing.conditions")
    modules += ("seglog.engine.known_appends", "seglog.values.producer", "seglog.values.append_key")

    def send(log: Log, number: int) -> range:
        values = [b"%d" % number] * 2
        if under_keys:
            return log.topic("t").append(values, key=f"{number}")
        return log.topic("t").append(values, producer=ProducerBatch("p", 0, number))

    def known_seqs(log: Log) -> list[range]:
        if under_keys:
            return [known.seqs for _, known in keys_of(log, "t")]
        return [batch.seqs for _, known in producers_of(log, "t") for batch in known.batches]

    def begin() -> Log:
        log = _begin("append")
        send(log, 0)
        return log

    with begin() as log:
        count = points(lambda: send(log, 1), modules)
    assert count > 50
    for at in range(1, count + 1, every):
        log = begin()
        assert interrupted(lambda log=log: send(log, 1), modules, at), at  # type: ignore[misc]
        _others_go_on(log)
        seqs = [send(log, number) for number in (0, 1, 2, 1)]
        assert seqs[1] == seqs[3]
        assert known_seqs(log) == seqs[:3], at
        log.close()
        with _open(engine_of(log).files) as again:
            values = [record.value for record in again.topic("t").read()]
            assert [values.count(b"%d" % number) for number in range(3)] == [2, 2, 2], at
            assert known_seqs(again) == seqs[:3], at


def test_an_interrupt_at_any_point_wakes_the_append_behind() -> None:
    waited = 0
    for at in range(1, 1000):
        disk = _BusyDisk()
        log = _begin("append", disk)
        disk.log = log
        was_hit = interrupted(lambda log=log: log.topic("t").append([b"x"]), MODULES[:-1], at)  # type: ignore[misc]
        if disk.behind is not None:
            disk.behind.join(20)
            assert not disk.behind.is_alive(), f"another thread waits for ever, after an interrupt at point {at}"
            waited += was_hit
        disk.log = None
        log.close()
        if not was_hit:
            break
    assert waited > 20


@pytest.mark.parametrize("what", ["append", "append that rotates", "create", "flush"])
def test_an_interrupt_at_any_point_hides_no_failed_sync(what: str) -> None:
    def change(log: Log) -> None:
        log.topic("t").append([b"not synced"], durability="memory")
        with contextlib.suppress(WriterPoisoned):
            CHANGES[what](log)

    failures = 0
    for at in range(1, 1000):
        disk = _FailingDisk()
        with _begin(what, disk) as log:
            disk.is_failing = True
            was_hit = interrupted(lambda log=log: change(log), MODULES, at)  # type: ignore[misc]
            disk.is_failing = False
            assert log.is_poisoned == disk.has_failed, at
            if disk.has_failed:
                with pytest.raises(WriterPoisoned):
                    _other(log)
            else:
                _other(log)
            assert disk.later == 0, at
            failures += was_hit and disk.has_failed
        if not was_hit:
            break
    assert failures > 20


class _SlowFiles(OsFiles):
    """A file port whose syncs wait for the gate."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()

    def datasync(self, fd: int) -> None:
        self.waiting.set()
        assert self.gate.wait(60)
        super().datasync(fd)


@pytest.mark.parametrize("what", ["append", "checkpoint"])
def test_an_interrupted_close_waits_for_the_threads_that_write(tmp_path: Path, what: str) -> None:
    files = _SlowFiles()
    log = seglog.open(tmp_path / "data", files=files, settings=SETTINGS)
    log.topic("t").append([b"1"] * 9)
    engine_of(log).wants_checkpoint = True
    work = engine_of(log).upkeep.wake if what == "checkpoint" else lambda: log.topic("t").append([b"2"])
    files.gate.clear()
    files.waiting.clear()
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert files.waiting.wait(60)
    before = signal.signal(signal.SIGALRM, _interrupt)
    threading.Timer(0.5, files.gate.set).start()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        with pytest.raises(KeyboardInterrupt):
            log.close()
        assert files.gate.is_set(), "the close did not wait"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        files.gate.set()
    thread.join(60)


def _interrupt(_number: int, _frame: StackFrame | None) -> None:
    raise KeyboardInterrupt


def _other(log: Log) -> None:
    """Append in another thread, and raise its error here."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(log.topic("t").append, [b"after"]).result(60)


CHILD = """
import os, signal, sys, threading
import seglog
from seglog import LogSettings

is_armed = False

def interrupt(number, frame):
    global is_armed
    if is_armed:
        is_armed = False
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, interrupt)
log = seglog.open(sys.argv[1], settings=LogSettings(wal_file_bytes=64 * 1024, segment_max_events=200))

def write(name):
    global is_armed
    while not stop.is_set():
        seqs = log.topic("t").append([name + b" %d" % counts[name]])
        counts[name] += 1
        os.write(1, b"acked %d %s %d\\n" % (seqs[0], name, counts[name] - 1))
        if name == b"main":
            is_armed = True  # Python drops an interrupt that comes within a finalizer

stop = threading.Event()
counts = {b"main": 0, b"one": 0, b"two": 0}
threads = [threading.Thread(target=write, args=(name,), daemon=True) for name in (b"one", b"two")]
for thread in threads:
    thread.start()
interrupts = 0
while interrupts < int(sys.argv[2]):
    try:
        is_armed = True
        write(b"main")
    except KeyboardInterrupt:
        interrupts += 1
        counts[b"main"] += 1
before = dict(counts)
while any(counts[name] == before[name] for name in (b"one", b"two")):
    log.topic("t").append([b"end"])
stop.set()
for thread in threads:
    thread.join()
log.close()
os.write(1, b"ended\\n")
"""


@pytest.mark.long
def test_a_process_that_is_interrupted_over_and_over_loses_and_stops_nothing(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    interrupts = 150
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path / "data"), str(interrupts)],
        stdout=subprocess.PIPE,
        cwd=root,
        env=os.environ | {"PYTHONPATH": root},
    ) as child:
        try:
            assert child.stdout is not None
            output: list[bytes] = []
            reader = threading.Thread(target=lambda: output.append(child.stdout.read()))  # type: ignore[union-attr]
            first = child.stdout.readline()
            reader.start()
            sent = 0
            while sent < interrupts and child.poll() is None:
                child.send_signal(signal.SIGINT)
                sent += 1
                time.sleep(0.004)
            while reader.is_alive() and child.poll() is None and sent < 40 * interrupts:
                # The kernel may merge two signals into one: send the missing ones.
                reader.join(0.02)
                if reader.is_alive() and b"ended" not in b"".join(output):
                    child.send_signal(signal.SIGINT)
                    sent += 1
        finally:
            child.kill()  # else leaving the block waits for it
        reader.join()
    lines = (first + b"".join(output)).split(b"\n")[:-1]
    assert lines[-1] == b"ended"
    acked = {int(words[1]): b" ".join(words[2:]) for line in lines[:-1] if len(words := line.split()) == 4}
    with seglog.open(tmp_path / "data") as log:
        there = {record.seq: record.value for record in log.topic("t").read()}
    tell(f"{interrupts} interrupts, {len(acked)} acked, {len(there)} there")
    assert len(acked) > interrupts
    assert {seq: there.get(seq) for seq in acked} == acked
    assert len({*there}) == max(there)
