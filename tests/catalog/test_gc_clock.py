"""GC and other callers that judge by age, on a machine whose clock is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import TypeVar

import pytest

from catalog import Branches, LocalStore, MemoryStore
from catalog.errors import ClocksDisagree
from catalog.format.commit import ForkPoint
from catalog.gc.collector import Collector
from catalog.gc.policy import GcPolicy
from catalog.objects.store_time import MOST_OFF_MS, ahead_ms, check_clock, earliest_ms, latest_ms, measured_ahead_ms
from catalog.objects.wrapped import WrappedStore
from catalog.refs.state_names import Pins
from catalog.volume import Volumes
from tests.catalog.gc_world import HOUR_MS, TOPIC, World, fork, grown

T = TypeVar("T")
DAY_MS = 24 * HOUR_MS


def collector(world: World, clock: Callable[[], int], grace_s: int = 0) -> Collector:
    return Collector(world.store, GcPolicy(world.window_ms // 1000, grace_s), clock=clock, writer_id="gc")


@pytest.mark.parametrize("off_ms", [30 * DAY_MS, 2 * HOUR_MS, -2 * HOUR_MS, -30 * DAY_MS])
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_clock_that_stays_wrong_costs_nothing_however_many_runs_there_are(off_ms: int, dry_run: bool) -> None:
    world = World()
    grown(world)
    world.collect()  # its plan, made at the right time, waits
    before = world.objects()
    for days in range(4):
        wrong = collector(world, lambda days=days: world.now_ms + off_ms + days * DAY_MS)
        with pytest.raises(ClocksDisagree) as told:
            wrong.run(dry_run=dry_run)
        assert abs(told.value.ahead_ms - off_ms - days * DAY_MS) < 1000
    assert world.objects() == before
    assert world.check() > 3


def test_the_error_says_which_clock_by_how_much_and_what_to_do() -> None:
    world = World()
    with pytest.raises(ClocksDisagree) as told:
        collector(world, lambda: world.now_ms + 40 * DAY_MS).run()
    assert str(told.value) == (
        "gc did not begin: this machine's clock is 39 days ahead of that of memory:// "
        "(2025-12-24T09:12:03Z here, 2025-11-14T09:12:03Z there), and may differ by 60 s"
    )
    assert "NTP" in str(told.value.hint)
    assert (told.value.exit_code, told.value.bound_ms) == (1, MOST_OFF_MS)
    with pytest.raises(ClocksDisagree, match="is 2 hours behind that of memory"):
        collector(world, lambda: world.now_ms - 2 * HOUR_MS - 5000).run()


def test_a_clock_within_the_bound_is_right() -> None:
    world = World()
    grown(world)
    for off_ms in (MOST_OFF_MS, -MOST_OFF_MS):
        assert collector(world, lambda off_ms=off_ms: world.now_ms + off_ms).run().is_clock_checked


def clock_that_jumps(world: World, after: int) -> Callable[[], int]:
    """Return a clock that is right for `after` readings, and a month ahead from then on."""
    offs: Iterator[int] = chain(repeat(0, after), repeat(30 * DAY_MS))
    return lambda: world.now_ms + next(offs)


def test_a_clock_that_jumps_in_the_run_deletes_and_plans_nothing_more() -> None:
    for after in range(1, 8):  # one reading, then two per question to the store: before and after
        world = World()
        grown(world)
        world.collect()
        world.now_ms += 1
        before = world.objects()
        run = collector(world, clock_that_jumps(world, after)).run
        if after <= 3:
            with pytest.raises(ClocksDisagree):
                run()
            assert world.objects() == before  # the clock jumped before the run executed the plan
        else:
            assert run().deleted
        assert world.check() > 3


def test_no_plan_is_of_before_its_run_began() -> None:
    """Otherwise a clock that is set back during the run makes the plan look old and shortens its grace."""

    class PutBack(WrappedStore):
        def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
            if method == "list":
                world.true_ms -= HOUR_MS  # this moves the machine's clock too
            return act()

    world = World()
    grown(world)
    began_ms = world.now_ms
    policy = GcPolicy(1, 3600)
    report = Collector(PutBack(world.store), policy, clock=lambda: world.now_ms, writer_id="gc").run()
    assert [each.due_ms for each in report.waiting] == [began_ms + HOUR_MS]


def test_a_pin_of_a_holder_whose_clock_is_behind_holds_as_long_as_it_says() -> None:
    world = World()
    main = grown(world)
    pins = Pins(Volumes(world.store))
    behind_ms = world.now_ms - DAY_MS
    held = pins.hold(ForkPoint(main.vid, 3), "job", ttl_ms=HOUR_MS, now_ms=behind_ms)
    assert held.pin.expires_at_ms == world.true_ms // 1000 * 1000 + HOUR_MS
    world.now_ms += HOUR_MS // 2
    again = pins.renew(held, ttl_ms=HOUR_MS, now_ms=behind_ms)
    assert again.pin.expires_at_ms == world.true_ms // 1000 * 1000 + HOUR_MS
    ahead = pins.hold(ForkPoint(main.vid, 3), "job", ttl_ms=HOUR_MS, now_ms=world.now_ms + DAY_MS)
    assert ahead.pin.expires_at_ms == world.now_ms + DAY_MS + HOUR_MS


def test_a_branch_deleted_by_a_clock_that_is_behind_can_be_had_back_for_the_window() -> None:
    world = World()
    main = grown(world)
    fork(world, "half", ForkPoint(main.vid, 9))
    branches = Branches(Volumes(world.store))
    gone = branches.delete(TOPIC, "half", now_ms=world.now_ms - 30 * DAY_MS)
    assert gone.deleted_at_ms == world.true_ms // 1000 * 1000
    for _ in range(3):
        world.now_ms += HOUR_MS
        world.collect()
    branches.undelete(TOPIC, "half", now_ms=world.now_ms)
    world.check()


def test_the_later_and_the_earlier_of_two_clocks() -> None:
    store = MemoryStore(lambda: 5_999)
    assert (latest_ms(store, 4_000), latest_ms(store, 7_001)) == (5_000, 7_001)
    assert (earliest_ms(store, 4_000), earliest_ms(store, 7_001)) == (4_000, 5_000)
    timeless = MemoryStore()
    assert (latest_ms(timeless, 1), earliest_ms(timeless, 1), check_clock(timeless, lambda: 1, "")) == (1, 1, None)


def test_a_directory_tells_the_time_of_a_file_just_written_and_leaves_none(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "remote")
    told = store.time_ms()
    assert told is not None
    assert told % 1000 == 0
    assert [path for path in (tmp_path / "remote").rglob("*") if path.is_file()] == []
    from seglog import SystemClock

    assert measured_ahead_ms(store, SystemClock().now_ms) == 0
    assert ahead_ms(5_000, 5_000, 5_000) == 0
