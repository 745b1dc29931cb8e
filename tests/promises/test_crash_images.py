"""A log recovers from every disk that a crash may leave. Every durable record is there, and no record that never was.

A life of a log runs on a simulated disk. At each of its effects, the test recovers every legal image of that disk:

    first life     the whole workload; power cut at each effect
    after a kill   the process dies at each effect, not the disk. The next process sees what is not durable yet;
                   power cut in its recovery, and at each effect after it
    after a cut    a log opens some of the images and lives on; power cut in recovery, and at each effect after it

The test does the same with a warm store on the same disk, to which the log relocates segments. It also does the same
with a life of truncations, evictions, caps and ttls, in which the clock moves (`limits_life.py`). A recovery has its
own clock, which is behind the clock of the life.

The durable state after a recovery, and after the close, must recover to the same state. A second recovery of what the
first one left must find nothing to do.
"""

from __future__ import annotations

import functools
import itertools
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType

import pytest

from seglog import LogSettings
from tests.faults.crash_images import DIRECTORY, Explorer, Note, opened
from tests.faults.disk import Image, SimulatedDisk
from tests.seglog import limits_life, workload
from tests.seglog.workload import SETTINGS, SHARDED, TIERED, Bounds, Journal, look
from tests.work import tell

ALL = 10_000  # More moments than a life has.


@dataclass(frozen=True)
class Work:
    """The number of moments that the test draws from the first life. Each field has its own draw.

    `kills` moments get a life after a kill, `cuts` moments a life after a power cut. The test recovers all images of
    `moments` moments. Each moment has up to `subsets` of the sets of changes that a power cut may leave. In a later
    life the test takes one moment in `every`.
    """

    kills: int
    cuts: int
    moments: int
    subsets: int = 8
    every: int = 1

    def __str__(self) -> str:
        lives = f"1 moment of {self.every} in lives after {self.kills} kills and {self.cuts} cuts"
        return f"{lives}, all images of {self.moments} moments"


def first_life(settings: LogSettings, later: LogSettings | None = None, life: ModuleType = workload) -> list[Note]:
    journal = Journal()
    notes: list[Note] = []
    tree = Image({str(DIRECTORY.parent): None, str(DIRECTORY.parent / "cold"): None})
    disk = SimulatedDisk(tree, _noting(notes, lambda: (journal.bounds(), journal)))
    life.live(DIRECTORY, disk, journal, settings, later)
    relocated = [path for path in disk.after_power_cut().tree if path.startswith("/parent/cold/topics/")]
    assert bool(relocated) == bool(settings.cold_dir)
    return notes


def next_life(
    make: Callable[[Callable[[SimulatedDisk], None]], SimulatedDisk],
    before: Note,
    settings: LogSettings,
    life: ModuleType = workload,
) -> list[Note]:
    """Live on from the opening, on the disk that `make` gives. Until the log is open, the promises of `before` hold."""
    bounds, journal, is_open = before.bounds, before.journal, False
    notes: list[Note] = []
    disk = make(_noting(notes, lambda: (journal.bounds() if is_open else bounds, journal)))
    with opened(disk, settings) as log:
        journal = journal.resumed(look(log), bounds)
        is_open = True
        log.attach_cold(journal.archive)
        life.live_on(log, journal)
    return notes


def _noting(notes: list[Note], promised: Callable[[], tuple[Bounds, Journal]]) -> Callable[[SimulatedDisk], None]:
    def note(disk: SimulatedDisk) -> None:
        bounds, journal = promised()
        if notes and notes[-1].bounds == bounds:
            bounds = notes[-1].bounds
        notes.append(Note(disk.moment(), bounds, journal))

    return note


def after_kills(notes: list[Note], settings: LogSettings, life: ModuleType) -> Iterator[list[Note]]:
    """Yield a life after a kill at each moment. The life sees what is not durable yet."""
    for note in notes:
        yield next_life(functools.partial(SimulatedDisk.resume, note.moment), note, settings, life)


