"""A batch of a producer, or an append under a key, is there once, whatever crashes or fails.

Its records and its number are there, or neither. The same holds for records and key.

T1   a power cut at each effect of a life with producers and keys (tests/seglog/producer_life.py). The test recovers
     every legal image. Records, producers and keys must be those of one step. Then the callers repeat what may be lost
T2   each call of the file system fails in turn while a producer appends, or a caller with keys. It repeats each append
     until the log takes it, and opens the log again if the writer is poisoned
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import pytest

import seglog
from seglog import Appended, Conflict, KeyReused, Log, LogSettings, ProducerBatch, ProducerGap, SeglogError
from seglog.engine.work_thread import InCaller
from tests.faults.disk import Image, Moment, SimulatedDisk
from tests.faults.files import FailingCalls
from tests.faults.stride import every, spread
from tests.faults.system_errors import ERRORS
from tests.seams.log import keys_of, producers_of
from tests.seglog.producer_life import SETTINGS, STEPS, Keyed, Send, Shown, TopicShown, live, shown, window
from tests.work import amounts, tell
from tests.worlds.clock import HandClock

DIRECTORY = Path("/log")
SHARDED = replace(SETTINGS, wal_shards=2)
NOTHING = TopicShown()


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "seglog")


def opened(disk: SimulatedDisk, settings: LogSettings) -> Log:
    return seglog.open(DIRECTORY, files=disk, settings=settings, clock=HandClock(1_000), upkeep=InCaller)


@dataclass
class Images:
    """Recovers images of a life. `dry` are the states of the dry run."""

    settings: LogSettings
    dry: list[Shown | None]
    seen: set[tuple[bytes, int]] = field(default_factory=set[tuple[bytes, int]])
    recoveries: int = 0
    repeated: int = 0

    def judge(self, image: Image, done: int) -> None:
        """Recover the image twice, then repeat the batches that may be lost, and recover once more."""
        if (image.digest, done) in self.seen:
            return
        self.seen.add((image.digest, done))
        disk = SimulatedDisk(image)
        with opened(disk, self.settings) as log:
            found = shown(log)
        for name in {*found, *(self.dry[min(done, len(STEPS))] or {})}:
            allowed = [(self.dry[index] or {}).get(name, NOTHING) for index in window(name, done)]
            assert without_lost(found.get(name, NOTHING)) in map(without_lost, allowed), name
        with opened(disk, self.settings) as log:
            assert shown(log) == found
            for name in found:
                self._repeat_known(log, name)
            assert shown(log) == found
            self._repeat_lost(log, done)
            after = shown(log)
        with opened(SimulatedDisk(disk.after_power_cut()), self.settings) as log:
            assert shown(log) == after
        self.recoveries += 3

    def _repeat_known(self, log: Log, name: str) -> None:
        """Each batch and each key that the topic knows has its seqs, and appends nothing."""
        for producer, known in producers_of(log, name):
            for batch in known.batches:
                given = ProducerBatch(producer, known.epoch, batch.number)
                assert log.topic(name).append([b"again"] * batch.records, producer=given) == batch.seqs
                self.repeated += 1
        for key, kept in keys_of(log, name):
            [step] = [each for each in STEPS if isinstance(each, Keyed) and each.fits(name, key, kept)]
            assert log.topic(name).append_once(step.values, key=key) == Appended(kept.seqs, True)
            with pytest.raises(KeyReused):
                log.topic(name).append([b"again"] * kept.records, key=key)
            self.repeated += 1

    def _repeat_lost(self, log: Log, done: int) -> None:
        """Send each batch again that may be lost. The window begins with a durable state, so its step is left out.

        A step in progress that is no batch may make the log refuse a batch before it.
        """
        for name in {step.topic for step in STEPS if isinstance(step, (Send, Keyed))}:
            own = [STEPS[index - 1] for index in window(name, done)[1:] if STEPS[index - 1].topic in ("", name)]
            are_batches = all(isinstance(step, (Send, Keyed)) for step in own)
            with contextlib.nullcontext() if are_batches else contextlib.suppress(Conflict):
                for step in own:
                    if isinstance(step, (Send, Keyed)):
                        step(log)
            records = [value for _, value in shown(log).get(name, NOTHING).records]
            assert len(records) == len({*records}), name
            if are_batches and own:
                wanted = (self.dry[min(done, len(STEPS))] or {})[name]
                assert without_lost(shown(log)[name]) == without_lost(wanted), name


def without_lost(topic: TopicShown) -> TopicShown:
    """Return the state without ephemeral records, which no crash leaves. A topic without a record is as none."""
    if not topic.head:
        return NOTHING
    return replace(topic, records=tuple(item for item in topic.records if item[1] != b"passing"))


@pytest.mark.parametrize("settings", [SETTINGS, SHARDED], ids=["one shard", "two shards"])
@every(101, part=1)
def test_every_crash_leaves_records_and_producers_that_agree(settings: LogSettings, every: int) -> None:
    dry: list[Shown | None] = []
    live(DIRECTORY, SimulatedDisk(), dry, settings, look=True)
    done: list[Shown | None] = []
    moments: list[tuple[Moment, int]] = []
    live(DIRECTORY, SimulatedDisk(None, lambda disk: moments.append((disk.moment(), len(done)))), done, settings)
    images, chance = Images(settings, dry), random.Random(17)
    for index in range(chance.randrange(every), len(moments), every):
        moment, count = moments[index]
        images_now = list(moment.images(chance, 16))
        for image in images_now if every == 1 else chance.sample(images_now, min(4, len(images_now))):
            try:
                images.judge(image, count)
            except BaseException as problem:
                problem.add_note(f"moment {index}, during step {count}: {STEPS[min(count, len(STEPS)) - 1]}")
                raise
    tell(
        f"{len(moments[::every])} of {len(moments)} moments, {len(images.seen)} images, "
        f"{images.recoveries} recoveries, {images.repeated} batches repeated: lost 0, doubled 0"
    )


DURABILITIES = ("fsync", "memory", "disk")
BATCHES = tuple(
    Send("a", "p", 0, number, 1 + number % 3, DURABILITIES[number % 3], size=30 + 400 * (number % 2))
    for number in range(12)
)
"""The batches of one producer. They fill more than one WAL file."""
KEYED = tuple(Keyed("a", f"{each.number}", each.count, each.durability, each.size) for each in BATCHES)
"""The same appends, each under a key."""


Batches: TypeAlias = tuple[Send, ...] | tuple[Keyed, ...]


@dataclass
class Sender:
    """A producer that repeats a batch until the log takes it. `acked` is the number of batches that are durable."""

    files: FailingCalls
    batches: Batches
    acked: int = 0
    doubted: int = 0

    def live(self) -> None:
        """Send all batches, in order. Open the log up to three times."""
        for _ in range(3):
            with contextlib.suppress(SeglogError, OSError, MemoryError):
                with seglog.open(
                    DIRECTORY, files=self.files, settings=SETTINGS, clock=HandClock(1_000), upkeep=InCaller
                ) as log:
                    self._send_all(log)
                return

    def _send_all(self, log: Log) -> None:
        number = 0
        for _ in range(4 * len(self.batches)):
            if number == len(self.batches) or log.is_poisoned:
                break
            try:
                self.batches[number](log)
            except ProducerGap as gap:
                number = gap.expected  # the log has lost a batch at `memory` or `disk`
            except (SeglogError, OSError, MemoryError):
                self.doubted += 1
            else:
                self.acked = max(self.acked, number + 1 if self.batches[number].durability == "fsync" else 0)
                number += 1


def agrees(log: Log, batches: Batches, least: int) -> int:
    """Check that records, producer and keys are those of the first batches, and return the number of these batches."""
    topic = shown(log).get("a", NOTHING)
    values = [value for _, value in topic.records]
    count = next(n for n in range(len(batches) + 1) if len(values) <= sum(each.count for each in batches[:n]))
    assert values == [value for batch in batches[:count] for value in batch.values]
    assert count >= least
    if batches is KEYED:
        assert [key for key, _ in topic.keys] == [str(number) for number in range(count)]
        return count
    known = dict(topic.producers).get("p")
    assert [batch.number for batch in known.batches] == [*range(max(0, count - 5), count)] if known else not count
    return count


@pytest.mark.parametrize("batches", [BATCHES, KEYED], ids=["producer", "keys"])
@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("error", ["EIO", pytest.param("ENOSPC", marks=pytest.mark.long)])
@amounts(6, soak=100_000, part=2)
def test_a_batch_is_there_once_whichever_call_fails(error: str, for_good: bool, batches: Batches, amount: int) -> None:
    def lived(at: int) -> tuple[SimulatedDisk, FailingCalls, Sender]:
        disk = SimulatedDisk()
        sender = Sender(FailingCalls(disk, at, ERRORS[error], for_good=for_good), batches)
        sender.live()
        return disk, sender.files, sender

    _, whole, _ = lived(0)
    hit: Counter[str] = Counter()
    doubted = 0
    for index in spread(whole.kinds, amount):
        disk, files, sender = lived(index + 1)
        try:
            for image in (disk.after_kill(), disk.after_power_cut()):
                good = SimulatedDisk(image)
                with opened(good, SETTINGS) as log:
                    first = max(0, agrees(log, batches, sender.acked) - 5)
                    for batch in batches[0 if batches is KEYED else first :]:
                        batch(log)
                    assert agrees(log, batches, 0) == len(batches)
                with opened(SimulatedDisk(good.after_power_cut()), SETTINGS) as log:
                    assert agrees(log, batches, 0) == len(batches)
        except BaseException as problem:
            problem.add_note(f"call {index + 1}, {files.failed}, {error}")
            raise
        hit[whole.kinds[index]] += 1
        doubted += sender.doubted
    assert hit.keys() == {*whole.kinds}
    tell(
        f"{error}: {hit.total()} of {len(whole.kinds)} calls failed in turn; "
        f"{doubted} answers without a batch; lost 0, doubled 0"
    )
