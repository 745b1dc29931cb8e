"""Every public call of the log refuses an argument of a wrong type or range by its name, and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
import pytest

import seglog
from seglog import InvalidArgument, Misuse, Record, TopicConfig, aio
from seglog.base.arguments import Within, checked
from seglog.engine.work_thread import InCaller
from seglog.inner_topic import InnerTopic
from seglog.journal import journal
from seglog.journal.journal import Journal
from seglog.values.config import settings_of
from seglog.values.deletes import TruncateOp
from tests.arguments import Row, calls_of, contents, refused
from tests.worlds.log_calls import (
    APPEND,
    APPEND_OPTIONAL,
    DELETE,
    DELETE_OPTIONAL,
    FOLLOW,
    LOG,
    READ,
    SELECTION,
    STREAM,
    World,
    ended,
    of_function,
)

#: The test reads all files after each call.
SMALL = seglog.LogSettings(wal_file_bytes=1 << 20)

VALUES = (
    seglog.Appended,
    seglog.Checked,
    seglog.Damage,
    seglog.DeleteOp,
    seglog.Gap,
    seglog.Producer,
    seglog.Record,
    seglog.RecordArrays,
    seglog.Report,
    seglog.Retention,
    seglog.SegmentInfo,
    seglog.SeqSet,
    seglog.TruncateOp,
    journal.Item,
)
#: The ports to the file system and the clock. Only the log calls them.
PORTS = (seglog.OsFiles, seglog.SystemClock)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with seglog.open(tmp_path / "log", settings=SMALL, upkeep=InCaller) as log, Journal(tmp_path / "journal") as kept:
        log.topic("orders").append([b"x"] * 5, tag="eu")
        log.topic("orders").seal()
        log.topic("orders").append([b"y"] * 5)
        kept.append(1, b"data")
        kept.sync(1)
        yield World(tmp_path, log, kept)


def _of_journal(call: str, takes: dict[str, str], optional: str = "", **fit: object) -> Row:
    run = lambda world, **given: ended(getattr(world.journal, call)(**given))  # noqa: E731
    return Row(run, takes, fit, frozenset(optional.split()))


CONFIG = {
    "durability": "text",
    "keep_history": "bool",
    "attributes": "mapping",
    "ttl_ms": "whole",
    "cap_records": "whole",
    "cap_bytes": "whole",
    "discard": "text",
}
SETTINGS = dict.fromkeys(settings_of(seglog.LogSettings), "whole")
SETTINGS |= {"append_when_fenced": "bool", "cold_dir": "directory"}
BATCH = {"id": "text", "epoch": "whole", "number": "whole", "gaps": "bool"}
CONSTRUCTED = {
    "ProducerBatch": of_function(seglog.ProducerBatch, BATCH, id="p", epoch=0, number=0),
    "TopicConfig": of_function(TopicConfig, CONFIG, "ttl_ms cap_records cap_bytes"),
    "LogSettings": of_function(seglog.LogSettings, SETTINGS),
    "Journal": of_function(Journal, {"path": "path", "files": "instance"}, "files", path="never"),
}
JOURNAL = {
    "Journal.append": _of_journal("append", {"section": "u64", "data": "bytes"}, section=1, data=b"x"),
    "Journal.get": _of_journal(
        "get", {"section": "u64", "offset": "whole", "exact": "whole"}, "exact", section=1, offset=0
    ),
    "Journal.sync": _of_journal("sync", {"section": "u64"}),
    "Journal.prune": _of_journal("prune", {"min_section": "u64"}),
    "Journal.replay": _of_journal(
        "replay", {"sections": "wholes", "prefix": "whole", "concurrency": "whole"}, "sections prefix"
    ),
}


def test_every_call_has_a_row_for_every_argument() -> None:
    wanted = calls_of(seglog, values=(*VALUES, *PORTS)) | calls_of(journal, values=VALUES)
    wanted |= calls_of(SimpleNamespace(InnerTopic=InnerTopic, __all__=["InnerTopic"]))
    wanted = {name: arguments for name, arguments in wanted.items() if not name.endswith((".from_json", ".to_json"))}
    assert {name: frozenset(row.takes) for name, row in (LOG | JOURNAL).items()} == wanted


def test_a_wrong_argument_is_refused_by_its_name_and_nothing_changes(world: World) -> None:
    """The test sees only those changes in memory that reads and properties show."""
    before, read = contents(world.root), list(world.topic.read())
    state = (world.topic.inner.position, world.log.topics(), world.topic.inner.delete_ops(), world.log.topic_defaults)
    for name, row in (LOG | CONSTRUCTED | JOURNAL).items():
        assert refused(world, name, row, Misuse) == []
        assert contents(world.root) == before, name
        now = (world.topic.inner.position, world.log.topics(), world.topic.inner.delete_ops(), world.log.topic_defaults)
        assert now == state, name
        assert list(world.topic.read()) == read, name
    assert world.topic.append([b"z"]) == range(11, 12)
    world.log.close()
    with seglog.open(world.root / "log") as log:
        assert list(log.topic("orders").read(1, 10)) == read


class Chunks:
    """A value in one chunk, as often as it is asked for."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"x"


