"""The tasks of a simulation: the base class, and readers, forkers, taggers, pinners and checkpointers.

A task crashes now and then. Its next process continues from the local catalog. Each task records the answers that it
gets in the model. A clear answer becomes one value. A lost answer becomes two values, of which either may be true.
"""

from __future__ import annotations

import contextlib
from random import Random
from typing import Any

from catalog import MAIN, Branches, ForkPoint, LocalCatalog, Time, Vid, Volumes, make_checkpoint, resolve
from catalog.errors import (
    BranchExists,
    CatalogError,
    Conflict,
    HistoryCollected,
    InvalidObject,
    Missing,
    NoSuchBranch,
    NoSuchTag,
    NoSuchTopic,
    OutcomeUnknown,
    OutOfWindow,
    PinLost,
    Unavailable,
)
from catalog.format.control import DEAD
from catalog.history import retry_if_collected
from catalog.objects.store_time import MOST_OFF_MS
from catalog.refs.state_names import HeldPin, Pins, Tags
from offload.read.cold_reader import ColdReader
from tests.simulation.database import database_of, path_of
from tests.simulation.ground import Way
from tests.simulation.journal import State
from tests.simulation.model import COLD, Broken, Held, Model, records_of
from tests.simulation.schedule import DAY_MS, Clock, Schedule, Task

__all__ = [
    "TOPIC",
    "Checkpointer",
    "Forker",
    "Member",
    "Pinner",
    "Reader",
    "Tagger",
]

TOPIC = "bank"
_PIN_MS = 900_000
_SET_RATE = 0.05


class Member(Task):
    """A task that shares the store. It acts `turns` times. If `rests` is set, it rests between its turns."""

    turns = 30
    rests = False
    clock_range_ms = (-MOST_OFF_MS, MOST_OFF_MS)

    def __init__(self, schedule: Schedule, model: Model, name: str) -> None:
        self.model = model
        self.left = self.turns
        self.clock = Clock(schedule, *self.clock_range_ms)
        self.database = database_of(self, self.prepared)
        schedule.databases[path_of(name)] = self.database
        super().__init__(schedule, name)

    def live(self) -> None:
        self.store = Way(self.model.ground, self.schedule, self)
        self.local = LocalCatalog(path_of(self.name) / "catalog.db")
        self.volumes = Volumes(self.store, self.local)
        self.begin()
        while self.left:
            self.left -= 1
            self.wakes_ms = self.now_ms + (self.random.randrange(self.schedule.rest_ms) if self.rests else 0)
            self.hand_over()
            if self.schedule.chance(_SET_RATE):
                self.clock.set_anew()
            with contextlib.suppress(Unavailable, Conflict):  # a later turn tries again
                self.turn()

    def prepared(self, handle: dict[str, Any], attempt: dict[str, Any] | None) -> None:
        """Called when the local catalog has recorded a pending commit."""

    def begin(self) -> None:
        """Start a process of the task."""

    def turn(self) -> None:
        raise NotImplementedError

    @property
    def random(self) -> Random:
        return self.schedule.random

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    @property
    def latest_ms(self) -> int:
        """Return the highest time that the clock of a GC run shows."""
        return self.schedule.now_ms + MOST_OFF_MS

    def some_volume(self) -> Vid | None:
        """Return a volume that an acked name leads to. Return None if there is none."""
        named = [value.vid for values in self.model.names.values() if len(values) == 1 for value in values]
        alive = sorted({vid for vid in named if vid is not None})
        return self.random.choice(alive) if alive else None

    def some_point(self) -> ForkPoint | None:
        """Return a commit within the window, sometimes cut at a seq. Return None if no such commit was drawn."""
        vid = self.some_volume()
        if vid is None:
            return None
        volume = self.model.volumes[vid]
        lsns = volume.promised(self.schedule.now_ms - self.model.window_ms)
        # The oldest state in the window is where GC and the tasks that hold states race.
        lsn = lsns[0] if self.schedule.chance(0.4) else self.random.choice(lsns)
        if lsn == 0:
            return None
        cut = None
        if self.schedule.chance(0.3) and volume.pasts[lsn - 1].state:
            cut = self.random.choice(sorted(volume.pasts[lsn - 1].state))
            cut = None if cut >= volume.head_seq(lsn) else cut
        return ForkPoint(vid, lsn, cut)


