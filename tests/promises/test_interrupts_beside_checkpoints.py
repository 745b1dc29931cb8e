"""A checkpoint comes between the steps of an interrupted leader, and the power fails. Records and state agree.

1  A thread changes a topic, and leads. It has written its frames, and has published a part of its entry.
2  An interrupt hits it, so it releases the lock.
3  Another thread makes a checkpoint.
4  The power fails, or the process is killed. Or the first thread completes its group, and that happens after it.

The checkpoint must not have a part of the entry: a manifest names the frames from which recovery replays, and has the
state before them (MANIFEST-1).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import seglog
from seglog import Log, LogSettings, ProducerBatch, Record, TopicConfig, TopicExists
from seglog.engine.work_thread import InCaller
from tests.faults.disk import SimulatedDisk
from tests.faults.interrupts import interrupted, points
from tests.faults.stride import every
from tests.seams.log import before_abandoning, holds_checkpoint_lock, keys_of, producers_of, queue_of
from tests.waiting import wait_until
from tests.work import tell
from tests.worlds.clock import HandClock

DIRECTORY = Path("/log")
SETTINGS = LogSettings(segment_max_events=5, wal_file_bytes=4096)
INNER = (
    "seglog.wal.group_commit",
    *(f"seglog.engine.{name}" for name in ("entries", "state", "tail", "known_appends")),
)
"""The modules whose functions publish an entry."""
TRUNCATES = ("seglog.wal.group_commit", "seglog.engine.entries")
"""The same for a truncation, without those of the checkpoint that it makes after that."""
VALUES = [b"x", b"y"]

CHANGES: dict[str, Callable[[Log], object]] = {
    "append": lambda log: log.topic("t").append(VALUES),
    "append to a new topic": lambda log: log.topic("new").append(VALUES),
    "batch": lambda log: log.topic("t").append(VALUES, producer=ProducerBatch("p", 0, 0), durability="memory"),
    "key": lambda log: log.topic("t").append(VALUES, key="k", durability="memory"),
    "ephemeral append and another": lambda log: (
        log.topic("t").append([b"gone"], durability="ephemeral"),
        log.topic("t").append(VALUES),
    ),
    "create": lambda log: log.create_topic("new", TopicConfig(cap_records=7)),
    "configure": lambda log: log.configure("t", TopicConfig(cap_records=7)),
    "delete": lambda log: log.topic("t").delete(before=2),
    "evict": lambda log: log.topic("t").evict(2),
    "truncate": lambda log: log.topic("t").truncate(3),
}


def opened(disk: SimulatedDisk) -> Log:
    return seglog.open(DIRECTORY, files=disk, settings=SETTINGS, clock=HandClock(1_000), upkeep=InCaller)


def begin() -> tuple[Log, SimulatedDisk]:
    disk = SimulatedDisk()
    log = opened(disk)
    for number in range(3):
        log.topic("t").append([b"%d" % number])
    log.topic("t").append([b"3"], durability="memory")
    return log, disk


def values_in(log: Log, name: str) -> list[bytes]:
    """The values of a topic, without those that are in memory only."""
    items = log.topic(name).read(gaps=True)
    return [item.value for item in items if isinstance(item, Record) and item.value != b"gone"]


def shown(log: Log) -> dict[str, object]:
    return {
        name: (log.topic(name).config, values_in(log, name), producers_of(log, name), keys_of(log, name))
        for name in log.topics()
    }


def agrees(log: Log, *, is_repeated: bool) -> None:
    """Check that the records of the change are there or not, and that its producer or key agrees with them."""
    for name in log.topics():
        count = sum(value in VALUES for value in values_in(log, name))
        assert count in ((0, 2) if is_repeated else (0, 2, 4))
        if is_repeated:
            assert bool(producers_of(log, name) or keys_of(log, name)) == bool(count)


@pytest.mark.parametrize("what", CHANGES)
@every(3, part=2)
def test_a_checkpoint_has_all_of_an_interrupted_change_or_nothing(
    what: str, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = CHANGES[what]
    log, _ = begin()
    inner = TRUNCATES if what == "truncate" else INNER
    count = points(lambda: change(log), inner)
    log.close()
    made = 0
    for at in range(1, count + 1, every):
        with monkeypatch.context() as patch:
            made += _interrupt_at(patch, change, inner, at, is_repeated=what in ("batch", "key"))
    assert made > 3
    tell(f"{what}: interrupted at {len(range(1, count + 1, every))} of {count} points, {made} checkpoints in between")


def _interrupt_at(
    patch: pytest.MonkeyPatch, change: Callable[[Log], object], inner: tuple[str, ...], at: int, *, is_repeated: bool
) -> int:
    """Interrupt the change at this point. Return how many checkpoints another thread made before its end."""
    log, disk = begin()
    images = []
    threads = []

    def checkpoint() -> None:
        thread = threading.Thread(target=log.checkpoint, daemon=True)
        threads.append(thread)
        thread.start()
        wait_until(lambda: not thread.is_alive() or bool(queue_of(log)) or holds_checkpoint_lock(log))
        if not thread.is_alive():
            images.extend((disk.after_kill(), disk.after_power_cut()))

    before_abandoning(patch, checkpoint)
    try:
        assert interrupted(lambda: change(log), inner, at)
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        with contextlib.suppress(TopicExists):
            change(log)
        images.extend((disk.after_kill(), disk.after_power_cut()))
        log.checkpoint()
        after = shown(log)
        log.close()
        for image in images:
            with opened(SimulatedDisk(image)) as again:
                agrees(again, is_repeated=is_repeated)
        with opened(SimulatedDisk(disk.after_power_cut())) as again:
            assert shown(again) == after
    except BaseException as problem:
        problem.add_note(f"interrupted at point {at}")
        raise
    return len(threads)
