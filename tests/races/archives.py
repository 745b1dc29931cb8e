"""Calls of archives that meet: two data directories with one remote. The first call is of `one`, which writes the
topic, and the second of `two`, another machine.

The topic has three segments in the remote, and a sealed one that only `one` has. It has the branches `f` and `g`, a
deleted branch `h`, a lease of the first commit, and a plan of GC that is due. The plan names the second commit.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from catalog import Volumes
from catalog.errors import Conflict
from catalog.format.keys import plan_of, plans_prefix
from catalog.gc.collector import Collector, GcPolicy
from catalog.objects.object_store import ObjectStore
from offload import Archive
from offload.load import LoadRequest, open_load, publish_load, write_part
from offload.operations.command import COMMANDS
from offload.operations.command import Directory as Place
from seglog import Log
from seglog.format.frames import take_apart
from tests.offload.samples import Sample, frame_of
from tests.races.export import exported
from tests.races.meeting import meet
from tests.races.remote import ERRORS, state_of_remote
from tests.races.serial import Result
from tests.races.turns import Turns
from tests.races.world import BEGINNING, Beginning, World

__all__ = ["OPERATIONS", "Archives"]

TOPIC = "t"


@dataclass(frozen=True)
class Directory:
    """One machine: its log, its archive, and its way to the remote."""

    log: Log
    archive: Archive
    world: World

    @property
    def store(self) -> ObjectStore:
        return self.world.store


def _append(directory: Directory) -> object:
    topic = directory.archive.open_for_append(TOPIC)
    topic.append([b"new"])
    topic.seal()
    return "appended"


def _append_and_offload(directory: Directory) -> object:
    _append(directory)
    return len(directory.archive.offload(TOPIC).published)


def _export(directory: Directory) -> object:
    host: Any = types.SimpleNamespace(takes_lines=False)
    place = Place(lambda: (directory.log, directory.archive), host)
    parts = {Log: directory.log, Archive: directory.archive, Place: place}

    def call(path: str, values: Mapping[str, Any]) -> Iterator[Any]:
        command = COMMANDS[path]
        return command.run(parts[command.works_on], command.arguments(values))

    return exported(call, TOPIC)


def _take_over(directory: Directory) -> object:
    directory.archive.replication.sync(TOPIC)
    directory.archive.replication.take_over(TOPIC)
    return "taken over"


def _load(directory: Directory, *, take_over: bool) -> object:
    now_ms = directory.world.now_ms() + 1
    request = LoadRequest(TOPIC, rows=((0, 1),), take_over=take_over)
    volumes = Volumes(directory.store)
    load = open_load(volumes, request, writer_id="load", now_ms=now_ms)
    frames = take_apart([frame_of(Sample(b"loaded"), load.first_seq_of(0), load.start_ms)])
    part = write_part(directory.store, load, 0, iter([frames]), now_ms=lambda: load.start_ms)
    publish_load(volumes, load, [part], writer_id="load", now_ms=load.start_ms)
    return "loaded"


def _collector(directory: Directory) -> Collector:
    policy = GcPolicy(window_s=0, grace_s=0)
    return Collector(directory.store, policy, clock=lambda: directory.world.now_ms() + 1_000, writer_id="gc")


def _collect(directory: Directory) -> object:
    _collector(directory).run()
    return "collected"


def _mark(directory: Directory) -> object:
    _collector(directory).run(plans_only=True)
    return "marked"


def _sweep(directory: Directory) -> object:
    number = max(filter(None, map(plan_of, directory.world.objects.list(plans_prefix()))), default=1)
    try:
        _collector(directory).apply(number)
    except Conflict as error:  # a name that came later keeps its objects back one by one
        if "something may need now" not in str(error):
            raise
    return "swept"


def _pin(directory: Directory) -> object:
    history = directory.archive.history
    history.pin(history.point(TOPIC, "lsn:2"), 3600)
    return "pinned"


def _release_the_lease(directory: Directory) -> object:
    pins = directory.archive.pins
    pins.release(next(each.held.name for each in pins.list(TOPIC) if each.held.pin.point.lsn == 1))
    return "released"


def _promote(branch: str, keep: str, *, carry: bool = False) -> Callable[[Directory], object]:
    def promote(directory: Directory) -> object:
        done = directory.archive.branches.promote_branch(TOPIC, branch, keep=keep, carry=carry, leave=not carry)
        return len(done.carried) if done.carried else 0

    return promote


def _promote_and_append(directory: Directory) -> object:
    _promote("g", "was")(directory)
    directory.archive.replication.sync(TOPIC)
    return _append_and_offload(directory)


OPERATIONS: Mapping[str, Callable[[Directory], object]] = {
    "append": _append,
    "offload": lambda each: len(each.archive.offload(TOPIC).published),
    "append and offload": _append_and_offload,
    "release": lambda each: each.archive.release(TOPIC, at_once=True),
    "delete": lambda each: each.archive.delete(TOPIC, before=2).lsn is not None,
    "evict": lambda each: each.archive.evict(TOPIC, 2).lsn is not None,
    "truncate": lambda each: each.archive.truncate(TOPIC, 3).lsn is not None,
    "restore": lambda each: each.archive.restore(TOPIC, to="lsn:2", name="back") and "restored",
    "export": _export,
    "undo": lambda each: str(each.archive.history.undo()) and "undone",
    "promote": _promote("f", "kept"),
    "promote another": _promote("g", "was"),
    "promote and carry": _promote("f", "kept", carry=True),
    "take over": _take_over,
    "load": lambda each: _load(each, take_over=False),
    "load and take over": lambda each: _load(each, take_over=True),
    "sync": lambda each: each.archive.replication.sync(TOPIC) and "synced",
    "reset": lambda each: each.archive.replication.reset(TOPIC, discard=True) and "reset",
    "tag": lambda each: each.archive.tags.tag(TOPIC, "named", to="lsn:2") and "tagged",
    "pin": _pin,
    "release the lease": _release_the_lease,
    "delete the branch": lambda each: each.archive.branches.delete_branch(TOPIC, "g").branch,
    "undelete the branch": lambda each: each.archive.branches.undelete_branch(TOPIC, "h").branch,
    "rename the branch": lambda each: each.archive.branches.rename_branch(TOPIC, "g", "other").branch,
    "compact": lambda each: each.archive.upkeep.compact(TOPIC) and "compacted",
    "collect": _collect,
    "mark": _mark,
    "sweep": _sweep,
}
#: A call of two steps, for a mutant alone: another call may come between them.
IN_TWO_STEPS = {"promote another and append": _promote_and_append}


@dataclass
class Archives:
    """A scene: the calls of two machines."""

    name: str = "archives"
    calls: Mapping[str, Callable[[Directory], object]] = field(default_factory=lambda: OPERATIONS)
    _begun: list[Beginning] = field(default_factory=list)

    def run(self, pair: tuple[str, str], order: str, seed: int) -> Result:
        if not self._begun:
            self._begun.append(_begin())
        turns = Turns(seed)
        world = World(turns, self._begun[0])

        def main() -> Result:
            with world.databases(), world.opened("one") as one, world.opened("two") as two:
                directories = [Directory(*each, world) for each in (one, two)]
                if order.startswith("o"):
                    directories[0].archive.offload(TOPIC)
                acts = [
                    lambda directory=directory, call={**self.calls, **IN_TWO_STEPS}[name]: _outcome(call, directory)
                    for directory, name in zip(directories, pair, strict=True)
                ]
                answers = meet(turns, acts, order.removeprefix("o"))
                return Result(answers, state_of_remote(world, TOPIC))

        return turns.run(main)  # type: ignore[no-any-return]

    def allows(self, pair: tuple[str, str], met: Result, serial: Callable[[str], Result]) -> str:
        """Return why a result is fine that no order gives.

        an offload first              many calls offload what their directory has, as a step of its own. So the other
                                      call may come right after it: `oab` is `ab` after an offload of `one`
        one is refused for the race   it changed nothing that readers see but for that offload, so the other one is as
                                      alone
        a delete or a truncation made no commit   its writer is fenced, and has it in its own log only
        undo or delete beside a promotion   it takes a name away that the promotion takes away, too (PROMOTE-3)
        a carry first                 a promotion carries records to its branch as a step of its own, too. They stay
                                      there if it is refused. What comes after that stays in the former main
        undo beside a rename          it takes the rename back before its end, and so the rename is refused
        two changes of one name       each finds the name that the other one gave, takes its own back and is refused
                                      (NAME-1)
        the same call twice           both make the same change, or one ends the change that the other one began
        """
        for order in ("oab", "oba"):
            if met == serial(order):
                return "a call of `one` had offloaded before the other call"
        for number, alone in enumerate("ba"):
            is_of_promotion = pair[number] in ("undo", "delete the branch") and pair[1 - number] == "promote another"
            both = not any(isinstance(each, list) for each in met.answers)
            if is_of_promotion and both and met.state in (serial(alone).state, serial(f"o{alone}").state):
                return "the branch's name went after the promotion had given it another"
        if "promote and carry" in pair:
            others = [serial(order) for order in ("ab", "ba", "oab", "oba", "a", "b", "oa", "ob")]
            if any(_less_carried(met.state) == _less_carried(each.state) for each in others if _is_alike(met, each)):
                return "a promotion had carried records before the other call"
            left = [self._if_left(pair, order).state for order in ("ab", "ba", "oab", "oba")]
            if any(_less_carried(met.state) == _less_carried(each) for each in left):
                return "what came after the look of a promotion stayed in the former main"
        if met.answers == (_NAME_LOST, _NAME_LOST) and met.state == serial("").state:
            return "two changes of one name were refused for each other, and changed nothing"
        for number, alone in enumerate("ab"):
            other = met.answers[1 - number]
            is_refused = isinstance(other, list) and other[0] == "refused" and other[1] == 4
            for one in (serial(alone), serial(f"o{alone}")):
                is_as_alone = met.answers[number] == one.answers[number] and met.state == one.state
                if other is False and is_as_alone:
                    return "a writer was fenced, and its change is in its own log only"
                if is_refused and is_as_alone:
                    return "one call was refused for the other, and changed nothing"
            if is_refused and pair[number] == "undo":
                orders = ("ab", "oab") if number else ("ba", "oba")
                if any(met.state == serial(order).state for order in (*orders, "o", "")):
                    return "an undo took the other call back before its end"
            both = pair in _ALIKE and met.answers[number] == met.answers[1 - number] == serial(alone).answers[number]
            if both and met.state in (serial("a").state, serial("b").state, serial("ob").state):
                return "two calls made one change"
        return ""

    def _if_left(self, pair: tuple[str, str], order: str) -> Result:
        """Return what an order would give if the promotion carried nothing."""
        first, second = ("promote" if each == "promote and carry" else each for each in pair)
        return self.run((first, second), order, 0)


def _less_carried(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state without the record that a promotion carries to `f`, which is main then."""
    return {
        name: [each for each in found if each != (5, "5")] if name in ("f", "main") else found
        for name, found in state.items()
    }


