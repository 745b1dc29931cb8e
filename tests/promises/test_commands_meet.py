"""Two commands that meet end as in a serial run. One of them runs whole before a request of the other.

pair                the second ends as
promote, append     before: its record is in the former main. After: its writer is fenced, and keeps the record
promote, promote    before or after, or one of the two is refused and changes nothing
undo, gc            before: the branch is there with its records. After: `undo` is refused, and the branch is gone
restore, gc         before: the branch is there with its records. After: `restore` is refused

Each command is the outer one once. The simulation lets more of them meet, in pieces (tests/simulation/promoting.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from catalog.gc.collector import Collector, GcPolicy
from catalog.objects.memory import MemoryStore
from catalog.objects.object_store import ObjectStore
from catalog.objects.wrapped import WrappedStore
from offload.archive import Archive
from seglog import Log, SeglogError, SystemClock
from tests.faults.stride import every as strided
from tests.offload.replicas import opened, ship, values

pytestmark = pytest.mark.usefixtures("no_pauses")

T = TypeVar("T")
View = dict[str, list[bytes]]
Result = tuple[str, str, View]


class _Before(WrappedStore):
    """Lets `act` run before request number `nth`. Set `nth` to 0 for never."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.nth = 0
        self.act: Callable[[], object] = lambda: None

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        self.nth -= 1
        if self.nth == 0:
            self.act()
        return act()


@dataclass
class World:
    """A remote, and two data directories that use it. The requests of `one` and `two` go through `ways`."""

    store: MemoryStore
    ways: tuple[_Before, _Before]
    one: tuple[Log, Archive]
    two: tuple[Log, Archive]


class _Pair:
    """Two commands: the first by directory `one`, the second by another machine. `prepare` makes their world."""

    def writer(self, world: World) -> tuple[Log, Archive]:
        return world.one

    def prepare(self, world: World) -> None:
        log, archive = self.writer(world)
        ship(archive, log, "t", b"a", b"b")
        ship(archive, log, "t", b"c")
        archive.delete("t", before=3)
        archive.restore("t", to="head~1", name="good")

    def first(self, world: World) -> object:
        raise NotImplementedError

    def second(self, world: World) -> object:
        raise NotImplementedError


class _PromoteAndAppend(_Pair):
    leave = True

    def writer(self, world: World) -> tuple[Log, Archive]:
        return world.two

    def first(self, world: World) -> object:
        return world.one[1].branches.promote_branch("t", "good", keep="bad", leave=self.leave)

    def second(self, world: World) -> object:
        log, archive = world.two
        log.topic("t").append([b"new"])
        log.topic("t").seal()
        return archive.offload("t")


class _PromoteUnlessAppended(_PromoteAndAppend):
    leave = False


class _TwoPromotes(_Pair):
    def prepare(self, world: World) -> None:
        super().prepare(world)
        _, archive = world.one
        archive.restore("t", to="lsn:1", name="other")

    def first(self, world: World) -> object:
        return world.one[1].branches.promote_branch("t", "good", keep="bad", leave=True)

    def second(self, world: World) -> object:
        return world.two[1].branches.promote_branch("t", "other", keep="was", leave=True)


class _UndoAndGc(_Pair):
    def prepare(self, world: World) -> None:
        super().prepare(world)
        log, archive = world.two
        ship(archive, log, "t@good", b"own")
        world.one[1].branches.delete_branch("t", "good")
        _collect(world.store, 1_000)

    def first(self, world: World) -> object:
        return world.one[1].history.undo()

    def second(self, world: World) -> object:
        return _collect(world.ways[1], 2_000)


class _RestoreAndGc(_UndoAndGc):
    def prepare(self, world: World) -> None:
        log, archive = world.one
        ship(archive, log, "t", b"a", b"b")
        archive.delete("t", before=2)
        _collect(world.store, 1_000)

    def first(self, world: World) -> object:
        return world.one[1].restore("t", to="lsn:1", name="back")


