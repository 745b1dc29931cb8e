"""Test the erasure of a deleted record's bytes, by a date that seglog reports.

A compaction removes the bytes from the newest objects. GC removes them from the store.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Never

import pytest

import offload
import seglog
from catalog import CommitKind
from catalog.errors import StoreUnreachable
from catalog.format.keys import commit_key, control_key, ref_key, tag_key
from catalog.objects import MemoryStore
from offload.archive import Archive
from offload.operations.commits import commit_text
from offload.operations.log import log
from offload.services.erasure_dates import Erasures
from offload.settings import CatalogSettings, OffloadSettings
from seglog import Log, TopicConfig
from seglog.values.protocols import DeleteArguments
from tests.faults.store import CountingStore

DAY_MS = 24 * 3600 * 1000
SECRET = b"the secret of record two"


class Clock:
    def __init__(self) -> None:
        self.now = 1_763_000_000_000

    def now_ms(self) -> int:
        self.now += 1
        return self.now


class Kit:
    def __init__(self, path: Path) -> None:
        self.clock, self.store = Clock(), CountingStore(MemoryStore())
        self.log: Log = seglog.open(path / "log", clock=self.clock)
        settings = offload.Settings().with_parts(CatalogSettings(gc_interval_s="never"))
        self.archive: Archive = offload.attach(self.log, store=self.store, settings=settings, clock=self.clock)
        # This codec stores the bytes unchanged, so that the test can search for them.
        self.topic = self.log.create_topic("t", TopicConfig(attributes={"codec": "none"}))

    def append(self, *values: bytes, tag: str | None = None) -> None:
        self.topic.append(list(values), tag=tag)
        self.topic.seal()
        self.archive.offload("t", drop_hot=True)

    def holding(self) -> int:
        """Return the number of objects that contain the secret."""
        return sum(SECRET in self.store.get(key) for key in self.store.list("5"))  # type: ignore[arg-type]

    def status(self) -> tuple[int | None, int | None]:
        """Return the erasures' part of the status, and check that the status sends no request."""
        self.store.counts.clear()
        status = self.archive.status.topic("t")
        assert not self.store.counts
        return status.unerased_objects, status.erased_by_ms

    def dates(self) -> list[int | None]:
        """Return the erasure dates of the deletes, newest first."""
        history = self.archive.history.commits("t")
        erasures = self.archive.upkeep.erasures("t", history)
        told = [(past, erasures.date_ms(past)) for past in history]
        assert all(date is None for past, date in told if past.commit.kind is not CommitKind.DELETE)
        return [date for past, date in told if past.commit.kind is CommitKind.DELETE]

    def told(self, name: str = "t") -> list[tuple[int | None, tuple[str, ...]]]:
        """Return the date of each delete, or the names that keep its bytes, newest first."""
        history = self.archive.history.commits(name)
        erasures = self.archive.upkeep.erasures(name, history)
        told = [(past, erasures.of(past)) for past in history]
        return [each for past, each in told if past.commit.kind is CommitKind.DELETE]

    def told_elsewhere(self) -> list[tuple[int | None, tuple[str, ...]]]:
        """Return `told` of a directory that knows nothing yet, with the requests of that in `store.counts`."""
        here, path = self.archive, self.log.path.with_name(os.urandom(4).hex())
        with (
            seglog.open(path, clock=self.clock) as log,
            offload.attach(log, store=self.store, clock=self.clock) as self.archive,
        ):
            self.store.counts.clear()
            try:
                return self.told()
            finally:
                self.archive = here

    def collect(self) -> None:
        for _ in range(2):
            assert not self.archive.upkeep.collect().blocked
            self.clock.now += DAY_MS


@pytest.fixture
def kit(tmp_path: Path):  # type: ignore[no-untyped-def]
    made = Kit(tmp_path)
    yield made
    made.archive.close()
    made.log.close()


