"""The public calls of a log, with what each argument takes, and a log for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import seglog
from seglog import TopicConfig
from seglog.journal.journal import Journal
from seglog.values.deletes import DeleteWhere
from tests.arguments import Row

__all__ = [
    "APPEND",
    "APPEND_OPTIONAL",
    "DELETE",
    "DELETE_OPTIONAL",
    "FOLLOW",
    "LOG",
    "OPEN",
    "READ",
    "SELECTION",
    "STREAM",
    "World",
    "ended",
    "of_function",
]


@dataclass
class World:
    """A log with ten records in `orders`, five of them sealed, and a journal with an item in section 1."""

    root: Path
    log: seglog.Log
    journal: Journal

    @property
    def topic(self) -> seglog.Topic:
        return self.log.topic("orders")


def _set_defaults(world: World, *, config: Any) -> None:
    world.log.topic_defaults = config


def _set_reject_bytes(world: World, *, size_bytes: Any) -> None:
    world.log.disk_reject_bytes = size_bytes


def _undo(world: World, **given: Any) -> None:
    with suppress(seglog.DeleteNotUndone):
        world.topic.undo(**given)


def ended(result: object) -> object:
    return list(result) if isinstance(result, Iterator) else result


def _of_log(call: str, takes: dict[str, str], optional: str = "", **fit: object) -> Row:
    run = lambda world, **given: ended(getattr(world.log, call)(**given))  # noqa: E731
    return Row(run, takes, fit, frozenset(optional.split()))


def _of_topic(call: str, takes: dict[str, str], optional: str = "", **fit: object) -> Row:
    run = lambda world, **given: ended(getattr(world.topic, call)(**given))  # noqa: E731
    return Row(run, takes, fit, frozenset(optional.split()))


def _of_inner(call: str, takes: dict[str, str], optional: str = "", **fit: object) -> Row:
    run = lambda world, **given: ended(getattr(world.topic.inner, call)(**given))  # noqa: E731
    return Row(run, takes, fit, frozenset(optional.split()))


def of_function(function: Any, takes: dict[str, str], optional: str = "", **fit: object) -> Row:
    return Row(lambda _, **given: function(**given), takes, fit, frozenset(optional.split()))


READ = {"start": "whole", "end": "whole"}
SELECTION = {"since_ms": "whole", "until_ms": "whole", "tag": "text"}
FOLLOW = {"start": "whole", "epoch": "whole", "timeout_s": "number", "tag": "text", "gaps": "bool"}
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
    "times_ms": "wholes",
}
APPEND_OPTIONAL = "tag node durability producer if_head key if_incarnation times_ms"
STREAM = {"chunks": "values", **{name: kind for name, kind in APPEND.items() if name != "values"}}
DELETE = {
    **SELECTION,
    "before": "whole",
    "start": "whole",
    "end": "whole",
    "seqs": "wholes",
    "epoch": "whole",
    "grep": "text",
}
DELETE_OPTIONAL = " ".join(DELETE)
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
    "open": of_function(seglog.open, OPEN, "clock files settings warm_stores", path="never"),
    "connect": of_function(
        seglog.connect,
        {"url": "text", "token": "text", "ca_file": "path", "retries": "instance"},
        "token ca_file",
        url="http://localhost",
    ),
    "arrow_schema": of_function(seglog.arrow_schema, {"text": "bool"}),
    "verify": of_function(
        seglog.verify,
        {key: OPEN[key] for key in ("path", "files", "settings", "warm_stores")},
        "files settings warm_stores",
        path="never",
    ),
    "default_toml": of_function(seglog.default_toml, {"remote": "text"}, "remote"),
    "load_settings": of_function(
        seglog.load_settings, {"path": "instance", "variables": "mapping"}, path=Path("never"), variables={}
    ),
    "read_sections": of_function(seglog.read_sections, {"path": "instance"}),
    "write_default": of_function(
        seglog.write_default, {"directory": "instance", "remote": "text"}, "remote", directory=Path("never")
    ),
    "replace_atomically": of_function(
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
    "Log.reconfigure": _of_log(
        "reconfigure", {"name": "text", "change": "callable"}, name="orders", change=lambda config: config
    ),
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
    "Topic.append": _of_topic("append", APPEND, APPEND_OPTIONAL, values=[b"x"]),
    "Topic.append_once": _of_topic("append_once", APPEND, APPEND_OPTIONAL, values=[b"x"]),
    "Topic.append_stream": _of_topic("append_stream", STREAM, APPEND_OPTIONAL, chunks=[b"x"]),
    "InnerTopic.known_producer": _of_inner("known_producer", {"producer": "text"}),
    "Topic.read": _of_topic(
        "read", {**READ, **SELECTION, "limit": "whole", "gaps": "bool"}, "start end since_ms until_ms tag limit"
    ),
    "Topic.read_arrays": _of_topic("read_arrays", {**READ, "gaps": "bool"}, "start end"),
    "Topic.read_arrow": _of_topic(
        "read_arrow",
        {**READ, **SELECTION, "text": "bool"},
        "start end since_ms until_ms tag",
    ),
    "Topic.read_batches": _of_topic("read_batches", READ, "start end"),
    "Topic.follow": _of_topic("follow", FOLLOW, "start epoch timeout_s tag", timeout_s=0),
    "InnerTopic.follower": _of_inner("follower", {"start": "whole", "gaps": "bool", "epoch": "whole"}, "start epoch"),
    "Topic.seq_at": _of_topic("seq_at", {"ts_ms": "whole"}),
    "InnerTopic.frames": _of_inner("frames", {"first": "whole", "last": "whole"}, first=1, last=1),
    "InnerTopic.frame_batches": _of_inner("frame_batches", {"first": "whole", "last": "whole"}, first=1, last=1),
    "InnerTopic.ephemeral_seqs": _of_inner("ephemeral_seqs", {"first": "whole", "last": "whole"}, first=1, last=1),
    "InnerTopic.sealed_files": _of_inner("sealed_files", {"first": "whole", "last": "whole"}, first=1, last=1),
    "Topic.delete": _of_topic("delete", DELETE, DELETE_OPTIONAL, tag="eu"),
    "Topic.undo": Row(_undo, {"delete": "whole", "partial": "bool", "preview": "bool"}, {}, frozenset({"delete"})),
    "Topic.evict": _of_topic("evict", {"before": "whole"}),
    "InnerTopic.delete": _of_inner("delete", {"where": "instance", "evicts": "bool"}, where=DeleteWhere(before=2)),
    "InnerTopic.settle_deletes": _of_inner("settle_deletes", {"op": "whole"}),
    "Topic.truncate": _of_topic("truncate", {"seq": "whole"}),
    "InnerTopic.truncate": _of_inner("truncate", {"seq": "whole", "position": "position"}, "position", seq=3),
    "InnerTopic.undelete": _of_inner(
        "undelete", {"seqs": "instance", "evict_floor": "whole"}, "evict_floor", seqs=seglog.SeqSet.of([(1, 1)])
    ),
    "InnerTopic.has_bytes": _of_inner("has_bytes", {"seqs": "instance"}, seqs=seglog.SeqSet.of([(1, 1)])),
    "InnerTopic.settle_truncation": _of_inner("settle_truncation", {"op": "instance"}),
    "InnerTopic.changed_since": _of_inner("changed_since", {"epoch": "whole"}),
    "InnerTopic.knows_since": _of_inner("knows_since", {"epoch": "whole"}),
    "InnerTopic.sealed_version": _of_inner("sealed_version", {"last": "whole"}),
    "InnerTopic.release": _of_inner("release", {"last_seq": "whole", "epoch": "whole"}, "epoch", last_seq=5),
}
