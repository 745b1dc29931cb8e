"""Any call of the file system may fail, once or for good. The log acks only what is durable, and loses nothing acked.

A life of a log runs on a simulated disk, whose call N fails. The soak fails each call of a life that has no failure.
The default run fails some calls of each kind. The test compares the answers to the caller with what a good disk shows
afterwards, as the system has it and after a power cut:

    no ack that is not durable      the same bounds as after a crash (tests/seglog/workload.py)
    no exception that hides         the caller gets a seglog error, the system's own error, or MemoryError; no other
    the first failed sync is final  after a failed WAL sync that lost data, the log acks no append at fsync until the
                                    next open
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

import seglog
from seglog import Log, LogSettings, SeglogError, TopicConfig, WriterPoisoned
from seglog.engine.work_thread import InCaller
from tests.faults.disk import Image, SimulatedDisk
from tests.faults.files import FailingCalls
from tests.faults.stride import spread
from tests.faults.system_errors import ERRORS
from tests.seglog.workload import SETTINGS, SHARDED, TIERED, Journal, look
from tests.work import amounts, tell
from tests.worlds.clock import HandClock

DIRECTORY = Path("/parent/log")
ALL = 100_000  # More calls than a life has.
LIMITED = ("cut", "capped", "full", "aging")


def _soaked(error: str, for_good: bool) -> ParameterSet:
    """Return an error that only the soak tries. The default run tries others in its place."""
    return pytest.param(error, for_good, marks=pytest.mark.soak(part=2))


@dataclass
class Caller:
    """Continues after every error, as an application may. `journal` records the answers that the caller got."""

    files: FailingCalls
    settings: LogSettings = SETTINGS
    later: LogSettings | None = None
    journal: Journal = field(default_factory=lambda: Journal(keepers=frozenset()))
    acks_after_failed_sync: int = 0

    def live(self) -> None:
        for settings in (self.settings, self.later or self.settings):
            with contextlib.suppress(SeglogError, OSError, MemoryError), self._open(settings) as log:
                self._use(log)

    def _open(self, settings: LogSettings) -> Log:
        log = seglog.open(DIRECTORY, files=self.files, settings=settings, clock=HandClock(1_000), upkeep=InCaller)
        log.attach_cold(self.journal.archive)
        self._lost_before = self._lost_wal_files()
        return log

    def _use(self, log: Log) -> None:
        journal = self.journal
        steps: list[Callable[[], object]] = [
            lambda: self._create_kept(log),
            *[lambda: self._append(log, "a", 3, "fsync")] * 2,
            lambda: self._append(log, "kept", 2, "disk"),
            lambda: journal.delete(log, "a", before=2),
            lambda: self._append(log, "a", 2, "memory"),
            lambda: self._append(log, "mixed", 2, "disk"),
            lambda: self._append(log, "mixed", 2, "ephemeral"),
            lambda: self._append(log, "mixed", 2, "fsync"),
            lambda: self._append(log, "mixed", 1, "ephemeral"),
            lambda: log.topic("a").seal(),
            lambda: self._append(log, "kept", 3, "fsync"),
            lambda: journal.release(log, "a", log.topic("a").inner.sealed_seq),
            lambda: journal.delete(log, "kept", tag="t"),
            lambda: log.checkpoint(),
            *[lambda: self._append(log, "a", 20, "fsync")] * 4,
        ]
        for step in steps:
            with contextlib.suppress(SeglogError, OSError, MemoryError):
                step()

    def _create_kept(self, log: Log) -> None:
        """Create the topic `kept`. If that fails, its first append creates it as a topic that keeps no history."""
        log.create_topic("kept", TopicConfig(keep_history=True))
        self.journal.keepers = frozenset({"kept"})

    def _append(self, log: Log, name: str, count: int, durability: str) -> None:
        """Append, and note the attempt in the journal.

        A refused record may be there after `WriterPoisoned`, and is never there after `DiskFull`.
        A writer that was poisoned before writes nothing, so the journal does not note the attempt.
        """
        if log.is_poisoned:
            log.topic(name).append([b"never"] * count, durability=durability)
            self.acks_after_failed_sync += 1
        known = self.journal.tried.setdefault(name, [])
        head = log.topic(name).head_seq
        values = [b"%s %d" % (name.encode(), head + 1 + index) * 3 for index in range(count)]
        if log.is_poisoned:
            # An earlier attempt at these seqs may be there or not, so it stays in the journal.
            with pytest.raises(WriterPoisoned):
                log.topic(name).append(values, durability=durability)
            return
        del known[head:]
        self.journal.ephemeral[name] = {seq for seq in self.journal.ephemeral.get(name, set()) if seq <= head}
        tag = "t" if name == "kept" else None
        self.journal.note(name, values, tag, durability)
        is_after_failed_sync = self._lost_wal_files() > self._lost_before
        log.topic(name).append(values, tag=tag, durability=durability)
        if durability == "fsync":
            self.journal.acked[name] = len(known)
            self.acks_after_failed_sync += is_after_failed_sync

    def _lost_wal_files(self) -> int:
        return sum(path.suffix == ".log" for path in self.files.lost)


@dataclass
class LimitsCaller(Caller):
    """Truncates, evicts, configures, and fills caps, while the clock moves."""

    def _use(self, log: Log) -> None:
        topics = self.journal.versions
        steps: list[Callable[[], object]] = [
            lambda: topics.create(log, "cut", TopicConfig()),
            lambda: topics.create(log, "capped", TopicConfig(cap_records=4)),
            lambda: topics.create(log, "full", TopicConfig(cap_records=5, discard="reject")),
            lambda: topics.create(log, "aging", TopicConfig(ttl_ms=1_000)),
            *[lambda name=name: topics.append(log, name, 3) for name in LIMITED],
            lambda: topics.truncate(log, "cut", log.topic("cut").head_seq),
            lambda: topics.move_clock(log, -500),
            lambda: topics.append(log, "cut", 4, "memory"),
            lambda: topics.append(log, "capped", 4, "disk"),
            lambda: topics.append(log, "full", 3),
            lambda: topics.evict(log, "full", log.topic("full").head_seq),
            lambda: topics.append(log, "full", 2),
            lambda: topics.checkpoint(log),
            lambda: topics.delete(log, "cut", log.topic("cut").head_seq),
            lambda: topics.truncate(log, "cut", max(log.topic("cut").inner.hot_floor, log.topic("cut").head_seq - 2)),
            lambda: topics.append(log, "cut", 2),
            lambda: topics.move_clock(log, 5_000),
            lambda: topics.append(log, "aging", 2),
            lambda: topics.configure(log, "capped", TopicConfig(cap_records=2)),
            lambda: topics.append(log, "capped", 3),
            lambda: topics.enforce(log),
            lambda: topics.append(log, "aging", 1),
        ]
        for step in steps:
            with contextlib.suppress(SeglogError, OSError, MemoryError):
                step()


def _opens_on_a_good_disk(image: Image, caller: Caller) -> None:
    with seglog.open(
        DIRECTORY, files=SimulatedDisk(image), settings=caller.settings, clock=HandClock(1_000), upkeep=InCaller
    ) as log:
        found, bounds = look(log), caller.journal.bounds()
        assert caller.journal.lost(found, bounds) is None
        assert caller.journal.phantom(found, bounds) is None
        assert log.topic("a").append([b"next"])[0] == log.topic("a").head_seq


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "seglog")


@pytest.mark.parametrize(("error", "amount"), [("EIO", 8), pytest.param("ENOSPC", 4, marks=pytest.mark.long)])
def test_each_call_fails_once(error: str, amount: int) -> None:
    _prove(error, for_good=False, amount=amount)


@pytest.mark.long
@pytest.mark.parametrize(
    ("error", "for_good"), [pytest.param("EINTR", False, marks=pytest.mark.long), ("MemoryError", False), ("EIO", True)]
)
def test_some_calls_fail(error: str, for_good: bool) -> None:
    _prove(error, for_good=for_good, amount=4)


@pytest.mark.long
def test_calls_fail_once_with_a_cold_store() -> None:
    _prove("EIO", for_good=False, amount=4, settings=TIERED)


@pytest.mark.long
@amounts(4, soak=ALL, part=2)
@pytest.mark.parametrize(("error", "for_good"), [("EIO", False), _soaked("ENOSPC", False), _soaked("EIO", True)])
def test_calls_fail_with_shards_whose_number_changes(error: str, for_good: bool, amount: int) -> None:
    _prove(error, for_good=for_good, amount=amount, settings=SHARDED[3], later=SHARDED[2])


@amounts(4, soak=ALL, part=2)
@pytest.mark.parametrize(("error", "for_good"), [("EIO", False), _soaked("EIO", True)])
def test_calls_fail_in_truncation_and_retention(error: str, for_good: bool, amount: int) -> None:
    _prove(error, for_good=for_good, amount=amount, kind=LimitsCaller)


@pytest.mark.soak(part=2)
@pytest.mark.parametrize("settings", [SETTINGS, TIERED])
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_each_call_fails_in_truncation_and_retention(error: str, settings: LogSettings) -> None:
    _prove(error, for_good=False, amount=ALL, settings=settings, kind=LimitsCaller)


@pytest.mark.soak(part=2)
@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("error", ERRORS)
def test_each_call_fails_with_each_error(error: str, for_good: bool) -> None:
    _prove(error, for_good=for_good, amount=ALL)


@pytest.mark.soak(part=2)
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_each_call_fails_with_a_cold_store(error: str) -> None:
    _prove(error, for_good=False, amount=ALL, settings=TIERED)


def _prove(
    error: str,
    *,
    for_good: bool,
    amount: int,
    settings: LogSettings = SETTINGS,
    later: LogSettings | None = None,
    kind: type[Caller] = Caller,
) -> None:
    def lived(at: int) -> tuple[SimulatedDisk, FailingCalls, Caller]:
        disk = SimulatedDisk(Image({"/parent": None, "/parent/cold": None}))
        files = FailingCalls(disk, at, ERRORS[error], for_good=for_good)
        caller = kind(files, settings, later)
        caller.live()
        return disk, files, caller

    disk, whole, _ = lived(0)
    relocated = [path for path in disk.after_power_cut().tree if path.startswith("/parent/cold/topics/")]
    assert bool(relocated) == bool(settings.cold_dir)
    hit: Counter[str] = Counter()
    for index in spread(whole.kinds, amount):
        disk, files, caller = lived(index + 1)
        try:
            assert files.failed == whole.kinds[index]
            assert caller.acks_after_failed_sync == 0
            for image in (disk.after_kill(), disk.after_power_cut()):
                _opens_on_a_good_disk(image, caller)
        except BaseException as problem:
            problem.add_note(f"call {index + 1}, {files.failed}, {error}")
            raise
        hit[whole.kinds[index]] += 1
    assert hit.keys() == {*whole.kinds}
    tell(
        f"{error}: {hit.total()} of {len(whole.kinds)} calls failed in turn, of {len(hit)} kinds; "
        "acks after a failed sync: 0"
    )
