"""A topic does what a plain list does, after any operations, over crashes, reopens and jumps of the clock.

The log runs on a simulated disk. The model is a list of appended records and a list of deletes. The bounds of
tests/seglog/workload.py say what a crash may take of it: durable <= recovered <= appended, values exact.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from contextlib import nullcontext
from dataclasses import replace
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import seglog
from seglog import Evicted, Gap, InvalidArgument, LogSettings, Record, TopicConfig
from seglog.engine.work_thread import InCaller
from seglog.tiers.segment_store import LocalSegmentStore
from seglog.values.layout import Layout
from tests.array_rows import rows_of
from tests.faults.disk import Image, SimulatedDisk
from tests.seams.log import engine_of
from tests.seglog.totals import check_totals
from tests.seglog.workload import Bounds, Journal, look
from tests.work import tell
from tests.worlds.clock import HandClock

DIRECTORY = Path("/log")
COLD = Path("/cold")
SETTINGS = LogSettings(segment_max_events=5, wal_file_bytes=4096)
CLASSES = ["fsync", "disk", "memory", "ephemeral"]
TAGS = st.sampled_from([None, "eu-1", "eu-2", "us", "ü"])


class WarmStore:
    """Segments in a directory of the same disk. Every access fails while `is_away` is set."""

    is_away = False

    def __init__(self, disk: SimulatedDisk, topic_id: int) -> None:
        self._inner = LocalSegmentStore(disk, Layout(COLD), topic_id)

    def __getattr__(self, name: str) -> Any:
        if self.is_away:
            raise OSError(errno.EIO, "away")
        return getattr(self._inner, name)


class TopicModel(RuleBasedStateMachine):
    """Runs rules on a log. `journal` is the model, with `given_ms` for the times that appends gave by seq."""

    settings = SETTINGS

    @initialize(keep_history=st.booleans())
    def begin(self, keep_history: bool) -> None:
        self.disk = SimulatedDisk(Image({str(COLD): None}))
        self.clock = HandClock(1_000)
        self.given_ms: dict[int, int] = {}
        self.journal = Journal(keepers=frozenset({"t"} if keep_history else ()))
        self._open()
        self.log.create_topic("t", TopicConfig(keep_history=keep_history))
        self.classes = CLASSES[: None if not keep_history else -1]
        self.journal.tried["t"] = []

    @rule(
        count=st.integers(1, 7),
        size=st.integers(0, 400),
        tag=TAGS,
        own=st.none() | st.sampled_from(CLASSES),
        later_ms=st.none() | st.lists(st.integers(0, 900), min_size=7, max_size=7),
    )
    def append(
        self, count: int, size: int, tag: str | None, own: str | None, later_ms: list[int] | None = None
    ) -> None:
        if own not in (None, *self.classes):
            return
        durability = own or self.topic.config.durability
        known = self.journal.tried["t"]
        head = len(known)
        values = [b"%d %s" % (head + 1 + index, b"." * size) for index in range(count)]
        times = None
        if later_ms is not None and durability != "ephemeral":
            times = [*accumulate(later_ms[:count], initial=self.topic.last_ts_ms)][1:]
        if times is not None and times[-1] > self.clock.ms + 300_000:
            with pytest.raises(InvalidArgument, match="five minutes"):
                self.topic.append(values, tag=tag, durability=own, times_ms=times)
            times = None
        self.journal.note("t", values, tag, durability)
        assert self.topic.append(values, tag=tag, durability=own, times_ms=times) == range(head + 1, head + count + 1)
        self.given_ms |= dict(enumerate(times or (), head + 1))
        if durability == "fsync":
            self.journal.acked["t"] = len(known)

    @rule(durability=st.sampled_from(CLASSES))
    def configure(self, durability: str) -> None:
        """Change the durability.

        The change is durable, and so is everything written before it. Ephemeral records get no frame.
        """
        if durability in self.classes:
            self.log.configure("t", replace(self.topic.config, durability=durability))
            self.journal.kinds["t"] = (self.topic.epoch, self.topic.config)

    @rule(before=st.none() | st.integers(1, 60), tag=st.none() | st.sampled_from(["eu-1", "eu*", "us", "*"]))
    def delete(self, before: int | None, tag: str | None) -> None:
        if before is not None or tag is not None:
            self.journal.delete(self.log, "t", before=before, tag=tag)

    @rule(
        start=st.none() | st.integers(1, 60),
        length=st.integers(0, 20),
        tag=st.none() | st.sampled_from(["eu-1", "eu*", "us"]),
        seqs=st.none() | st.sets(st.integers(1, 60), max_size=6),
    )
    def delete_some(self, start: int | None, length: int, tag: str | None, seqs: set[int] | None) -> None:
        end = None if start is None else start + length
        if start is not None or seqs is not None:
            self.journal.delete(self.log, "t", tag=tag, start=start, end=end, seqs=seqs)

    @precondition(lambda self: self.topic.config.keep_history)
    @rule(first=st.integers(1, 60), length=st.integers(0, 20), settled=st.integers(0, 9))
    def undelete(self, first: int, length: int, settled: int) -> None:
        """Take deletes back that are settled. The listed ones still reach what they have reached."""
        for op in self.topic.inner.delete_ops()[:settled]:
            self.topic.inner.settle_deletes(op.op)
        self.journal.undelete(self.log, "t", range(first, first + length))

    @precondition(lambda self: not self.topic.config.keep_history)
    @rule()
    def undo(self) -> None:
        self.journal.undo(self.log, "t")

    @rule()
    def seal(self) -> None:
        self.topic.seal()
        self.journal.acked["t"] = len(self.journal.tried["t"])
        ephemeral = self.journal.ephemeral.get("t", set())
        assert {*range(self.topic.inner.sealed_seq + 1, self.topic.head_seq + 1)} <= ephemeral

    @rule()
    def checkpoint(self) -> None:
        self.journal.checkpoint(self.log)

    @precondition(lambda self: self.topic.inner.sealed_seq >= self.topic.inner.hot_floor)
    @rule(part=st.floats(0, 1))
    def release(self, part: float) -> None:
        floor, sealed = self.topic.inner.hot_floor, self.topic.inner.sealed_seq
        self.journal.release(self.log, "t", floor + int(part * (sealed - floor)))

    @precondition(lambda self: self.settings.hot_retain_segments == 0)
    @rule(tag=st.sampled_from(["eu-1", "us", "*"]))
    def go_on_without_the_cold_store(self, tag: str) -> None:
        """Do everything that needs no warm store while it is away. Segments that are due wait."""
        self.store.is_away = True
        self.append(6, 10, "eu-1", "fsync")
        self.topic.seal()
        self.delete(None, tag)
        self.log.checkpoint()
        self.append(2, 10, "us", "memory")
        assert [record.seq for record in self.topic.read(self.topic.head_seq - 1)] == [
            self.topic.head_seq - 1,
            self.topic.head_seq,
        ]
        self.store.is_away = False

    @rule(ms=st.integers(0, 10_000))
    def jump(self, ms: int) -> None:
        """Set the clock forward or back."""
        self.clock.ms = ms

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.journal.acked["t"] = len(self.journal.tried["t"])
        self._go_on(self.journal.bounds())

    @rule(data=st.data())
    def cut_the_power(self, data: st.DataObject) -> None:
        moment = self.disk.moment()
        kept = [change for change in moment.pending if data.draw(st.booleans())]
        self._crash(SimulatedDisk(moment.image(kept)))

    @rule()
    def kill(self) -> None:
        self._crash(SimulatedDisk.resume(self.disk.moment()))

    @invariant()
    def reads_are_exact(self) -> None:
        journal = self.journal
        topic = look(self.log)["t"]
        assert topic.head == len(journal.tried["t"])
        expected = journal.live_seqs("t", topic.head, len(journal.deletes_tried), is_running=True)
        items = list(self.topic.read(gaps=True))
        records = [item for item in items if isinstance(item, Record)]
        self._check_batches(items)
        self._check_front(items)
        assert [record.seq for record in records] == expected
        assert [(record.value, record.tag) for record in records] == [journal.tried["t"][seq - 1] for seq in expected]
        times = [record.ts_ms for record in records]
        assert times == sorted(times)
        assert [r.ts_ms for r in records if r.seq in self.given_ms] == [
            self.given_ms[r.seq] for r in records if r.seq in self.given_ms
        ]

    @invariant()
    def totals_are_those_of_a_recount(self) -> None:
        check_totals(self.log)

    def _check_front(self, items: list[Record | Gap]) -> None:
        """Check that the topic begins with the first record that is there or lost, where no search asks a store."""
        topic = self.topic
        if topic.earliest_seq >= topic.inner.hot_floor and not engine_of(self.log).state("t").warm:
            ends = [(item.gap_from, item.gap_to) if isinstance(item, Gap) else (item.seq, item.seq) for item in items]
            floor = topic.inner.evict_floor
            assert topic.earliest_seq == next((max(a, floor) for a, z in ends if z >= floor), topic.head_seq + 1)

    def _check_batches(self, items: list[Record | Gap]) -> None:
        """Check that batches hold the same records, and end with an error at the first gap."""
        sound = list(takewhile(lambda item: isinstance(item, Record), items))
        found: list[Record] = []
        with nullcontext() if len(sound) == len(items) else pytest.raises(Evicted):
            for batch in self.topic.read_batches():
                found += batch
        assert found == sound
        assert rows_of(self.topic.read_arrays(gaps=True)) == items

    def teardown(self) -> None:
        with contextlib.suppress(AttributeError):
            self.log.close()

    @property
    def topic(self) -> seglog.Topic:
        return self.log.topic("t")

    def _open(self) -> None:
        self.store = WarmStore(self.disk, 1)
        stores = (lambda _: self.store) if self.settings.hot_retain_segments == 0 else None
        self.log = seglog.open(
            DIRECTORY, files=self.disk, settings=self.settings, clock=self.clock, upkeep=InCaller, warm_stores=stores
        )
        self.log.attach_cold(self.journal.archive)

    def _crash(self, disk: SimulatedDisk) -> None:
        old, bounds = self.log, self.journal.bounds()
        self.disk = disk
        self._go_on(bounds)
        old.close()

    def _go_on(self, bounds: Bounds) -> None:
        self._open()
        found = look(self.log)
        assert (self.journal.lost(found, bounds), self.journal.phantom(found, bounds)) == (None, None)
        self.journal = self.journal.resumed(found, bounds)
        self.given_ms = {seq: ms for seq, ms in self.given_ms.items() if seq <= found["t"].head}
        self.log.detach_cold()
        self.log.attach_cold(self.journal.archive)


class TieredTopicModel(TopicModel):
    """A topic whose sealed segments go to the warm store at once."""

    settings = replace(SETTINGS, hot_retain_segments=0)


class ShardedTopicModel(TopicModel):
    """A topic of a log whose number of WAL shards changes now and then."""

    settings = replace(SETTINGS, wal_shards=2)

    @rule(shards=st.integers(1, 3))
    def reopen_with(self, shards: int) -> None:
        self.settings = replace(self.settings, wal_shards=shards)
        self.reopen()


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "seglog")


def _run(examples: int, steps: int, model: type[TopicModel] = TopicModel) -> None:
    run_state_machine_as_test(
        model,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    tell(f"{examples} histories of up to {steps} steps")


def test_a_topic_is_a_list() -> None:
    _run(examples=12, steps=50)


def test_a_topic_over_two_tiers_is_a_list() -> None:
    _run(examples=5, steps=50, model=TieredTopicModel)


def test_a_topic_in_shards_is_a_list() -> None:
    _run(examples=6, steps=50, model=ShardedTopicModel)


@pytest.mark.soak(part=2)
def test_a_topic_is_a_list_for_long() -> None:
    _run(examples=1200, steps=80)


@pytest.mark.soak(part=2)
def test_a_topic_over_two_tiers_is_a_list_for_long() -> None:
    _run(examples=900, steps=80, model=TieredTopicModel)


@pytest.mark.soak(part=2)
def test_a_topic_in_shards_is_a_list_for_long() -> None:
    _run(examples=300, steps=80, model=ShardedTopicModel)
