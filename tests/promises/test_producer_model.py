"""Many producers, keys, epochs, restarts, truncations and checkpoints do what a plain table does.

The model is a list of versions of one topic. A version has each record, and a plain table: for each producer all its
batches since its epoch began, in the order of the last append. A second table has the values and the time of each key.
A crash leaves one of the versions from the last durable one on. Records and tables must be those of one version.

A topic knows four producers here, and five append. So the table forgets, too. It keeps three keys for ten seconds, and
five are given. So it refuses keys, and appends under a key again when its time is over.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import seglog
from seglog import (
    Appended,
    BatchForgotten,
    HeadMoved,
    InvalidArgument,
    KeyReused,
    LogSettings,
    ProducerBatch,
    ProducerFenced,
    ProducerGap,
    SeglogError,
    TooManyKeys,
)
from seglog.engine.work_thread import InCaller
from tests.faults.disk import SimulatedDisk
from tests.seams.limits import Limit, set_limit
from tests.seams.log import keys_of, producers_of
from tests.work import amounts, tell
from tests.worlds.clock import HandClock

DIRECTORY = Path("/log")
SETTINGS = LogSettings(segment_max_events=5, wal_file_bytes=4096, idempotency_keep_s=10)
PRODUCERS_MAX = 4
KEYS_MAX = 3
KEPT = 5
KEEP_MS = 10_000

Batches = tuple[tuple[int, range], ...]
"""The number and the seqs of each batch of an epoch."""
Key = tuple[str, int, range, tuple[bytes, ...]]
"""A key, the time of its append, the seqs and the values."""


@dataclass(frozen=True)
class Version:
    """A state of the topic. `table` has producer, epoch and batches, and the newest append is last.

    `keys` has key, time, seqs and values, the oldest first.
    """

    exists: bool = False
    records: tuple[bytes, ...] = ()
    table: tuple[tuple[str, int, Batches], ...] = ()
    keys: tuple[Key, ...] = ()

    @property
    def head(self) -> int:
        return len(self.records)

    def known(self, producer: str) -> tuple[int, Batches] | None:
        return next(((epoch, batches) for name, epoch, batches in self.table if name == producer), None)

    def plain(self, value: bytes) -> Version:
        return replace(self, exists=True, records=(*self.records, value))

    def appended(self, given: ProducerBatch, values: list[bytes]) -> Version:
        seqs = range(self.head + 1, self.head + 1 + len(values))
        known = self.known(given.id)
        before = known[1] if known is not None and known[0] == given.epoch else ()
        own = (given.id, given.epoch, (*before, (given.number, seqs)))
        others = tuple(row for row in self.table if row[0] != given.id)
        table = (*others, own)[-PRODUCERS_MAX:]
        return replace(self, exists=True, records=(*self.records, *values), table=table)

    def appended_under(self, key: str, values: list[bytes], now_ms: int) -> Version:
        seqs = range(self.head + 1, self.head + 1 + len(values))
        others = tuple(row for row in self.keys if row[0] != key)
        own = (key, now_ms, seqs, tuple(values))
        return replace(self, exists=True, records=(*self.records, *values), keys=(*others, own))

    def expect_under(self, key: str, values: list[bytes], now_ms: int) -> range | type[SeglogError] | None:
        """Return the seqs of a repetition, the error, or None if the log appends the values."""
        kept = {row[0]: row[2:] for row in self.keys if row[1] >= now_ms - KEEP_MS}
        if key not in kept:
            return TooManyKeys if len(kept) >= KEYS_MAX else None
        seqs, known = kept[key]
        return seqs if known == tuple(values) else KeyReused

    def expect(self, given: ProducerBatch, values: list[bytes]) -> range | type[SeglogError] | None:
        """Return the seqs of a repetition, the error, or None if the log appends the batch."""
        epoch, batches = self.known(given.id) or (-1, ())
        if given.epoch < epoch:
            return ProducerFenced
        newest = batches[-1][0] if batches and given.epoch == epoch else -1
        if given.number > newest:
            return ProducerGap if given.number > newest + 1 and not given.gaps else None
        seqs = dict(batches[-KEPT:]).get(given.number)
        if seqs is None:
            return BatchForgotten
        return seqs if len(seqs) == len(values) else InvalidArgument

    def shown(self, now_ms: int) -> object:
        rows = tuple((name, epoch, batches[-KEPT:]) for name, epoch, batches in self.table)
        keys = tuple((key, ts_ms, seqs) for key, ts_ms, seqs, _ in self.keys if ts_ms >= now_ms - KEEP_MS)
        return self.exists, self.records, rows, keys


class ProducerModel(RuleBasedStateMachine):
    settings = SETTINGS

    @initialize()
    def begin(self) -> None:
        self.disk, self.clock = SimulatedDisk(), HandClock(1_000)
        self.versions = [Version()]
        self.values = 0
        self._open()

    @rule(
        producer=st.sampled_from("pqrst"),
        epoch=st.sampled_from([-1, 0, 0, 0, 0, 0, 1]),
        number=st.sampled_from([1, 1, 1, 1, 0, 0, -1, -4, -5, 2]),
        count=st.integers(1, 4),
        size=st.sampled_from([20, 300]),
        gaps=st.booleans(),
        durability=st.sampled_from(["fsync", "disk", "memory"]),
    )
    def send(self, producer: str, epoch: int, number: int, count: int, size: int, gaps: bool, durability: str) -> None:
        """Append a batch. Epoch and number are relative to the newest ones."""
        known_epoch, batches = self.now.known(producer) or (0, ())
        epoch = max(known_epoch + epoch, 0)
        own = batches if epoch == known_epoch else ()
        given = ProducerBatch(producer, epoch, max((own[-1][0] if own else -1) + number, 0), gaps)
        if number < 1 and own:
            count = len(dict(own).get(given.number, range(count)))
        values = [self._value(size) for _ in range(count)]
        expected = self.now.expect(given, values)
        append = lambda: self.log.topic("t").append(values, producer=given, durability=durability)  # noqa: E731
        if isinstance(expected, type):
            with pytest.raises(expected):
                append()
        elif expected is not None:
            assert append() == expected
            self._is_durable()
        else:
            seqs = range(self.now.head + 1, self.now.head + 1 + count)
            assert append() == seqs
            self._add(self.now.appended(given, values), is_durable=durability == "fsync")

    @rule(
        key=st.sampled_from(["k", "l", "m", "n", "o"]),
        count=st.integers(1, 3),
        other=st.sampled_from([False, False, False, True]),
        durability=st.sampled_from(["fsync", "disk", "memory"]),
    )
    def send_under(self, key: str, count: int, other: bool, durability: str) -> None:
        """Append under a key: the values that it had, or others."""
        known = next((row[3] for row in self.now.keys if row[0] == key), None)
        values = [self._value(20) for _ in range(count)] if other or known is None else [*known]
        expected = self.now.expect_under(key, values, self.clock.ms)
        append = lambda: self.log.topic("t").append_once(values, key=key, durability=durability)  # noqa: E731
        if isinstance(expected, type):
            with pytest.raises(expected):
                append()
        elif expected is not None:
            assert append() == Appended(expected, True)
            self._is_durable()
        else:
            seqs = range(self.now.head + 1, self.now.head + 1 + len(values))
            assert append() == Appended(seqs, False)
            self._add(self.now.appended_under(key, values, self.clock.ms), is_durable=durability == "fsync")

    @rule(ms=st.sampled_from([1, 1_000, 5_000, 10_000, 10_001]))
    def time_passes(self, ms: int) -> None:
        self.clock.ms += ms

    @rule(distance=st.sampled_from([0, 0, 1, -1]), durability=st.sampled_from(["fsync", "memory"]))
    def append_if_head(self, distance: int, durability: str) -> None:
        head, value = max(self.now.head + distance, 0), self._value(10)
        if head != self.now.head:
            with pytest.raises(HeadMoved) as caught:
                self.log.topic("t").append([value], if_head=head, durability=durability)
            assert (caught.value.if_head, caught.value.head) == (head, self.now.head)
            return
        seqs = self.log.topic("t").append([value], if_head=head, durability=durability)
        assert seqs == range(head + 1, head + 2)
        self._add(self.now.plain(value), is_durable=durability == "fsync")

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        """Remove the newest records. The producers stay."""
        if self.now.head:
            seq = 1 + int(part * (self.now.head - 1))
            self.log.topic("t").truncate(seq)
            self._add(replace(self.now, records=self.now.records[: seq - 1]), is_durable=True)

    @rule()
    def checkpoint(self) -> None:
        self.log.checkpoint()
        self._is_durable()

    @rule(chance=st.integers(0, 5))
    def delete_topic(self, chance: int) -> None:
        if self.now.exists and not chance:
            self.log.delete_topic("t")
            self._add(Version(), is_durable=True)

    @rule(shards=st.integers(1, 3))
    def reopen(self, shards: int) -> None:
        """Open the log again, perhaps with another number of shards."""
        self.log.close()
        self._is_durable()
        self.settings = replace(self.settings, wal_shards=shards)
        self._open()

    @rule()
    def kill(self) -> None:
        self._crash(SimulatedDisk.resume(self.disk.moment()))

    @rule(data=st.data())
    def cut_the_power(self, data: st.DataObject) -> None:
        moment = self.disk.moment()
        kept = [change for change in moment.pending if data.draw(st.booleans())]
        self._crash(SimulatedDisk(moment.image(kept)))

    @invariant()
    def log_and_table_agree(self) -> None:
        assert self._shown() == self.now.shown(self.clock.ms)

    def teardown(self) -> None:
        with contextlib.suppress(AttributeError):
            self.log.close()

    @property
    def now(self) -> Version:
        return self.versions[-1]

    def _value(self, size: int) -> bytes:
        self.values += 1
        return b"%d " % self.values + b"." * size

    def _add(self, version: Version, *, is_durable: bool) -> None:
        if version.exists and not self.now.exists:
            self.versions.append(Version(exists=True))  # a crash may leave the topic without its first batch
        self.versions.append(version)
        if is_durable:
            self._is_durable()

    def _is_durable(self) -> None:
        del self.versions[:-1]

    def _shown(self) -> object:
        if not self.log.has_topic("t"):
            return Version().shown(self.clock.ms)
        rows = tuple(
            (name, known.epoch, tuple((batch.number, batch.seqs) for batch in known.batches))
            for name, known in producers_of(self.log, "t")
        )
        keys = tuple(
            (key, known.ts_ms, known.seqs)
            for key, known in keys_of(self.log, "t")
            if known.ts_ms >= self.clock.ms - KEEP_MS
        )
        return True, tuple(record.value for record in self.log.topic("t").read()), rows, keys

    def _crash(self, disk: SimulatedDisk) -> None:
        old, self.disk = self.log, disk
        self._open()
        found = self._shown()
        self.versions = [version for version in self.versions if version.shown(self.clock.ms) == found][-1:]
        assert self.versions, found
        old.close()

    def _open(self) -> None:
        self.log = seglog.open(DIRECTORY, files=self.disk, settings=self.settings, clock=self.clock, upkeep=InCaller)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "seglog")
    set_limit(monkeypatch, Limit.PRODUCERS, PRODUCERS_MAX)
    set_limit(monkeypatch, Limit.KEYS, KEYS_MAX)


@amounts(10, soak=1_500, part=2)
def test_producers_and_keys_do_what_a_plain_table_does(amount: int) -> None:
    run_state_machine_as_test(
        ProducerModel,
        settings=settings(
            max_examples=amount,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    tell(f"{amount} histories of up to 50 steps")
