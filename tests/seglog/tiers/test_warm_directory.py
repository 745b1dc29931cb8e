"""A warm directory lies apart from the data directory and belongs to one log only."""

from __future__ import annotations

import os
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

import seglog
from seglog import Log, LogSettings, SameFile, WarmDirectoryNotApart, WarmDirectoryTaken
from seglog.engine.work_thread import InCaller
from seglog.files.file_system import OsFiles
from seglog.maintenance.relocation import relocate
from seglog.tiers.segment_store import LocalSegmentStore, Part, SegmentId, SegmentStore, SegmentStores, TopicTier
from seglog.values.layout import Layout
from tests.faults.files import UnsyncedFiles
from tests.worlds.clock import HandClock

VALUES = [b"%d" % number for number in range(50)]


def opened(
    data: Path,
    cold_dir: str | Path = "",
    *,
    stores: SegmentStores | None = None,
    read_only: bool = False,
    files: OsFiles | None = None,
) -> Log:
    settings = LogSettings(segment_max_events=10, hot_retain_segments=0, cold_dir=str(cold_dir))
    return seglog.open(
        data,
        settings=settings,
        clock=HandClock(1_000),
        upkeep=InCaller,
        warm_stores=stores,
        read_only=read_only,
        files=files,
    )


def fill(log: Log) -> None:
    for value in VALUES:
        log.topic("t").append([value], durability="memory")
    log.checkpoint()


def values(log: Log) -> list[bytes]:
    return [record.value for record in log.topic("t").read()]


def warm(log: Log) -> int:
    return sum(not info.is_hot for info in log.topic("t").inner.segments())


