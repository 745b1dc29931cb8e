"""Test a directory that follows a whole remote: what each look finds, failures of the store, and what is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from catalog.errors import StoreUnreachable
from catalog.format.keys import control_key
from catalog.objects.memory import MemoryStore
from offload.errors import Conflict, OtherRemote
from offload.operations.standby import FollowOptions, Looked, LookFailed, TopicFollowed, TopicUnfollowed, follow
from offload.recovery import MARKER, Recovered
from seglog import Missing
from tests.faults.store import Fault, FaultyStore, denied, unreachable
from tests.offload.replicas import opened, ship, values
from tests.seams.archive import context_of
from tests.worlds.proxies import Via, http_is_long, over_http_too, via

__all__ = ["via"]

URL = "file:///somewhere"
ONCE = FollowOptions(once=True)
VALUES = {"a": [b"1", b"2"], "a@half": [b"1"], "b": [b"3"]}
Found = Recovered | TopicFollowed | TopicUnfollowed | LookFailed | Looked


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    """Make a store with the topics `a` (2 records), its branch `a@half`, and `b` (1 record)."""
    store = MemoryStore()
    with opened(tmp_path / "old", store) as (log, archive):
        ship(archive, log, "a", b"1", b"2")
        ship(archive, log, "b", b"3")
        archive.restore("a", to="seq:1", name="half")
        log.topic("a").append([b"never offloaded"])
    return store


def more(tmp_path: Path, store: MemoryStore, name: str, *given: bytes) -> None:
    with opened(tmp_path / "old", store) as (log, archive):
        ship(archive, log, name, *given)


def followed(path: Path, store: MemoryStore | FaultyStore, *between: Callable[[], None]) -> list[Found]:
    """Follow for one look more than `between` has calls, each made in one wait. Return the results."""
    calls = iter(between)

    def wait(_seconds: float) -> None:
        call = next(calls, None)
        if call is None:
            raise KeyboardInterrupt
        call()

    return list(until_interrupt(follow(path, URL, FollowOptions(wait=wait), store=store)))


def until_interrupt(results: Iterator[Found]) -> Iterator[Found]:
    with contextlib.suppress(KeyboardInterrupt):
        yield from results


@http_is_long
def test_a_new_directory_follows_all_and_says_where_the_unknown_begins(
    tmp_path: Path, store: MemoryStore, via: Via
) -> None:
    found = list(follow(tmp_path / "new", URL, ONCE, store=via(store)))
    told = [(each.topic, each.tail_after_seq, each.tail) for each in found if isinstance(each, Recovered)]
    assert told == [("a", 2, "unknown"), ("a@half", 1, "unknown"), ("b", 1, "unknown")]
    assert all(each.tail_after_time == each.last_time for each in found if isinstance(each, Recovered))
    assert found[-1] == Looked(3, 0)
    assert not (tmp_path / "new" / MARKER).exists()
    with opened(tmp_path / "new", via(store)) as (log, archive):
        assert archive.replication.replicas() == ["a", "a@half", "b"]
        assert log.topics() == []
        assert values(archive, "a") == [b"1", b"2"]


@over_http_too
def test_a_look_tells_how_far_readers_were_behind(tmp_path: Path, store: MemoryStore, via: Via) -> None:
    list(follow(tmp_path / "new", URL, ONCE, store=via(store)))
    more(tmp_path, store, "a", b"4")  # with the record that was not offloaded before
    seen = {
        each.topic: each
        for each in follow(tmp_path / "new", URL, ONCE, store=via(store))
        if isinstance(each, TopicFollowed)
    }
    a, b = seen["a"], seen["b"]
    assert (a.role, a.head_seq, a.commits, a.lag_records) == ("replica", 4, 1, 2)
    assert a.lag_s is not None
    assert a.lag_s >= 0
    assert (b.head_seq, b.commits, b.lag_records, b.lag_s) == (1, 0, 0, 0.0)
    assert b.last_time is not None
    with opened(tmp_path / "new", via(store)) as (_, archive):
        assert values(archive, "a") == [b"1", b"2", b"never offloaded", b"4"]


def test_it_stays_and_new_topics_come_along(tmp_path: Path, store: MemoryStore) -> None:
    def nothing() -> None:
        """Change nothing."""

    seen = followed(
        tmp_path / "new",
        store,
        lambda: more(tmp_path, store, "b", b"5", b"6"),
        lambda: more(tmp_path, store, "c", b"7"),
        *[nothing] * 10,
    )
    news = [each for each in seen if isinstance(each, TopicFollowed) and each.commits]
    assert [(each.topic, each.lag_records) for each in news] == [("b", 2)]
    assert [each.topic for each in seen if isinstance(each, Recovered)] == ["a", "a@half", "b", "c"]
    assert sum(isinstance(each, Looked) for each in seen) == 13


def test_a_store_that_is_away_is_told_and_asked_again(tmp_path: Path, store: MemoryStore) -> None:
    faulty = FaultyStore(store, [])
    seen = followed(
        tmp_path / "new",
        faulty,
        lambda: faulty.fail([Fault(None, "before", unreachable, "get")]),
        lambda: more(tmp_path, store, "a", b"4"),
        lambda: faulty.fail([]),
    )
    failed = [each for each in seen if isinstance(each, LookFailed)]
    assert [(each.topic, each.failures) for each in failed] == [(None, 1), (None, 2)]
    assert all("cannot reach" in each.error and each.lag_s is not None and each.retry_in_s >= 1 for each in failed)
    assert [each.topic for each in seen if isinstance(each, TopicFollowed) and each.commits] == ["a"]


@pytest.mark.parametrize(("method", "error"), [("list", denied), ("list", unreachable)])
def test_a_search_that_fails_ends_no_follower(tmp_path: Path, store: MemoryStore, method: str, error: object) -> None:
    list(follow(tmp_path / "new", URL, ONCE, store=store))
    faulty = FaultyStore(store, [Fault(None, "before", error, method)])  # type: ignore[arg-type]
    seen = followed(tmp_path / "new", faulty, lambda: faulty.fail([]))
    assert [type(each) for each in seen[:2]] == [LookFailed, Looked]
    assert seen[-1] == Looked(3, 0)


def test_a_remote_that_is_away_at_first_is_asked_again(tmp_path: Path, store: MemoryStore) -> None:
    faulty = FaultyStore(store, [Fault(None, "before", unreachable, "list")])
    seen = followed(tmp_path / "new", faulty, lambda: None, lambda: faulty.fail([]))
    assert [each.failures for each in seen if isinstance(each, LookFailed)] == [1, 2]
    assert seen[-1] == Looked(3, 0)
    with pytest.raises(StoreUnreachable):
        list(
            follow(
                tmp_path / "other", URL, ONCE, store=FaultyStore(store, [Fault(None, "before", unreachable, "list")])
            )
        )
    assert not (tmp_path / "other").exists()


def test_a_topic_that_fails_holds_up_no_other(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "old", store) as (_, archive):
        key = control_key(context_of(archive).local.handle("a").vid)  # type: ignore[union-attr]
    body = store.get(key)
    store.put(key, body[:-1], {})
    seen = followed(tmp_path / "new", store, lambda: more(tmp_path, store, "b", b"4"))
    failed = [each.topic for each in seen if isinstance(each, LookFailed)]
    assert failed[0] == "a"
    assert len(failed) == len(set(failed))  # in the second look, the topic waits
    assert [each.topic for each in seen if isinstance(each, TopicFollowed) and each.commits] == ["b"]
    assert (tmp_path / "new" / MARKER).exists()
    store.put(key, body, {})
    list(follow(tmp_path / "new", URL, ONCE, store=store))
    assert not (tmp_path / "new" / MARKER).exists()


def test_a_topic_that_is_written_here_is_not_pushed(tmp_path: Path, store: MemoryStore) -> None:
    list(follow(tmp_path / "new", URL, ONCE, store=store))
    with opened(tmp_path / "new", store) as (log, archive):
        archive.replication.take_over("b").append([b"mine"])
        log.topic("b").seal()
    seen = [each for each in follow(tmp_path / "new", URL, ONCE, store=store) if isinstance(each, TopicFollowed)]
    assert [(each.topic, each.role) for each in seen] == [("a", "replica"), ("a@half", "replica"), ("b", "writer")]
    with opened(tmp_path / "new", store) as (_, archive):
        assert archive.status.offloaded_seq("b") == 1


@http_is_long
def test_a_name_that_goes_is_forgotten_and_found_again_when_it_comes_back(
    tmp_path: Path, store: MemoryStore, via: Via
) -> None:
    list(follow(tmp_path / "new", URL, ONCE, store=via(store)))
    with opened(tmp_path / "old", store) as (_, archive):
        archive.branches.delete_branch("a", "half")
    found = list(follow(tmp_path / "new", URL, ONCE, store=via(store)))
    assert [each for each in found if isinstance(each, TopicUnfollowed)] == [TopicUnfollowed("a@half")]
    assert found[-1] == Looked(2, 0)
    assert not [
        each for each in follow(tmp_path / "new", URL, ONCE, store=via(store)) if isinstance(each, TopicUnfollowed)
    ]
    with opened(tmp_path / "old", store) as (_, archive):
        archive.branches.undelete_branch("a", "half")
    found = list(follow(tmp_path / "new", URL, ONCE, store=via(store)))
    assert [each.topic for each in found if isinstance(each, Recovered)] == ["a@half"]


def test_another_remote_under_the_same_url_is_a_failure(tmp_path: Path, store: MemoryStore) -> None:
    list(follow(tmp_path / "new", URL, ONCE, store=store))
    with pytest.raises(OtherRemote):
        list(follow(tmp_path / "new", URL, ONCE, store=MemoryStore()))
    assert list(follow(tmp_path / "new", URL, ONCE, store=store))[-1] == Looked(3, 0)


@http_is_long
def test_a_promotion_moves_it_to_the_new_main(tmp_path: Path, store: MemoryStore, via: Via) -> None:
    list(follow(tmp_path / "new", URL, ONCE, store=via(store)))
    with opened(tmp_path / "old", store) as (log, archive):
        archive.replication.sync("a@half")
        ship(archive, log, "a@half", b"other")
        archive.branches.promote_branch("a", "half", keep="former", leave=True)
    seen = {
        each.topic: each
        for each in follow(tmp_path / "new", URL, ONCE, store=via(store))
        if isinstance(each, (TopicFollowed, Recovered))
    }
    found = seen["a"]
    assert isinstance(found, TopicFollowed)
    assert (found.head_seq, found.commits > 0, found.last_time is not None) == (2, True, True)
    assert isinstance(seen["a@former"], Recovered)
    assert "a@half" not in seen
    with opened(tmp_path / "new", via(store)) as (_, archive):
        assert values(archive, "a") == [b"1", b"other"]


def test_a_failure_at_any_request_is_continued_from(tmp_path: Path, store: MemoryStore) -> None:
    for nth in range(1, 200, 5):
        path = tmp_path / str(nth)
        faulty = FaultyStore(store, [Fault(nth, "before", unreachable, "get")])
        seen = followed(path, faulty, lambda: None)
        assert [each.topic for each in seen if isinstance(each, LookFailed)] == [None] * bool(faulty.struck)
        assert sorted(each.topic for each in seen if isinstance(each, Recovered)) == ["a", "a@half", "b"]
        assert seen[-1] == Looked(3, 0)
        assert not (path / MARKER).exists()
        if not faulty.struck:
            return
    pytest.fail("there was always one more request")


def test_an_interrupt_at_any_request_is_continued_from(tmp_path: Path, store: MemoryStore) -> None:
    def interrupt(_key: str) -> KeyboardInterrupt:
        return KeyboardInterrupt()

    for nth in range(1, 200, 7):
        path = tmp_path / str(nth)
        faulty = FaultyStore(store, [Fault(nth, "before", interrupt, "get")])  # type: ignore[arg-type]
        list(until_interrupt(follow(path, URL, ONCE, store=faulty)))
        list(follow(path, URL, ONCE, store=store))
        assert not (path / MARKER).exists()
        with opened(path, store) as (_, archive):
            assert {name: values(archive, name) for name in ("a", "a@half", "b")} == VALUES
        if not faulty.struck:
            return
    pytest.fail("there was always one more request")


def test_another_directory_and_an_empty_remote_are_refused(tmp_path: Path, store: MemoryStore) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_bytes(b"mine")
    list(follow(tmp_path / "other", URL, ONCE, store=store))
    for path, url in ((tmp_path / "full", URL), (tmp_path / "other", "file:///elsewhere")):
        before = sorted(each.name for each in path.iterdir())
        with pytest.raises(Conflict, match=f"{path.name} is not empty; nothing was changed"):
            list(follow(path, url, ONCE, store=store))
        assert sorted(each.name for each in path.iterdir()) == before
    with pytest.raises(Missing, match="no topic at all"):
        list(follow(tmp_path / "new", URL, ONCE, store=MemoryStore()))
    assert not (tmp_path / "new").exists()
