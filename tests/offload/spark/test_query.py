"""Test queries against a plain list of the records: filters, options, columns, sizes of tasks, limits, aggregates."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.format.commit import Codec
from offload.spark.aggregates import Aggregate
from offload.spark.options import Verify, parse_options
from offload.spark.pin import Pin
from offload.spark.query_plan import Plan, Remote, pin
from offload.spark.selection import conditions_of, meets
from offload.spark.task import Filter, Needs, Op
from tests.offload.samples import Sample
from tests.offload.spark.archives import NOW_MS, TopicArchive
from tests.offload.spark.queries import planned, rows_of

TAGS = (None, "", "eu", "eu-west", "gr\u00fc\u00df", "us")
TEXTS = ("", "e", "eu", "eu-", "gr\u00fc", "us", "x")
ALL = (Aggregate("count"), Aggregate("min"), Aggregate("max"))
Row = dict[str, Any]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an archive with many shapes: codecs, erased and deleted records, a segment with too many tags to list."""
    url = (tmp_path_factory.mktemp("archive") / "remote").as_uri()
    orders = TopicArchive(url)
    first = orders.add([Sample(b"x" * (n % 90), TAGS[n % 6], deleted=n % 7 == 3) for n in range(120)], Codec.NONE)
    orders.add([Sample(b"y" * n, "eu") for n in range(60)])
    orders.add([Sample(b"", f"tag {n:05}") for n in range(4200)], chunk_bytes=1 << 16)
    orders.add([Sample(b"z", TAGS[n % 2]) for n in range(50)])
    orders.delete(first, [5, *range(20, 60)])
    orders.delete(before_seq=4)
    TopicArchive(url, "events").add([Sample(b"event", "us")] * 9)
    return url


@pytest.fixture(scope="module")
def pinned(url: str) -> Pin:
    return pin(parse_options({"path": url, "topic": "*"}))


@pytest.fixture(scope="module")
def everything(url: str, pinned: Pin) -> list[Row]:
    rows = rows_of(parse_options({"path": url, "topic": "*"}), at=pinned)
    assert len(rows) == 9 + 120 + 60 + 4200 + 50 - (17 + 41 - 6) - (3 - 0)
    return rows


def filters() -> st.SearchStrategy[Filter]:
    seqs = st.one_of(st.integers(-1, 60), st.integers(100, 260), st.integers(4300, 4500))
    micros = st.builds(lambda seq, off: (NOW_MS + seq) * 1000 + off, seqs, st.sampled_from([0, 0, 1, 500]))
    tags = st.one_of(st.sampled_from([tag for tag in TAGS if tag is not None]), st.just("tag 00007"))
    orders = st.sampled_from([Op.EQ, Op.LT, Op.LE, Op.GT, Op.GE])
    columns = st.sampled_from(["seq", "timestamp", "tag", "topic", "lsn"])
    return st.one_of(
        st.builds(lambda op, value: Filter("seq", op, (value,)), orders, seqs),
        st.builds(lambda values: Filter("seq", Op.IN, tuple(values)), st.lists(seqs, max_size=4)),
        st.builds(lambda op, value: Filter("timestamp", op, (value,)), orders, micros),
        st.builds(lambda values: Filter("timestamp", Op.IN, tuple(values)), st.lists(micros, max_size=4)),
        st.builds(lambda value: Filter("tag", Op.EQ, (value,)), tags),
        st.builds(lambda values: Filter("tag", Op.IN, tuple(values)), st.lists(tags, max_size=3)),
        st.builds(lambda text: Filter("tag", Op.PREFIX, (text,)), st.sampled_from([*TEXTS, "tag 000"])),
        st.builds(lambda op, lsn: Filter("lsn", op, (lsn,)), orders, st.integers(0, 5)),
        st.builds(lambda text: Filter("topic", Op.PREFIX, (text,)), st.sampled_from(["", "e", "orders", "x"])),
        st.builds(Filter, columns, st.sampled_from([Op.IS_NULL, Op.NOT_NULL])),
    )


def chosen(rows: list[Row], conditions: list[Filter]) -> list[Row]:
    """Return the rows that meet the filters, one row after the other."""

    def value(row: Row, column: str) -> Any:
        found = row[column]
        return round(found.timestamp() * 1_000_000) if column == "timestamp" else found

    return [row for row in rows if all(meets(each, value(row, each.column)) for each in conditions)]


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(st.lists(filters(), max_size=3), st.booleans(), st.integers(1, 40))
def test_every_filter_gives_the_rows_that_meet_it(
    url: str, pinned: Pin, everything: list[Row], conditions: list[Filter], plain: bool, tasks: int
):
    options = parse_options({"path": url, "topic": "*", "minPartitions": str(tasks)})
    columns = ["topic", "seq", "lsn"] if plain else list(everything[0])
    expected = [{name: row[name] for name in columns} for row in chosen(everything, conditions)]
    assert rows_of(options, conditions, columns, at=pinned) == expected
    found = planned(options, conditions, columns, at=pinned)
    assert found.rows == len(expected) if found.is_exact else found.rows >= len(expected)


