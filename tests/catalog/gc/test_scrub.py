"""Scrub: it reports every damage with its key, and nothing else, while writers and GC work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog import checkpointer
from catalog.checkpointer import make_checkpoint
from catalog.format.commit import ForkPoint
from catalog.format.keys import (
    Key,
    boundary_key,
    checkpoints_key,
    commit_key,
    control_key,
    fork_key,
    index_key,
    lists_prefix,
    pin_key,
    ref_key,
    segments_prefix,
    tag_key,
)
from catalog.gc.scrub import Scrub, ScrubReport
from catalog.volume import Volumes
from tests.catalog.gc_world import HOUR_MS, TOPIC, Branch, World
from tests.faults.store import CountingStore, WrappedStore
from tests.seams.limits import Limit, set_limit
from tests.work import amounts


def grown(seed: int = 0) -> tuple[World, Branch, Branch]:
    world = World(seed)
    main = world.root()
    for _ in range(8):
        world.offload(main)
        world.now_ms += HOUR_MS
    world.merge(main)
    world.delete(main)
    [*world.fork_steps("half", ForkPoint(main.vid, 5, 45))]
    half = next(branch for branch in world.branches.values() if branch.name == "half")
    world.offload(half)
    [*world.tag_steps("v1", ForkPoint(main.vid, 2))]
    [*world.pin_steps("job", ForkPoint(main.vid, 3), 100 * HOUR_MS)]
    for lsn in (4, 7):
        make_checkpoint(Volumes(world.store), main.vid, lsn, now_ms=world.now_ms)
    for _ in range(3):
        world.now_ms += 1
        world.collect()
    world.offload(main)
    return world, main, half


def scrub(world: World, *, deep: bool = False) -> ScrubReport:
    return Scrub(world.store, now_ms=world.now_ms).run(deep=deep)


@pytest.mark.parametrize("deep", [False, True])
def test_what_is_whole_is_sound_and_counted(*, deep: bool) -> None:
    world, main, half = grown()
    world.upload(main.vid, 500, 510)
    told: list[tuple[str, int, int | None, str]] = []
    report = Scrub(world.store, now_ms=world.now_ms, watch=lambda *each: told.append(each)).run(deep=deep)
    assert report.findings == []
    assert (report.volumes, report.unreferenced) == (2, 1)
    assert [*dict.fromkeys((phase, unit) for phase, _, _, unit in told)] == [
        ("reading commits", "volumes"),
        *[("reading objects", "bytes")] * deep,
        ("looking for objects", "segments"),
    ]
    read = [(done, total) for phase, done, total, _ in told if phase == "reading objects"]
    assert read[-1:] == [(report.size_bytes, report.size_bytes)] * deep
    segments = {
        key.removesuffix(".index") for vid in (main.vid, half.vid) for key in world.store.list(segments_prefix(vid))
    }
    assert report.segments == len(segments) - 1
    assert report.size_bytes == (2 * 16 * report.segments if deep else 0)


def test_each_object_that_is_missing_is_told() -> None:
    missed = []
    world, _, _ = grown()
    for key in map(Key, [*world.store.list("5"), *world.store.list("refs/")]):
        body = world.store.get(key)
        world.store.delete(key)
        if not scrub(world).findings:
            missed.append(key)
        world.store.put(key, body, {})
    assert scrub(world).findings == []
    # Without its newest commit, its boundary, its checkpoints or its name, a volume is still consistent. So scrub
    # cannot find that they are missing.
    newest = {commit_key(branch.vid, branch.tip.lsn) for branch in world.branches.values()}
    assert {key.split("/")[1] for key in set(missed) - newest} <= {"boundary", "checkpoints", TOPIC}


def test_each_bit_that_is_changed_is_told_by_its_key() -> None:
    world, main, half = grown()
    keys = [
        ref_key(TOPIC, "main"),
        tag_key(TOPIC, "v1"),
        pin_key(main.vid, "job"),
        *(make(vid) for vid in (main.vid, half.vid) for make in (control_key,)),
        boundary_key(main.vid),
        checkpoints_key(main.vid),
        commit_key(half.vid, 1),
        *(Key(key) for key in world.store.list(f"{main.vid}/log/")),
        *(Key(key) for key in world.store.list(segments_prefix(main.vid))),
    ]
    for key in keys:
        body = world.store.get(key)
        world.store.put(key, body[:-1] + bytes([body[-1] ^ 1]), {})
        places = [finding.place for finding in scrub(world, deep=True).findings]
        assert places == [key]
        world.store.put(key, body, {})
    assert scrub(world, deep=True).findings == []


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("length", [5, 17])
def test_an_object_of_another_length_is_told(length: int, *, deep: bool) -> None:
    world, main, _ = grown()
    for key in map(Key, [*world.store.list(segments_prefix(main.vid))][:2]):
        body = world.store.get(key)
        world.store.put(key, bytes(length), {})
        [finding] = scrub(world, deep=deep).findings
        assert (finding.place, finding.reason) == (key, f"it has {length} bytes, its commit says 16")
        world.store.put(key, body, {})


def test_other_content_of_the_same_length_is_told_only_by_a_deep_one() -> None:
    world, main, _ = grown()
    key = Key(next(world.store.list(segments_prefix(main.vid))))
    world.store.put(key, bytes(16), {})
    assert scrub(world).findings == []
    assert [finding.place for finding in scrub(world, deep=True).findings] == [key]


def test_a_list_with_another_length_is_no_ground_for_a_finding() -> None:
    """Other objects have the sizes that a LIST tells: the object is asked for by its key."""
    world, _, _ = grown()

    class Wrong(WrappedStore):
        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            return act()

        def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
            return ((key, 7) for key, _ in super().sizes(prefix))

    assert Scrub(Wrong(world.store), now_ms=world.now_ms).run().findings == []


def test_a_fork_that_its_parent_does_not_know_is_told() -> None:
    world, main, half = grown()
    world.store.delete(fork_key(main.vid, half.vid))
    [finding] = scrub(world).findings
    assert finding.place == fork_key(main.vid, half.vid)


def test_a_checkpoint_that_is_not_what_its_commits_add_up_to_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world, main, _ = grown()
    real = checkpointer.checkpoint_of
    before = Volumes(world.store).snapshot(main.vid, main.tip.lsn - 1)
    monkeypatch.setattr(checkpointer, "checkpoint_of", lambda _, now_ms: real(before, now_ms=now_ms))
    make_checkpoint(Volumes(world.store), main.vid, main.tip.lsn, now_ms=world.now_ms)
    assert scrub(world).findings == []
    [finding] = scrub(world, deep=True).findings
    assert finding.place == commit_key(main.vid, main.tip.lsn)


def test_a_large_list_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limit(monkeypatch, Limit.SEGMENTS_IN_CHECKPOINT_BYTES, 10)
    world, main, _ = grown()
    keys = [Key(key) for key in world.store.list(lists_prefix(main.vid))]
    assert keys
    for key in keys:
        world.store.delete(key)
    assert {finding.place for finding in scrub(world).findings} & set(keys)


def test_a_list_that_is_behind_is_no_ground_for_a_finding() -> None:
    world, _, _ = grown()

    class Behind(WrappedStore):
        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            return iter(()) if method == "list" and key.endswith(("/segments/", "/log/")) else act()

    assert Scrub(Behind(world.store), now_ms=world.now_ms).run().findings == []


@pytest.mark.long
@amounts(5, soak=200, part=8)
@pytest.mark.parametrize("deep", [False, True])
def test_no_false_alarm_while_others_write_merge_fork_and_collect(*, deep: bool, amount: int) -> None:
    for seed in range(amount):
        world, main, half = grown(seed)

        class Busy(WrappedStore):
            def _call(self, method, key, act, world=world, main=main, half=half):  # type: ignore[no-untyped-def]
                world.now_ms += HOUR_MS // 4
                match world.random.randrange(40):
                    case 0 | 1:
                        world.offload(world.random.choice([main, half]))
                    case 2:
                        world.merge(main)
                    case 3:
                        world.delete(half)
                    case 4 | 5 | 6:
                        world.collect()
                    case 7:
                        world.checkpoint(main)
                    case 8:
                        [*world.fork_steps(f"b{world.now_ms}", ForkPoint(main.vid, main.tip.lsn))]
                return act()

        assert Scrub(Busy(world.store), now_ms=world.now_ms).run(deep=deep).findings == []


def test_it_changes_nothing_and_asks_no_object_by_name_that_a_list_shows() -> None:
    world, _, _ = grown()
    before = world.objects()
    counting = CountingStore(world.store)
    Scrub(counting, now_ms=world.now_ms).run()
    assert world.objects() == before
    assert counting.counts["head"] == 1  # the fork object
    assert set(counting.counts) <= {"get", "get_range", "list", "head"}


def test_an_index_object_alone_is_told() -> None:
    world, main, _ = grown()
    sid = main.tip.segments[-1].ref.sid
    world.store.delete(index_key(main.vid, sid))
    assert [finding.place for finding in scrub(world).findings] == [index_key(main.vid, sid)]