ASYNC = {
    "append": (APPEND, APPEND_OPTIONAL, {"values": [b"x"]}),
    "append_once": (APPEND, APPEND_OPTIONAL, {"values": [b"x"]}),
    "append_stream": (STREAM, APPEND_OPTIONAL, {"chunks": Chunks()}),
    "read": ({**READ, **SELECTION, "limit": "whole", "gaps": "bool"}, "start end since_ms until_ms tag limit", {}),
    "read_arrow": ({**READ, **SELECTION, "text": "bool"}, "start end since_ms until_ms tag", {}),
    "follow": (FOLLOW, "start epoch timeout_s tag", {"timeout_s": 0}),
    "delete": (DELETE, DELETE_OPTIONAL, {"tag": "eu"}),
    "undo": ({"delete": "whole", "partial": "bool", "preview": "bool"}, "delete", {}),
    "evict": ({"before": "whole"}, "", {}),
    "truncate": ({"seq": "whole"}, "", {}),
    "seq_at": ({"ts_ms": "whole"}, "", {}),
}
ASYNC_LOG = {
    "topic": ({"name": "name"}, "", {}),
    "get_topic": ({"name": "name"}, "", {}),
    "create_topic": (LOG["Log.create_topic"].takes, "config", {"name": "other"}),
    "configure": ({"name": "text", "config": "instance"}, "", {"name": "orders", "config": TopicConfig()}),
    "reconfigure": ({"name": "text", "change": "callable"}, "", {"name": "orders", "change": lambda config: config}),
    "delete_topic": ({"name": "text"}, "", {"name": "orders"}),
    "seal": ({"names": "texts"}, "", {"names": ["orders"]}),
}


async def _awaited(found: Any) -> Any:
    if hasattr(found, "__anext__"):
        return [record async for record in found]
    return await found if asyncio.iscoroutine(found) else found


def test_every_call_of_an_asyncio_program_has_a_row() -> None:
    wanted = calls_of(aio)
    rows = {"AsyncTopic." + name: row for name, row in ASYNC.items()}
    rows |= {"AsyncLog." + name: row for name, row in ASYNC_LOG.items()}
    assert {name: frozenset(takes) for name, (takes, _, _) in rows.items()} == {
        name: arguments for name, arguments in wanted.items() if name != "open"
    }


@pytest.mark.parametrize("kind", ["topic", "log"])
def test_an_asyncio_program_gets_the_same_refusals(tmp_path: Path, kind: str) -> None:
    async def tried() -> list[str]:
        found = []
        loop = asyncio.get_running_loop()
        async with aio.open(tmp_path / "log", settings=SMALL, upkeep=InCaller) as log:
            await log.topic("orders").append([b"x"] * 5, tag="eu")
            before = contents(tmp_path)
            home: Any = log if kind == "log" else log.topic("orders")

            def run(_: object, *, call: str, **given: object) -> object:
                return asyncio.run_coroutine_threadsafe(_awaited_call(getattr(home, call), given), loop).result(60)

            for call, (takes, optional, fit) in (ASYNC_LOG if kind == "log" else ASYNC).items():
                row = Row(run, takes, {**fit, "call": call}, frozenset(optional.split()))
                found += await asyncio.to_thread(refused, None, call, row, Misuse)
            assert contents(tmp_path) == before
            assert await log.topic("orders").append([b"y"]) == range(6, 7)
        return found

    assert asyncio.run(tried()) == []


async def _awaited_call(call: Any, given: dict[str, object]) -> Any:
    return await _awaited(call(**given))


def test_an_asyncio_log_is_refused_its_path_at_once() -> None:
    with pytest.raises(InvalidArgument, match="path"):
        aio.open(7)  # type: ignore[arg-type]


def test_whole_numbers_of_numpy_are_whole_numbers(world: World) -> None:
    assert [record.seq for record in world.topic.read(np.int64(3), np.uint8(4))] == [3, 4]
    world.topic.delete(before=np.int64(3))  # type: ignore[arg-type]
    [op] = world.topic.inner.delete_ops()
    assert (type(op.before), op.before) == (int, 3)
    with pytest.raises(InvalidArgument, match="before"):
        world.topic.delete(before=np.True_)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="before"):
        world.topic.delete(before=np.float64(3))  # type: ignore[arg-type]


def test_a_text_of_a_subclass_is_kept_as_a_plain_one(world: World) -> None:
    class Tag(str):
        __slots__ = ()

    world.topic.delete(tag=Tag("eu"))
    [op] = world.topic.inner.delete_ops()
    assert type(op.tag) is str
    assert op.tag == "eu"


def test_a_refusal_names_argument_value_and_what_is_wanted() -> None:
    error = InvalidArgument("before", "x" * 1000, "a whole number")
    assert str(error).startswith("argument before is 'xxxxx")
    assert str(error).endswith("(str): it must be a whole number")
    assert len(str(error)) < 120
    assert isinstance(error, TypeError)
    assert isinstance(error, ValueError)
    assert error.exit_code == 2


def test_bounds_of_an_argument_are_those_of_its_annotation() -> None:
    @checked
    def call(number: Annotated[int, Within(2, 3)] = 0, *others: int, **named: str) -> object:
        return number, others, named

    assert Within(2, 3) != (2, 3)
    assert call() == (0, (), {})
    assert call(3, 9, x="y") == (3, (9,), {"x": "y"})
    for number in (1, 4):
        with pytest.raises(InvalidArgument, match="from 2 to 3"):
            call(number)


def test_a_wrong_number_of_arguments_is_pythons_own_error(world: World) -> None:
    with pytest.raises(TypeError, match="positional"):
        world.topic.evict()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword"):
        world.topic.evict(before=1, after=2)  # type: ignore[call-arg]


def test_a_port_is_what_has_its_names(world: World) -> None:
    world.log.attach_cold(SimpleNamespace(read=None))  # type: ignore[arg-type]
    world.log.detach_cold()
    world.topic.inner.settle_truncation(TruncateOp(3, 0, 1))
    assert next(iter(world.topic.read())) == Record(1, world.topic.read().__next__().ts_ms, b"x", "eu")
