"""A conformance suite for the promises of every segment store (SEGSTORE-1 to SEGSTORE-4).

To test another implementation, add it to STORES: a function that takes an own directory and returns an empty store.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog.tiers.segment_store import (
    LocalSegmentStore,
    MemorySegmentStore,
    Part,
    SegmentId,
    SegmentStore,
    Tier,
    TopicTier,
)
from seglog.values.layout import Layout
from tests.faults.files import CrashingFiles, Effects, PowerCutFiles, SimulatedCrash, UnsyncedFiles
from tests.worlds.segment_store_suite import (
    ONE,
    TWO,
    test_a_delete_takes_the_whole_segment_and_may_be_repeated,
    test_a_large_segment_is_whole,
    test_a_range_past_the_end_is_told_and_never_cut_short,
    test_a_segment_may_be_put_again_with_other_flags,
    test_an_empty_store_has_nothing,
    test_both_parts_come_back_in_ranges,
    test_segments_are_listed_oldest_first,
    test_threads_share_a_store,
    test_what_is_not_there_is_no_such_segment,
    test_what_was_put_is_not_the_callers_any_more,
)

__all__ = [
    "test_a_delete_takes_the_whole_segment_and_may_be_repeated",
    "test_a_large_segment_is_whole",
    "test_a_range_past_the_end_is_told_and_never_cut_short",
    "test_a_segment_may_be_put_again_with_other_flags",
    "test_an_empty_store_has_nothing",
    "test_both_parts_come_back_in_ranges",
    "test_segments_are_listed_oldest_first",
    "test_threads_share_a_store",
    "test_what_is_not_there_is_no_such_segment",
    "test_what_was_put_is_not_the_callers_any_more",
]


def local(root: Path) -> LocalSegmentStore:
    return LocalSegmentStore(UnsyncedFiles(), Layout(root), 0xA)


STORES: dict[str, Callable[[Path], SegmentStore]] = {
    "directory": local,
    "memory": lambda _: MemorySegmentStore(),
    "tier, hot only": lambda root: TopicTier(local(root)),
    "tier": lambda root: TopicTier(local(root), MemorySegmentStore()),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SegmentStore:
    return STORES[request.param](tmp_path)


actions = st.lists(
    st.tuples(st.sampled_from(["put", "delete"]), st.integers(1, 4).map(SegmentId), st.binary(max_size=20)), max_size=20
)


@pytest.mark.parametrize("name", STORES)
@settings(max_examples=25, deadline=None)
@given(actions)
def test_a_store_is_what_a_dictionary_is(
    tmp_path_factory: pytest.TempPathFactory, name: str, steps: list[tuple[str, SegmentId, bytes]]
) -> None:
    store = STORES[name](tmp_path_factory.mktemp("store"))
    model: dict[SegmentId, bytes] = {}
    for action, segment, data in steps:
        if action == "put":
            store.put(segment, data, data[::-1])
            model[segment] = data
        else:
            store.delete(segment)
            model.pop(segment, None)
        assert store.list() == sorted(model)
    for segment, data in model.items():
        assert store.read_range(segment, Part.DATA, 0, len(data)) == data
        assert store.read_range(segment, Part.IDX, 0, len(data)) == data[::-1]


# ---------------------------------------------------------------- the directory


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("action", ["put", "put again", "delete"])
def test_a_power_cut_leaves_a_segment_or_none(tmp_path: Path, action: str, seed: int | None) -> None:
    data, idx = bytes(range(256)) * 8, b"index" * 200

    def act(files: Effects, root: Path) -> None:
        store = LocalSegmentStore(files, Layout(root), 1)
        if action == "delete":
            store.delete(TWO)
        else:
            store.put(TWO, data, idx if action == "put" else idx.upper())

    for at in range(1, 100):
        base, left = tmp_path / f"{at}", tmp_path / f"{at}-left"
        base.mkdir()
        LocalSegmentStore(UnsyncedFiles(), Layout(base), 1).put(ONE, b"other", b"other")
        if action != "put":
            LocalSegmentStore(UnsyncedFiles(), Layout(base), 1).put(TWO, data, idx)
        disk = PowerCutFiles(UnsyncedFiles(), base)
        try:
            act(CrashingFiles(disk, at), base)
            finished = True
        except SimulatedCrash:
            finished = False
        disk.after_power_cut(left, None if seed is None else seed * 1000 + at)
        store = LocalSegmentStore(UnsyncedFiles(), Layout(left), 1)
        assert ONE in store.list()
        if TWO in store.list():
            assert store.read_range(TWO, Part.DATA, 0, store.length(TWO, Part.DATA)) == data
            assert store.read_range(TWO, Part.IDX, 0, store.length(TWO, Part.IDX)).lower() == idx
        if finished:
            assert (TWO in store.list()) == (action != "delete")
            break
        act(Effects(UnsyncedFiles()), left)
        assert (TWO in store.list()) == (action != "delete")
    else:
        pytest.fail("it does not come to an end")


def test_a_root_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    store = local(tmp_path / "not mounted")
    assert store.list() == []
    with pytest.raises(FileNotFoundError):
        store.put(ONE, b"data", b"idx")
    assert list(tmp_path.iterdir()) == []


def test_half_a_segment_is_not_listed_and_may_be_deleted(tmp_path: Path) -> None:
    store = local(tmp_path)
    store.put(ONE, b"data", b"idx")
    store.put(TWO, b"data", b"idx")
    Layout(tmp_path).idx(0xA, ONE).unlink()
    assert store.list() == [TWO]
    store.delete(ONE)
    assert not store.exists(ONE, Part.DATA)


# ---------------------------------------------------------------- the tier


class Broken(MemorySegmentStore):
    """A warm store whose `exists` and `read_range` fail. Only a caller that needs the warm copy may notice."""

    def exists(self, segment: SegmentId, part: Part) -> bool:
        raise OSError(5, "cold trouble")

    def read_range(self, segment: SegmentId, part: Part, offset: int, length: int) -> bytes:
        raise OSError(5, "cold trouble")


def test_a_segment_in_both_is_read_from_the_hot_one() -> None:
    hot, warm = MemorySegmentStore(), MemorySegmentStore()
    tier = TopicTier(hot, warm)
    warm.put(ONE, b"cold", b"i")
    assert tier.resolve(ONE) is Tier.WARM
    hot.put(ONE, b"hot!", b"i")
    assert tier.resolve(ONE) is Tier.HOT
    assert tier.read_range(ONE, Part.DATA, 0, 4) == b"hot!"
    assert tier.list() == [ONE]
    tier.delete(ONE)
    assert tier.resolve(ONE) is None
    assert TopicTier(hot).resolve(ONE) is None


def test_cold_trouble_does_not_touch_what_is_hot_and_is_never_absence() -> None:
    tier = TopicTier(MemorySegmentStore(), Broken())
    tier.put(ONE, b"data", b"idx")
    assert tier.resolve(ONE) is Tier.HOT
    assert tier.read_range(ONE, Part.DATA, 0, 4) == b"data"
    for call in (lambda: tier.resolve(TWO), lambda: tier.read_range(TWO, Part.DATA, 0, 4)):
        with pytest.raises(OSError, match="cold trouble"):
            call()