@pytest.mark.parametrize("conditions", [{"before": 3}, {"seqs": [1, 2]}, {"tag": "x"}], ids=["before", "seqs", "tag"])
def test_a_repeated_delete_that_hides_nothing_more_moves_no_date(kit: Kit, conditions: DeleteArguments) -> None:
    kit.append(b"one", SECRET, tag="x")
    kit.append(b"three")
    kit.archive.delete("t", **conditions)
    date = kit.status()[1]
    assert date is not None
    for _ in range(2):
        kit.clock.now += DAY_MS
        assert kit.archive.delete("t", **conditions).lsn is not None
        assert kit.status()[1] == date
    kit.archive.delete("t", seqs=[3])
    assert (kit.status()[1] or 0) > date


@pytest.mark.parametrize("busy", [False, True])
def test_a_deleted_record_is_gone_by_the_date_that_is_told_and_not_before_the_window_ends(
    kit: Kit, *, busy: bool
) -> None:
    kit.append(b"one")
    kit.append(SECRET, tag="x")
    kit.append(b"three")
    assert kit.status() == (0, None)
    deleted_ms = kit.clock.now
    kit.archive.delete("t", tag="x")
    assert kit.dates() == [None]
    assert kit.status()[0] == 1
    assert [each.kind for each in kit.archive.upkeep.erase("t")] == [CommitKind.COMPACT]
    assert kit.archive.upkeep.erase("t") == ()
    [date] = kit.dates()
    assert date is not None
    assert deleted_ms + 8 * DAY_MS <= date <= deleted_ms + 8 * DAY_MS + 10_000  # window and grace
    assert kit.status() == (0, date)
    assert kit.holding() == 1
    kit.clock.now = deleted_ms + 6 * DAY_MS
    if busy:
        kit.append(b"four")
    kit.archive.upkeep.collect()
    assert kit.holding() == 1
    assert SECRET in [record.value for record in kit.archive.read("t", at="lsn:3")]
    kit.clock.now = date - DAY_MS
    kit.collect()
    assert kit.holding() == 0
    assert kit.status() == (0, None)
    assert [record.value for record in kit.archive.read("t")][:2] == [b"one", b"three"]


def test_what_a_delete_leaves_nothing_of_needs_no_compaction(kit: Kit) -> None:
    kit.append(SECRET)
    kit.append(b"two")
    kit.archive.delete("t", before=2)
    assert kit.archive.upkeep.erase("t") == ()
    [date] = kit.dates()
    assert date is not None
    assert kit.status() == (0, date)
    kit.clock.now = date - DAY_MS
    kit.append(b"three")
    kit.collect()
    assert kit.holding() == 0


def test_a_segment_that_a_delete_cut_is_put_anew(kit: Kit) -> None:
    kit.append(SECRET, b"two", b"three")
    kit.archive.delete("t", before=2)
    assert kit.dates() == [None]
    assert kit.status()[0] == 1
    [done] = kit.archive.upkeep.erase("t")
    assert done.segment is not None
    assert (done.segment.first_seq, done.segment.last_seq) == (2, 3)
    assert kit.dates() != [None]
    assert [record.value for record in kit.archive.read("t")] == [b"two", b"three"]


def test_a_tag_holds_the_bytes_beyond_the_date(kit: Kit) -> None:
    kit.append(b"one", SECRET)
    kit.archive.tags.tag("t", "before", to="lsn:1")
    kit.archive.delete("t", before=3)
    kit.clock.now += 30 * DAY_MS
    kit.append(b"three")
    kit.clock.now += 30 * DAY_MS
    kit.collect()
    assert kit.holding() == 1
    assert SECRET in [record.value for record in kit.archive.read("t", at="tag:before")]


def test_status_tells_of_deletes_whose_commits_are_not_here_any_more(kit: Kit) -> None:
    kit.append(SECRET, b"two")
    kit.archive.delete("t", before=2)
    kit.archive.upkeep.erase("t")
    [date] = kit.dates()
    for number in range(70):
        kit.append(b"%d" % number)
    assert kit.archive.upkeep.drop_copies() > 60
    assert kit.status() == (0, date)
    assert kit.dates() == [date]


