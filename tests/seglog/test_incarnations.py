"""Appends that name the incarnation of their topic, as a caller sees them, and beside a deletion in flight."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from seglog import Appended, InvalidArgument, Log, OtherIncarnation, aio
from tests.worlds.producing import of, reopened, values_in, while_in_flight


def test_an_append_that_names_an_incarnation_is_for_it_alone(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        topic = log.topic("t")
        with pytest.raises(OtherIncarnation) as absent:
            topic.append([b"x"], if_incarnation="another")
        assert (absent.value.known, absent.value.found, topic.exists) == ("another", None, False)
        topic.append([b"a"])
        known = topic.incarnation()
        assert topic.append([b"b"], if_incarnation=known) == range(2, 3)
        assert topic.append([b"c"], if_incarnation=known, tag="x", durability="memory") == range(3, 4)
    with reopened(tmp_path / "log") as log:  # nobody has asked for the log's id yet
        topic = log.topic("t")
        assert topic.append_once([b"d"], producer=of(0), if_incarnation=known) == Appended(range(4, 5), False)
        assert topic.append_once([b"d"], producer=of(0), if_incarnation=known) == Appended(range(4, 5), True)
        assert topic.append([], if_incarnation=known) == range(5, 5)
        log.delete_topic("t")
        topic.append([b"new"])
        for given in ({}, {"producer": of(0)}, {"key": "k"}, {"if_head": 1}, {"durability": "ephemeral"}):
            with pytest.raises(OtherIncarnation) as caught:
                topic.append([b"d"], if_incarnation=known, **given)  # type: ignore[arg-type]
            assert (caught.value.topic, caught.value.known, caught.value.found) == ("t", known, topic.incarnation())
        with pytest.raises(OtherIncarnation):
            topic.append([], if_incarnation=known)
        with pytest.raises(InvalidArgument, match="if_incarnation"):
            topic.append([b"d"], if_incarnation=7)  # type: ignore[arg-type]
        assert values_in(log) == [b"new"]


@pytest.mark.parametrize("is_made_again", [False, True])
def test_an_append_that_waits_for_the_deletion_of_its_topic_is_refused_after_it(*, is_made_again: bool) -> None:
    known: list[str] = []

    def delete(log: Log) -> None:
        log.delete_topic("t")

    def append(log: Log) -> range:
        return log.topic("t").append([b"c"], producer=of(0), if_incarnation=known[0])

    def make_again(log: Log) -> range:
        return log.topic("t").append([b"new"])

    then = [make_again, append] if is_made_again else [append]
    results, values, _ = while_in_flight(
        False, *then, first=delete, before=lambda log: known.append(log.topic("t").incarnation())
    )
    assert results[0] is None
    refused = results[-1]
    assert isinstance(refused, OtherIncarnation)
    assert values == ([b"new"] if is_made_again else [])


def test_tasks_that_name_an_incarnation_append_to_it_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with aio.open(tmp_path / "log") as log:
            topic = log.topic("t")
            await topic.append([b"a"])
            known = await topic.incarnation()
            given = [
                topic.append([b"%d" % number], if_incarnation=named)
                for number, named in enumerate((known, "another", known))
            ]
            done = await asyncio.gather(*given, return_exceptions=True)
            assert (done[0], type(done[1]), done[2]) == (range(2, 3), OtherIncarnation, range(3, 4))
            assert await topic.append([], if_incarnation=known) == range(4, 4)
            with pytest.raises(OtherIncarnation):
                await topic.append([], if_incarnation="another")
            with pytest.raises(OtherIncarnation):
                await topic.append_once([], if_incarnation="another")
            assert await topic.append_once([b"x"], tag="t", if_incarnation=known) == Appended(range(4, 5), False)
            assert values_in(log.sync) == [b"a", b"0", b"2", b"x"]

    asyncio.run(run())
