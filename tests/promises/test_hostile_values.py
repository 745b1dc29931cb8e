"""No value that a client chooses changes what recovery finds after a crash, and an append is there whole or not at all.

A client can know at which offset of which WAL file its value will lie. So each value here is a piece of a pattern over
the file, in which forged frames, sync marks and other structures of seglog lie at their own offsets. The phase of the
pattern moves: with all phases, each structure lies at every offset where it could.

    appends   a lone record, 30 records, a batch of a producer, records under a key, at `fsync` and at `memory`
    images    at each effect of these appends: each legal image of a power cut, the last write without each of its
              sectors in turn, and only from each of its sectors on
    promise   the log opens. It has the durable appends, and each other one with all of its records or with none, in
              order. `verify` finds no damage. A second opening finds the same
"""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

import seglog
from seglog import Log, LogSettings, ProducerBatch
from seglog.engine.work_thread import InCaller
from seglog.format.batch_frame import encode_batch, encode_key, encode_unit
from seglog.format.frame import CHECKSUM, HEADER, LENGTH_BYTES, MIN_FRAME_BYTES, FrameType, encode, encode_sync_mark
from seglog.format.index import encode_entry
from seglog.values.append_key import KeyedAppend
from seglog.values.producer import AppendedBatch, Batch
from seglog.wal.wal import SYNC_MARK_BYTES
from tests.faults.disk import SECTOR_BYTES, Image, Moment, SimulatedDisk, Write
from tests.seams.log import engine_of, known_mark_secret
from tests.work import amounts, seed_of, tell
from tests.worlds.clock import HandClock

DIRECTORY = Path("/log")
SETTINGS = LogSettings(segment_max_events=40, wal_file_bytes=8192)
UNKNOWN: Any = 200  # a type of no version


class Idle(InCaller):
    def wake(self) -> None:
        pass


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.ERROR, "seglog")
    with known_mark_secret(0x5EC4E7):  # it is in each image
        yield


def opened(disk: SimulatedDisk, settings: LogSettings = SETTINGS) -> Log:
    return seglog.open(DIRECTORY, files=disk, settings=settings, clock=HandClock(1_000), upkeep=Idle)


def values_in(log: Log) -> list[bytes]:
    return [record.value for record in log.topic("t").read()] if log.has_topic("t") else []


# ---------------------------------------------------------------- what the values imitate


def _frame(kind: Any, data: bytes = b"", *, seq: int = 2, flags: int = 0) -> bytes:
    return encode(kind, topic_id=1, seq=seq, ts_ms=1_000, data=data, flags=flags)


def _checked(body: bytes) -> bytes:
    return body + b"\n" + xxh3_64_hexdigest(body).encode() + b"\n"


#: Each takes the number of a WAL file, and the offset there at which the structure will lie.
FORGED: tuple[Callable[[int, int], bytes], ...] = (
    encode_sync_mark,  # as an older release wrote them
    lambda file, offset: encode_sync_mark(file, offset, 1),
    lambda file, offset: encode_sync_mark(file, offset, 2**64 - 1),
    lambda file, offset: encode_sync_mark(file, offset + len(encode_sync_mark(0, 0))),
    lambda file, offset: encode_sync_mark(file + 1, offset),
    lambda _file, offset: encode_sync_mark(10**14 + 1, offset),
    lambda _file, _offset: encode_batch(1, 1_000, AppendedBatch("p", 0, Batch(1, 2, 30))),
    lambda _file, _offset: encode_key(1, 1_000, KeyedAppend("k", 2, 2**32 - 1, 7)),
    lambda _file, _offset: encode_unit(1, 1_000, 2, 30),
    *(lambda _file, _offset, kind=kind: _frame(kind, b"{}") for kind in FrameType if kind not in (14, 15, 16)),
    lambda _file, _offset: _frame(FrameType.TRUNCATE, b'{"epoch":9}', seq=1),
    lambda _file, _offset: _frame(UNKNOWN),
    lambda _file, _offset: _frame(FrameType.APPEND, flags=128),
    lambda _file, _offset: HEADER.pack(1 << 20, FrameType.APPEND, 0, 1, 2, 1_000, 0, 0, (1 << 20) - 42),  # goes too far
    lambda _file, _offset: encode_entry(2, 0, 60, 1_000, 0),
    lambda _file, _offset: _checked(b'{"format":3}'),
    lambda file, _offset: b"wal-%016d.log\n" % file,
    lambda _file, _offset: bytes(60),
)
CYCLE = sum(len(forge(1, 0)) for forge in FORGED)