@settings(max_examples=25, deadline=None)
@given(st.lists(filters(), max_size=2))
def test_aggregates_are_those_of_the_rows(
    remote: Callable[[], Remote], url: str, pinned: Pin, everything: list[Row], conditions: list[Filter]
):
    options = parse_options({"path": url, "topic": "*"})
    seqs = [row["seq"] for row in chosen(everything, conditions)]
    found = remote().aggregate(options, pinned, conditions, ALL)
    assert found == [len(seqs), min(seqs, default=None), max(seqs, default=None)]
    checked = parse_options({"path": url, "topic": "*", "verify": "record"})
    assert remote().aggregate(checked, pinned, conditions, ALL) is None


@settings(max_examples=25, deadline=None)
@given(
    st.lists(filters(), max_size=2),
    st.sampled_from([["tag"], ["topic"], ["tag", "topic"]]),
    st.sampled_from([4400, 240]),
)
def test_groups_are_those_of_the_rows_or_are_not_told(
    remote: Callable[[], Remote],
    url: str,
    pinned: Pin,
    everything: list[Row],
    conditions: list[Filter],
    by: list[str],
    last_seq: int,
):
    """Up to seq 240, each segment lists its tags, or the records with too many tags do not count."""
    conditions = [*conditions, Filter("seq", Op.LE, (last_seq,))]
    options = parse_options({"path": url, "topic": "*"})
    expected: dict[tuple[str | None, ...], list[int]] = {}
    for row in chosen(everything, conditions):
        expected.setdefault(tuple(row[column] for column in by), []).append(row["seq"])
    found = remote().groups(options, pinned, conditions, by, ALL)
    if found is not None:
        rows = [[*group, len(seqs), min(seqs), max(seqs)] for group, seqs in expected.items()]
        assert found == sorted(rows, key=lambda row: [(name is not None, name or "") for name in row[: len(by)]])
    else:
        assert "tag" in by


def test_groups_by_tag_are_told_unless_a_segment_has_too_many_tags(
    remote: Callable[[], Remote], url: str, pinned: Pin, everything: list[Row]
):
    options = parse_options({"path": url, "topic": "orders"})
    orders = Pin(pinned.made_at_ms, tuple(each for each in pinned.topics if each.topic == "orders"))
    assert remote().groups(options, orders, (), ["tag"], ALL) is None
    first = [row for row in everything if row["topic"] == "orders" and row["seq"] <= 180]
    found = remote().groups(options, orders, [Filter("seq", Op.LE, (180,))], ["tag"], ALL[:1])
    assert found is not None
    assert {row[0]: row[1] for row in found} == {
        tag: sum(row["tag"] == tag for row in first) for tag in {row["tag"] for row in first}
    }
    checked = parse_options({"path": url, "topic": "orders", "verify": "record"})
    assert remote().groups(checked, orders, [Filter("seq", Op.LE, (180,))], ["tag"], ALL) is None


@pytest.fixture(scope="module")
def remote(url: str) -> Callable[[], Remote]:
    return cache(lambda: Remote.open(url))


def test_a_limit_plans_no_more_segments_than_it_needs(url: str, pinned: Pin, everything: list[Row]):
    options = parse_options({"path": url, "topic": "*"})
    for limit in (1, 9, 10, 100, 200, 5000):
        found = rows_of(options, limit=limit, at=pinned)
        assert found == everything[: len(found)]
        assert len(found) >= min(limit, len(everything))
    assert planned(options, limit=9, at=pinned).segments == 1
    assert planned(options, limit=10, at=pinned).segments == 2


# ---------------------------------------------------------------- tasks


def plan_of(url: str, pinned: Pin, *columns: str, **options: object) -> Plan:
    texts = {name: str(value) for name, value in options.items()}
    return planned(parse_options({"path": url, "topic": "*", **texts}), columns=columns or None, at=pinned)


