from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from seglog.errors import InvalidSetting, NoSuchSegment, SegmentCut
from seglog.files.file_system import Files, replace_atomically
from seglog.maintenance.relocation import HotRetention, relocate, to_relocate
from seglog.segments.segment import SegmentInfo
from seglog.tiers.segment_store import LocalSegmentStore, MemorySegmentStore, Part, SegmentId, Tier, TopicTier
from seglog.values.layout import Layout
from tests.faults.files import CrashingFiles, PowerCutFiles, SimulatedCrash, UnsyncedFiles

DATA, IDX = bytes(range(256)) * 8, b"index" * 200
ONE = SegmentId(1)


def infos(*sizes: int, active: bool = False) -> list[SegmentInfo]:
    """Return segments of one record each, with the first seqs 1, 2, 3 and so on."""
    segments = [SegmentInfo(seq, seq, size, 0, 0, sealed=True) for seq, size in enumerate(sizes, 1)]
    return [*segments, SegmentInfo(99, 99, 1000, 0, 0, sealed=False)] if active else segments


# ---------------------------------------------------------------- the decision


@pytest.mark.parametrize(
    ("sizes", "retention", "leave"),
    [
        ((), HotRetention(), []),
        ((5, 5, 5, 5), HotRetention(), []),
        ((5, 5, 5, 5, 5, 5), HotRetention(), [1, 2]),
        ((5, 5, 5), HotRetention(hot_retain_segments=0), [1, 2, 3]),
        ((5, 5, 5), HotRetention(hot_retain_bytes=10), [1]),
        ((5, 5, 5), HotRetention(hot_retain_bytes=9), [1, 2]),
        ((5, 5, 5), HotRetention(hot_retain_bytes=4), [1, 2, 3]),
        ((1, 1, 1, 1, 1, 1), HotRetention(hot_retain_bytes=1000), [1, 2]),
        ((9, 1, 1), HotRetention(hot_retain_segments=3, hot_retain_bytes=5), [1]),
    ],
)
def test_the_stricter_bound_decides_what_leaves(
    sizes: tuple[int, ...], retention: HotRetention, leave: list[int]
) -> None:
    assert to_relocate(infos(*sizes), retention) == leave
    assert to_relocate(infos(*sizes, active=True), retention) == leave


@given(st.lists(st.integers(1, 50), max_size=12), st.integers(0, 6), st.integers(0, 200))
def test_what_stays_is_the_most_that_both_bounds_allow(sizes: list[int], segments: int, size_bytes: int) -> None:
    leave = to_relocate(infos(*sizes), HotRetention(segments, size_bytes))
    stay = sizes[len(leave) :]
    assert leave == list(range(1, len(leave) + 1))

    def fits(kept: list[int]) -> bool:
        return len(kept) <= segments and (size_bytes == 0 or sum(kept) <= size_bytes)

    assert fits(stay)
    assert not leave or not fits(sizes[len(leave) - 1 :])


@pytest.mark.parametrize("bound", ["hot_retain_segments", "hot_retain_bytes"])
def test_a_bound_below_zero_is_refused(bound: str) -> None:
    with pytest.raises(InvalidSetting, match=bound):
        HotRetention(**{bound: -1})


# ---------------------------------------------------------------- the effect


