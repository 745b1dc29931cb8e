"""Test a stream without Spark: its offsets and limits, and the rows and requests of each micro-batch."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from itertools import pairwise

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from catalog.errors import NoSuchTopic
from catalog.objects.memory import MemoryStore
from offload.errors import InvalidOption
from offload.spark import SeglogDataSource
from offload.spark.offsets import Misuse, Offset, decode_offset, encode_offset
from offload.spark.query_plan import Query, Remote
from seglog.errors import SeqOutOfRange
from tests.faults.store import CountingStore
from tests.offload.samples import Sample
from tests.offload.spark.archives import NOW_MS, TopicArchive
from tests.offload.spark.follower import Follower, orders, remote, samples, url

__all__ = ["remote", "url"]


# ---------------------------------------------------------------- positions


def test_a_stream_gives_each_commit_once_and_then_stays(remote: Remote, url: str):
    archive, follower = TopicArchive(url), Follower(remote)
    archive.add(samples(10))
    archive.add(samples(5))
    assert follower.read_all() == [orders(1, 15)]
    assert follower.read_all() == []
    archive.add(samples(3))
    assert follower.read_all() == [orders(16, 18)]
    follower.restart()
    archive.add(samples(1))
    assert follower.read_all() == [orders(19, 19)]


def test_the_same_position_has_the_same_text(remote: Remote, url: str):
    TopicArchive(url, "a").add(samples(2))
    TopicArchive(url, "a-b").add(samples(2))
    one, other = Follower(remote, topic="a-b,a"), Follower(remote, topic="a*")
    assert one.advance() == other.advance() == one.advance()
    assert list(json.loads(one.advance())) == ["a-b@main", "a@main"]
    offset = decode_offset(one.offsets[-1])
    assert decode_offset(encode_offset(dict(reversed(offset.items())))) == offset
    assert json.dumps(encode_offset(offset)) == one.offsets[-1]  # as pyspark writes it


@pytest.mark.parametrize(
    "text",
    ["7", "[]", '{"a@main": 5}', '{"a@main": {"lsn": 1}}', '{"a@main": {"lsn": 1, "next_seq": 1, "vid": "x"}}', "{"],
)
def test_an_offset_of_another_source_is_refused(text: str):
    with pytest.raises(Misuse, match="is no offset of a stream"):
        decode_offset(text)


def test_a_commit_without_records_moves_the_version_only(remote: Remote, url: str):
    archive, follower = TopicArchive(url), Follower(remote)
    ref = archive.add(samples(4))
    follower.advance()
    archive.delete(ref, [0])
    assert follower.read_all() == [[]]
    assert follower.next_seqs() == {"orders@main": 5}
    assert follower.read_all() == []


def test_a_new_stream_begins_where_the_options_say(remote: Remote, url: str):
    archive = TopicArchive(url)
    archive.add(samples(10))
    archive.add(samples(10))
    for options, first in (
        ({}, 1),
        ({"startingSeq": "earliest"}, 1),
        ({"startingSeq": 7}, 7),
        ({"startingSeq": 21}, 21),
        ({"startingSeq": '{"orders": 12}'}, 12),
        ({"startingOffsets": '{"orders": {"0": 12}}'}, 12),
        ({"startingSeq": "latest"}, 21),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, 21),
        ({"startingTimestamp": NOW_MS + 14}, 17),  # two records have one time
        ({"startingTimestamp": NOW_MS + 11}, 11),
        ({"startingTimestamp": NOW_MS + 1_000_000}, 21),
    ):
        follower = Follower(remote, **options)
        follower.advance()
        assert follower.rows() == orders(first, 20), options
    archive.add(samples(2))
    assert follower.read_all() == [orders(21, 22)]
    with pytest.raises(SeqOutOfRange, match="seq 40 is outside"):
        Follower(remote, startingSeq=40).advance()


def test_latest_is_where_the_stream_began_also_after_a_restart(remote: Remote, url: str):
    archive, follower = TopicArchive(url), Follower(remote, startingSeq="latest")
    archive.add(samples(5))
    assert follower.read_all() == [[]]
    archive.add(samples(3))
    follower.restart()
    assert follower.read_all() == [orders(6, 8)]


def test_a_glob_picks_up_new_topics_from_their_first_record(remote: Remote, url: str):
    TopicArchive(url, "order-a").add(samples(2))
    follower = Follower(remote, topic="order-*", startingSeq="latest")
    with pytest.raises(NoSuchTopic):
        Follower(remote, topic="nothing-*").advance()
    assert follower.read_all() == [[]]
    TopicArchive(url, "order-b").add(samples(2))
    TopicArchive(url, "other").add(samples(2))
    assert follower.read_all() == [[("order-b", 1), ("order-b", 2)]]


def test_a_filter_by_tag_leaves_rows_out_and_the_offset_as_it_is(remote: Remote, url: str):
    TopicArchive(url).add(samples(6))
    follower = Follower(remote, tag="even")
    follower.advance()
    assert follower.seqs() == [1, 3, 5]
    assert follower.next_seqs() == {"orders@main": 7}


# ---------------------------------------------------------------- limits


def test_no_micro_batch_has_more_than_the_limit_of_records(remote: Remote, url: str):
    archive = TopicArchive(url)
    for count in (3, 11, 1):
        archive.add(samples(count))
    TopicArchive(url, "events").add(samples(4))
    follower = Follower(remote, topic="orders,events", maxOffsetsPerTrigger=4)
    found = follower.read_all()
    assert max(map(len, found)) == 4
    assert sorted(row for rows in found for row in rows) == [("events", n) for n in range(1, 5)] + orders(1, 15)
    assert [len(rows) for rows in found] == [4, 4, 4, 4, 3]
    assert found[0] == [("events", 1), ("events", 2), ("orders", 1), ("orders", 2)]  # both have a part


def test_a_limit_below_the_number_of_topics_still_gets_on(remote: Remote, url: str):
    for topic in "abc":
        TopicArchive(url, topic).add(samples(2))
    found = Follower(remote, topic="?", maxRecordsPerTrigger=1).read_all()
    assert [len(rows) for rows in found] == [1] * 6
    assert sorted(row for rows in found for row in rows) == [(topic, n) for topic in "abc" for n in (1, 2)]


def test_the_limit_of_bytes_ends_behind_a_chunk(remote: Remote, url: str):
    archive = TopicArchive(url)
    archive.add([Sample(b"x" * 100) for _ in range(100)], chunk_bytes=1000)
    archive.add([Sample(b"x" * 100) for _ in range(100)], chunk_bytes=1000)
    found = Follower(remote, maxBytesPerTrigger=4000).read_all()
    assert [row for rows in found for row in rows] == orders(1, 200)
    assert len(found) > 5
    assert all(10 <= len(rows) <= 40 for rows in found[:-1])
    tiny = Follower(remote, maxBytesPerTrigger=1).read_all()
    assert [row for rows in tiny for row in rows] == orders(1, 200)
    both = Follower(remote, maxBytesPerTrigger="1g", maxRecordsPerTrigger=150).read_all()
    assert [len(rows) for rows in both] == [150, 50]


def test_a_trigger_that_runs_once_reads_all_and_a_target_stops_the_stream(remote: Remote, url: str):
    archive = TopicArchive(url)
    archive.add(samples(9))
    once, now = Follower(remote, maxRecordsPerTrigger=2), Follower(remote, maxRecordsPerTrigger=2)
    once.advance(limited=False)
    assert once.rows() == orders(1, 9)
    now.target = remote.pin(now.options.read)
    archive.add(samples(9))
    TopicArchive(url, "later").add(samples(1))
    assert [row for rows in now.read_all() for row in rows] == orders(1, 9)
    now.target = None
    assert [row for rows in now.read_all() for row in rows] == orders(10, 18)


@pytest.fixture
def counted() -> CountingStore:
    return CountingStore(MemoryStore())


def test_an_idle_stream_asks_little_and_only_as_often_as_its_cache_says(counted: CountingStore):
    for topic in ("a", "b"):
        TopicArchive(counted, topic).add(samples(5))
    remote = Remote(counted)
    idle, eager = Follower(remote, topic="a,b", headCacheMs=100_000), Follower(remote, topic="a,b")
    idle.advance()
    eager.advance()
    counted.counts.clear()
    for _ in range(100):
        idle.advance()
    assert counted.counts.total() == 0
    for _ in range(10):
        eager.advance()
    assert counted.counts == {"get_with_etag": 20, "list": 20}  # of each topic its name and its newest commit
    remote.close()


def test_a_micro_batch_reads_its_commits_and_the_heads_of_its_segments(counted: CountingStore):
    archive = TopicArchive(counted)
    archive.add_many(200)
    remote = Remote(counted)
    follower = Follower(remote)
    follower.advance()
    archive.add(samples(2))
    counted.counts.clear()
    follower.advance()
    query = Query(frozenset({"seq", "value"}))
    start, end = (decode_offset(text) for text in follower.offsets[-2:])
    assert sum(task.rows for task in follower.stream.plan(remote, start, end, query).tasks) == 2
    assert counted.counts.total() <= 6
    remote.close()


def test_offsets_name_what_a_micro_batch_reads(remote: Remote, url: str):
    archive, follower = TopicArchive(url), Follower(remote)
    archive.add(samples(3))
    follower.advance()
    nothing: Offset = {}
    [position] = decode_offset(follower.offsets[-1]).values()
    broken = {"orders@main": replace(position, first_seq=None)}
    with pytest.raises(Misuse, match="orders@main is new in it"):
        follower.stream.plan(remote, nothing, broken, Query(frozenset({"seq"})))


def test_the_reader_in_python_gives_spark_the_same(url: str):
    """Spark makes the reader, pickles it for the workers, and then asks it, in JSON."""
    archive = TopicArchive(url)
    archive.add(samples(10))
    options = {"path": url, "topic": "orders", "maxrecordspertrigger": "6", "headcachems": "0", "columns": "seq,tag"}
    source = SeglogDataSource(options)
    reader = source.streamReader(source.schema())
    worker = pickle.loads(pickle.dumps(reader))  # noqa: S301 - its own
    assert reader.getDefaultReadLimit() == ReadMaxRows(6)
    reader.prepareForTriggerAvailableNow()
    archive.add(samples(1))
    offsets = [json.dumps(reader.initialOffset())]
    for limit in (ReadMaxRows(6), ReadAllAvailable(), ReadMaxRows(6)):
        offsets.append(json.dumps(reader.latestOffset(json.loads(offsets[-1]), limit)))
    assert offsets[-2] == offsets[-1]
    found = [
        [
            row["seq"]
            for task in reader.partitions(*map(json.loads, pair))
            for batch in worker.read(task)
            for row in batch.to_pylist()
        ]
        for pair in pairwise(offsets)
    ]
    assert found == [[1, 2, 3, 4, 5, 6], [7, 8, 9, 10], []]
    reader.stop()
    with pytest.raises(InvalidOption, match="the JVM reader is not in this session"):
        SeglogDataSource({**options, "reader": "jvm"}).streamReader(source.schema())
