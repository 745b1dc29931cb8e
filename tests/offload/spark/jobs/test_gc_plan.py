from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from catalog.format.commit import ForkPoint
from catalog.format.keys import Key, control_key
from catalog.gc.collector import Collector
from catalog.gc.policy import GcPolicy
from catalog.objects.local import LocalStore
from offload.errors import InvalidOption
from offload.spark.jobs import GcPlanResult, plan_gc
from offload.spark.jobs.__main__ import main
from offload.spark.jobs.progress import JobState
from tests.catalog.gc_world import HOUR_MS, World, fork, grown
from tests.offload.spark.jobs.remotes import kill_after

WINDOW_S, GRACE_S = 6 * 3600, 24 * 3600


def with_garbage() -> World:
    """Return a prefix with ten volumes, merges, deletes, a tag, an orphan and a branch that was deleted."""
    world = World()
    branch = grown(world, 12)
    for number in range(9):
        made = fork(world, f"b{number}", ForkPoint(branch.vid, number + 1))
        for _ in range(number % 3):
            world.offload(made)
        if number == 4:
            for _ in world.tag_steps("kept", ForkPoint(branch.vid, 3)):
                pass
    for _ in range(3):
        world.merge(branch)
        world.delete(branch)
    world.upload(branch.vid, 1, 2)
    world.now_ms += 240 * HOUR_MS
    return world


def copied(world: World, path: Path) -> LocalStore:
    path.parent.mkdir(exist_ok=True)
    store = LocalStore(path)
    for key in list(world.store.list("")):
        store.put_new(Key(key), world.store.get(Key(key)))
    return store


def collector(store: LocalStore, now_ms: int) -> Collector:
    return Collector(store, GcPolicy(WINDOW_S, GRACE_S), clock=lambda: now_ms, writer_id="gc")


def plans_of(store: LocalStore) -> dict[str, bytes]:
    return {key: store.get(Key(key)) for key in store.list("gc/")}


@pytest.mark.long
def test_the_plan_is_byte_for_byte_that_of_gc_which_carries_it_out(
    spark_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = with_garbage()
    ours, theirs = copied(world, tmp_path / "ours"), copied(world, tmp_path / "theirs")
    now_ms = [world.now_ms]
    monkeypatch.setattr(LocalStore, "time_ms", lambda _: now_ms[0])
    clock = SimpleNamespace(now_ms=lambda: now_ms[0])
    monkeypatch.setattr("offload.spark.jobs.gc_plan.SystemClock", lambda: clock)
    monkeypatch.setattr("catalog.gc.plan.os", SimpleNamespace(urandom=bytes))  # a plan's nonce
    report = collector(theirs, now_ms[0]).run()
    assert report.planned["segments"]
    assert report.planned["commits"]

    state = tmp_path / "state"

    def planned(*, dry_run: bool = False) -> GcPlanResult:
        return plan_gc(
            spark_session,
            ours.url,
            window_s=WINDOW_S,
            grace_s=GRACE_S,
            state=state,
            volumes_of_a_task=1,
            dry_run=dry_run,
        )

    kill_after(2, planned, JobState, "add")
    dry = planned(dry_run=True)
    assert plans_of(ours) == {}
    result = planned()
    assert plans_of(ours) == plans_of(theirs) != {}
    assert {row.kind: row.objects for row in result.rows} == {kind: n for kind, n in report.planned.items() if n}
    assert (result.bytes, result.young_segments) == (report.planned_bytes, report.young_segments)
    assert (result.volumes, dry.resumed, result.resumed, result.waiting_plans) == (10, 8, 10, 1)

    now_ms[0] += GRACE_S * 1000
    with pytest.raises(InvalidOption, match="it began more than"):
        planned()
    assert collector(ours, now_ms[0]).run().deleted == collector(theirs, now_ms[0]).run().deleted != {}


@pytest.mark.long
def test_damage_blocks_the_same_volumes_as_in_gc(
    spark_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = with_garbage()
    store = copied(world, tmp_path / "remote")
    damaged = next(each for each in world.branches.values() if each.name == "b7")
    (tmp_path / "remote" / control_key(damaged.vid)).write_bytes(b"nonsense")
    monkeypatch.setattr(LocalStore, "time_ms", lambda _: world.now_ms)
    clock = SimpleNamespace(now_ms=lambda: world.now_ms)
    monkeypatch.setattr("offload.spark.jobs.gc_plan.SystemClock", lambda: clock)
    blocked = len(collector(store, world.now_ms).run(dry_run=True).blocked)
    assert blocked
    words = ["gc", store.url, "--window-s", str(WINDOW_S), "--grace-s", str(GRACE_S), "--dry-run"]
    assert main(words, spark_session) == 5
    out, err = capsys.readouterr()
    assert f"blocked: {blocked}, waiting plans: 0" in out
    assert "left alone" in err
    assert plans_of(store) == {}