def test_a_merge_of_objects_that_hold_no_deleted_record_changes_no_date(kit: Kit) -> None:
    kit.append(SECRET)
    kit.append(b"two")
    kit.append(b"three")
    kit.append(b"four")
    kit.archive.delete("t", before=2)
    before = kit.status()
    assert before[0] == 0
    kit.archive.change_settings(OffloadSettings(merge_count=2))
    assert kit.archive.upkeep.compact("t")
    assert kit.status() == before


def test_a_history_without_deletes_is_listed_without_the_state_of_the_topic(tmp_path: Path) -> None:
    """A topic may show many segments, and the first line of `seglog log` does not wait for them."""
    kit = Kit(tmp_path)
    for value in (b"one", b"two"):
        kit.append(value)

    def never(_: object) -> Never:
        raise AssertionError("asked for the state")

    history = kit.archive.history.commits("t")
    erasures = Erasures("t", history, never, lambda: never(None))
    assert {erasures.of(past) for past in history} == {(None, ())}
    kit.archive.close()
    kit.log.close()


def test_a_date_is_told_only_if_no_other_name_keeps_the_bytes(kit: Kit) -> None:
    kit.append(b"one")
    kit.archive.tags.tag("t", "before")
    kit.append(SECRET, tag="x")
    kit.archive.restore("t", to="head", name="side")
    lease = kit.archive.history.pin(kit.archive.history.point("t", "head"), ttl_s=3600)
    kit.archive.tags.tag("t", "shows")
    kit.append(b"three")
    kit.archive.delete("t", tag="x")
    kit.archive.tags.tag("t", "hides")  # its object has the bytes
    assert kit.told() == [(None, ())]
    assert [each.kind for each in kit.archive.upkeep.erase("t")] == [CommitKind.COMPACT]
    kit.archive.tags.tag("t", "after")
    names = (f"lease {lease.name}", "t@side", "tag:hides", "tag:shows")
    assert kit.told() == [(None, names)]
    for name in ("hides", "shows"):
        kit.archive.tags.delete_tag("t", name)
    kit.archive.pins.release(lease.name)
    assert kit.told() == [(None, ("t@side",))]
    kit.archive.branches.delete_branch("t", "side")
    assert kit.told() == [(None, ("t@side (deleted)",))]


def test_a_deleted_branch_keeps_the_bytes_until_gc_has_collected_it(kit: Kit) -> None:
    kit.append(SECRET, tag="x")
    kit.append(b"two")
    kit.archive.restore("t", to="head", name="side")
    kit.archive.branches.delete_branch("t", "side")
    kit.clock.now += 6 * DAY_MS
    kit.archive.delete("t", tag="x")
    assert kit.archive.upkeep.erase("t")
    assert kit.told() == [(None, ("t@side (deleted)",))]
    kit.clock.now += 2 * DAY_MS
    kit.collect()
    [(date, names)] = kit.told()
    assert (date == kit.dates()[0], names) == (True, ())


@pytest.mark.parametrize(
    ("lost", "is_damaged"),
    [*((lost, True) for lost in ("ref", "tag", "pin", "commit", "control")), ("commit", False), ("control", False)],
)
def test_what_cannot_be_read_counts_as_a_name_that_keeps_the_bytes(kit: Kit, lost: str, *, is_damaged: bool) -> None:
    kit.append(b"one")
    kit.archive.restore("t", to="head", name="side")
    side = kit.archive.open_for_append("t@side")
    side.append([b"two"])
    side.seal()
    kit.archive.offload("t@side")
    kit.archive.tags.tag("t@side", "on-side")
    lease = kit.archive.history.pin(kit.archive.history.point("t@side", "head"), ttl_s=3600)
    kit.append(SECRET, tag="x")
    kit.archive.delete("t", tag="x")
    assert kit.archive.upkeep.erase("t")
    assert kit.told() == [(kit.dates()[0], ())] != [(None, ())]
    vid = lease.pin.point.vid
    keys = {"ref": ref_key("t", "side"), "tag": tag_key("t", "on-side"), "pin": lease.key}
    key = (keys | {"commit": commit_key(vid, 1), "control": control_key(vid)})[lost]
    kit.store.delete(key)
    if is_damaged:
        kit.store.put(key, b"damaged", {})
    [(date, names)] = kit.told_elsewhere()
    assert date is None
    if lost in keys:
        assert [name.partition(": ")[0] for name in names] == [key]
    else:
        assert names == (f"lease {lease.name}", *["t@side"] * (lost == "control"), "tag:on-side")