class Reader(Member):
    """Reads promised states by LSN and by time, and compares each with the model."""

    turns = 40
    may_crash = False

    def turn(self) -> None:
        vid = self.some_volume()
        if vid is None:
            self.hand_over()
            return
        if self.schedule.chance(0.5):
            self.volumes = Volumes(self.store)
        self.reader = ColdReader(self.store, COLD)
        if self.schedule.chance(0.3):
            self._read_by_time(vid)
            return
        lsn = self.random.choice(self.model.volumes[vid].promised(self.schedule.now_ms - self.model.window_ms))
        self._read(ForkPoint(vid, lsn))

    def _read(self, point: ForkPoint) -> None:
        try:
            found = records_of(self.reader, self.volumes.snapshot(point.vid, point.lsn))
        except Unavailable:
            raise
        except CatalogError as error:
            if self.model.is_promised(point):
                raise Broken(f"{point} cannot be read: {type(error).__name__}: {error}") from error
            return
        if found != self.model.state(point) and not self._met_a_late_commit(point):
            raise Broken(f"{point} reads as something else")

    def _met_a_late_commit(self, point: ForkPoint) -> bool:
        """Return True if this reader slept longer than the window, and may have met a late commit.

        It is a known limit (docs/internals/limits-in-full.md).
        """
        return self.model.is_replaced(point) and not self.model.is_promised(point)

    def _read_by_time(self, vid: Vid) -> None:
        volume = self.model.volumes[vid]
        if not volume.pasts:
            return
        newest_ms = volume.pasts[-1].max_ts_ms
        now_ms = self.schedule.now_ms
        ms = self.random.randrange(now_ms - self.model.window_ms, now_ms)
        if ms > newest_ms:
            return
        wanted = self.model.at_time(vid, ms)
        found = self._found_by_time(vid, ms, tries=3)
        if found is None:
            return
        # A delete whose record came with an earlier commit may have landed since, with a time before `ms`.
        if found not in (wanted, self.model.at_time(vid, ms)):
            raise Broken(f"{vid} at {ms} reads as something else: {sorted(found)}, {sorted(wanted)}")

    def _found_by_time(self, vid: Vid, ms: int, tries: int) -> State | None:
        """Return the state at `ms`, or None if it is no longer kept.

        GC may collect the state between the lookup and the read. If so, try again, `tries` times in all.
        """
        try:
            point = retry_if_collected(
                lambda: self.volumes.history(vid, newest_lsn(self.volumes, vid)),
                lambda history: resolve(Time(ms), history, self.reader.last_seq_at),
            )
            return records_of(self.reader, self.volumes.snapshot(point.vid, point.lsn, point.seq))
        except Missing as error:
            is_before_all = isinstance(error, OutOfWindow) and not self.model.at_time(vid, ms)
            if is_before_all or ms < self.schedule.now_ms - self.model.window_ms or (TOPIC, vid) not in self._alive():
                return None
            if tries == 1 or isinstance(error, OutOfWindow):
                raise Broken(f"{vid} at {ms} cannot be read: {error}") from error
            return self._found_by_time(vid, ms, tries - 1)

    def _alive(self) -> set[tuple[str, Vid | None]]:
        return {
            (topic, value.vid)
            for (topic, _), values in self.model.names.items()
            for value in values
            if value.deleted_at_ms is None and len(values) == 1
        }


