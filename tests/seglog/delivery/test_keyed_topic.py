"""Test the replay and the compaction of a topic in which the newest record of each key counts."""

from __future__ import annotations

from pathlib import Path

import pytest

import seglog
from seglog import Log, Record
from seglog.delivery.keyed_topic import KeyedTopic, UnreadableState, compact
from tests.seams.limits import Limit, set_limit


def state_of(record: Record) -> tuple[str, bytes]:
    if record.value.startswith(b"?"):
        raise UnreadableState("this is no state", record.tag)
    return record.tag or "", record.value


class World:
    def __init__(self, log: Log) -> None:
        self.topic = log.topic("_kept")
        self.told: list[str] = []
        self.states: dict[str, bytes] = {}
        self.keyed = KeyedTopic("_kept", state_of, self.told.append)

    def put(self, key: str | None, value: bytes) -> None:
        self.topic.append([value], tag=key)

    def replay(self) -> dict[str, bytes]:
        self.states.clear()
        self.keyed.replay(self.topic.read(), self._take, lambda key: self.states.pop(key, None))
        return self.states

    def _take(self, state: bytes) -> None:
        self.states[state[:1].decode()] = state


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(seglog.open(tmp_path / "d"))


def test_the_newest_state_of_each_key_counts(world: World) -> None:
    for value in (b"a1", b"b1", b"a2"):
        world.put(value[:1].decode(), value)
    assert world.replay() == {"a": b"a2", "b": b"b1"}
    assert world.told == []


def test_an_earlier_state_of_an_unreadable_key_does_not_hold_again(world: World) -> None:
    """KEYED-1. A later state of the key is readable again."""
    for key, value in (("a", b"a1"), ("b", b"b1"), ("a", b"?"), (None, b"?"), ("b", b"b2")):
        world.put(key, value)
    assert world.replay() == {"b": b"b2"}
    assert world.keyed.unreadable == {"a": 3}
    assert world.told == [f"record {seq} of _kept: this is no state" for seq in (3, 4)]
    world.put("a", b"a2")
    assert world.replay() == {"a": b"a2", "b": b"b2"}
    assert world.keyed.unreadable == {}


def test_a_topic_is_outdated_once_most_records_are_and_not_with_an_unreadable_key(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limit(monkeypatch, Limit.STREAM_ENTRIES_OUTDATED, 2)
    for number in range(4):
        world.put("a", b"a%d" % number)
    world.replay()
    assert not world.keyed.is_outdated(1)
    world.put("a", b"a4")
    world.replay()
    assert world.keyed.is_outdated(1)
    world.put("x", b"?")
    world.replay()
    assert not world.keyed.is_outdated(1)  # its record is for another version (KEYED-2)


def test_a_compaction_keeps_each_state_and_deletes_what_is_before(world: World) -> None:
    for number in range(5):
        world.put("a", b"a%d" % number)
        world.put("b", b"b%d" % number)
    compact(world.topic, [(b"a4", "a"), (b"b4", "b"), (b"c", None)], lambda before: world.topic.delete(before=before))
    assert [(record.seq, record.tag, record.value) for record in world.topic.read()] == [
        (11, "a", b"a4"),
        (12, "b", b"b4"),
        (13, None, b"c"),
    ]


def test_a_compaction_that_fails_deletes_nothing(world: World, tmp_path: Path) -> None:
    """The records before it go last (KEYED-3)."""
    world.put("a", b"a1")
    before: list[int] = []
    with pytest.raises(seglog.errors.InvalidLabel):
        compact(world.topic, [(b"a1", "a"), (b"b1", "b" * 70_000)], before.append)
    assert before == []
    assert world.replay() == {"a": b"a1"}
