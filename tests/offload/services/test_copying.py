"""A copy of a topic has the records of its source with their seqs, times and labels, and costs what it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from catalog import Branches, CommitKind, Volumes
from catalog.errors import CatalogError, InvalidName, InvalidRemote, NoSuchTopic
from catalog.format.keys import Key
from catalog.gc.scrub import Scrub
from catalog.objects.memory import MemoryStore
from offload.archive import Archive
from offload.errors import Misuse
from seglog import Log, Record, TopicConfig
from seglog.errors import TopicExists
from tests.faults.store import EFFECTS, Fault, FaultyStore, lost, unreachable
from tests.offload.replicas import opened, ship
from tests.worlds.clock import HandClock

pytestmark = pytest.mark.usefixtures("no_pauses")
DAY_MS = 24 * 3_600_000


def _is_even(record: Record) -> bool:
    return record.seq % 2 == 0


def _filled(log: Log, archive: Archive) -> list[Record]:
    """Make a topic of five segments, of which some have no even record, and return what it shows."""
    log.create_topic("t", TopicConfig(ttl_ms=1_000 * DAY_MS, attributes={"codec": "none"}))
    for number in range(1, 5):
        ship(archive, log, "t", b"%d" % number, tag=f"tag {number}")
    log.topic("t").append([b"a line without its end"], node="n1", unterminated=True)
    log.topic("t").append([b"6"])
    log.topic("t").seal()
    archive.offload("t", drop_hot=True)
    archive.delete("t", start=2, end=2)
    return [*archive.read("t")]


def test_a_copy_within_the_remote_costs_four_small_objects(tmp_path: Path) -> None:
    store = FaultyStore(MemoryStore(), [])
    with opened(tmp_path / "one", store) as (log, archive):
        records = _filled(log, archive)
        store.calls.clear()
        copied = archive.copy("t", "u", message="to try it")
        written = {method: count for method, count in store.calls.items() if method in EFFECTS}
        assert written == {"put_new": 4}
        assert (copied.records, copied.last_seq, copied.last_ts_ms, copied.moved_bytes) == (
            5, 6, records[-1].ts_ms, 0,
        )  # fmt: skip
        assert [*archive.read("u")] == records
        assert log.elsewhere["u"]
        assert archive.replication.config("u").ttl_ms == 1_000 * DAY_MS
        assert archive.open_for_append("u").append([b"next"]) == range(7, 8)
        assert [*archive.read("t")] == records
        assert next(archive.history.operations()).entry.message == "to try it"


@pytest.mark.parametrize("where", [None, _is_even], ids=["all", "some"])
def test_a_copy_into_another_remote_has_every_byte(tmp_path: Path, where: Callable[[Record], bool] | None) -> None:
    near, far = MemoryStore(), MemoryStore()
    with opened(tmp_path / "one", near) as (log, archive):
        records = _filled(log, archive)
        wanted = [record for record in records if where is None or where(record)]
        copied = archive.copy("t", "u", where=where, store=far)
        assert not log.has_topic("u")
    with opened(tmp_path / "two", far) as (log, archive):
        archive.replication.sync("u")
        assert [*archive.read("u")] == wanted
        assert (copied.records, copied.last_seq) == (len(wanted), wanted[-1].seq)
        assert archive.replication.config("u").ttl_ms == 1_000 * DAY_MS
        commits = [past.commit for past in archive.history.commits("u")][::-1]
        assert [commit.kind for commit in commits] == [CommitKind.OFFLOAD, CommitKind.CONFIG]
        assert copied.moved_bytes == sum(ref.data_length for ref in commits[0].segments) > 0
        assert archive.open_for_append("u").append([b"next"]) == range(7, 8)
        assert Scrub(far, now_ms=records[-1].ts_ms).run(deep=True).findings == []


def test_a_copy_of_some_records_keeps_the_others_out_of_every_object(tmp_path: Path) -> None:
    store = MemoryStore()
    with opened(tmp_path / "one", store) as (log, archive):
        _filled(log, archive)
        copied = archive.copy("t", "u", where=_is_even, at="head~1")
        assert [record.seq for record in archive.read("u")] == [2, 4, 6]
        data = [store.get(Key(key)) for key in store.list(f"{copied.vid}/segments/") if not key.endswith(".index")]
        assert len(data) == 2
        assert not any(b"a line" in body for body in data)
        assert any(b"a line" in body for body in map(store.get, map(Key, store.list("")))), "the source still has it"
        assert [record.value for record in archive.read("u", at="lsn:1")] == [b"2", b"4", b"6"]


def test_the_records_of_two_logs_are_two_objects(tmp_path: Path) -> None:
    near, far = MemoryStore(), MemoryStore()
    with opened(tmp_path / "one", near) as (log, archive):
        ship(archive, log, "t", b"one")
    with opened(tmp_path / "two", near) as (log, archive):
        for name in ("x", "y"):
            log.topic(name).append([b"so that its topics have other ids"])
        archive.replication.take_over("t")
        ship(archive, log, "t", b"two")
        archive.copy("t", "u", store=far)
    with opened(tmp_path / "three", far) as (_, archive):
        archive.replication.sync("u")
        assert [record.value for record in archive.read("u")] == [b"one", b"two"]
        [commit] = [past.commit for past in archive.history.commits("u")]
        assert [(ref.first_seq, ref.last_seq) for ref in commit.segments] == [(1, 1), (2, 2)]


def test_a_copy_of_a_past_state_has_what_was_deleted_since(tmp_path: Path) -> None:
    with opened(tmp_path / "one", MemoryStore()) as (log, archive):
        _filled(log, archive)
        archive.restore("t", to="seq:3", name="b")
        archive.copy("t", "past", at="head~1")
        archive.copy("t@b", "branch")
        assert [record.seq for record in archive.read("past")] == [1, 2, 3, 4, 5, 6]
        assert [record.seq for record in archive.read("branch")] == [1, 2, 3]


def test_what_only_this_disk_has_is_offloaded_first(tmp_path: Path) -> None:
    with opened(tmp_path / "one", MemoryStore()) as (log, archive):
        log.topic("t").append([b"a", b"b"])
        assert archive.copy("t", "u").records == 2


def test_a_copy_that_cannot_be_changes_nothing(tmp_path: Path) -> None:
    near, far = MemoryStore(), MemoryStore()
    with opened(tmp_path / "one", near) as (log, archive):
        ship(archive, log, "t", b"a")
        log.topic("local").append([b"only here"])
        log.topic("t").append([b"b"])
        before = sorted(near.list(""))
        for new, error in (("t", TopicExists), ("local", TopicExists), ("a/b", InvalidName), ("t@x", InvalidName)):
            with pytest.raises(error):
                archive.copy("t", new)
        with pytest.raises(NoSuchTopic):
            archive.copy("nowhere", "u")
        with pytest.raises(InvalidRemote):
            archive.copy("t", "u", into="ftp://far")
        assert sorted(near.list("")) == before
        with pytest.raises(Misuse, match="no record is chosen, so u was not made"):
            archive.copy("t", "u", where=lambda _: False, store=far)
        assert not [*far.list("")]
        archive.copy("t", "u", store=far)
        with pytest.raises(TopicExists):
            archive.copy("t", "u", store=far)


@pytest.mark.parametrize("where", [None, _is_even], ids=["fork", "bytes"])
def test_a_copy_over_a_failing_store_is_there_whole_or_not_at_all(
    tmp_path: Path, where: Callable[[Record], bool] | None
) -> None:
    """Every effect of a copy fails, before or after it lands. A second call makes the copy, or finds it."""
    inner = MemoryStore()
    with opened(tmp_path / "one", inner) as (log, archive):
        wanted = [record for record in _filled(log, archive) if where is None or where(record)]
    counting = FaultyStore(inner, [])
    with opened(tmp_path / "count", counting) as (_, archive):
        archive.replication.sync("t")
        counting.calls.clear()
        archive.copy("t", "counted", where=where)
    effects = {method: count for method, count in counting.calls.items() if method in EFFECTS}
    assert sum(effects.values()) >= 4
    tried = 0
    for method, count in effects.items():
        for nth in range(1, count + 1):
            for fault in (Fault(nth, "before", unreachable, method), Fault(nth, "after", lost, method)):
                tried += 1
                new = f"u{tried}"
                store = FaultyStore(inner, [fault])
                with opened(tmp_path / new, store) as (_, archive):
                    try:
                        archive.copy("t", new, where=where)
                    except CatalogError:
                        _check_whole_or_absent(inner, archive, new, wanted)
                        try:
                            archive.copy("t", new, where=where)
                        except TopicExists:
                            archive.replication.sync(new)
                    assert [*archive.read(new)] == wanted
    assert tried == 2 * sum(effects.values())


def _check_whole_or_absent(inner: MemoryStore, archive: Archive, new: str, wanted: list[Record]) -> None:
    try:
        Branches(Volumes(inner)).resolve(new)
    except NoSuchTopic:
        return
    assert [*archive.read(new)] == wanted


def test_gc_keeps_what_a_copy_shows_and_takes_what_a_failed_one_left(tmp_path: Path) -> None:
    clock = HandClock(1_000)
    store = MemoryStore(clock.now_ms)
    with opened(tmp_path / "one", store, clock) as (log, archive):
        records = _filled(log, archive)
        archive.copy("t", "u")
        with pytest.raises(ZeroDivisionError):
            archive.copy("t", "v", where=lambda record: record.seq / (3 - record.seq) > 0)
        archive.delete("t", before=100)
        for _ in range(3):
            clock.ms += 40 * DAY_MS
            archive.upkeep.collect()
        assert [record.seq for record in archive.read("u", at="head")] == [record.seq for record in records]
        assert Scrub(store, now_ms=clock.ms).run(deep=True).findings == []