class Forker(Member):
    """Creates, deletes and undeletes branches, and looks them up."""

    turns = 60
    rests = True

    def begin(self) -> None:
        self.branches = Branches(self.volumes, self.name)
        self.mine: list[str] = [branch for _, branch in self.model.names if branch.startswith(self.name)]

    def turn(self) -> None:
        drawn = self.random.random()
        if drawn < 0.3 or not self.mine:
            self._fork()
        elif drawn < 0.6:
            self._delete()
        elif drawn < 0.9:
            self._undelete()
        elif drawn < 0.95:
            self._look()
        else:
            self._list()

    def _list(self) -> None:
        """Check the listed branches. The list may miss branches, but each listed one was looked up."""
        before = {name: set(values) for (_, name), values in self.model.names.items()}
        try:
            listed = self.branches.branches(TOPIC)
        except NoSuchTopic:  # the LIST had no name of the topic yet
            return
        for found in listed:
            values = before.get(found.branch, {Held(None)}) if found.branch in self.mine else set[Held]()
            if len(values) == 1 and values != {Held(found.vid)}:
                raise Broken(f"{found.branch} is listed as {found.vid}, and was acked as {values}")

    def _fork(self) -> None:
        point = self.some_point()
        if point is None:
            self.hand_over()
            return
        branch = f"{self.name}-{len(self.mine)}"
        self.mine.append(branch)
        # If the answer of a fork is lost, its volume is unknown. Two possible values switch off the checks of the name.
        self.model.names[TOPIC, branch] = {Held(None), Held(None, 0)}
        begun_ms = self.now_ms
        try:
            vid = self.branches.create(TOPIC, branch, point, now_ms=begun_ms)
        except Missing as error:
            # A volume without a name is collected once it is older than the grace.
            if self.model.is_promised(point) and self.latest_ms < begun_ms + self.model.grace_ms:
                raise Broken(f"no fork at {point}: {error}") from error
        except BranchExists as error:
            raise Broken(f"{branch} is there already") from error
        except HistoryCollected as error:
            if self.latest_ms < begun_ms + self.model.grace_ms:
                raise Broken(f"the volume of {branch} was collected before its time: {error}") from error
            self._now(branch, Held(None))
        else:
            self._now(branch, Held(vid))

    def _delete(self) -> None:
        branch = self.random.choice(self.mine)
        vid = self._vid_of(branch)
        if vid is None:
            return
        before = self.model.names[TOPIC, branch]
        self.model.names[TOPIC, branch] = {Held(vid), Held(vid, self.now_ms)}
        try:
            deleted = self.branches.delete(TOPIC, branch, now_ms=self.now_ms)
        except NoSuchBranch as error:
            if len(before) == 1:
                raise Broken(f"{branch} was acked, and is not there") from error
        else:
            self._now(branch, Held(vid, deleted.deleted_at_ms))

    def _undelete(self) -> None:
        branch = self.random.choice(self.mine)
        values = self.model.names[TOPIC, branch]
        if len(values) > 1:
            return
        [value] = values
        if value.deleted_at_ms is None:
            return
        self.model.names[TOPIC, branch] = {value, Held(value.vid)}
        try:
            self.branches.undelete(TOPIC, branch, now_ms=self.now_ms)
        except Missing as error:
            is_due = value.deleted_at_ms + self.model.window_ms <= self.latest_ms
            if not is_due:
                raise Broken(f"{branch} cannot be had back: {error}") from error
            self.model.given_up[TOPIC, branch] = value.vid
            self._now(branch, Held(None))
        else:
            self._now(branch, Held(value.vid))

    def _look(self) -> None:
        branch = self.random.choice(self.mine)
        values = self.model.names[TOPIC, branch]
        try:
            found = self.branches.resolve(TOPIC, branch)
        except (NoSuchBranch, NoSuchTopic):
            if all(value.vid is not None and value.deleted_at_ms is None for value in values):
                raise Broken(f"{branch} was acked, and is not there") from None
            return
        if len(values) == 1 and values != {Held(found)}:
            raise Broken(f"{branch} is {found}, and was acked as {values}")

    def _vid_of(self, branch: str) -> Vid | None:
        values = self.model.names[TOPIC, branch]
        alive = {value.vid for value in values if value.deleted_at_ms is None}
        return alive.pop() if len(values) == 1 and alive else None

    def _now(self, branch: str, value: Held) -> None:
        self.model.names[TOPIC, branch] = {value}


