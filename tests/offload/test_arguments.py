"""Test every public call of the archive with arguments of the wrong type or range.

The call refuses the argument by name, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import offload
import seglog
from catalog import ForkPoint, Vid
from offload import Archive, ColdSettings, OffloadSettings, attach, recover
from offload.context import part
from offload.settings import CatalogSettings, CliSettings, ServeSettings, TenantSettings
from seglog import Misuse, SeglogError
from seglog.base.ownership import Owned
from seglog.engine.work_thread import InCaller
from seglog.values.config import Setting, settings_of
from tests.arguments import Row, calls_of, contents, refused
from tests.worlds.log_calls import DELETE, DELETE_OPTIONAL

#: A small WAL, because each call is followed by a look at every byte of the directory.
SETTINGS = seglog.LogSettings(wal_file_bytes=64 << 10, max_record_bytes=16 << 10)
VALUES = (
    offload.CatalogSettings,
    offload.ColdSettings,
    offload.OffloadResult,
    offload.OffloadSettings,
    offload.Removed,
    offload.Restored,
    offload.Settings,
    offload.TopicStatus,
)


@dataclass
class World:
    """Topic `orders` has ten records, five of them offloaded, a branch `half` and a tag `mark`."""

    root: Path
    log: seglog.Log
    archive: Archive


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with (
        seglog.open(tmp_path / "log", settings=SETTINGS, upkeep=InCaller) as log,
        attach(log, f"file://{tmp_path}/remote") as archive,
    ):
        log.topic("orders").append([b"x"] * 5, tag="eu")
        log.topic("orders").seal()
        archive.offload("orders")
        archive.restore("orders", to="seq:3", name="half")
        archive.tags.tag("orders", "mark", to="seq:2")
        log.topic("orders").append([b"y"] * 5)
        yield World(tmp_path, log, archive)


def _of(call: str, takes: dict[str, str], optional: str = "", **fit: object) -> Row:
    def run(world: World, **given: object) -> object:
        if "snapshot" in takes:
            given.setdefault("snapshot", world.archive.history.snapshot("orders"))
        if "point" in takes:
            given.setdefault("point", ForkPoint(Vid.new(1), 1))
        found = attrgetter(call)(world.archive)(**given)
        return list(found) if isinstance(found, Iterator) else found

    return Row(run, takes, fit, frozenset(optional.split()))


def _of_name(call: str, takes: dict[str, str] | None = None, optional: str = "", **fit: object) -> Row:
    return _of(call, {"name": "text", **(takes or {})}, optional, name="orders", **fit)


def _of_topic(call: str, takes: dict[str, str] | None = None, optional: str = "", **fit: object) -> Row:
    return _of(call, {"topic": "text", **(takes or {})}, optional, topic="orders", **fit)


def _attach(world: World, **given: Any) -> object:
    return attach(given.pop("log", world.log), **given)


ATTACH = dict.fromkeys(("log", "store", "settings", "clock", "uploader"), "instance")
RECOVER = {"directory": "instance", "url": "text", "store": "instance", "writable": "bool", "only": "text"}
CALLS = {
    "attach": Row(
        _attach,
        {**ATTACH, "url": "text"},
        {},
        frozenset({"url", "store", "settings", "clock", "uploader"}),
    ),
    "recover": Row(
        lambda _, **given: list(recover(**given)),
        RECOVER
        | dict.fromkeys(("files", "clock", "tenant"), "instance")
        | {"on_progress": "callable", "variables": "mapping"},
        {"directory": Path("never"), "url": "file:///never"},
        frozenset({"store", "only", "files", "clock", "tenant"}),
    ),
    "UpkeepService.abort": _of("upkeep.abort", {"upload": "instance"}),
    "BranchService.list": _of_topic("branches.list", {"deleted": "bool"}),
    "Archive.change_settings": _of("change_settings", {"settings": "instance"}),
    "UpkeepService.check_clock": _of("upkeep.check_clock", {"what": "text"}),
    "UpkeepService.collect": _of(
        "upkeep.collect",
        {"dry_run": "bool", "retain_s": "whole", "grace_s": "whole", "watch": "callable"},
        "retain_s grace_s",
        dry_run=True,
    ),
    "UpkeepService.bytes_to_rewrite": _of_name("upkeep.bytes_to_rewrite", {"erase": "bool"}),
    "CollectionService.apply": _of(
        "collection.apply",
        {"number": "whole", "dry_run": "bool", "retain_s": "whole", "grace_s": "whole", "watch": "callable"},
        "retain_s grace_s",
        number=1,
    ),
    "CollectionService.explain": _of(
        "collection.explain",
        {"key": "text", "retain_s": "whole", "watch": "callable"},
        "retain_s",
        key="refs/orders/main",
    ),
    "CollectionService.pages": _of("collection.pages", {"number": "whole"}, number=1),
    "CollectionService.plan": _of(
        "collection.plan",
        {"dry_run": "bool", "retain_s": "whole", "on_page": "callable", "watch": "callable"},
        "retain_s",
        dry_run=True,
    ),
    "CollectionService.survey": _of("collection.survey", {"watch": "callable"}),
    "UpkeepService.compact": _of_name("upkeep.compact", {"on_bytes": "callable"}),
    "HistoryService.count": _of("history.count", {"snapshot": "instance"}),
    "Archive.delete": _of_name("delete", DELETE | {"message": "text"}, DELETE_OPTIONAL, tag="eu"),
    "BranchService.delete_branch": _of_topic(
        "branches.delete_branch", {"branch": "text", "message": "text"}, branch="half"
    ),
    "TagService.delete_tag": _of_topic("tags.delete_tag", {"name": "text"}, name="mark"),
    "Archive.delete_topic": _of_name("delete_topic", {"detach": "bool", "discard": "bool", "message": "text"}),
    "HistoryService.diff": _of(
        "history.diff",
        {"left": "text", "right": "text", "left_at": "text", "right_at": "text"},
        "left_at right_at",
        left="orders",
        right="orders@half",
    ),
    "HistoryService.differing_records": _of("history.differing_records", {"found": "instance"}),
    "BranchService.distances": _of("branches.distances", {"branches": "instances"}),
    "UpkeepService.erase": _of_name("upkeep.erase", {"on_bytes": "callable", "message": "text"}),
    "UpkeepService.erasures": _of_name("upkeep.erasures", {"history": "instance", "beside": "instance"}, "beside"),
    "Archive.evict": _of_name("evict", {"before": "whole", "message": "text"}, before=2),
    "ReplicationService.fetch": _of_name("replication.fetch"),
    "ReplicationService.follow": _of_name("replication.follow"),
    "ReplicationService.followed_from": _of_name("replication.followed_from", {"since": "whole"}, since=1),
    "HistoryService.commits": _of_name("history.commits"),
    "StatusService.is_diverged": _of_name("status.is_diverged"),
    "StatusService.is_paused": _of_name("status.is_paused"),
    "ReplicationService.is_replica": _of_name("replication.is_replica"),
    "StatusService.is_unfinished": _of_name("status.is_unfinished"),
    "HistoryService.bounds": _of_name("history.bounds", {"at": "text"}, at="seq:3"),
    "BranchService.remote_names": _of("branches.remote_names", {"from_proxy": "bool"}),
    "ReplicationService.await_news": _of_name("replication.await_news", {"wait_s": "whole"}, wait_s=1),
    "ReplicationService.newest": _of_name("replication.newest"),
    "ReplicationService.changed_since": _of_name("replication.changed_since", {"epoch": "whole"}, epoch=1),
    "ReplicationService.follower": _of_name(
        "replication.follower", {"start": "whole", "gaps": "bool", "epoch": "whole"}, "start epoch"
    ),
    "HistoryService.live_floor": _of_name("history.live_floor", {"snapshot": "instance"}),
    "HistoryService.read_snapshot": _of_name(
        "history.read_snapshot",
        {"snapshot": "instance", "floor": "whole", "start": "whole", "end": "whole"},
        "start end",
        floor=1,
    ),
    "Archive.offload": _of_name("offload", {"up_to": "whole", "drop_hot": "bool", "on_bytes": "callable"}, "up_to"),
    "StatusService.kept_from_ms": _of_name("status.kept_from_ms"),
    "StatusService.lag": _of_name("status.lag"),
    "StatusService.offloaded_seq": _of_name("status.offloaded_seq"),
    "StatusService.offloaded_seq_here": _of_name("status.offloaded_seq_here"),
    "UpkeepService.orphan_uploads": _of("upkeep.orphan_uploads", {"min_age_ms": "whole"}),
    "UpkeepService.upgrade": _of_name("upkeep.upgrade", {"dry_run": "bool"}),
    "UpkeepService.pause": _of_name("upkeep.pause", {"paused": "bool"}),
    "HistoryService.point": _of_name("history.point", {"target": "text"}, target="seq:3"),
    "ReplicationService.keep_following": _of("replication.keep_following", {"is_on": "bool"}, is_on=False),
    "ReplicationService.pull": _of_name("replication.pull"),
    "Archive.read": _of_name("read", {"start": "whole", "end": "whole", "at": "text"}, "start end at"),
    "Archive.read_arrays": _of_name("read_arrays", {"start": "whole", "end": "whole", "at": "text"}, "start end at"),
    "Archive.read_arrow": _of_name(
        "read_arrow",
        {"start": "whole", "end": "whole", "at": "text", "tag": "text", "text": "bool"},
        "start end at tag",
    ),
    "Archive.release": _of_name("release", {"at_once": "bool"}),
    "BranchService.rename_branch": _of_topic(
        "branches.rename_branch", {"branch": "text", "new": "text"}, branch="half", new="other"
    ),
    "ReplicationService.check_not_followed": _of_name("replication.check_not_followed"),
    "ReplicationService.config": _of_name("replication.config"),
    "ReplicationService.reset": _of_name(
        "replication.reset", {"as_branch": "text", "discard": "bool", "message": "text"}, "as_branch"
    ),
    "Archive.copy": _of(
        "copy",
        {
            "source": "text",
            "topic": "text",
            "at": "text",
            "where": "callable",
            "into": "text",
            "store": "instance",
            "message": "text",
        },
        "where into store",
        source="orders",
        topic="copied",
    ),
    "Archive.restore": _of_topic(
        "restore", {"to": "text", "name": "text", "message": "text"}, to="seq:3", name="third"
    ),
    "StatusService.runs": _of_name("status.runs"),
    "HistoryService.commit": _of_name("history.commit", {"target": "text"}, target="seq:3"),
    "HistoryService.pin": _of("history.pin", {"point": "instance", "ttl_s": "whole"}, ttl_s=60),
    "HistoryService.snapshot_at": _of("history.snapshot_at", {"point": "instance"}),
    "HistoryService.index": _of("history.index", {"view": "instance"}),
    "HistoryService.commit_at": _of("history.commit_at", {"point": "instance"}),
    "BranchService.promote_branch": _of_topic(
        "branches.promote_branch",
        {"branch": "text", "keep": "text", "carry": "bool", "leave": "bool", "message": "text"},
        "keep",
        branch="half",
    ),
    "HistoryService.window_ms": _of_name("history.window_ms"),
    "HistoryService.newest_removal": _of_name("history.newest_removal"),
    "HistoryService.preview_undo": _of_name("history.preview_undo", {"lsn": "whole", "vid": "instance"}, "vid", lsn=2),
    "HistoryService.undo_removal": _of_name(
        "history.undo_removal", {"lsn": "whole", "vid": "instance", "partial": "bool", "message": "text"}, "vid", lsn=2
    ),
    "HistoryService.undo_delete": _of_name(
        "history.undo_delete", {"number": "whole", "partial": "bool", "message": "text"}, "number"
    ),
    "HistoryService.preview_undo_delete": _of_name("history.preview_undo_delete", {"number": "whole"}, "number"),
    "PinService.list": _of("pins.list", {"topic": "text"}, "topic"),
    "PinService.refresh": _of("pins.refresh", {"name": "text", "ttl_s": "whole"}, name="x", ttl_s=1),
    "PinService.release": _of("pins.release", {"name": "text"}, name="x"),
    "PreviewService.branch": _of_topic("previews.branch", {"branch": "text"}, branch="half"),
    "PreviewService.erasure": _of_name("previews.erasure"),
    "PreviewService.local": _of_name("previews.local"),
    "PreviewService.removal": _of_name(
        "previews.removal",
        {name: DELETE[name] for name in ("before", "tag", "start", "end", "seqs")},
        "before tag end seqs",
    ),
    "PreviewService.seq_at": _of_name("previews.seq_at", {"ts_ms": "whole"}, ts_ms=1),
    "PreviewService.topic": _of_name("previews.topic", {"detach": "bool", "discard": "bool"}, detach=True),
    "HistoryService.snapshot": _of_name("history.snapshot", {"at": "text"}, "at"),
    "StatusService.topic": _of_name("status.topic"),
    "ReplicationService.sync": _of_name("replication.sync", {"on_bytes": "callable"}),
    "ReplicationService.sync_state": _of_name("replication.sync_state"),
    "TagService.tag": _of_topic("tags.tag", {"name": "text", "to": "text", "message": "text"}, name="new", to="seq:3"),
    "TagService.list": _of_topic("tags.list"),
    "ReplicationService.take_over": _of_name("replication.take_over"),
    "Archive.truncate": _of_name("truncate", {"seq": "whole", "message": "text"}, seq=3),
    "BranchService.undelete_branch": _of_topic("branches.undelete_branch", {"branch": "text"}, branch="half"),
    "HistoryService.undo": _of("history.undo", {"number": "whole", "preview": "bool"}, "number"),
    "StatusService.with_hot_copies": _of("status.with_hot_copies", {"lag_s": "whole"}),
    "StatusService.waiting_bytes": _of_name("status.waiting_bytes", {"up_to": "whole"}, "up_to"),
    "Archive.open_for_append": _of_name("open_for_append"),
}


def test_every_call_has_a_row_for_every_argument(world: World) -> None:
    services = ModuleType("services")
    parts = [name for name, each in vars(Archive).items() if isinstance(each, part) and not name.startswith("_")]
    kinds = [type(getattr(world.archive, name)) for name in parts]
    assert len(kinds) >= 8
    assert all(issubclass(kind, Owned) for kind in kinds)
    vars(services).update({kind.__name__: kind for kind in kinds}, __all__=[kind.__name__ for kind in kinds])
    public = calls_of(offload, values=VALUES) | calls_of(services)
    assert {name: frozenset(row.takes) for name, row in CALLS.items()} == public


def test_a_wrong_argument_is_refused_by_its_name_and_nothing_changes(world: World) -> None:
    """No call changes a byte, here or in the remote. The test does not see settings that only a later call uses."""
    before, read = contents(world.root), list(world.log.topic("orders").read())
    for name, row in CALLS.items():
        assert refused(world, name, row, Misuse) == []
        assert contents(world.root) == before, name
        assert list(world.log.topic("orders").read()) == read, name
    assert world.archive.offload("orders").offloaded_seq == 5
    world.archive.close()
    world.log.close()
    with seglog.open(world.root / "log") as log:
        assert list(log.topic("orders").read()) == read


def _wrong_for(setting: Setting) -> list[object]:
    if setting.choices or setting.is_text or setting.is_path:
        return [7, b"x", None, True, 1.5, []]
    if setting.is_switch:
        return [7, 0, 1, b"x", "true", None, 1.5, []]
    return ["7", b"7", 1.5, True, -1, None, [7], float("nan")]


@pytest.mark.parametrize(
    "kind",
    [seglog.LogSettings, OffloadSettings, ColdSettings, CatalogSettings, ServeSettings, TenantSettings, CliSettings],
)
def test_a_wrong_setting_is_refused_by_its_key(kind: type[Any]) -> None:
    for key, setting in settings_of(kind).items():
        for value in _wrong_for(setting):
            with pytest.raises(SeglogError, match=key) as caught:
                kind(**{key: value})
            assert caught.value.exit_code == 2
