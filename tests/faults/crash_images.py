"""The images that a crash may leave, each recovered, and judged by what was acked before."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import seglog
from seglog import Log, LogSettings
from seglog.engine.work_thread import InCaller
from tests.faults.disk import Image, Moment, SimulatedDisk
from tests.seglog.workload import Bounds, Found, Journal, look
from tests.worlds.clock import HandClock

__all__ = ["DIRECTORY", "Explorer", "Note", "Recovery", "opened"]

DIRECTORY = Path("/parent/log")


@dataclass(frozen=True)
class Note:
    """A moment in a life, and what the journal promised then."""

    moment: Moment
    bounds: Bounds
    journal: Journal


@dataclass(frozen=True)
class Recovery:
    """The result of recovering one image.

    `found` is the state that the recovery shows. `kept` is the disk that it leaves after a kill, `cut` are those after
    power cuts. `is_settled` says that the recovery changed nothing.
    """

    found: Found
    is_settled: bool
    kept: Image
    cut: tuple[Image, ...]


@dataclass
class Explorer:
    chance: random.Random
    settings: LogSettings
    recoveries: dict[bytes, Recovery | str] = field(default_factory=dict)
    founds: dict[str, Found] = field(default_factory=dict)
    judged: dict[tuple[int, int], tuple[Found, Note]] = field(default_factory=dict)
    opens: int = 0
    faults: dict[str, list[str]] = field(
        default_factory=lambda: {"lost": [], "phantom": [], "failed opens": [], "not idempotent": []}
    )

    def explore(self, notes: list[Note], subsets: int) -> None:
        for note in notes:
            for image in note.moment.images(self.chance, subsets):
                self.judge(_without_lock(image), note)

    def explore_cuts(self, notes: list[Note], subsets: int) -> None:
        """Judge the durable image of each moment, and for one moment in ten another image too."""
        for note in notes:
            self.judge(_without_lock(note.moment.image(())), note)
            if self.chance.random() < 0.1:
                self.judge(_without_lock(self.chance.choice(list(note.moment.images(self.chance, subsets)))), note)

    def judge(self, image: Image, note: Note) -> None:
        recovery = self.recover(image)
        if isinstance(recovery, str):
            self.faults["failed opens"].append(recovery)
            return
        # Both objects stay alive, so their ids stay unique.
        key = (id(recovery.found), id(note.bounds))
        if key in self.judged:
            return
        self.judged[key] = recovery.found, note
        for kind, verdict in (
            ("lost", note.journal.lost(recovery.found, note.bounds)),
            ("phantom", note.journal.phantom(recovery.found, note.bounds)),
        ):
            if verdict is not None:
                self.faults[kind].append(verdict)

    def recover(self, image: Image) -> Recovery | str:
        known = self.recoveries.get(image.digest)
        if known is None:
            known = self.recoveries[image.digest] = self._recover(image)
            if isinstance(known, Recovery) and not known.is_settled:
                self._recover_again(known, known.kept, must_be_settled=True)
                for image in known.cut:
                    self._recover_again(known, image)
        return known

    def _recover(self, image: Image) -> Recovery | str:
        self.opens += 1
        disk = SimulatedDisk(image)
        try:
            with opened(disk, self.settings) as log:
                found = self._shared(look(log))
                kept, cut = _without_lock(disk.after_kill()), _without_lock(disk.after_power_cut())
            closed = _without_lock(disk.after_power_cut())
        except (seglog.SeglogError, OSError) as error:
            return f"{type(error).__name__}: {error}"
        return Recovery(found, kept.digest == image.digest, kept, (cut, closed))

    def _recover_again(self, first: Recovery, image: Image, *, must_be_settled: bool = False) -> None:
        again = self.recover(image)
        if isinstance(again, str):
            self.faults["failed opens"].append(f"after a recovery: {again}")
        elif again.found != first.found:
            self.faults["not idempotent"].append(f"{first.found} and then {again.found}")
        elif must_be_settled and not again.is_settled:
            self.faults["not idempotent"].append(f"the second recovery changed something: {sorted(image.tree)}")

    def _shared(self, found: Found) -> Found:
        return self.founds.setdefault(repr(found), found)

    def figures(self) -> str:
        counts = ", ".join(f"{kind}: {len(what)}" for kind, what in self.faults.items())
        return f"{len(self.recoveries)} distinct images, {self.opens} recoveries; {counts}"


def opened(disk: SimulatedDisk, settings: LogSettings) -> Log:
    return seglog.open(DIRECTORY, files=disk, settings=settings, clock=HandClock(1_000), upkeep=InCaller)


def _without_lock(image: Image) -> Image:
    """Return the image without the lock file. Its text names the holder, and is no state of the log."""
    lock = str(DIRECTORY / "LOCK")
    return Image({path: body for path, body in image.tree.items() if path != lock}) if lock in image.tree else image