class Tagger(Member):
    """Names states, and deletes the names."""

    rests = True

    def begin(self) -> None:
        self.tags = Tags(self.volumes, self.name)

    def turn(self) -> None:
        name = f"{self.name}-{self.random.randrange(6)}"
        known = self.model.tags.get((TOPIC, name), {None})
        if None in known:
            self._make(name, known)
        elif self.schedule.chance(0.3):
            self._delete(name, known)
        elif self.schedule.chance(0.5):
            self._look(name, known)
        else:
            self._list()

    def _list(self) -> None:
        """Check the listed tags. The list may miss tags, but each listed one was looked up."""
        for found in self.tags.list(TOPIC):
            known = self.model.tags.get((TOPIC, found.name), {found.tag.point})
            if found.tag.point not in known and found.name.startswith(self.name):
                raise Broken(f"tag {found.name} is listed as {found.tag.point}, and was {known}")

    def _make(self, name: str, known: set[ForkPoint | None]) -> None:
        point = self.some_point()
        if point is None:
            self.hand_over()
            return
        self.model.tags[TOPIC, name] = {*known, point}
        try:
            self.tags.create(TOPIC, name, point, branch=MAIN, now_ms=self.now_ms)
        except Missing as error:
            if self.model.is_promised(point):
                raise Broken(f"no tag at {point}: {error}") from error
        except Conflict as error:
            if "has a tag" not in str(error):
                raise
            if known == {None}:
                raise Broken(f"tag {name} is there already") from error
        else:
            self.model.tags[TOPIC, name] = {point}

    def _delete(self, name: str, known: set[ForkPoint | None]) -> None:
        self.model.tags[TOPIC, name] = {*known, None}
        try:
            self.tags.delete(TOPIC, name, now_ms=self.now_ms)
        except NoSuchTag as error:
            raise Broken(f"tag {name} was acked, and is not there") from error
        self.model.tags[TOPIC, name] = {None}

    def _look(self, name: str, known: set[ForkPoint | None]) -> None:
        try:
            found = self.tags.get(TOPIC, name)
        except NoSuchTag as error:
            raise Broken(f"tag {name} was acked, and is not there") from error
        if found.point not in known:
            raise Broken(f"tag {name} is {found.point}, and was {known}")