class Pointer:
    """A file that lists the warm segments. It stands for the topic's metadata."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path

    def warm(self) -> list[int]:
        return list(json.loads(self._path.read_bytes())) if self._path.exists() else []

    @contextmanager
    def flip(self, segment: SegmentId, check: int) -> Iterator[None]:
        assert check == xxh3_64_intdigest(IDX)
        replace_atomically(self._files, self._path, json.dumps(sorted({*self.warm(), segment})).encode())
        yield


def no_pointer(segment: SegmentId, check: int) -> AbstractContextManager[None]:
    return nullcontext()


def opened(files: Files, root: Path) -> tuple[TopicTier, Pointer]:
    hot, warm = (LocalSegmentStore(files, Layout(root / name), 1) for name in ("hot", "cold"))
    return TopicTier(hot, warm), Pointer(files, root / "pointer")


def made(root: Path) -> None:
    for name in ("hot", "cold"):
        (root / name).mkdir(parents=True)
    opened(UnsyncedFiles(), root)[0].put(ONE, DATA, IDX)


def check_whole(tier: TopicTier) -> None:
    assert tier.read_range(ONE, Part.DATA, 0, tier.length(ONE, Part.DATA)) == DATA
    assert tier.read_range(ONE, Part.IDX, 0, tier.length(ONE, Part.IDX)) == IDX


def check(root: Path, *, finished: bool) -> None:
    """Check that the segment is readable with and without the pointer. Then complete the relocation."""
    tier, pointer = opened(UnsyncedFiles(), root)
    assert tier.list() == [ONE]
    check_whole(tier)
    where = tier.resolve(ONE)
    assert where is Tier.HOT or pointer.warm() == [ONE]
    if pointer.warm():
        assert tier.warm is not None
        check_whole(TopicTier(tier.warm))
    if finished:
        assert where is Tier.WARM
    relocate(tier, ONE, pointer.flip)
    assert (tier.resolve(ONE), tier.hot.list(), pointer.warm()) == (Tier.WARM, [], [ONE])
    check_whole(tier)


@pytest.mark.parametrize("cut", [None, 0, 1, 2, 3], ids=["process dies", *("power cut",) * 4])
def test_a_crash_at_any_operation_loses_nothing_and_it_goes_on(tmp_path: Path, cut: int | None) -> None:
    for at in range(1, 100):
        base, left = tmp_path / str(at), tmp_path / f"{at}-left"
        made(base)
        disk = PowerCutFiles(UnsyncedFiles(), base)
        tier, pointer = opened(CrashingFiles(disk, at, tear=cut is None), base)
        try:
            relocate(tier, ONE, pointer.flip)
            finished = True
        except SimulatedCrash:
            finished = False
        if cut is None:
            left = base
        else:
            disk.after_power_cut(left, cut * 1000 + at if cut else None)
        check(left, finished=finished)
        if finished:
            assert at > 15
            return
    pytest.fail("it does not come to an end")


def test_a_relocation_may_be_repeated(tmp_path: Path) -> None:
    made(tmp_path)
    tier, pointer = opened(UnsyncedFiles(), tmp_path)
    for _ in range(3):
        relocate(tier, ONE, pointer.flip)
    check(tmp_path, finished=True)
    with pytest.raises(NoSuchSegment):
        relocate(tier, SegmentId(2), pointer.flip)
    with pytest.raises(InvalidSetting):
        relocate(TopicTier(MemorySegmentStore()), ONE, pointer.flip)


class Lossy(MemorySegmentStore):
    """A store that accepts every put, and keeps fewer, more or other bytes."""

    def __init__(self, spoil: int | None) -> None:
        super().__init__()
        self.spoil = spoil

    def put(self, segment: SegmentId, data: bytes, idx: bytes) -> None:
        if self.spoil is None:
            super().put(segment, data, idx[:-1])
        elif self.spoil == len(data):
            super().put(segment, data + b"?", idx)
        else:
            super().put(segment, data[: self.spoil] + b"?" + data[self.spoil + 1 :], idx)


@pytest.mark.parametrize("spoil", [None, 0, 700, len(DATA) - 1, len(DATA)])
def test_the_hot_copy_stays_when_the_cold_one_does_not_read_back(tmp_path: Path, spoil: int | None) -> None:
    hot = MemorySegmentStore()
    hot.put(ONE, DATA, IDX)

    def flip(segment: SegmentId, check: int) -> AbstractContextManager[None]:
        raise AssertionError((segment, check))

    with pytest.raises(SegmentCut):
        relocate(TopicTier(hot, Lossy(spoil)), ONE, flip)
    check_whole(TopicTier(hot))


def test_a_stale_cold_copy_is_replaced_before_it_counts() -> None:
    hot, warm = MemorySegmentStore(), MemorySegmentStore()
    hot.put(ONE, DATA, IDX)
    warm.put(ONE, DATA, b"older flags")
    relocate(TopicTier(hot, warm), ONE, no_pointer)
    check_whole(TopicTier(warm))


class Counting(MemorySegmentStore):
    def __init__(self) -> None:
        super().__init__()
        self.puts = 0

    def put(self, segment: SegmentId, data: bytes, idx: bytes) -> None:
        self.puts += 1
        super().put(segment, data, idx)


def test_a_cold_copy_that_is_seen_and_perhaps_not_durable_is_put_again() -> None:
    hot, warm = MemorySegmentStore(), Counting()
    for store in (hot, warm):
        store.put(ONE, DATA, IDX)
    relocate(TopicTier(hot, warm), ONE, no_pointer)
    assert warm.puts == 2


def test_when_the_pointer_cannot_be_flipped_the_hot_copy_stays() -> None:
    hot, warm = MemorySegmentStore(), MemorySegmentStore()
    hot.put(ONE, DATA, IDX)

    def fail(segment: SegmentId, check: int) -> AbstractContextManager[None]:
        raise OSError(5, "no pointer")

    with pytest.raises(OSError, match="no pointer"):
        relocate(TopicTier(hot, warm), ONE, fail)
    check_whole(TopicTier(hot))
    relocate(TopicTier(hot, warm), ONE, no_pointer)
    check_whole(TopicTier(warm))