def after_cuts(
    notes: list[Note], chance: random.Random, settings: LogSettings, life: ModuleType
) -> Iterator[list[Note]]:
    """Yield a life after a power cut at each moment, on any image of that moment."""
    for note in notes:
        image = chance.choice(list(note.moment.images(chance, 8)))
        yield next_life(functools.partial(SimulatedDisk, image), note, settings, life)


def _prove(
    work: Work,
    *,
    seed: int,
    settings: LogSettings = SETTINGS,
    first: tuple[LogSettings, LogSettings] | None = None,
    life: ModuleType = workload,
) -> None:
    """Prove the promise for `work`.

    `first` holds the settings of the first life's two parts, if they differ from `settings`.
    """
    explorer = Explorer(random.Random(seed), settings)
    notes = first_life(*(first or (settings, settings)), life)
    some, cuts = functools.partial(_some, notes, explorer.chance), explorer.chance.choices(notes, k=work.cuts)
    killed = after_kills(some(work.kills), settings, life)
    for more in itertools.chain(killed, after_cuts(cuts, explorer.chance, settings, life)):
        explorer.explore_cuts(more[explorer.chance.randrange(work.every) :: work.every], work.subsets)
    explorer.explore(some(work.moments), work.subsets)
    tell(f"{work}, {explorer.figures()}")
    for kind, what in explorer.faults.items():
        assert not what, f"{kind}: {what[:3]}"


def _some(notes: list[Note], chance: random.Random, most: int) -> list[Note]:
    """Return up to `most` notes, spread evenly over the life from a drawn one on."""
    count, first = min(most, len(notes)), chance.random()
    return [notes[int((first + number) * len(notes) / count)] for number in range(count)]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Silence the warnings: the tests cut thousands of torn tails."""
    caplog.set_level(logging.ERROR, "seglog")


def test_every_crash_leaves_a_disk_that_recovers() -> None:
    _prove(Work(kills=2, cuts=2, moments=2, every=30), seed=1)


@pytest.mark.long
def test_every_crash_with_a_cold_store_leaves_a_disk_that_recovers() -> None:
    _prove(Work(kills=1, cuts=1, moments=1, every=60), seed=3, settings=TIERED)


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "between", "after"),
    [(3, 2, 2), *(pytest.param(*each, marks=pytest.mark.long) for each in [(1, 2, 3), (2, 3, 1)])],
)
def test_every_crash_with_shards_whose_number_changes(before: int, between: int, after: int) -> None:
    first = (SHARDED[before], SHARDED[between])
    _prove(Work(kills=1, cuts=1, moments=1, every=40), seed=after, settings=SHARDED[after], first=first)


@pytest.mark.parametrize("settings", [SETTINGS, TIERED, SHARDED[2]])
def test_every_crash_of_truncation_and_retention_leaves_a_disk_that_recovers(settings: LogSettings) -> None:
    _prove(Work(kills=1, cuts=1, moments=1, every=40), seed=6, settings=settings, life=limits_life)


@pytest.mark.soak(part=1)
def test_crash_images_by_the_hundred_thousand() -> None:
    _prove(Work(kills=ALL, cuts=450, moments=ALL, subsets=32), seed=2)


@pytest.mark.soak(part=1)
def test_crash_images_with_a_cold_store_by_the_hundred_thousand() -> None:
    _prove(Work(kills=150, cuts=75, moments=150, subsets=32), seed=4, settings=TIERED)


@pytest.mark.soak(part=1)
def test_crash_images_with_shards_by_the_ten_thousand() -> None:
    first = (SHARDED[3], SHARDED[1])
    _prove(Work(kills=150, cuts=50, moments=150, subsets=32), seed=5, settings=SHARDED[2], first=first)


@pytest.mark.soak(part=1)
@pytest.mark.parametrize("settings", [SETTINGS, TIERED, SHARDED[2]])
def test_crash_images_of_truncation_and_retention_by_the_ten_thousand(settings: LogSettings) -> None:
    _prove(Work(kills=30, cuts=15, moments=150, subsets=16), seed=7, settings=settings, life=limits_life)
