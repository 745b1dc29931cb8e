"""Test a directory made from the bucket alone: all offloaded records read back, and a writer can append."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from catalog.errors import Fenced, InvalidObject, StoreUnreachable
from catalog.format.keys import control_key
from catalog.objects import ObjectStore
from catalog.objects.memory import MemoryStore
from offload.errors import Conflict
from offload.recovery import MARKER, NotRecovered, Recovered, recover
from seglog import TopicConfig
from tests.faults.files import CrashingFiles, SimulatedCrash, UnsyncedFiles
from tests.faults.store import Fault, FaultyStore, unreachable
from tests.faults.stride import every
from tests.offload.replicas import opened, ship, values
from tests.seams.archive import context_of
from tests.worlds.proxies import Via, over_http_too, via

__all__ = ["via"]

URL = "file:///somewhere"


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    """Make a store with two topics.

    The first has deletes and three branches: one not written, one written and one deleted.
    """
    store = MemoryStore()
    with opened(tmp_path / "old", store) as (log, archive):
        log.create_topic("b", TopicConfig(durability="disk", attributes={"codec": "none"}))
        ship(archive, log, "a", b"1", b"2", tag="x")
        ship(archive, log, "a", b"3", b"4")
        archive.delete("a", tag="x")
        ship(archive, log, "b", b"5")
        archive.restore("a", to="seq:1", name="one")
        archive.restore("a", to="seq:3", name="three")
        archive.restore("a", to="seq:3", name="gone")
        archive.branches.delete_branch("a", "gone")
        ship(archive, log, "a@three", b"6")
        log.topic("a").append([b"never offloaded"])
    return store


EXPECTED = {"a": [b"3", b"4"], "a@one": [b"1"], "a@three": [b"1", b"2", b"3", b"6"], "b": [b"5"]}


def check(path: Path, store: ObjectStore) -> None:
    with opened(path, store) as (log, archive):
        assert archive.replication.replicas() == sorted(EXPECTED)
        assert {name: values(archive, name) for name in EXPECTED} == EXPECTED
        assert log.topics() == []
    assert not (path / MARKER).exists()


@over_http_too
def test_every_name_that_lives_is_a_replica(tmp_path: Path, store: MemoryStore, via: Via) -> None:
    found = list(recover(tmp_path / "new", URL, store=via(store)))
    told = [(each.topic, each.head_seq, each.records, each.last_seq) for each in found if isinstance(each, Recovered)]
    assert told == [("a", 4, 2, 4), ("a@one", 1, 1, 1), ("a@three", 4, 4, 4), ("b", 1, 1, 1)]
    assert not any(each.is_writable for each in found if isinstance(each, Recovered))
    check(tmp_path / "new", via(store))
    assert f'url = "{URL}"' in (tmp_path / "new" / "seglog.toml").read_text()


def test_writing_goes_on_with_the_next_seq_and_the_old_directory_is_fenced(tmp_path: Path, store: MemoryStore) -> None:
    list(recover(tmp_path / "new", URL, store=store))
    with opened(tmp_path / "new", store) as (log, archive):
        assert archive.open_for_append("a").append([b"7"]) == range(5, 6)
        log.topic("a").seal()
        archive.offload("a")
        assert archive.open_for_append("b").config.durability == "disk"
        assert values(archive, "a") == [b"3", b"4", b"7"]
    with opened(tmp_path / "old", store) as (log, archive):
        log.topic("a").seal()
        with pytest.raises(Fenced):
            archive.offload("a")
        assert archive.replication.reset("a", as_branch="late").changes.records == 1
        assert values(archive, "a@late") == [b"3", b"4", b"never offloaded"]


def test_writable_takes_over_all_of_them(tmp_path: Path, store: MemoryStore) -> None:
    found = list(recover(tmp_path / "new", URL, store=store, writable=True))
    assert all(each.is_writable for each in found if isinstance(each, Recovered))
    with opened(tmp_path / "new", store) as (log, archive):
        assert log.topics() == sorted(EXPECTED)
        assert {name: archive.status.topic(name).writer_epoch for name in EXPECTED} == {
            "a": 2, "a@one": 1, "a@three": 2, "b": 2,
        }  # fmt: skip
        assert {name: values(archive, name) for name in EXPECTED} == EXPECTED


def test_only_one_topic(tmp_path: Path, store: MemoryStore) -> None:
    assert [each.topic for each in recover(tmp_path / "new", URL, only="a", store=store)] == ["a", "a@one", "a@three"]
    assert [each.topic for each in recover(tmp_path / "other", URL, only="a@one", store=store)] == ["a@one"]


def test_a_directory_with_anything_in_it_is_refused(tmp_path: Path, store: MemoryStore) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_bytes(b"mine")
    with pytest.raises(Conflict, match="full is not empty; nothing was changed"):
        list(recover(tmp_path / "full", URL, store=store))
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["file"]
    list(recover(tmp_path / "new", URL, store=store))
    with pytest.raises(Conflict, match="new is not empty; nothing was changed"):
        list(recover(tmp_path / "new", URL, store=store))


def test_a_name_that_fails_holds_up_no_other_and_a_repetition_goes_on(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "old", store) as (_, archive):
        key = control_key(context_of(archive).local.handle("a@three").vid)  # type: ignore[union-attr]
    body = store.get(key)
    store.put(key, body[:-1], {})
    found = list(recover(tmp_path / "new", URL, store=store))
    [failed] = [each for each in found if isinstance(each, NotRecovered)]
    assert (failed.topic, type(failed.error)) == ("a@three", InvalidObject)
    assert [each.topic for each in found] == sorted(EXPECTED)
    with pytest.raises(Conflict, match="new is not empty; nothing was changed"):
        list(recover(tmp_path / "new", "file:///elsewhere", store=store))
    store.put(key, body, {})
    assert len(list(recover(tmp_path / "new", URL, store=store))) == 4
    check(tmp_path / "new", store)


@every(7, part=8)
@pytest.mark.parametrize("tear", [False, True])
def test_a_crash_at_any_file_operation_is_gone_on_from(
    tear: bool, tmp_path: Path, store: MemoryStore, every: int
) -> None:
    step = 1 - every
    has_crashed = True
    while has_crashed:
        step += every
        path = tmp_path / f"new-{step}"
        files = CrashingFiles(UnsyncedFiles(), step, tear=tear)
        with contextlib.suppress(SimulatedCrash):
            list(recover(path, URL, store=store, files=files))
        has_crashed = files.has_crashed
        if has_crashed and ((path / MARKER).exists() or not (path / "seglog.toml").exists()):
            list(recover(path, URL, store=store, files=UnsyncedFiles()))
        check(path, store)
    assert step > 20


def test_a_store_that_fails_at_any_request_is_asked_again(tmp_path: Path, store: MemoryStore) -> None:
    for nth in range(1, 200):
        path = tmp_path / str(nth)
        faulty = FaultyStore(store, [Fault(nth, "before", unreachable, "get")])
        with contextlib.suppress(StoreUnreachable):
            list(recover(path, URL, store=faulty))
        if not faulty.struck:
            assert nth > 15
            return
        if (path / MARKER).exists():
            list(recover(path, URL, store=store))
        check(path, store)
    pytest.fail("there was always one more request")
