"""Each image that a crash may leave of a queue recovers: append, claim, ack, nack, dead letter, snapshot.

After each recovery: an acked job is acked, each job is one thing, and a dead job has one letter.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

import seglog
from seglog import Log, LogSettings, ProducerBatch
from seglog.delivery.cursor import Cursor
from seglog.delivery.queue import TOPIC, Event, Kind, Queue, QueueSettings
from seglog.delivery.queue_states import QueueStates
from tests.faults.disk import Image, Moment, SimulatedDisk
from tests.work import tell
from tests.worlds.producing import SETTINGS

DIRECTORY = "/parent/data"


def states_of(log: Log) -> QueueStates:
    states = QueueStates.of(log)
    states.load(lambda: log.topic(TOPIC).read() if log.has_topic(TOPIC) else ())
    return states


def letter(log: Log, queue: Queue) -> None:
    """Append the letters of dying jobs, as the daemon does after each start."""
    for seq, number in sorted(queue.dying.items()):
        batch = ProducerBatch(f"queue:{queue.key}", queue.born_ms, number, gaps=True)
        log.topic("dead").append([b"%d" % seq], producer=batch)


def change(log: Log, *events: Event, durability: str = "fsync") -> None:
    states = states_of(log)
    queue = states.begin("orders", "billing")
    for event in events:
        queue.apply(event)
    values = states.records(queue, events)
    seqs = log.topic(TOPIC).append(values, tag=queue.key, durability=durability)
    states.appended(queue, len(events), seqs.start)


def create(log: Log) -> None:
    cursor = Cursor("orders", "billing", log.topic("orders").incarnation(), log.topic("orders").epoch, 0)
    states_of(log).put(Queue(cursor, replace(QueueSettings(), dead_letter="dead"), 5))


def claimed(number: int, *seqs: int) -> Callable[[Log], None]:
    return lambda log: change(log, Event(Kind.CLAIMED, seqs, number, 0, 100, "ada"), durability="memory")


#: The steps, and the jobs that each one has acked when it returns.
STEPS: tuple[tuple[Callable[[Log], object], tuple[int, ...]], ...] = (
    (lambda log: log.topic("orders").append([b"x"] * 6, durability="memory"), ()),
    (create, ()),
    (claimed(1, 1, 2, 3), ()),
    (lambda log: change(log, Event(Kind.ACKED, [2])), (2,)),
    (claimed(2, 4), ()),
    (lambda log: change(log, Event(Kind.RELEASED, [1]), durability="memory"), ()),
    (claimed(3, 1), ()),
    (lambda log: change(log, Event(Kind.DEAD, [3, 4], 0, 7, text="max_deliver")), ()),
    (lambda log: letter(log, states_of(log).find("orders", "billing")), ()),
    (lambda log: change(log, Event(Kind.ACKED, [3, 4])), (3, 4)),
    (lambda log: states_of(log).put(states_of(log).begin("orders", "billing")), ()),
    (lambda log: change(log, Event(Kind.ACKED, [1])), (1,)),
    (lambda log: log.topic(TOPIC).delete(before=log.topic(TOPIC).head_seq - 1), ()),
    (claimed(4, 5, 6), ()),
    (lambda log: change(log, Event(Kind.ACKED, [5])), (5,)),
)


def live(disk: SimulatedDisk, done: list[int], settings: LogSettings) -> None:
    with seglog.open(DIRECTORY, files=disk, settings=settings) as log:
        log.create_topic("orders")
        for step, _ in STEPS:
            step(log)
            done.append(1)


def judge(image: Image, done: int, settings: LogSettings) -> None:
    acked = {seq for _, seqs in STEPS[:done] for seq in seqs}
    may_be = acked | {seq for _, seqs in STEPS[: done + 1] for seq in seqs}
    disk = SimulatedDisk(image)
    for _ in range(2):  # the second time as the first one left it
        with seglog.open(DIRECTORY, files=disk, settings=settings) as log:
            if not log.has_topic(TOPIC) or not states_of(log).has("orders", "billing"):
                assert done < 2
                return
            queue = states_of(log).find("orders", "billing")
            above = queue.cursor.acked_above
            now = {seq for seq in range(1, 7) if seq <= queue.cursor.floor or seq in above}
            assert acked <= now <= may_be
            assert queue.next_seq <= log.topic("orders").head_seq + 1
            for seq in range(1, queue.next_seq):
                assert (seq in queue.jobs) + (seq in queue.waiting) + (seq in queue.dying) + (seq in now) == 1
            letter(log, queue)
            values = [record.value for record in log.topic("dead").read()] if log.has_topic("dead") else []
            assert values in ([], [b"3", b"4"])
            assert bool(values) == (bool(queue.dying) or {3, 4} <= now)


@pytest.mark.parametrize("settings", [SETTINGS, replace(SETTINGS, wal_shards=2)], ids=["one shard", "two shards"])
@pytest.mark.parametrize("every", [pytest.param(7, id="few"), pytest.param(1, marks=pytest.mark.long, id="all")])
def test_every_crash_leaves_a_queue_that_recovers(settings: LogSettings, every: int) -> None:
    done, moments, seen = list[int](), list[tuple[Moment, int]](), set[tuple[bytes, int]]()
    disk = SimulatedDisk(None, lambda disk: moments.append((disk.moment(), len(done))))
    live(disk, done, settings)
    chance = random.Random(17)
    for moment, count in moments[::every]:
        images = list(moment.images(chance, 8))
        for image in images if every == 1 else chance.sample(images, min(3, len(images))):
            if (image.digest, count) not in seen:
                seen.add((image.digest, count))
                judge(image, count, settings)
    tell(f"{len(moments[::every])} of {len(moments)} moments, {len(seen)} images of a queue: lost 0, doubled 0")
    assert len(seen) > 20
