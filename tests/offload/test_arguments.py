"""Test every public call of the archive with arguments of the wrong type or range.

The call refuses the argument by name, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import offload
import seglog
from offload import Archive, ColdSettings, OffloadSettings, attach, recover
from offload.settings import CatalogSettings, ServeSettings
from seglog import Misuse, SeglogError
from seglog.engine.upkeep import InCaller
from seglog.values.setting import Setting, settings_of
from tests.arguments import Row, calls_of, contents, refused

VALUES = (
    offload.ColdSettings,
    offload.Deleted,
    offload.OffloadResult,
    offload.OffloadSettings,
    offload.Restored,
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
    with seglog.open(tmp_path / "log", upkeep=InCaller) as log, attach(log, f"file://{tmp_path}/remote") as archive:
        log.topic("orders").append([b"x"] * 5, tag="eu")
        log.topic("orders").seal()
        archive.offload("orders")
        archive.restore("orders", to="seq:3", name="half")
        archive.tag("orders", "mark", to="seq:2")
        log.topic("orders").append([b"y"] * 5)
        yield World(tmp_path, log, archive)


def _of(call: str, takes: dict[str, str], optional: str = "", **fit: object) -> Row:
    def run(world: World, **given: object) -> object:
        if "snapshot" in takes:
            given.setdefault("snapshot", world.archive.snapshot("orders"))
        found = getattr(world.archive, call)(**given)
        return list(found) if isinstance(found, Iterator) else found

    return Row(run, takes, fit, frozenset(optional.split()))


def _of_name(call: str, takes: dict[str, str] | None = None, optional: str = "", **fit: object) -> Row:
    return _of(call, {"name": "text", **(takes or {})}, optional, name="orders", **fit)


def _of_topic(call: str, takes: dict[str, str] | None = None, optional: str = "", **fit: object) -> Row:
    return _of(call, {"topic": "text", **(takes or {})}, optional, topic="orders", **fit)


def _attach(world: World, **given: Any) -> object:
    return attach(given.pop("log", world.log), **given)


ATTACH = dict.fromkeys(("log", "store", "settings", "cold", "upkeep", "configured", "clock", "sender"), "instance")
RECOVER = {"directory": "instance", "url": "text", "store": "instance", "writable": "bool", "only": "text"}
CALLS = {
    "attach": Row(
        _attach,
        {**ATTACH, "url": "text"},
        {},
        frozenset({"url", "store", "settings", "cold", "upkeep", "configured", "clock", "sender"}),
    ),
    "recover": Row(
        lambda _, **given: list(recover(**given)),
        {**RECOVER, "files": "instance", "clock": "instance"},
        {"directory": Path("never"), "url": "file:///never"},
        frozenset({"store", "only", "files", "clock"}),
    ),
    "Archive.abort": _of("abort", {"upload": "instance"}),
    "Archive.branches": _of_topic("branches", {"deleted": "bool"}),
    "Archive.change_settings": _of("change_settings", {"settings": "instance"}),
    "Archive.check_clock": _of("check_clock", {"what": "text"}),
    "Archive.collect": _of(
        "collect", {"dry_run": "bool", "retain_s": "whole", "grace_s": "whole"}, "retain_s grace_s", dry_run=True
    ),
    "Archive.compact": _of_name("compact", {"on_bytes": "callable"}),
    "Archive.count": _of("count", {"snapshot": "instance"}),
    "Archive.delete": _of_name("delete", {"before": "whole", "tag": "text"}, "before tag", tag="eu"),
    "Archive.delete_branch": _of_topic("delete_branch", {"branch": "text"}, branch="half"),
    "Archive.delete_tag": _of_topic("delete_tag", {"name": "text"}, name="mark"),
    "Archive.delete_topic": _of_name("delete_topic", {"detach": "bool", "discard": "bool"}),
    "Archive.diff": _of("diff", {"left": "text", "right": "text"}, left="orders", right="orders@half"),
    "Archive.distances": _of("distances", {"branches": "instances"}),
    "Archive.erase": _of_name("erase", {"on_bytes": "callable"}),
    "Archive.erasures": _of_name("erasures"),
    "Archive.evict": _of_name("evict", {"before": "whole"}, before=2),
    "Archive.fetch": _of_name("fetch"),
    "Archive.follow": _of_name("follow"),
    "Archive.history": _of_name("history"),
    "Archive.is_diverged": _of_name("is_diverged"),
    "Archive.is_paused": _of_name("is_paused"),
    "Archive.is_replica": _of_name("is_replica"),
    "Archive.is_unfinished": _of_name("is_unfinished"),
    "Archive.live_floor": _of_name("live_floor", {"snapshot": "instance"}),
    "Archive.read_snapshot": _of_name(
        "read_snapshot",
        {"snapshot": "instance", "floor": "whole", "start": "whole", "end": "whole"},
        "start end",
        floor=1,
    ),
    "Archive.offload": _of_name("offload", {"up_to": "whole", "drop_hot": "bool", "on_bytes": "callable"}, "up_to"),
    "Archive.offloaded_seq": _of_name("offloaded_seq"),
    "Archive.orphan_uploads": _of("orphan_uploads", {"min_age_ms": "whole"}),
    "Archive.pause": _of_name("pause", {"paused": "bool"}),
    "Archive.point": _of_name("point", {"target": "text"}, target="seq:3"),
    "Archive.pull": _of_name("pull"),
    "Archive.read": _of_name("read", {"start": "whole", "end": "whole", "at": "text"}, "start end at"),
    "Archive.release": _of_name("release", {"at_once": "bool"}),
    "Archive.rename_branch": _of_topic("rename_branch", {"branch": "text", "new": "text"}, branch="half", new="other"),
    "Archive.reset": _of_name("reset", {"as_branch": "text", "discard": "bool"}, "as_branch"),
    "Archive.restore": _of_topic(
        "restore", {"to": "text", "name": "text", "message": "text"}, to="seq:3", name="third"
    ),
    "Archive.runs": _of_name("runs"),
    "Archive.snapshot": _of_name("snapshot", {"at": "text"}, "at"),
    "Archive.status": _of_name("status"),
    "Archive.sync": _of_name("sync", {"on_bytes": "callable"}),
    "Archive.sync_state": _of_name("sync_state"),
    "Archive.tag": _of_topic("tag", {"name": "text", "to": "text", "message": "text"}, name="new", to="seq:3"),
    "Archive.tags": _of_topic("tags"),
    "Archive.take_over": _of_name("take_over"),
    "Archive.truncate": _of_name("truncate", {"seq": "whole"}, seq=3),
    "Archive.undelete_branch": _of_topic("undelete_branch", {"branch": "text"}, branch="half"),
    "Archive.undo": _of("undo", {"number": "whole"}, "number"),
    "Archive.waiting_bytes": _of_name("waiting_bytes", {"up_to": "whole"}, "up_to"),
    "Archive.writable": _of_name("writable"),
}


def test_every_call_has_a_row_for_every_argument() -> None:
    assert {name: frozenset(row.takes) for name, row in CALLS.items()} == calls_of(offload, values=VALUES)


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_refused_by_its_name_and_nothing_changes(world: World, name: str) -> None:
    """The call changes no byte, here or in the remote. The test does not see settings that only a later call uses."""
    before, read = contents(world.root), list(world.log.topic("orders").read())
    assert refused(world, name, CALLS[name], Misuse) == []
    assert contents(world.root) == before
    assert list(world.log.topic("orders").read()) == read
    assert world.archive.offload("orders").offloaded_seq == 5
    world.archive.close()
    world.log.close()
    with seglog.open(world.root / "log") as log:
        assert list(log.topic("orders").read()) == read


def _wrong_for(setting: Setting) -> list[object]:
    if setting.choices or setting.is_text or setting.is_path:
        return [7, b"x", None, True, 1.5, []]
    return ["7", b"7", 1.5, True, -1, None, [7], float("nan")]


@pytest.mark.parametrize("kind", [seglog.LogSettings, OffloadSettings, ColdSettings, CatalogSettings, ServeSettings])
def test_a_wrong_setting_is_refused_by_its_key(kind: type[Any]) -> None:
    for key, setting in settings_of(kind).items():
        for value in _wrong_for(setting):
            with pytest.raises(SeglogError, match=key) as caught:
                kind(**{key: value})
            assert caught.value.exit_code == 2