def pattern(file: int, phase: int, start: int, stop: int) -> bytes:
    """Return the bytes [start, stop) of a WAL file full of forged structures, one behind the other."""
    sizes = [len(forge(1, 0)) for forge in FORGED]
    first = (start - phase) // CYCLE * CYCLE + phase
    found = b""
    for cycle in range(first, stop, CYCLE):
        for forge, begin in zip(FORGED, accumulate(sizes[:-1], initial=cycle), strict=True):
            found += forge(file, max(begin, 0))
    return found[start - first : stop - first]


# ---------------------------------------------------------------- the appends


@dataclass(frozen=True)
class Append:
    sizes: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def __call__(self, log: Log, values: list[bytes]) -> range:
        return log.topic("t").append(values, **self.options)

    @property
    def is_durable(self) -> bool:
        return "durability" not in self.options


MEMORY = {"durability": "memory"}
APPENDS = (
    Append((9,)),
    Append((3000,)),
    Append((150,) * 30),
    Append((900,), MEMORY),
    Append((150,) * 30, MEMORY),
    Append((400,) * 3, {"producer": ProducerBatch("p", 0, 0)}),
    Append((150,) * 30, {"key": "k", **MEMORY}),
    Append((700,) * 2),
)


def places() -> list[list[tuple[int, int]]]:
    """Return where the values of each append lie: the WAL file and the offset of each value. A dry run tells."""
    found = []
    with opened(SimulatedDisk()) as log:
        for append in APPENDS:
            seqs = append(log, [bytes(size) for size in append.sizes])
            tail = engine_of(log).topics["t"].tail
            rows = tail.rows(seqs.start - tail.first_seq, seqs.stop - tail.first_seq)
            found.append([(int(row["file"]), int(row["offset"]) + HEADER.size) for row in rows])
    return found


def hostile(places: list[list[tuple[int, int]]], phase: int) -> list[list[bytes]]:
    """Return the values of each append, which have the pattern of that phase at their places."""
    return [
        [pattern(file, phase, at, at + size) for (file, at), size in zip(where, append.sizes, strict=True)]
        for append, where in zip(APPENDS, places, strict=True)
    ]


def live(values: list[list[bytes]]) -> list[tuple[Moment, int]]:
    """Make all appends. Return the disk at each effect, and how many appends had returned by then."""
    moments: list[tuple[Moment, int]] = []
    done = 0
    disk = SimulatedDisk(None, lambda disk: moments.append((disk.moment(), done)))
    log = opened(disk)
    for append, own in zip(APPENDS, values, strict=True):
        append(log, own)
        done += 1
    disk.note = None
    log.close()
    return moments


def images(moment: Moment, chance: random.Random) -> Iterator[Image]:
    """Yield each legal image, and those without a sector, or before a sector, of the last write."""
    yield from moment.images(chance, 8)
    *before, last = moment.pending or (None,)
    if isinstance(last, Write):
        sectors = _sectors(last)
        for index in range(len(sectors)):
            yield moment.image((*before, *sectors[:index], *sectors[index + 1 :]))  # type: ignore[arg-type]
            yield moment.image((*before, *sectors[index:]))  # type: ignore[arg-type]