class Pinner(Member):
    """Pins a state for a while, and reads it while GC runs."""

    turns = 60
    rests = True

    def begin(self) -> None:
        self.pins = Pins(self.volumes)
        self.held: HeldPin | None = None

    def turn(self) -> None:
        if self.held is None:
            self._hold()
            return
        drawn = self.random.random()
        if drawn < 0.4:
            self._renew(self.held)
        elif drawn < 0.5:
            self.model.pins.pop(self.held.key, None)
            held, self.held = self.held, None
            self.pins.release(held, now_ms=self.now_ms)
        else:
            self._read(self.held)

    def _hold(self) -> None:
        point = self.some_point()
        if point is None:
            self.hand_over()
            return
        ttl_ms = self.random.choice((_PIN_MS, 20 * DAY_MS, 60 * DAY_MS))
        try:
            held = self.pins.hold(point, self.name, ttl_ms=ttl_ms, now_ms=self.now_ms)
        except OutOfWindow as error:
            if self.model.is_promised(point):
                raise Broken(f"no pin at {point}: {error}") from error
        else:
            self.held = held
            self._note(held)

    def _renew(self, held: HeldPin) -> None:
        begun_ms, ttl_ms = self.now_ms, 3 * DAY_MS
        # After a crash here, either time may be the pin's expiry. The new time may be the earlier one.
        until_ms = min(held.pin.expires_at_ms, max(begun_ms, self.schedule.now_ms) + ttl_ms)
        self.model.pins[held.key] = (held.pin.point, until_ms)
        try:
            self.held = self.pins.renew(held, ttl_ms=ttl_ms, now_ms=begun_ms)
        except PinLost:
            self.held = None
            self.model.pins.pop(held.key, None)
            if held.pin.expires_at_ms > self.latest_ms:
                raise Broken(f"{held.key} was lost before its time") from None
        except OutcomeUnknown:
            self.held = None
            self.model.pins.pop(held.key, None)
            raise
        else:
            self._note(self.held)

    def _read(self, held: HeldPin) -> None:
        try:
            point = held.pin.point
            found = records_of(
                ColdReader(self.store, COLD), Volumes(self.store).snapshot(point.vid, point.lsn, point.seq)
            )
        except Missing as error:
            if held.pin.expires_at_ms > self.latest_ms:
                raise Broken(f"{held.key} holds {held.pin.point}, which is gone: {error}") from error
            self.held = None
            return
        if found != self.model.state(held.pin.point):
            raise Broken(f"{held.pin.point} reads as something else")

    def _note(self, held: HeldPin) -> None:
        self.model.pins[held.key] = (held.pin.point, held.pin.expires_at_ms)


class Late(Member):
    """Takes the topic's oldest state in the window, which leaves the window soon, and often stalls before its write."""

    critical_rate = 0.5

    def some_point(self) -> ForkPoint | None:
        values = [*self.model.names.get((TOPIC, MAIN), ())]
        if len(values) != 1 or values[0].vid is None:
            return None
        lsn = self.model.volumes[values[0].vid].promised(self.schedule.now_ms - self.model.window_ms)[0]
        return ForkPoint(values[0].vid, lsn) if lsn else None


class LateForker(Late, Forker):
    """A forker whose branches all start at the oldest state in the window."""


class LatePinner(Late, Pinner):
    """A pinner that abandons its pin after a few reads."""

    def turn(self) -> None:
        super().turn()
        if self.held is not None and self.schedule.chance(0.3):
            self.model.pins.pop(self.held.key, None)
            self.held = None  # the pin stays until it expires, but no task reads its state


class Checkpointer(Member):
    """Makes any commit a checkpoint, at any time, beside the regular checkpoints of the writers."""

    turns = 15

    def turn(self) -> None:
        vid = self.some_volume()
        lsns = self.model.volumes[vid].promised(self.schedule.now_ms - self.model.window_ms) if vid else range(0)
        own = [lsn for lsn in lsns if lsn]
        if vid is None or not own:
            self.hand_over()
            return
        lsn = self.random.choice(own)
        try:
            make_checkpoint(Volumes(self.store), vid, lsn, now_ms=self.now_ms)
        except Missing as error:
            if self.model.is_promised(ForkPoint(vid, lsn)):
                raise Broken(f"no checkpoint at lsn {lsn} of {vid}: {error}") from error


def newest_lsn(volumes: Volumes, vid: Vid) -> int:
    """Return the newest LSN by the rule of `catalog.updates`: an object at an LSN below the boundary does not count.

    Raise InvalidObject if a commit is damaged and the boundary is not above it.
    """
    listed = volumes.newest_lsn(vid)
    damage: InvalidObject | None = None
    newest = listed
    try:
        newest += len(volumes.next_commits(vid, listed))
    except InvalidObject as error:
        damage = error
    boundary = volumes.boundary(vid)
    if listed + 1 < boundary < DEAD:
        return max(boundary, volumes.newest_lsn(vid))
    if damage is not None:
        raise damage
    return newest