_PAIRS = {
    "promote and append": _PromoteAndAppend,
    "promote unless appended": _PromoteUnlessAppended,
    "two promotes": _TwoPromotes,
    "undo and gc": _UndoAndGc,
    "restore and gc": _RestoreAndGc,
}


def _collect(store: ObjectStore, ahead_ms: int) -> object:
    """Collect all that nothing needs now. Some time has passed since the last change."""
    policy = GcPolicy(window_s=0, grace_s=0)
    return Collector(store, policy, clock=lambda: SystemClock().now_ms() + ahead_ms, writer_id="gc").run()


def _outcome(act: Callable[[World], object], world: World) -> str:
    try:
        act(world)
    except SeglogError as error:
        return f"refused with exit code {error.exit_code}"
    return "done"


def _view(world: World, path: Path) -> View:
    """Return what a new machine reads of each branch."""
    with opened(path / "new", world.store) as (_, archive):
        names = [each.branch for each in archive.branches.list("t")]
        return {name: values(archive, "t" if name == "main" else f"t@{name}") for name in names}


def _world(pair: _Pair, path: Path, stack: ExitStack) -> World:
    store = MemoryStore()
    ways = (_Before(store), _Before(store))
    one, two = (stack.enter_context(opened(path / name, way)) for name, way in zip(("one", "two"), ways, strict=True))
    world = World(store, ways, one, two)
    pair.prepare(world)
    return world


def _serial(pair: _Pair, path: Path) -> Iterator[Result]:
    """Yield the results of both orders, and of each command alone, with the other refused."""
    for number, order in enumerate(((0, 1), (1, 0), (0,), (1,))):
        with ExitStack() as stack:
            world = _world(pair, path / f"serial-{number}", stack)
            outcomes = ["", ""]
            for each in order:
                outcomes[each] = _outcome((pair.first, pair.second)[each], world)
            yield outcomes[0], outcomes[1], _view(world, path / f"serial-{number}")


def _met(pair: _Pair, path: Path, outer: int, nth: int) -> Result | None:
    """Run one command whole before request `nth` of the other. Return None if the other makes fewer requests."""
    acts, outcomes = (pair.first, pair.second), ["", ""]
    with ExitStack() as stack:
        world = _world(pair, path, stack)
        way = world.ways[outer]

        def meet() -> None:
            outcomes[1 - outer] = _outcome(acts[1 - outer], world)

        way.act, way.nth = meet, nth
        outcomes[outer] = _outcome(acts[outer], world)
        if not outcomes[1 - outer]:
            return None
        return outcomes[0], outcomes[1], _view(world, path)


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Result]]:
    """Return a function that returns the results of the serial runs of a pair, which it makes once."""
    return functools.cache(lambda name: [*_serial(_PAIRS[name](), tmp_path_factory.mktemp("serial"))])


@strided(19, part=8)
@pytest.mark.parametrize("outer", [0, 1])
@pytest.mark.parametrize("name", _PAIRS)
def test_two_commands_that_meet_end_as_in_a_serial_run(
    name: str, outer: int, every: int, tmp_path: Path, serial: Callable[[str], list[Result]]
) -> None:
    pair = _PAIRS[name]()
    one_way, other_way, first_alone, second_alone = serial(name)
    assert one_way != other_way
    seen = set()
    for nth in range(1 + outer, 1_000, every):
        found = _met(pair, tmp_path / str(nth), outer, nth)
        if found is None:
            break
        conflict = "refused with exit code 4"
        alone = [(first_alone[0], conflict, first_alone[2]), (conflict, second_alone[1], second_alone[2])]
        fine = [one_way, other_way, *(alone if name == "two promotes" else [])]
        assert found in fine, f"before request {nth}"
        seen.add(fine.index(found))
    assert nth > 1 + outer
    assert seen