def _is_alike(met: Result, one: Result) -> bool:
    """Return whether the answers are the same, but for the number of carried records and the call that was refused."""
    return all(
        other is None and mine[0] == "refused" and mine[1] == 4 if isinstance(mine, list) else type(mine) is type(other)
        for mine, other in zip(met.answers, one.answers, strict=True)
    )


#: The answer of a call that gave a volume a name, and then found that another call had done so, too.
_NAME_LOST = ["refused", 4, "VolumeHasName"]

#: Pairs of calls that make the same change.
_ALIKE = {
    ("delete the branch", "delete the branch"),
    ("sweep", "sweep"),
    *itertools.product(("promote", "promote and carry"), repeat=2),
    ("promote another", "promote another"),
}


def _outcome(call: Callable[[Directory], object], directory: Directory) -> object:
    try:
        return call(directory)
    except ERRORS as error:
        return ["refused", error.exit_code, type(error).__name__]


def _begin() -> Beginning:
    turns = Turns(BEGINNING)
    world = World(turns, Beginning())

    def main() -> Beginning:
        with world.databases():
            with world.opened("one") as (log, archive), world.opened("two") as (_, other):
                topic = log.topic(TOPIC)
                for values in ([b"1", b"2"], [b"3"], [b"4"]):
                    topic.append(values)
                    topic.seal()
                    archive.offload(TOPIC)
                    turns.now_s += 1
                for name in ("f", "g", "h"):
                    archive.restore(TOPIC, to="head", name=name)
                    turns.now_s += 1
                lost = archive.open_for_append(f"{TOPIC}@h")
                lost.append([b"lost"])
                lost.seal()
                archive.offload(f"{TOPIC}@h")
                archive.delete_topic(f"{TOPIC}@h", detach=True)
                archive.branches.delete_branch(TOPIC, "h")
                archive.history.pin(archive.history.point(TOPIC, "lsn:1"), 3600)
                other.replication.sync(TOPIC)
                turns.now_s += 1
                _mark(Directory(log, archive, world))
                topic.append([b"5"])
                topic.seal()
            return world.end()

    return turns.run(main)  # type: ignore[no-any-return]
