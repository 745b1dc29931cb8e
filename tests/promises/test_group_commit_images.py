"""A group of several entries is as durable as its most demanding entry, and fails as a whole.

A gate holds the leader in its write. One thread after the other queues an entry, so the group is always the same:

    1. The opener appends, leads, and waits at the gate.
    2. The members append one by one. Each entry is in the queue before the next member starts.
    3. The gate opens. The opener's group completes. The first member leads the group of all members.

The test tries all mixes of two and of three classes, and counts the syncs of each. Each effect of the life is a moment,
and the test recovers its images as in `test_crash_images.py`. One more moment follows when all entries are acked. The
default run recovers the images of some of the mixes.

Not tested: a group that its size limit cuts, members in several shards, and an interrupted member
(`test_interrupts.py`).
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest

import seglog
from seglog import DiskFull, Log, LogSettings, SeglogError, WriterPoisoned
from seglog.engine.work_thread import InCaller
from tests.faults.crash_images import DIRECTORY, Explorer, Note
from tests.faults.disk import Image, SimulatedDisk
from tests.faults.files import Effects
from tests.faults.stride import every
from tests.seams.log import known_mark_secret, queue_of
from tests.seglog.workload import Journal
from tests.waiting import wait_until
from tests.work import tell
from tests.worlds.clock import HandClock

SETTINGS = LogSettings(segment_max_events=100, wal_file_bytes=4096)
CLASSES = ("fsync", "disk", "memory", "ephemeral")
MIXES = [mix for length in (2, 3) for mix in itertools.product(CLASSES, repeat=length)]
FAILURES = [("pwritev", errno.ENOSPC), ("pwritev", errno.EIO), ("datasync", errno.EIO)]


_Act = Callable[[], object]


class Gated(Effects):
    """Holds writes of groups at the gate, and counts calls.

    `failing` is a method, the number of its call, and the error.
    """

    def __init__(self, disk: SimulatedDisk) -> None:
        super().__init__(disk)
        self.disk = disk
        self.gate = threading.Event()
        self.gate.set()
        self.is_waiting = threading.Event()
        self.counts: Counter[str] = Counter()
        self.failing: tuple[str, int, int] | None = None

    def pwritev(self, fd: int, pieces: Sequence[bytes], offset: int) -> None:
        self.is_waiting.set()
        assert self.gate.wait(60)
        self._call("pwritev")
        super().pwritev(fd, pieces, offset)

    def datasync(self, fd: int) -> None:
        try:
            self._call("datasync")
        except OSError:
            self.disk.lose(fd)
            raise
        super().datasync(fd)

    def _call(self, name: str) -> None:
        self.counts[name] += 1
        if self.failing is not None and self.failing[:2] == (name, self.counts[name]):
            raise OSError(self.failing[2], os.strerror(self.failing[2]))


def _in_one_group(
    log: Log, files: Gated, opener: Callable[[], object], members: Sequence[Callable[[], object]]
) -> None:
    files.counts.clear()
    files.gate.clear()
    files.is_waiting.clear()
    threads = [threading.Thread(target=act, daemon=True) for act in (opener, *members)]
    try:
        threads[0].start()
        assert files.is_waiting.wait(60)
        for number, thread in enumerate(threads[1:], 1):
            thread.start()
            wait_until(lambda number=number: len(queue_of(log)) == number)  # type: ignore[misc]
    finally:
        files.gate.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def _life(mix: Sequence[str]) -> tuple[list[Note], int]:
    """Return the moments of a life, and the number of syncs of the group."""
    journal, notes = Journal(keepers=frozenset()), list[Note]()
    disk = SimulatedDisk(
        Image({str(DIRECTORY.parent): None}),
        lambda disk: notes.append(Note(disk.moment(), journal.bounds(), journal)),
    )
    files = Gated(disk)
    log = seglog.open(DIRECTORY, files=files, settings=SETTINGS, clock=HandClock(1_000), upkeep=InCaller)
    journal.append(log, "a", 1)
    members = [lambda durability=durability: journal.append(log, "a", 2, durability=durability) for durability in mix]
    _in_one_group(log, files, lambda: journal.append(log, "a", 1, durability="memory"), members)
    syncs = files.counts["datasync"]
    notes.append(Note(disk.moment(), journal.bounds(), journal))
    log.close()
    return notes, syncs


@pytest.mark.long
@every(56, part=1)
def test_a_group_is_synced_once_if_any_of_its_entries_asks_for_it(every: int) -> None:
    """Count the syncs of every mix.

    By default, recover the images of one in seven mixes of two classes, and of one in 56 of three classes.
    """
    explorer, synced = Explorer(random.Random(21), SETTINGS), 0
    for number, mix in enumerate(MIXES):
        notes, syncs = _life(mix)
        assert syncs == ("fsync" in mix), mix
        synced += syncs
        step = -(-every // 8) if len(mix) == 2 else every
        if (number + number // 4) % step == 0:
            explorer.explore(notes, 4)
    tell(f"{len(MIXES)} groups, {synced} of them synced once, {explorer.figures()}")
    for kind, what in explorer.faults.items():
        assert not what, f"{kind}: {what[:3]}"


@pytest.mark.parametrize("who", ["opener", "group"])
@pytest.mark.parametrize(("method", "number"), FAILURES)
def test_a_leader_that_fails_acks_nothing_and_each_waiter_gets_an_error_of_its_own(
    method: str, number: int, who: str
) -> None:
    disk = SimulatedDisk(Image({str(DIRECTORY.parent): None}))
    files, refusals = Gated(disk), list[SeglogError]()
    log = seglog.open(DIRECTORY, files=files, settings=SETTINGS, clock=HandClock(1_000), upkeep=InCaller)
    topic = log.create_topic("a")
    acked = [b"first"]
    topic.append(acked)

    def append(value: bytes, durability: str) -> None:
        try:
            topic.append([value], durability=durability)
            acked.append(value)
        except SeglogError as error:
            refusals.append(error)

    members = [lambda name=name: append(name.encode(), name) for name in ("disk", "fsync", "memory", "fsync")]
    files.failing = (method, 1 if who == "opener" else 2, number)
    _in_one_group(log, files, lambda: append(b"opener", "fsync"), members)
    is_full = number == errno.ENOSPC
    assert {type(error) for error in refusals} == {DiskFull if is_full else WriterPoisoned}
    assert len({id(error) for error in refusals}) == len(refusals) == (5 if who == "opener" else 4)
    assert [record.value for record in topic.read()] == acked
    if is_full:
        topic.append([b"next"])
        acked.append(b"next")
    else:
        with pytest.raises(WriterPoisoned):
            topic.append([b"refused"])
    images = [disk.after_kill(), disk.after_power_cut()]
    log.close()
    for image in images:
        with seglog.open(DIRECTORY, files=SimulatedDisk(image), settings=SETTINGS, clock=HandClock(1_000)) as again:
            found = [record.value for record in again.topic("a").read()]
            assert found[: len(acked)] == acked
            assert not is_full or found == acked


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level("CRITICAL", "seglog")
    with known_mark_secret(0x5EC4E7):  # it is in each image
        yield
