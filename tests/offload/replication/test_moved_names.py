"""Test a directory whose name leads elsewhere now, or nowhere: the error names the next step, and that step works."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from catalog.objects.memory import MemoryStore
from offload.errors import NameDeleted, OtherRemote
from tests.offload.replicas import opened, ship, values
from tests.worlds.clock import HandClock
from tests.worlds.services import serving, until


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    """A store with the topic `t` and its branch `fix`, which the directory `one` wrote."""
    store = MemoryStore()
    with opened(tmp_path / "one", store) as (log, one):
        ship(one, log, "t", b"a")
        one.restore("t", to="head", name="fix")
        ship(one, log, "t@fix", b"x")
    return store


def followed(tmp_path: Path, store: MemoryStore, name: str) -> None:
    with opened(tmp_path / "two", store) as (_, two):
        two.replication.sync(name)


@pytest.mark.parametrize("call", ["pull", "fetch"])
def test_a_replica_of_a_name_that_moved_is_told_to_sync(tmp_path: Path, store: MemoryStore, call: str) -> None:
    followed(tmp_path, store, "t")
    with opened(tmp_path / "one", store) as (_, one):
        new = one.branches.promote_branch("t", "fix", keep="old").vid
    with opened(tmp_path / "two", store) as (_, two):
        with pytest.raises(OtherRemote, match=f"t leads to volume {new} ") as caught:
            getattr(two.replication, call)("t")
        assert caught.value.hint == "`seglog sync t` follows it there"
        assert two.replication.sync("t").commits
        assert getattr(two.replication, call)("t").remote_ahead == 0
        assert values(two, "t") == [b"a", b"x"]


def test_a_replica_of_a_deleted_branch_is_told_so(tmp_path: Path, store: MemoryStore) -> None:
    followed(tmp_path, store, "t@fix")
    with opened(tmp_path / "two", store) as (_, two), opened(tmp_path / "one", store) as (_, one):
        two.replication.sync("t@fix")
        one.replication.reset("t@fix")
        one.branches.delete_branch("t", "fix")
        for call in (two.replication.sync, two.replication.take_over):
            with pytest.raises(NameDeleted, match="was deleted or renamed in") as caught:
                call("t@fix")
        assert "`seglog branch undelete t fix`" in (caught.value.hint or "")
        assert "`seglog topic delete t@fix --yes`" in (caught.value.hint or "")
    with opened(tmp_path / "two", store) as (_, two):
        for call in (two.replication.pull, two.replication.fetch, two.replication.sync):
            with pytest.raises(NameDeleted):
                call("t@fix")
        two.branches.undelete_branch("t", "fix")
        two.replication.sync("t@fix")
        two.branches.delete_branch("t", "fix")
        two.delete_topic("t@fix")
        assert two.replication.replicas() == []


def test_the_writer_of_a_deleted_branch_is_told_so(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "two", store) as (_, two):
        two.branches.delete_branch("t", "fix")
    with opened(tmp_path / "one", store) as (log, one):
        log.topic("t@fix").append([b"late"])
        log.topic("t@fix").seal()
        with pytest.raises(NameDeleted) as caught:
            one.offload("t@fix")
        assert (caught.value.hint or "").endswith("`seglog branch undelete t fix` brings it back")
        one.branches.undelete_branch("t", "fix")
        one.offload("t@fix")
        assert values(one, "t@fix") == [b"a", b"x", b"late"]


def test_a_replica_without_a_commit_follows_the_branch_that_was_made_again(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (_, one):
        one.restore("t", to="head", name="new")
        followed(tmp_path, store, "t@new")
        one.branches.delete_branch("t", "new")
        with opened(tmp_path / "two", store) as (_, two), pytest.raises(NameDeleted):
            two.replication.sync("t@new")
        made = one.restore("t", to="head", name="new")
    with opened(tmp_path / "two", store) as (_, two):
        two.replication.sync("t@new")
        assert str(two.branches.list("t")[2].vid) == str(made.vid)
        assert values(two, "t@new") == [b"a"]


def test_the_daemon_says_once_that_a_branch_was_deleted(
    tmp_path: Path, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    followed(tmp_path, store, "t@fix")
    with opened(tmp_path / "one", store) as (_, one):
        one.replication.reset("t@fix")
        one.branches.delete_branch("t", "fix")

    clock = HandClock()

    async def run() -> None:
        async with serving(tmp_path / "two", store, clock) as service:
            for failures in (1, 2, 3):
                told = f'seglog_background_failures_total{{task="sync"}} {failures}.0'
                await until(lambda told=told: told in service.metrics.text().decode(), f"failure {failures}")  # type: ignore[misc]
                clock.ms += 60_000

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert caplog.text.count("was deleted or renamed") == caplog.text.count("`seglog branch undelete t fix`") == 1
