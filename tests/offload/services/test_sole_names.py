"""Test that `undo` takes no branch away whose records no other branch or tag shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.errors import NotUndone
from catalog.objects.memory import MemoryStore
from offload.archive import Archive
from offload.errors import Conflict
from tests.offload.replicas import opened, ship, values

pytestmark = pytest.mark.usefixtures("no_pauses")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def _names(archive: Archive) -> list[str]:
    return [each.branch for each in archive.branches.list("t")]


def test_the_records_of_a_rescue_keep_their_name(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, one):
        ship(one, log, "t", b"a", b"b")
        with opened(tmp_path / "two", store) as (second, two):
            two.replication.take_over("t")
            ship(two, second, "t", b"new")
            log.topic("t").append([b"old"])
            one.replication.reset("t", as_branch="saved")
            with pytest.raises(NotUndone, match="t@saved is open for appends in this directory") as here:
                one.history.undo()
            assert here.value.hint is not None
            assert here.value.hint.startswith("`seglog branch delete t saved --dry-run` shows what would go")
            log.topic("t@saved").seal()
            one.offload("t@saved")
            for _ in range(2):
                with pytest.raises(NotUndone, match="no other branch and no tag shows 1 record of t@saved"):
                    two.history.undo()
            assert _names(two) == ["main", "saved"]
            assert values(two, "t@saved") == [b"a", b"b", b"old"]
            two.tags.tag("t@saved", "kept")
            assert two.history.undo().entry.operation == "tag create"
            two.tags.tag("t@saved", "again")
            number = next(each.number for each in two.history.operations() if each.entry.operation == "branch create")
            assert two.history.undo(number).entry.operation == "branch create"
            assert _names(two) == ["main"]
            assert values(two, "t", at="tag:again") == [b"a", b"b", b"old"]


def test_a_past_state_that_its_parent_still_has_needs_no_name(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "t", b"a", b"b")
        ship(archive, log, "t", b"c")
        archive.truncate("t", 2)
        archive.restore("t", to="lsn:2", name="all")
        assert archive.history.undo().entry.operation == "branch create"
        assert _names(archive) == ["main"]
        archive.restore("t", to="lsn:2", name="all")
        ship(archive, log, "t@all", b"d")
        archive.replication.reset("t@all", discard=True)
        with pytest.raises(NotUndone, match="no other branch and no tag shows 3 records of t@all"):
            archive.history.undo()
        going = archive.previews.branch("t", "all").going  # main shows the first record of the segment with the second
        assert (going.records, going.first and going.first[0], going.last and going.last[0]) == (3, 2, 4)
        archive.branches.delete_branch("t", "all")
        assert _names(archive) == ["main"]
        assert archive.history.undo().entry.operation == "branch delete"
        archive.branches.delete_branch("t", "all")
        archive.branches.undelete_branch("t", "all")
        with pytest.raises(NotUndone, match="t@all"):
            archive.history.undo()
        archive.restore("t@all", to="head", name="child")
        child = next(archive.history.operations()).number
        archive.branches.delete_branch("t", "all")
        with pytest.raises(NotUndone, match="shows 3 records of t@child"):
            archive.history.undo(child)


def test_a_rename_and_a_promotion_leave_each_branch_a_name(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "t", b"a")
        archive.restore("t", to="head", name="b")
        ship(archive, log, "t@b", b"own")
        archive.replication.reset("t@b", discard=True)
        archive.branches.rename_branch("t", "b", "c")
        assert archive.history.undo().entry.operation == "branch rename"
        archive.branches.promote_branch("t", "b", keep="former")
        assert archive.history.undo().entry.operation == "branch promote"
        assert values(archive, "t@b") == [b"a", b"own"]
        assert _names(archive) == ["b", "main"]


def test_a_branch_that_is_open_here_keeps_its_name(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "t", b"a")
        archive.restore("t", to="head", name="b")
        archive.branches.rename_branch("t", "b", "c")
        archive.open_for_append("t@c").append([b"own"])
        for _ in range(2):
            with pytest.raises(Conflict, match="t@c is open for appends in this directory"):
                archive.history.undo()
        archive.branches.promote_branch("t", "c", keep="former")  # this offloads what is here
        archive.open_for_append("t@former").append([b"late"])
        assert archive.history.undo().entry.operation == "branch promote"
        assert (values(archive, "t"), values(archive, "t@c")) == ([b"a", b"late"], [b"a", b"own"])
        assert archive.history.undo().entry.operation == "branch rename"
        assert values(archive, "t@b") == [b"a", b"own"]