def test_each_state_is_read_once_and_leases_of_other_topics_never(kit: Kit) -> None:
    kit.append(b"one")
    kit.append(SECRET, tag="x")
    kit.archive.delete("t", tag="x")
    assert kit.archive.upkeep.erase("t")
    kit.archive.tags.tag("t", "0", to="lsn:3")
    kit.told_elsewhere()
    before = kit.store.counts["get"]
    for number in range(1, 10):
        kit.archive.tags.tag("t", str(number), to="lsn:3")
    other = kit.log.create_topic("other")
    other.append([b"one"])
    other.seal()
    kit.archive.offload("other")
    kit.archive.history.pin(kit.archive.history.point("other", "head"), ttl_s=3600)
    kit.told_elsewhere()
    assert kit.store.counts["get"] == before + 9
    [told] = log(kit.archive, "t", kind="delete")
    assert commit_text(told).endswith(", kept by tag:0, tag:1, tag:2, tag:3, tag:4 and 5 more")


def test_a_log_without_deletes_asks_for_no_names(kit: Kit) -> None:
    kit.append(SECRET)
    kit.append(b"two")
    kit.archive.delete("t", before=2)

    def lists(kind: str) -> int:
        kit.store.counts.clear()
        assert len([*log(kit.archive, "t", kind=kind)]) == len(kind.split(",")) + 1
        return kit.store.counts["list"]

    assert lists("offload") == 0 < lists("offload,delete")


def test_a_tag_keeps_the_bytes_that_a_compaction_moved_before_the_delete(kit: Kit) -> None:
    kit.append(b"one")
    kit.archive.tags.tag("t", "first")
    kit.append(SECRET, tag="x")
    kit.archive.tags.tag("t", "second")
    for number in range(14):
        kit.append(b"%d" % number)
    assert kit.archive.upkeep.compact("t")
    kit.append(b"last")
    kit.archive.delete("t", tag="x")
    assert kit.archive.upkeep.erase("t")
    assert kit.told() == [(None, ("tag:second",))]
    kit.append(b"later")
    kit.collect()
    kit.clock.now += 30 * DAY_MS
    kit.collect()
    assert kit.holding() == 1
    for number in range(2):  # of a segment whose commit GC has passed
        kit.archive.delete("t", seqs=[3 - 2 * number])
        assert kit.archive.upkeep.erase("t")
    assert [names for _, names in kit.told()][:2] == [("tag:first", "tag:second"), ()]


def test_a_branch_hides_what_its_parent_shows(kit: Kit) -> None:
    kit.append(b"one", SECRET)
    kit.append(b"three")
    kit.archive.restore("t", to="head", name="side")
    kit.archive.open_for_append("t@side")
    kit.archive.delete("t@side", before=3)
    kit.archive.offload("t@side")
    assert kit.told("t@side") == [(None, ("t",))]


def test_no_date_is_told_while_the_names_cannot_be_read(kit: Kit) -> None:
    kit.append(SECRET, tag="x")
    kit.archive.delete("t", tag="x")
    history = kit.archive.history.commits("t")

    def away() -> Never:
        raise StoreUnreachable("s3://b", "the network is down")

    erasures = kit.archive.upkeep.erasures("t", history)
    erasures.holders = away
    assert {erasures.of(past) for past in history} == {(None, ())}