def test_tasks_have_the_wanted_bytes_or_one_chunk(url: str, pinned: Pin):
    for limit in (1, 2000, 20_000, 1 << 20):
        for task in plan_of(url, pinned, maxPartitionBytes=limit).tasks:
            chunks = sum(len(piece.chunks) for piece in task.pieces)
            assert task.raw_bytes <= limit or chunks == 1
    assert len(plan_of(url, pinned).tasks) == 1


def test_there_are_at_least_the_wanted_tasks_if_there_are_chunks_enough(url: str, pinned: Pin):
    chunks = sum(len(piece.chunks) for piece in plan_of(url, pinned).tasks[0].pieces)
    for wanted in (2, 3, 4, 5):
        assert wanted <= len(plan_of(url, pinned, minPartitions=wanted).tasks) <= chunks
    assert len(plan_of(url, pinned, minPartitions=10**9).tasks) == chunks


def test_a_large_segment_is_in_many_tasks_and_they_keep_the_order(url: str, pinned: Pin):
    tasks = plan_of(url, pinned, maxPartitionBytes=4000).tasks
    places = [(piece.topic, piece.first, piece.last) for task in tasks for piece in task.pieces]
    assert places == sorted(places)
    assert all(a[0] < b[0] or a[2] < b[1] for a, b in pairwise(places))
    assert len({piece.segment for task in tasks for piece in task.pieces}) < len(tasks)


# ---------------------------------------------------------------- what is read


def test_topic_seq_and_lsn_need_no_data_object_unless_every_record_is_to_be_checked(
    url: str, pinned: Pin, everything: list[Row]
):
    options = parse_options({"path": url, "topic": "*"})
    tagged = [Filter("tag", Op.EQ, ("eu",)), Filter("seq", Op.LE, (180,))]
    for conditions in ([], [Filter("seq", Op.GE, (30,))], tagged):
        found = planned(options, conditions, ["topic", "seq", "lsn"], at=pinned)
        assert {piece.needs for task in found.tasks for piece in task.pieces} == {Needs.NOTHING}
    checked = parse_options({"path": url, "topic": "*", "verify": "record"})
    found = planned(checked, columns=["seq"], at=pinned)
    assert {piece.needs for task in found.tasks for piece in task.pieces} == {Needs.DATA}
    assert [row["seq"] for row in rows_of(checked, columns=["seq"], at=pinned)] == [row["seq"] for row in everything]


def test_a_count_of_a_time_range_reads_only_the_chunks_at_its_ends(url: str, pinned: Pin):
    options = parse_options({"path": url, "topic": "orders"})
    times = [Filter("timestamp", Op.GE, ((NOW_MS + 40) * 1000,)), Filter("timestamp", Op.LE, ((NOW_MS + 200) * 1000,))]
    found = planned(options, times, ["seq"], at=pinned)
    read = [piece for task in found.tasks for piece in task.pieces if piece.needs is Needs.DATA]
    assert 1 <= sum(len(piece.chunks) for piece in read) <= 2
    assert any(piece.needs is Needs.NOTHING for task in found.tasks for piece in task.pieces)


def test_one_tag_reads_only_the_chunks_that_have_it(tmp_path: Path):
    url = (tmp_path / "remote").as_uri()
    TopicArchive(url).add([Sample(b"v" * 200, "rare" if n in {100, 700} else "usual") for n in range(1000)])
    options = parse_options({"path": url, "topic": "orders", "tag": "rare"})
    found = planned(options)
    [piece] = [piece for task in found.tasks for piece in task.pieces]
    assert (len(piece.chunks), piece.filters, found.rows, found.is_exact) == (2, (), 2, True)
    assert [row["seq"] for row in rows_of(options)] == [101, 701]


@pytest.mark.parametrize("verify", Verify)
def test_every_level_of_checks_gives_the_same_rows(url: str, pinned: Pin, everything: list[Row], verify: Verify):
    options = parse_options({"path": url, "topic": "*", "verify": verify.value})
    assert rows_of(options, at=pinned) == everything


@given(st.lists(filters(), max_size=4))
def test_conditions_never_exclude_a_record_that_meets_the_filters(conditions: list[Filter]):
    found = conditions_of(conditions)
    for seq, ms in ((1, NOW_MS + 1), (30, NOW_MS + 30), (150, NOW_MS + 150), (4400, NOW_MS + 4400)):
        values = {"seq": seq, "timestamp": ms * 1000, "topic": "orders", "lsn": 1, "tag": "eu"}
        if all(meets(each, values[each.column]) for each in conditions):
            assert not found.is_never
            assert found.first_seq <= seq <= found.last_seq
            assert found.seqs is None or seq in found.seqs
            assert found.time_filters(ms, ms) == ()
