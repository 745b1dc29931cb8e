"""Test that detaching a topic deletes it from its directory and keeps its history in the archive."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from catalog.errors import Fenced, InvalidObject
from catalog.objects.memory import MemoryStore
from catalog.objects.wrapped import WrappedStore
from offload.errors import LocalChangesLost, TopicAttached
from seglog import ConcurrentModification, NoSuchTopic, TopicConfig
from tests.faults.meanwhile import DuringReadBack
from tests.faults.steps import Place, crashes
from tests.faults.stride import every
from tests.offload.replicas import opened, ship, values
from tests.seams.archive import context_of

pytestmark = pytest.mark.usefixtures("no_pauses")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def test_all_of_it_is_in_the_remote_then(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path, store) as (log, archive):
        ship(archive, log, "t", b"a", b"b")
        log.topic("t").append([b"c"])
        archive.delete("t", before=2)
        with pytest.raises(TopicAttached):
            archive.delete_topic("t")
        archive.delete_topic("t", detach=True)
        assert not log.has_topic("t")
        assert archive.replication.replicas() == []
        assert context_of(archive).local.attempts("t") == ()
        archive.replication.sync("t")
        assert values(archive, "t") == [b"b", b"c"]
        assert archive.open_for_append("t").append([b"d"]) == range(4, 5)
        ship(archive, log, "t", b"e")
        assert values(archive, "t") == [b"b", b"c", b"d", b"e"]


def test_a_branch_can_be_deleted_in_the_remote_then(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path, store) as (log, archive):
        ship(archive, log, "t", b"a")
        archive.restore("t", to="head", name="b")
        archive.open_for_append("t@b").append([b"b"])
        archive.delete_topic("t@b", detach=True)
        archive.branches.delete_branch("t", "b")
        archive.branches.undelete_branch("t", "b")
        assert values(archive, "t@b") == [b"a", b"b"]


def test_who_was_fenced_drops_what_is_only_here_when_told_to(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive), opened(tmp_path / "two", store) as (_, two):
        ship(archive, log, "t", b"a")
        two.replication.take_over("t")
        log.topic("t").append([b"b"])
        with pytest.raises(Fenced):
            archive.delete_topic("t", detach=True)
        assert values(archive, "t") == [b"a", b"b"]
        archive.delete_topic("t", detach=True, discard=True)
        assert not log.has_topic("t")
        assert values(two, "t") == [b"a"]


def test_a_configuration_that_came_meanwhile_keeps_the_topic_here(tmp_path: Path, store: MemoryStore) -> None:
    remote, config = DuringReadBack(store), TopicConfig(keep_history=True, attributes={"pitr_window_s": "86400"})
    with opened(tmp_path, remote) as (log, archive):
        ship(archive, log, "t", b"a")
        remote.changes = [lambda: log.configure("t", config)]
        with pytest.raises(ConcurrentModification):
            archive.delete_topic("t", detach=True)
        assert (remote.changes, log.topic("t").config) == ([], config)
        archive.delete_topic("t", detach=True)
        archive.replication.sync("t")
        assert archive.replication.config("t") == config


class Damaged(WrappedStore):
    """Change the last byte of each read of a data object."""

    def _call(self, method, key, act):  # type: ignore[no-untyped-def]
        found = act()
        if method == "get_range" and not key.endswith(".index") and "/segments/" in key:
            return bytes([*found[:-1], found[-1] ^ 1])
        return found


def test_a_hot_copy_stays_if_the_remote_has_another_one(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path, Damaged(store)) as (log, archive):
        ship(archive, log, "t", b"a")
        with pytest.raises(InvalidObject, match="its bytes are not what the commit says"):
            archive.delete_topic("t", detach=True)
        assert values(archive, "t") == [b"a"]


def test_what_is_appended_while_it_goes_stays_here_until_it_is_in_the_remote_too(
    tmp_path: Path, store: MemoryStore
) -> None:
    remote = DuringReadBack(store)
    with opened(tmp_path, remote) as (log, archive):
        ship(archive, log, "t", b"a", b"b")
        remote.changes = [lambda: log.topic("t").append([b"late"])]
        with pytest.raises(LocalChangesLost):
            archive.delete_topic("t", detach=True)
        assert (remote.changes, log.topic("t").head_seq) == ([], 3)
        archive.delete_topic("t", detach=True)
        assert not log.has_topic("t")
        assert values(archive, "t") == [b"a", b"b", b"late"]


@every(23, part=8)
def test_it_ends_anywhere_and_is_gone_on_from(every: int, tmp_path: Path) -> None:
    base = Place(tmp_path / "base")
    with base.opened() as (log, archive):
        ship(archive, log, "t", b"a", b"b")
        log.topic("t").append([b"c"])
    steps = 0
    for name, place in crashes(base, tmp_path, lambda _, archive: archive.delete_topic("t", detach=True), every):
        steps += 1
        with place.opened() as (log, archive):
            with contextlib.suppress(NoSuchTopic):  # the first run may have completed
                archive.delete_topic("t", detach=True)
            assert not log.has_topic("t"), name
            archive.replication.sync("t")
            assert values(archive, "t") == [b"a", b"b", b"c"], name
    assert steps > 50 / every
