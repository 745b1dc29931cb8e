"""Every public call of the log refuses an argument of a wrong type or range by its name, and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
import pytest

import seglog
from seglog import InvalidArgument, Misuse, Record, TopicConfig, aio
from seglog.arguments import Within, checked
from seglog.engine.upkeep import InCaller
from seglog.journal import journal
from seglog.journal.journal import Journal
from seglog.values.setting import settings_of
from seglog.values.truncate_op import TruncateOp
from tests.arguments import Row, calls_of, contents, refused

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
    seglog.TruncateOp,
    journal.Item,
)
#: The ports to the file system and the clock. Only the log calls them.
PORTS = (seglog.OsFiles, seglog.SystemClock)


@dataclass
class World:
    """A log with ten records in `orders`, five of them sealed, and a journal with an item in section 1."""

    root: Path
    log: seglog.Log
    journal: Journal

    @property
    def topic(self) -> seglog.Topic:
        return self.log.topic("orders")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with seglog.open(tmp_path / "log", settings=SMALL, upkeep=InCaller) as log, Journal(tmp_path / "journal") as kept:
        log.topic("orders").append([b"x"] * 5, tag="eu")
        log.topic("orders").seal()
        log.topic("orders").append([b"y"] * 5)
        kept.append(1, b"data")
        kept.sync(1)
        yield World(tmp_path, log, kept)


def _set_defaults(world: World, *, config: Any) -> None:
    world.log.topic_defaults = config


def _set_reject_bytes(world: World, *, size_bytes: Any) -> None:
    world.log.disk_reject_bytes = size_bytes


def _ended(result: object) -> object:
    return list(result) if isinstance(result, Iterator) else result


def _of_log(call: str, takes: dict[str, str], optional: str = "", **fit: object) -> Row:
    run = lambda world, **given: _ended(getattr(world.log, call)(**given))  # noqa: E731
    return Row(run, takes, fit, frozenset(optional.split()))


def _of_topic(call: str, takes: dict[str, str], optional: str = "", **fit: object) -> Row:
    run = lambda world, **given: _ended(getattr(world.topic, call)(**given))  # noqa: E731
    return Row(run, takes, fit, frozenset(optional.split()))


def _of_journal(call: str, takes: dict[str, str], optional: str = "", **fit: object) -> Row:
    run = lambda world, **given: _ended(getattr(world.journal, call)(**given))  # noqa: E731
    return Row(run, takes, fit, frozenset(optional.split()))


def _of(function: Any, takes: dict[str, str], optional: str = "", **fit: object) -> Row:
    return Row(lambda _, **given: function(**given), takes, fit, frozenset(optional.split()))


READ = {"start": "whole", "end": "whole"}
FOLLOW = {"start": "whole", "epoch": "whole", "timeout_s": "number", "gaps": "bool"}
APPEND = {
    "values": "values",
    "tag": "text",
    "node": "text",
    "unterminated": "bool",
    "durability": "text",
    "producer": "instance",
    "if_head": "whole",
    "key": "text",
    "if_incarnation": "text",
}
_OPTIONAL = "tag node durability producer if_head key if_incarnation"
OPEN = {
    "path": "path",
    "create": "bool",
    "read_only": "bool",
    "clock": "instance",
    "files": "instance",
    "settings": "instance",
    "upkeep": "callable",
    "warm_stores": "callable",
}
LOG = {
    "open": _of(seglog.open, OPEN, "clock files settings warm_stores", path="never"),
    "connect": _of(
        seglog.connect,
        {"url": "text", "token": "text", "ca_file": "path", "retries": "instance"},
        "token ca_file",
        url="http://localhost",
    ),
    "arrow_schema": _of(seglog.arrow_schema, {"text": "bool"}),
    "verify": _of(
        seglog.verify,
        {key: OPEN[key] for key in ("path", "files", "settings", "warm_stores")},
        "files settings warm_stores",
        path="never",
    ),
    "default_toml": _of(seglog.default_toml, {"remote": "text"}, "remote"),
    "load_settings": _of(
        seglog.load_settings, {"path": "instance", "variables": "mapping"}, path=Path("never"), variables={}
    ),
    "read_sections": _of(seglog.read_sections, {"path": "instance"}),
    "write_default": _of(
        seglog.write_default, {"directory": "instance", "remote": "text"}, "remote", directory=Path("never")
    ),
    "replace_atomically": _of(
        seglog.replace_atomically,
        {"files": "instance", "path": "instance", "body": "bytes"},
        files=seglog.OsFiles(),
        path=Path("never"),
        body=b"",
    ),
    "Log.topic": _of_log("topic", {"name": "name"}),
    "Log.get_topic": _of_log("get_topic", {"name": "name"}),
    "Log.has_topic": _of_log("has_topic", {"name": "text"}),
    "Log.topic_defaults": Row(_set_defaults, {"config": "instance"}),
    "Log.create_topic": _of_log(
        "create_topic",
        {"name": "name", "config": "instance", "first_seq": "whole", "ts_floor_ms": "whole", "is_taken_over": "bool"},
        "config",
        name="other",
    ),
    "Log.configure": _of_log("configure", {"name": "text", "config": "instance"}, name="orders", config=TopicConfig()),
    "Log.delete_topic": _of_log("delete_topic", {"name": "text", "position": "position"}, "position", name="orders"),
    "Log.seal": _of_log("seal", {"names": "texts"}),
    "Log.attach_cold": _of_log("attach_cold", {"tier": "instance"}),
    "Log.mark_elsewhere": _of_log(
        "mark_elsewhere", {"name": "name", "mark": "instance"}, "mark", name="orders", mark=None
    ),
    "Log.append_upkeep": _of_log("append_upkeep", {"name": "name", "value": "bytes"}, name="orders", value=b"x"),
    "Log.known_appends": _of_log("known_appends", {"name": "text"}),
    "Log.disk_reject_bytes": Row(_set_reject_bytes, {"size_bytes": "whole"}),
    "Log.hold_appends": _of_log("hold_appends", {"reason": "text"}, "reason"),
    "Topic.append": _of_topic("append", APPEND, _OPTIONAL, values=[b"x"]),
    "Topic.append_once": _of_topic("append_once", APPEND, _OPTIONAL, values=[b"x"]),
    "Topic.producer": _of_topic("producer", {"producer": "text"}),
    "Topic.read": _of_topic(
        "read", {**READ, "since_ms": "whole", "until_ms": "whole", "gaps": "bool"}, "start end since_ms until_ms"
    ),
    "Topic.read_arrays": _of_topic("read_arrays", {**READ, "gaps": "bool"}, "start end"),
    "Topic.read_arrow": _of_topic(
        "read_arrow",
        {**READ, "since_ms": "whole", "until_ms": "whole", "tag": "text", "text": "bool"},
        "start end since_ms until_ms tag",
    ),
    "Topic.read_batches": _of_topic("read_batches", READ, "start end"),
    "Topic.follow": _of_topic("follow", FOLLOW, "start epoch timeout_s", timeout_s=0),
    "Topic.follower": _of_topic("follower", {"start": "whole", "gaps": "bool", "epoch": "whole"}, "start epoch"),
    "Topic.seq_at": _of_topic("seq_at", {"ts_ms": "whole"}),
    "Topic.frames": _of_topic("frames", {"first": "whole", "last": "whole"}, first=1, last=1),
    "Topic.frame_batches": _of_topic("frame_batches", {"first": "whole", "last": "whole"}, first=1, last=1),
    "Topic.sealed_files": _of_topic("sealed_files", {"first": "whole", "last": "whole"}, first=1, last=1),
    "Topic.delete": _of_topic("delete", {"before": "whole", "tag": "text"}, "before tag", tag="eu"),
    "Topic.evict": _of_topic("evict", {"before": "whole"}),
    "Topic.settle_deletes": _of_topic("settle_deletes", {"op": "whole"}),
    "Topic.truncate": _of_topic("truncate", {"seq": "whole", "position": "position"}, "position", seq=3),
    "Topic.settle_truncation": _of_topic("settle_truncation", {"op": "instance"}),
    "Topic.changed_since": _of_topic("changed_since", {"epoch": "whole"}),
    "Topic.sealed_version": _of_topic("sealed_version", {"last": "whole"}),
    "Topic.release": _of_topic("release", {"last_seq": "whole", "epoch": "whole"}, "epoch", last_seq=5),
}
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
    "ProducerBatch": _of(seglog.ProducerBatch, BATCH, id="p", epoch=0, number=0),
    "TopicConfig": _of(TopicConfig, CONFIG, "ttl_ms cap_records cap_bytes"),
    "LogSettings": _of(seglog.LogSettings, SETTINGS),
    "Journal": _of(Journal, {"path": "path", "files": "instance"}, "files", path="never"),
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
    wanted = {name: arguments for name, arguments in wanted.items() if not name.endswith((".from_json", ".to_json"))}
    assert {name: frozenset(row.takes) for name, row in (LOG | JOURNAL).items()} == wanted


def test_a_wrong_argument_is_refused_by_its_name_and_nothing_changes(world: World) -> None:
    """The test sees only those changes in memory that reads and properties show."""
    before, read = contents(world.root), list(world.topic.read())
    state = (world.topic.position, world.log.topics(), world.topic.delete_ops(), world.log.topic_defaults)
    for name, row in (LOG | CONSTRUCTED | JOURNAL).items():
        assert refused(world, name, row, Misuse) == []
        assert contents(world.root) == before, name
        now = (world.topic.position, world.log.topics(), world.topic.delete_ops(), world.log.topic_defaults)
        assert now == state, name
        assert list(world.topic.read()) == read, name
    assert world.topic.append([b"z"]) == range(11, 12)
    world.log.close()
    with seglog.open(world.root / "log") as log:
        assert list(log.topic("orders").read(1, 10)) == read


ASYNC = {
    "append": (APPEND, _OPTIONAL, {"values": [b"x"]}),
    "append_once": (APPEND, _OPTIONAL, {"values": [b"x"]}),
    "read": ({**READ, "since_ms": "whole", "until_ms": "whole", "gaps": "bool"}, "start end since_ms until_ms", {}),
    "follow": (FOLLOW, "start epoch timeout_s", {"timeout_s": 0}),
    "delete": ({"before": "whole", "tag": "text"}, "before tag", {"tag": "eu"}),
    "evict": ({"before": "whole"}, "", {}),
    "truncate": ({"seq": "whole", "position": "position"}, "position", {"seq": 3}),
    "seq_at": ({"ts_ms": "whole"}, "", {}),
}
ASYNC_LOG = {
    "topic": ({"name": "name"}, "", {}),
    "get_topic": ({"name": "name"}, "", {}),
    "create_topic": (LOG["Log.create_topic"].takes, "config", {"name": "other"}),
    "configure": ({"name": "text", "config": "instance"}, "", {"name": "orders", "config": TopicConfig()}),
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
    op = world.topic.delete(before=np.int64(3))  # type: ignore[arg-type]
    assert (type(op.before), op.before) == (int, 3)
    with pytest.raises(InvalidArgument, match="before"):
        world.topic.delete(before=np.True_)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="before"):
        world.topic.delete(before=np.float64(3))  # type: ignore[arg-type]


def test_a_text_of_a_subclass_is_kept_as_a_plain_one(world: World) -> None:
    class Tag(str):
        __slots__ = ()

    op = world.topic.delete(tag=Tag("eu"))
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
    world.topic.settle_truncation(TruncateOp(3, 0, 1))
    assert next(iter(world.topic.read())) == Record(1, world.topic.read().__next__().ts_ms, b"x", "eu")