def _sectors(write: Write) -> list[Write]:
    end = write.offset + len(write.data)
    cuts = [write.offset, *range(write.offset // SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES, end, SECTOR_BYTES), end]
    return [
        Write(write.node, start, write.data[start - write.offset : stop - write.offset])
        for start, stop in pairwise(cuts)
    ]


# ---------------------------------------------------------------- the proof


@dataclass
class Judge:
    values: list[list[bytes]]
    seen: set[tuple[bytes, int]] = field(default_factory=set[tuple[bytes, int]])

    def __call__(self, image: Image, done: int) -> None:
        """Check what recovery makes of the image. `done` appends had returned, and one more may be in flight."""
        if (image.digest, done) in self.seen:
            return
        self.seen.add((image.digest, done))
        disk = SimulatedDisk(image)
        if f"{DIRECTORY}/wal/CURRENT" in image.tree:
            assert seglog.verify(DIRECTORY, files=SimulatedDisk(image), settings=SETTINGS).damages == ()
        with opened(disk) as log:
            found = values_in(log)
        least = max((number for number in range(1, done + 1) if APPENDS[number - 1].is_durable), default=0)
        most = min(done + 1, len(APPENDS))
        allowed = [[value for own in self.values[:count] for value in own] for count in range(least, most + 1)]
        assert found in allowed, f"{len(found)} records, and not {[len(each) for each in allowed]}"
        with opened(disk) as log:
            assert values_in(log) == found


@amounts(3, soak=CYCLE, part=1)
def test_no_value_changes_what_recovery_finds(amount: int) -> None:
    """Each phase takes one image of 40, from a drawn one on, and one of 20 in the soak."""
    chance, every = random.Random(seed_of("hostile values")), 20 if amount == CYCLE else 40
    phases = range(CYCLE) if amount == CYCLE else chance.sample(range(CYCLE), amount)
    places_now, count = places(), 0
    for phase in phases:
        values = hostile(places_now, phase)
        judge = Judge(values)
        found = ((image, done) for moment, done in live(values) for image in images(moment, chance))
        for image, done in itertools.islice(found, chance.randrange(every), None, every):
            try:
                judge(image, done)
            except BaseException as problem:
                problem.add_note(f"phase {phase}, {done} appends done")
                raise
        count += len(judge.seen)
    tell(
        f"{len(phases)} of {CYCLE} phases of {len(FORGED)} forged structures, {count} images: refused 0, half appends 0"
    )


def test_no_value_completes_a_frame_whose_header_is_lost() -> None:
    """The header begins with the last two bytes of a sector, and the power cut loses the next sector.

    What stays of the length is that of a shorter frame. It ends in the value, which has the right checksum there. Its
    type is zero. No version has such a type, so this is a torn write.
    """
    kept, short = 2, 1000
    value = bytearray(b"v" * (256**kept + short - (MIN_FRAME_BYTES - LENGTH_BYTES)))
    check = short - CHECKSUM.size + LENGTH_BYTES - HEADER.size
    body = bytes(kept + SECTOR_BYTES - LENGTH_BYTES) + value[kept + SECTOR_BYTES - HEADER.size : check]
    value[check : check + CHECKSUM.size] = CHECKSUM.pack(xxh3_64_intdigest(body))
    disk, moments = SimulatedDisk(), list[Moment]()
    log = opened(disk, replace(SETTINGS, wal_file_bytes=1 << 17))
    log.topic("t").append([b"first"])
    filler = b"f" * (-(log.wal_bytes + MIN_FRAME_BYTES + SYNC_MARK_BYTES + kept) % SECTOR_BYTES)
    log.topic("t").append([filler])
    disk.note = lambda disk: moments.append(disk.moment())
    log.topic("t").append([bytes(value)])
    disk.note = None
    log.close()
    [(before, last)] = [
        (moment.pending[:-1], moment.pending[-1])
        for moment in moments
        if moment.pending and isinstance(moment.pending[-1], Write) and len(moment.pending[-1].data) > len(value)
    ]
    assert isinstance(last, Write)
    first, _, *rest = _sectors(last)
    assert len(first.data) == kept
    with opened(SimulatedDisk(moments[0].image((*before, first, *rest)))) as log:
        assert values_in(log) == [b"first", filler]
