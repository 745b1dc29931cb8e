"""Test that a record past its topic's ttl is in no newest state, local or remote, and in every past state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import offload
import seglog
from catalog.objects import LocalStore
from catalog.objects.memory import MemoryStore
from offload.archive import Archive
from offload.replica_topic import ReplicaTopic
from offload.spark.options import parse_options
from seglog import Evicted, Gap, Log, LogSettings, Record, TopicConfig
from seglog.engine.work_thread import InCaller
from tests.offload.replicas import opened, values
from tests.offload.spark.queries import rows_of
from tests.worlds.clock import HandClock

TTL_MS = 1_000
VALUES = [b"%d" % number for number in range(1, 26)]


def shown(found: Iterator[Record | Gap]) -> list[int | tuple[int, int]]:
    return [item.seq if isinstance(item, Record) else (item.gap_from, item.gap_to) for item in found]


def written(log: Log, archive: Archive, clock: HandClock, *, drop_hot: bool = False) -> None:
    """Write topic t in segments of ten and offload all of it. Record n has time 1000 + n."""
    topic = log.create_topic("t", TopicConfig(ttl_ms=TTL_MS, keep_history=True))
    for value in VALUES:
        clock.ms += 1
        topic.append([value], durability="memory")
        if topic.head_seq % 10 == 0:
            topic.seal()
            archive.offload("t", drop_hot=drop_hot)
    topic.seal()
    archive.offload("t", drop_hot=drop_hot)


def at_expiry_of(clock: HandClock, seq: int) -> None:
    clock.ms = 1_000 + seq + TTL_MS + 1


@pytest.mark.parametrize("drop_hot", [False, True])
@pytest.mark.parametrize("expired", [0, 7, 10, 25])
def test_the_newest_state_hides_what_has_expired_and_a_past_one_shows_it(
    tmp_path: Path, expired: int, drop_hot: bool
) -> None:
    store, clock = MemoryStore(), HandClock(1_000)
    with opened(tmp_path / "writer", store, clock) as (log, archive), opened(tmp_path / "other", store, clock) as other:
        written(log, archive, clock, drop_hot=drop_hot)
        at_expiry_of(clock, expired)
        live = VALUES[expired:]
        for one in (archive, other[1]):
            assert values(one, "t") == live
            assert values(one, "t", at="seq:25") == VALUES
            if expired:
                with pytest.raises(Evicted) as caught:
                    list(one.read("t", 1))
                assert (caught.value.gap_from, caught.value.gap_to) == (1, expired)
        gap: list[int | tuple[int, int]] = [(1, expired)] if expired else []
        assert shown(log.topic("t").read(1, gaps=True)) == [*gap, *range(expired + 1, 26)]
        other[1].replication.sync("t")  # from now on it is a replica there
        assert shown(ReplicaTopic(other[1], "t").read(1, gaps=True)) == [*gap, *range(expired + 1, 26)]


def test_a_restored_branch_shows_what_its_parent_hides_until_it_has_a_ttl_of_its_own(tmp_path: Path) -> None:
    store, clock = MemoryStore(), HandClock(1_000)
    with opened(tmp_path / "writer", store, clock) as (log, archive):
        written(log, archive, clock, drop_hot=True)
        at_expiry_of(clock, 25)
        assert values(archive, "t") == []
        archive.restore("t", to="seq:20", name="back")
        assert values(archive, "t@back") == VALUES[:20]
        archive.open_for_append("t@back").append([b"own"])
        assert values(archive, "t@back") == [*VALUES[:20], b"own"]


@pytest.mark.parametrize("drop_hot", [False, True])
def test_a_branch_shows_its_parent_until_a_record_of_its_own_expires_wherever_that_is(
    tmp_path: Path, drop_hot: bool
) -> None:
    store, clock = MemoryStore(), HandClock(1_000)
    with opened(tmp_path / "writer", store, clock) as (log, archive), opened(tmp_path / "other", store, clock) as other:
        written(log, archive, clock)
        archive.restore("t", to="seq:20", name="b")
        clock.ms += TTL_MS
        archive.open_for_append("t@b").append([b"own"])
        log.topic("t@b").seal()
        archive.offload("t@b", drop_hot=drop_hot)
        assert values(archive, "t@b") == values(other[1], "t@b") == [*VALUES[:20], b"own"]
        assert [record.seq for record in log.topic("t@b").read(1)] == list(range(1, 22))
        if drop_hot:  # a topic that a takeover makes begins after the branch's own records
            other[1].replication.take_over("t@b")
            assert values(other[1], "t@b") == [*VALUES[:20], b"own"]
        clock.ms += TTL_MS + 1
        assert values(archive, "t@b") == values(other[1], "t@b") == []


def test_a_branch_that_loses_all_records_of_its_own_shows_its_parent_again(tmp_path: Path) -> None:
    store, clock = MemoryStore(), HandClock(1_000)
    with opened(tmp_path / "writer", store, clock) as (log, archive), opened(tmp_path / "other", store, clock) as other:
        written(log, archive, clock)
        archive.restore("t", to="seq:20", name="b")
        archive.open_for_append("t@b").append([b"own"])
        clock.ms += TTL_MS + 1
        assert values(archive, "t@b") == []
        archive.truncate("t@b", 21)
        assert values(archive, "t@b") == VALUES[:20]
        archive.offload("t@b")
        assert values(archive, "t@b") == values(other[1], "t@b") == VALUES[:20]


def test_records_that_a_truncation_took_out_of_a_segment_expire_nothing_of_the_later_ones(tmp_path: Path) -> None:
    store, clock = MemoryStore(), HandClock(1_000)
    with opened(tmp_path / "writer", store, clock) as (log, archive), opened(tmp_path / "other", store, clock) as other:
        written(log, archive, clock)
        archive.truncate("t", 24)
        clock.ms += TTL_MS // 2
        log.topic("t").append([b"a", b"b"])
        log.topic("t").seal()
        archive.offload("t", drop_hot=True)
        at_expiry_of(clock, 24)
        assert values(archive, "t") == values(other[1], "t") == [b"a", b"b"]


def test_what_expires_before_it_was_offloaded_is_offloaded(tmp_path: Path) -> None:
    store, clock = MemoryStore(), HandClock(1_000)
    with (
        seglog.open(tmp_path / "writer", clock=clock, upkeep=InCaller, settings=LogSettings()) as log,
        offload.attach(log, store=store, clock=clock) as archive,
    ):
        topic = log.create_topic("t", TopicConfig(ttl_ms=TTL_MS, keep_history=True))
        topic.append(VALUES)
        clock.ms += 2 * TTL_MS
        log.enforce_retention()
        assert values(archive, "t") == []
        archive.offload("t")
        assert values(archive, "t", at="seq:25") == VALUES
        assert values(archive, "t") == []


def test_spark_plans_what_the_newest_state_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock(1_000)
    with opened(tmp_path / "writer", LocalStore(tmp_path / "remote"), clock) as (log, archive):
        written(log, archive, clock)
        lsn = archive.history.snapshot("t").lsn
    monkeypatch.setattr("offload.spark.query_plan.SystemClock", lambda: clock)
    url = (tmp_path / "remote").as_uri()
    newest = parse_options({"path": url, "topic": "t"})
    past = parse_options({"path": url, "topic": "t", "versionAsOf": str(lsn)})
    for expired in (0, 7, 10, 24, 25):
        at_expiry_of(clock, expired)
        assert [row["seq"] for row in rows_of(newest)] == list(range(expired + 1, 26))
        assert [row["seq"] for row in rows_of(past)] == list(range(1, 26))