def local(root: Path) -> SegmentStores:
    return lambda topic_id: LocalSegmentStore(OsFiles(), Layout(root), topic_id)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log of 50 records without a warm directory."""
    with opened(tmp_path / "data") as log:
        fill(log)
    return tmp_path / "data"


# ---------------------------------------------------------------- outside the data directory


def the_directory_itself(data: Path) -> str:
    return "."


def by_its_parent(data: Path) -> str:
    return "../data"


def a_link_to_it(data: Path) -> str:
    (data.parent / "link").symlink_to(data)
    return str(data.parent / "link")


def its_topics(data: Path) -> str:
    return "topics"


def a_folder_of_a_topic(data: Path) -> str:
    return "topics/00000001"


def its_wal(data: Path) -> str:
    return "wal"


def linked_topics(data: Path) -> str:
    (data.parent / "cold").mkdir()
    (data.parent / "cold/topics").symlink_to(data / "topics")
    return "../cold"


def a_linked_topic(data: Path) -> str:
    (data.parent / "cold/topics").mkdir(parents=True)
    (data.parent / "cold/topics/00000001").symlink_to(data / "topics/00000001")
    return "../cold"


def topics_linked_to_the_directory(data: Path) -> str:
    (data.parent / "cold").mkdir()
    (data.parent / "cold/topics").symlink_to(data)
    return "../cold"


def the_directory_within_its_topics(data: Path) -> str:
    (data.parent / "cold/topics").mkdir(parents=True)
    data.rename(data.parent / "cold/topics/data")
    data.symlink_to(data.parent / "cold/topics/data")
    return str(data.parent / "cold")


def the_data_directory_of_another_log(data: Path) -> str:
    with opened(data.parent / "other") as log:
        fill(log)
    return "../other"


PLACES = [
    the_directory_itself,
    by_its_parent,
    a_link_to_it,
    its_topics,
    a_folder_of_a_topic,
    its_wal,
    linked_topics,
    a_linked_topic,
    topics_linked_to_the_directory,
    the_directory_within_its_topics,
    the_data_directory_of_another_log,
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["setting", "stores", "read_only"])
def test_a_cold_directory_that_leads_into_a_data_directory_is_refused(data: Path, place: object, kind: str) -> None:
    assert callable(place)
    cold_dir = place(data)
    stores = local(data / cold_dir) if kind == "stores" else None
    for _ in range(2):
        with pytest.raises(WarmDirectoryNotApart, match="cannot be the warm directory") as caught:
            opened(data, cold_dir, stores=stores, read_only=kind == "read_only")
        assert caught.value.exit_code == 2
        assert "nothing was moved" in str(caught.value.hint)
    with opened(data) as log:
        assert values(log) == VALUES


def test_a_new_directory_is_not_its_own_cold_directory_either(tmp_path: Path) -> None:
    with pytest.raises(WarmDirectoryNotApart):
        opened(tmp_path / "data", ".")


def test_a_folder_of_its_own_within_the_data_directory_is_fine(data: Path) -> None:
    (data / "cold").mkdir()
    for _ in range(2):
        with opened(data, "cold") as log:
            assert (values(log), warm(log)) == (VALUES, 5)


@pytest.mark.parametrize("swapped", ["cold", "cold/topics", "cold/topics/00000001"])
def test_a_directory_that_is_swapped_while_the_log_is_open_costs_nothing(tmp_path: Path, swapped: str) -> None:
    (tmp_path / "cold/topics/00000001").mkdir(parents=True)
    targets = {"cold": "data", "cold/topics": "data/topics", "cold/topics/00000001": "data/topics/00000001"}
    with opened(tmp_path / "data", "../cold") as log:
        shutil.rmtree(tmp_path / swapped)
        (tmp_path / swapped).symlink_to(tmp_path / targets[swapped])
        fill(log)
        assert (values(log), warm(log)) == (VALUES, 0)
    with opened(tmp_path / "data") as log:
        assert values(log) == VALUES


class Wrapped:
    """A store that hides its directory."""

    def __init__(self, inner: SegmentStore) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


def test_a_store_that_writes_into_the_hot_tier_in_a_hidden_way_costs_nothing(tmp_path: Path) -> None:
    def make(topic_id: int) -> SegmentStore:
        return Wrapped(LocalSegmentStore(OsFiles(), Layout(tmp_path / "data"), topic_id))  # type: ignore[return-value]

    with opened(tmp_path / "data", stores=make) as log:
        fill(log)
        assert (values(log), warm(log)) == (VALUES, 0)


@pytest.mark.parametrize("how", ["hard link", "link"])
def test_a_hot_file_that_is_its_own_copy_is_not_deleted(tmp_path: Path, how: str) -> None:
    """The hot copy has no .idx, so relocation continues with the warm copy. Both copies are the same file."""
    hot, there = (LocalSegmentStore(OsFiles(), Layout(tmp_path / name), 1) for name in ("hot", "cold"))
    for name in ("hot", "cold"):
        (tmp_path / name).mkdir()
    there.put(SegmentId(1), b"data", b"idx")
    (tmp_path / "hot/topics/00000001").mkdir(parents=True)
    path, copy = hot.path(SegmentId(1), Part.DATA), there.path(SegmentId(1), Part.DATA)
    if how == "hard link":
        os.link(copy, path)
    else:
        copy.rename(path)
        copy.symlink_to(path)
    with pytest.raises(SameFile, match="is not deleted"):
        relocate(TopicTier(hot, there), SegmentId(1), lambda *_: pytest.fail("it flips nothing"))
    assert path.read_bytes() == b"data"


def test_a_hot_file_that_goes_while_it_is_copied_is_moved_all_the_same(tmp_path: Path) -> None:
    """The warm copy has all bytes by then, and no file of the hot store is it."""

    class Taking(LocalSegmentStore):
        def put(self, segment: SegmentId, data: bytes, idx: bytes) -> None:
            super().put(segment, data, idx)
            hot.delete(segment)

    for name in ("hot", "cold"):
        (tmp_path / name).mkdir()
    hot = LocalSegmentStore(OsFiles(), Layout(tmp_path / "hot"), 1)
    warm = Taking(OsFiles(), Layout(tmp_path / "cold"), 1)
    hot.put(SegmentId(1), b"data", b"idx")
    relocate(TopicTier(hot, warm), SegmentId(1), lambda *_: nullcontext())
    assert (warm.list(), hot.list()) == ([1], [])


# ---------------------------------------------------------------- one owner


def test_two_logs_do_not_share_a_cold_directory(tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    with opened(tmp_path / "one", "../cold") as log:
        fill(log)
        assert warm(log) == 5
        with pytest.raises(WarmDirectoryTaken, match="/one"):  # while the first log is open, and below after its close
            opened(tmp_path / "two", "../cold")
    for read_only in (False, True):
        with pytest.raises(WarmDirectoryTaken, match=r"which was at .*/one") as caught:
            opened(tmp_path / "two", "../cold", read_only=read_only)
        assert "no other log uses" in str(caught.value.hint)
    with pytest.raises(WarmDirectoryTaken):
        seglog.verify(tmp_path / "two", settings=LogSettings(cold_dir="../cold"))
    with opened(tmp_path / "one", "../cold") as log:
        assert values(log) == VALUES


def test_a_log_whose_cold_directory_has_no_owner_yet_takes_it(tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    with opened(tmp_path / "one", "../cold") as log:
        fill(log)
    (tmp_path / "cold/OWNER").unlink()  # an older version wrote no OWNER file
    (tmp_path / "one/meta/log-id").unlink()
    with opened(tmp_path / "two") as log:
        log.topic("t").append([b"another"] * 50)
        log.topic("t").seal()
    with pytest.raises(WarmDirectoryTaken, match="another log, whose segments are there"):
        opened(tmp_path / "two", "../cold")
    with opened(tmp_path / "one", "../cold") as log:
        assert values(log) == VALUES
    assert "one" in (tmp_path / "cold/OWNER").read_text()


def test_a_copy_of_a_data_directory_does_not_share_the_cold_directory(tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    with opened(tmp_path / "one", "../cold") as log:
        fill(log)
        shutil.copytree(tmp_path / "one", tmp_path / "two")
        with pytest.raises(WarmDirectoryTaken):
            opened(tmp_path / "two", "../cold")
    with pytest.raises(WarmDirectoryTaken, match="is a copy"):
        opened(tmp_path / "two", "../cold")
    shutil.copytree(tmp_path / "cold", tmp_path / "copied")
    with opened(tmp_path / "two", "../copied") as log:
        assert values(log) == VALUES
    shutil.rmtree(tmp_path / "one")  # "two" stands for a restored backup
    with opened(tmp_path / "two", "../cold") as log:
        assert values(log) == VALUES
    assert "two" in (tmp_path / "cold/OWNER").read_text()


def test_a_data_directory_that_was_moved_keeps_its_cold_directory(tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    with opened(tmp_path / "one", "../cold") as log:
        fill(log)
    (tmp_path / "one").rename(tmp_path / "two")
    with opened(tmp_path / "two", "../cold") as log:
        assert values(log) == VALUES


def test_a_cold_directory_that_is_mounted_later_is_taken_before_anything_is_moved(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    with opened(tmp_path / "other", "../theirs") as log:
        fill(log)
    with opened(tmp_path / "data", "../cold") as log:
        fill(log)
        assert warm(log) == 0
        (tmp_path / "cold").symlink_to(tmp_path / "theirs")
        log.checkpoint()
        log.topic("t").append([b"more"])
        log.checkpoint()
        assert warm(log) == 0
        (tmp_path / "cold").unlink()
        (tmp_path / "cold").mkdir()
        log.topic("t").seal()
        assert warm(log) == 6
        assert (tmp_path / "cold/OWNER").exists()
    with opened(tmp_path / "other", "../theirs") as log:
        assert values(log) == VALUES


def test_another_directory_that_comes_in_its_place_is_looked_at_again(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with opened(tmp_path / "other", "../two", files=UnsyncedFiles()) as log:
        fill(log)
    (tmp_path / "cold").symlink_to(tmp_path / "one")
    with opened(tmp_path / "data", "../cold", files=UnsyncedFiles()) as log:
        fill(log)
        assert warm(log) == 5
        (tmp_path / "cold").unlink()
        (tmp_path / "cold").symlink_to(tmp_path / "two")
        log.topic("t").append([b"more"])
        log.topic("t").seal()
        assert warm(log) == 5
    with opened(tmp_path / "other", "../two", files=UnsyncedFiles()) as log:
        assert values(log) == VALUES


def test_damage_to_the_owner_file_stops_relocation_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    with opened(tmp_path / "data", "../cold") as log:
        fill(log)
    body = bytearray((tmp_path / "cold/OWNER").read_bytes())
    body[3] ^= 1
    (tmp_path / "cold/OWNER").write_bytes(body)
    with opened(tmp_path / "data", "../cold") as log:
        log.topic("t").append([b"more"])
        log.topic("t").seal()
        assert (values(log), warm(log)) == ([*VALUES, b"more"], 5)


def test_a_log_that_is_removed_leaves_its_cold_directory_to_others(tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    log = opened(tmp_path / "one", "../cold")
    fill(log)
    log.remove()
    with opened(tmp_path / "two", "../cold") as other:
        fill(other)
        assert warm(other) == 5
