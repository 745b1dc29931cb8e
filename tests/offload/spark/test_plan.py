"""Test the version that a read is pinned to, the range that it reads, and the requests that a plan makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from catalog.errors import NoSuchBranch, NoSuchTag, NoSuchTopic, OutOfWindow
from catalog.format.commit import ForkPoint
from catalog.format.keys import Key, pins_prefix
from catalog.format.small_objects import decode_pin as decode_lease
from catalog.objects import LocalStore
from catalog.objects.memory import MemoryStore
from catalog.refs.state_names import Tags
from catalog.volume import Volumes
from offload.errors import InvalidOption
from offload.format.encoder import CHUNK_BYTES
from offload.spark import query_plan as plan_module
from offload.spark.aggregates import Aggregate
from offload.spark.data_loss import DataLoss
from offload.spark.options import ReadOptions, parse_options
from offload.spark.pin import decode_pin, encode_pin
from offload.spark.query_plan import Query, Remote, pin
from offload.spark.task import Filter, Op
from seglog.errors import SeqOutOfRange
from tests.faults.store import CountingStore
from tests.offload.samples import Sample
from tests.offload.spark.archives import NOW_MS, TopicArchive
from tests.offload.spark.queries import planned, read, rows_of

COUNT = [Aggregate("count"), Aggregate("min"), Aggregate("max")]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "remote").as_uri()


def options_of(url: str, **more: object) -> ReadOptions:
    return parse_options({"path": url, "topic": "orders", **{name: str(value) for name, value in more.items()}})


def numbered(count: int) -> list[Sample]:
    return [Sample(b"%d" % n, tag="even" if n % 2 == 0 else None) for n in range(count)]


def seqs(url: str, **options: object) -> list[int]:
    return [row["seq"] for row in read(url, **options)]


# ---------------------------------------------------------------- versions


def test_a_pin_stays_while_the_head_moves(url: str):
    archive = TopicArchive(url)
    archive.add(numbered(3))
    options = options_of(url)
    pinned = pin(options)
    archive.add(numbered(3))
    assert [(row["seq"], row["lsn"]) for row in rows_of(options, at=pinned)] == [(1, 1), (2, 1), (3, 1)]
    assert [row["lsn"] for row in rows_of(options)] == [1, 1, 1, 2, 2, 2]
    assert decode_pin(encode_pin(pinned)) == pinned


def test_a_version_above_the_head_and_an_unknown_topic_are_refused(url: str):
    TopicArchive(url).add(numbered(1))
    with pytest.raises(OutOfWindow, match="lsn 1"):
        pin(options_of(url, versionAsOf=2))
    with pytest.raises(NoSuchTopic):
        pin(options_of(url, topic="nope"))


def test_a_version_of_the_past_is_held_by_a_lease_and_the_newest_needs_none(url: str, tmp_path: Path):
    archive = TopicArchive(url)
    archive.add(numbered(1))
    archive.add(numbered(1))
    store = LocalStore(tmp_path / "remote")
    pin(options_of(url))
    pin(options_of(url, versionAsOf=1, pinSeconds=0))
    assert list(store.list(pins_prefix())) == []
    [topic] = pin(options_of(url, versionAsOf=1)).topics
    [key] = store.list(pins_prefix())
    held = decode_lease(store.get(Key(key)), key)
    assert (held.point, held.holder.startswith("spark on ")) == (topic.point, True)


def test_a_tag_is_a_version(url: str, tmp_path: Path):
    archive = TopicArchive(url)
    archive.add(numbered(2))
    point = ForkPoint(archive.vid, 1, 1)
    volumes = Volumes(LocalStore(tmp_path / "remote"))
    Tags(volumes).create("orders", "v1", point, branch="main", now_ms=1)
    assert seqs(url, versionAsOf="tag:v1") == [1]
    with pytest.raises(NoSuchTag):
        pin(options_of(url, versionAsOf="tag:v2"))


def test_a_time_is_a_version(url: str):
    archive = TopicArchive(url)
    archive.add(numbered(4))  # two records a millisecond
    first_ms = NOW_MS + 1
    archive.add(numbered(2))
    assert seqs(url, timestampAsOf=first_ms) == [1, 2]
    assert seqs(url, timestampAsOf="2023-11-14T22:13:20.002Z") == [1, 2, 3, 4]
    with pytest.raises(OutOfWindow):
        pin(options_of(url, timestampAsOf=first_ms - 1))


def test_a_glob_at_a_time_has_idle_topics_whole_and_leaves_out_younger_ones(url: str):
    idle, busy, younger = (TopicArchive(url, name) for name in ("idle", "busy", "younger"))
    idle.add(numbered(2), first_ts_ms=NOW_MS)
    busy.add(numbered(2), first_ts_ms=NOW_MS)
    busy.add(numbered(2), first_ts_ms=NOW_MS + 20)
    younger.add(numbered(2), first_ts_ms=NOW_MS + 20)
    TopicArchive(url, "empty")
    found = [(row["topic"], row["seq"]) for row in read(url, topic="*", timestampAsOf=NOW_MS + 10)]
    assert found == [("busy", 1), ("busy", 2), ("idle", 1), ("idle", 2)]
    assert {row["topic"] for row in read(url, topic="*", timestampAsOf=NOW_MS + 20)} == {"busy", "idle", "younger"}
    for named in ("idle", "younger", "busy,idle"):
        with pytest.raises(OutOfWindow):
            pin(options_of(url, topic=named, timestampAsOf=NOW_MS + 10))
    with pytest.raises(OutOfWindow):
        pin(options_of(url, topic="*", timestampAsOf="2999-01-01T00:00:00Z"))
    with pytest.raises(NoSuchTopic, match=r"no topic \* at 1699999999999"):
        pin(options_of(url, topic="*", timestampAsOf=NOW_MS - 1))


def test_several_topics_are_pinned_in_the_order_of_their_names(url: str):
    for name in ("orders", "events", "other"):
        TopicArchive(url, name).add(numbered(2))
    TopicArchive(url, "events", "draft").add(numbered(1))
    names = ["events", "orders", "orders", "other"]
    assert sorted({row["topic"] for row in read(url, topic="*")}) == sorted(set(names))
    assert [row["topic"] for row in read(url, topic="o*,events", endingSeq='{"events": 1, "other": 1}')] == names
    assert [row["topic"] for row in read(url, subscribe="other,events")] == ["events", "events", "other", "other"]
    assert [row["topic"] for row in read(url, topic="*", branch="draft")] == ["events"]
    with pytest.raises(NoSuchTopic, match=r"no topic x\*"):
        read(url, topic="orders,x*")
    with pytest.raises(NoSuchBranch):
        read(url, topic="orders,events", branch="draft")
    with pytest.raises(InvalidOption, match="startingSeq: it names other"):
        read(url, topic="orders", startingSeq='{"other": 5}')


# ---------------------------------------------------------------- ranges


def test_the_options_narrow_the_range(url: str):
    archive = TopicArchive(url)
    archive.add(numbered(10))
    archive.add(numbered(10))
    assert seqs(url, startingSeq=8, endingSeq=12) == [8, 9, 10, 11, 12]
    assert seqs(url, endingOffsets='{"orders": {"0": 4}}') == [1, 2, 3]
    assert seqs(url, startingSeq=21) == []
    assert seqs(url, startingSeq=30, failOnDataLoss="false") == []
    with pytest.raises(SeqOutOfRange, match="seq 22 is outside topic orders: it holds 1 to 20"):
        read(url, startingSeq=22)
    assert seqs(url, startingSeq="earliest", endingSeq=2) == [1, 2]
    assert seqs(url, tag="even", endingSeq=5) == [1, 3, 5]
    assert seqs(url, tag="ev*", endingSeq=5) == [1, 3, 5]
    assert seqs(url, tag="odd") == []
    # The seqs 1 to 10 have the times NOW_MS + 1 and later, two a millisecond.
    assert seqs(url, startingTimestamp=NOW_MS + 2, endingTimestamp=NOW_MS + 3) == [3, 4, 5, 6]
    assert seqs(url, startingTimestamp="1 hour ago") == []


def test_metadata_says_where_a_record_is(url: str):
    ref = TopicArchive(url).add(numbered(300), block_size=4096, chunk_bytes=700)
    rows = read(url, includeMetadata="true")
    assert {row["segment"] for row in rows} == {str(ref.sid)}
    assert sorted({row["block"] for row in rows}) == list(range(1, -(-ref.data_length // 4096) + 1))
    assert all((row["block"] - 1) * 4096 + 128 <= row["offset"] < row["block"] * 4096 for row in rows)
    assert [row["offset"] for row in rows] == sorted(row["offset"] for row in rows)
    plain = read(url, includeMetadata="true", columns="block,seq,offset")
    assert plain == [{name: row[name] for name in ("block", "seq", "offset")} for row in rows]
    with pytest.raises(InvalidOption, match="there is no column block"):
        read(url, columns="block")


def evicted(url: str, below: int) -> TopicArchive:
    """Return an archive of 20 records in two segments, of which retention evicted those below a seq."""
    archive = TopicArchive(url)
    archive.add(numbered(10))
    archive.add(numbered(10))
    archive.evict(below)
    return archive


def test_evicted_records_in_the_range_are_data_loss_and_are_named(url: str):
    evicted(url, 6)
    for options in ({}, {"startingSeq": 3}, {"endingSeq": 3}, {"startingTimestamp": NOW_MS}, {"tag": "even"}):
        with pytest.raises(DataLoss, match=r"records \d to \d of orders were evicted"):
            read(url, **options)
    with pytest.raises(DataLoss, match="records 3 to 5 of orders") as raised:
        read(url, startingSeq=3, endingSeq=9)
    assert raised.value.lost == (("orders", 3, 5),)
    assert "startingSeq=6" in str(raised.value.hint)
    assert seqs(url, startingSeq=3, endingSeq=9, failOnDataLoss="false") == [6, 7, 8, 9]
    assert seqs(url, startingSeq="earliest", endingSeq=9) == [6, 7, 8, 9]
    assert seqs(url, startingSeq=6, endingSeq=9) == [6, 7, 8, 9]
    assert seqs(url, versionAsOf=2, endingSeq=7) == [1, 2, 3, 4, 5, 6, 7]


def test_a_range_by_time_behind_the_evicted_records_is_whole(url: str):
    evicted(url, 6)  # within a segment: seqs 5 and 6 share a millisecond
    assert seqs(url, startingTimestamp=NOW_MS + 4) == list(range(7, 21))
    with pytest.raises(DataLoss, match="records 1 to 5"):
        read(url, startingTimestamp=NOW_MS + 3)


def test_a_range_by_time_that_begins_with_the_first_kept_segment_may_lack_records(url: str):
    evicted(url, 11)
    assert seqs(url, startingTimestamp=NOW_MS + 12) == list(range(13, 21))
    with pytest.raises(DataLoss, match="records 1 to 10"):
        read(url, startingTimestamp=NOW_MS + 11)


def test_deleted_records_are_no_data_loss(url: str):
    archive = TopicArchive(url)
    archive.add(numbered(10))
    archive.delete(before_seq=4)
    assert seqs(url) == list(range(4, 11))


# ---------------------------------------------------------------- requests


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> CountingStore:
    """Return the store that the planner uses from now on."""
    store = CountingStore(MemoryStore())
    monkeypatch.setattr(plan_module, "open_remote", lambda *_: store)
    return store


@pytest.mark.long
def test_a_plan_of_1_000_small_segments_reads_each_index_head_once_and_makes_few_tasks(
    url: str, counted: CountingStore
):
    TopicArchive(counted).add_many(1000)
    options = options_of(url)
    pinned = pin(options)
    counted.counts.clear()
    found = planned(options, at=pinned)
    assert (found.rows, found.is_exact, found.segments) == (2000, True, 1000)
    assert len(found.tasks) <= 32
    assert counted.counts["get_range"] <= 1000 + 1  # each head, and the list of checkpoints
    assert counted.counts.total() - counted.counts["get_range"] <= 5  # the control and the one commit


def test_filters_on_seq_and_time_read_the_heads_of_the_segments_in_range_only(url: str, counted: CountingStore):
    TopicArchive(counted).add_many(100)
    for options in (
        {"startingSeq": 101, "endingSeq": 104},
        {"startingTimestamp": NOW_MS + 101, "endingTimestamp": NOW_MS + 103},
    ):
        parsed = options_of(url, **options)
        pinned = pin(parsed)
        counted.counts.clear()
        found = planned(parsed, at=pinned)
        assert (found.segments, found.rows) == (2, 4)
        assert counted.counts["get_range"] <= 2 + 1


def test_a_remote_that_stays_open_plans_again_without_a_request(url: str, counted: CountingStore):
    TopicArchive(counted).add_many(5)
    options = options_of(url)
    remote = Remote.open(url)
    pinned = remote.pin(options)
    remote.plan(options, pinned, Query(frozenset({"seq"})))
    counted.counts.clear()
    assert remote.plan(options, pinned, Query(frozenset({"value"}))).rows == 10
    assert remote.aggregate(options, pinned, (), COUNT) == [10, 1, 10]
    assert counted.counts.total() == 0
    remote.close()


def test_a_count_of_whole_segments_reads_the_commits_only(url: str, counted: CountingStore):
    TopicArchive(counted).add_many(100)
    options = options_of(url)
    remote = Remote.open(url)
    pinned = remote.pin(options)
    counted.counts.clear()
    assert remote.aggregate(options, pinned, (), COUNT) == [200, 1, 200]
    assert counted.counts["get_range"] <= 1  # the list of checkpoints
    assert counted.counts.total() <= 5
    since = [Filter("seq", Op.GE, (100,))]  # the second record of a segment
    counted.counts.clear()
    assert remote.aggregate(options, pinned, since, COUNT) == [101, 100, 200]
    assert counted.counts == {"get_range": 1}
    remote.close()


def since(ms: int) -> list[Filter]:
    return [Filter("timestamp", Op.GE, ((NOW_MS + ms) * 1000,))]


def test_a_count_by_time_reads_the_chunks_at_its_ends_and_no_other(url: str, counted: CountingStore):
    archive = TopicArchive(counted)
    refs = [archive.add([Sample(b"x" * 100) for _ in range(50)]) for _ in range(3)]
    archive.delete(refs[0], entry_ids=[22])
    options = options_of(url)
    remote = Remote.open(url)
    pinned = remote.pin(options)
    assert remote.aggregate(options, pinned, (), COUNT) == [149, 1, 150]
    until = Filter("timestamp", Op.LT, ((NOW_MS + 114) * 1000,))
    counted.counts.clear()
    assert remote.aggregate(options, pinned, [*since(11), until], COUNT) == [105, 21, 126]
    assert counted.counts == {"get_range": 1 + 2}, "the index head of the last segment, and the chunks of the two ends"
    assert remote.groups(options, pinned, [*since(11), until], ["topic"], COUNT) == [["orders", 105, 21, 126]]
    remote.close()


def test_a_count_between_two_times_reads_two_whole_chunks(url: str):
    """Chunks are as large as those of a log, and the second one has both ends in it no more."""
    archive = TopicArchive(url)
    archive.add([Sample(b"x" * 1000) for _ in range(3000)], block_size=1 << 22, chunk_bytes=CHUNK_BYTES)
    remote = Remote.open(url)
    until = Filter("timestamp", Op.LT, ((NOW_MS + 1401) * 1000,))
    found = remote.aggregate(options_of(url), remote.pin(options_of(url)), [*since(101), until], COUNT)
    assert found == [2600, 201, 2800]
    remote.close()


def test_a_count_that_has_to_read_much_is_left_to_tasks(url: str):
    archive = TopicArchive(url)
    options = options_of(url)
    for last_ms, length, answer in ((2, 1 << 21, [1, 3, 3]), (5, 1 << 22, None)):
        samples = [Sample(b"a"), Sample(b"a"), Sample(b"b" * length)]
        archive.add(samples, block_size=1 << 23, chunk_bytes=1 << 23)
        remote = Remote.open(url)
        assert remote.aggregate(options, remote.pin(options), since(last_ms), COUNT) == answer
        remote.close()


def test_without_checks_no_record_is_read_for_a_count(url: str):
    TopicArchive(url).add(numbered(10))
    options = options_of(url, verify="none")
    remote = Remote.open(url)
    assert remote.aggregate(options, remote.pin(options), (), COUNT) == [10, 1, 10]
    assert remote.aggregate(options, remote.pin(options), since(3), COUNT) is None
    assert remote.groups(options, remote.pin(options), since(3), ["tag"], COUNT) is None
    remote.close()


def test_an_evicted_topic_fails_a_query_on_another_topic_of_the_same_read(url: str):
    evicted(url, 6)
    TopicArchive(url, "events").add(numbered(3))
    with pytest.raises(DataLoss, match="orders"):
        rows_of(options_of(url, topic="*"), [Filter("topic", Op.EQ, ("events",))])


def test_importing_the_source_is_light():
    code = (
        "import sys, offload.spark\n"
        "heavy = {'numpy', 'pyarrow', 'boto3', 'catalog', 'obstore', 'zstandard', 'pyroaring', 'google'}\n"
        "light = {'seglog.base', 'seglog.base.shadowing'}\n"
        "own = {name for name in sys.modules if name.startswith('seglog.')} - light\n"
        "print(*(heavy & set(sys.modules)), *own)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""
