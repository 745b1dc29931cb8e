"""Test the progress of the commands whose parts count it: each phase has its unit, and counts all of its work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from catalog.objects.memory import MemoryStore
from offload.archive import Archive
from offload.operations.command import COMMANDS, Directory, Tell
from seglog import Log
from tests.offload.replicas import opened, ship

COMMITS = 9


class _Host:
    def __init__(self) -> None:
        self.told: list[tuple[str, int | None, int, str]] = []

    @contextmanager
    def phases(self) -> Iterator[Tell]:
        yield lambda *each: self.told.append(each)


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    """A store with a topic that the directory `one` wrote, with so many commits."""
    store = MemoryStore()
    with opened(tmp_path / "one", store) as (log, one):
        for number in range(COMMITS):
            ship(one, log, "t", b"%d" % number)
    return store


def _phases(log: Log, archive: Archive, path: str, title: str, **values: Any) -> dict[str, tuple[int, str]]:
    """Run a command. Return the last count and the unit of each phase that it told."""
    host, command = _Host(), COMMANDS[path]
    list(command.run(Directory(lambda: (log, archive), host), command.arguments(values)))  # type: ignore[arg-type]
    assert host.told[0] == (title, None, 0, "commits")
    assert {total for _, total, _, _ in host.told} == {None}
    return {phase.removeprefix(f"{title}, "): (done, unit) for phase, _, done, unit in host.told[1:]}


def test_the_commits_that_are_fetched_are_counted(tmp_path: Path, store: MemoryStore) -> None:
    for path, values, count in (("sync", {"fetch": True}, COMMITS), ("takeover", {}, 9)):
        with opened(tmp_path / path, store) as (log, archive):
            found = _phases(log, archive, path, f"{path} t", topic="t", **values)
            assert found["reading commits"] == (count, "commits")


def test_a_restore_counts_the_commits_that_it_looks_at(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "two", store) as (log, archive):
        for path in ("branch/create", "restore"):
            name = {"name": "a"} if path == "branch/create" else {"as_branch": "b", "to": "lsn:4"}
            title = f"{path.replace('/', ' ')} t"
            phases = _phases(log, archive, path, title, topic="t", **name)
            assert set(phases) <= {"reading commits"}
            assert phases or path == "restore"  # the second look finds the commits here


def test_a_reset_counts_what_it_saves_and_what_it_reads_back(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "two", store) as (_, two):
        two.replication.take_over("t")
    with opened(tmp_path / "one", store) as (log, one):
        log.topic("t").append([b"mine"] * 3)
        found = _phases(log, one, "reset", "reset t", topic="t", as_branch="mine")
        assert found["saving"] == (3, "records")
        assert found["reading back"][0] > 0
        assert found["reading back"][1] == "bytes"


def test_a_promotion_counts_what_it_sends_compares_and_carries(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, one):
        one.restore("t", to="lsn:4", name="fix")
        log.topic("t").append([b"new"] * 2)
        found = _phases(log, one, "branch/promote", "branch promote t", topic="t", name="fix", carry=True)
        assert found["carrying"] == (COMMITS - 4 + 2, "records")
        assert found["comparing"] == (COMMITS - 4 + 1, "segments")
        assert found["offloading"][0] > 0
        assert _phases(log, one, "undo", "undo")["comparing"][1] == "segments"


def test_an_undo_counts_the_objects_that_it_looks_for(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, one):
        lsn = one.delete("t", before=4).lsn
        log.topic("t").append([b"new"])
        preview = _phases(log, one, "undo", "undo t", change="t", commit=f"lsn:{lsn}", dry_run=True)
        assert preview == {"looking for objects": (6, "objects")}
        found = _phases(log, one, "undo", "undo t", change="t", commit=f"lsn:{lsn}")
        assert found["looking for objects"] == (12, "objects")  # before anything changes, and under the pin
        assert found["offloading"][0] > 0
