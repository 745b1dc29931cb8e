"""`read_arrays` and `read_arrow` yield the records that `read` yields one by one, and the same errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import seglog
from benchmarks.calls import count_calls
from seglog import (
    Evicted,
    FileCorrupt,
    Gap,
    InvalidArgument,
    Log,
    LogSettings,
    NoSuchTopic,
    NotInstalled,
    Record,
    SeqOutOfRange,
    Topic,
    TopicConfig,
    Truncated,
)
from seglog.engine.work_thread import InCaller
from seglog.format.frame import HAS_NODE, HAS_TAG, FrameType, encode
from seglog.segments.batch import FRAME_BATCH_MAX_BYTES
from tests.array_rows import rows_of, seen
from tests.faults.files import UnsyncedFiles
from tests.worlds.cold_tier import Cold

SMALL = LogSettings(segment_max_events=10)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with seglog.open(tmp_path / "data", settings=SMALL, files=UnsyncedFiles(), upkeep=InCaller) as log:
        yield log


def assert_same(topic: Topic, *between: int) -> None:
    """Check that each way shows what `read` shows, and ends as it does."""
    given: tuple[Any, ...] = between
    wanted = seen(lambda: topic.read(*given))
    assert seen(lambda: topic.read_arrays(*given)) == wanted
    assert seen(lambda: topic.read_arrays(*given, gaps=True)) == seen(lambda: topic.read(*given, gaps=True))
    assert seen(lambda: topic.read_arrow(*given), with_ends=False) == seen(lambda: topic.read(*given), with_ends=False)
    lines = b"".join(found.lines() for found in topic.read_arrays(*given)) if not wanted[1] else b""
    records = [row for row in wanted[0] if isinstance(row, Record)] if not wanted[1] else []
    assert lines == b"".join(row.value + (b"" if row.unterminated else b"\n") for row in records)


def test_they_are_the_same_from_everywhere(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"released %d" % n for n in range(16)])
    topic.append([b"released %d" % n for n in range(16, 20)], tag="released")
    topic.seal()
    log.attach_cold(Cold(list(topic.read())))
    topic.inner.release(20)
    topic.append([b"sealed %d" % n for n in range(20)], tag="ä")
    topic.seal()
    topic.append([b"active"] * 5, node="n\0n")
    log.checkpoint()
    topic.append([b"newest\n"] * 12, unterminated=True)
    topic.append([b"", b"\xff", b""], tag="", node="")
    topic.append([b"gone"], tag="b")
    assert_same(topic)
    topic.delete(before=4)
    topic.delete(tag="b")
    topic.delete(tag="rel*")
    topic.append([b"late"], tag="b")
    for between in [(), (4, 4), (19, 22), (21, 40), (30, 100), (45, 58), (30, 20), (61, 61)]:
        assert_same(topic, *between)
    log.checkpoint()
    topic.delete(tag="ä")
    topic.delete(tag="n*")
    assert_same(topic)
    assert [row.seq for row in rows_of(topic.read_arrays()) if isinstance(row, Record)] == [
        record.seq for record in topic.read()
    ]


def test_a_topic_without_a_record_with_one_and_with_a_large_one(log: Log) -> None:
    topic = log.create_topic("t")
    topic = log.topic("t")
    assert list(topic.read_arrays()) == list(topic.read_arrow()) == []
    topic.append([b""])
    assert_same(topic)
    topic.append([bytes(10 << 20)])
    topic.append([b"small"] * 3)
    assert_same(topic)
    topic.seal()
    assert_same(topic)
    assert [len(found) for found in topic.read_arrays()] == [1, 1, 3]
    assert max(found.nbytes for found in topic.read_arrow()) < 10 * FRAME_BATCH_MAX_BYTES + 1000


def test_gaps_of_evicted_expired_and_ephemeral_records(log: Log) -> None:
    log.create_topic("t", TopicConfig(cap_records=10))
    topic = log.topic("t")
    topic.append([b"x"] * 32)
    topic.append([b"in memory"] * 3, durability="ephemeral")
    topic.append([b"y"] * 3)
    topic.seal()
    topic.enforce_retention()
    for between in [(), (1,), (1, 8), (18, 32), (31, 40)]:
        assert_same(topic, *between)
    with pytest.raises(Evicted):
        list(topic.read_arrow(1))
    path = log.path
    log.close()
    with seglog.open(path, settings=SMALL, read_only=True) as view:
        for between in [(), (1,), (29, 34), (36, 38)]:
            assert_same(view.topic("t"), *between)
        assert Gap(33, 35) in view.topic("t").read_arrays(31, gaps=True)


@pytest.mark.parametrize("place", ["wal", "segment"])
def test_a_byte_that_changed_gives_the_same_rows_or_the_same_error(log: Log, place: str) -> None:
    topic = log.topic("t")
    topic.append([b"value %d" % n for n in range(4)], tag="a")
    topic.append([b"other %d" % n for n in range(12)])
    if place == "segment":
        topic.seal()
    [file] = log.path.glob("wal/wal-*.log") if place == "wal" else sorted(log.path.glob("topics/*/*.data"))[:1]
    whole = file.read_bytes()
    end = whole.index(b"other 11") + 8 if place == "wal" else len(whole)
    errors = set()
    for offset in range(0, end, 1 if place == "segment" else 7):
        with file.open("r+b") as opened:
            opened.seek(offset)
            opened.write(bytes([whole[offset] ^ 1]))
        wanted = seen(topic.read)
        assert seen(topic.read_arrays) == wanted, offset
        errors.add(wanted[1][:11])
        with file.open("r+b") as opened:
            opened.seek(offset)
            opened.write(whole[offset : offset + 1])
    assert "FileCorrupt" in errors
    assert_same(topic)


def test_a_label_that_is_no_text_is_refused_where_read_refuses_it(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"xx"] * 9, tag="ab", node="cd")
    topic.append([b"xx"], tag="ab", node="cd")
    topic.seal()
    [data] = log.path.glob("topics/*/*.data")
    body = bytearray(data.read_bytes())
    frame = len(body) // 10
    damaged = encode(
        FrameType.APPEND,
        topic_id=topic.inner.topic_id,
        seq=6,
        ts_ms=next(topic.read(6)).ts_ms,
        data=b"xx",
        node=b"c\xc3",  # what comes next would end the character
        tag=b"\xa4b",
        flags=body[5 * frame + 5],
    )
    assert body[5 * frame + 5] & (HAS_TAG | HAS_NODE) == HAS_TAG | HAS_NODE
    body[5 * frame : 6 * frame] = damaged
    data.write_bytes(body)
    assert_same(topic)
    assert len(seen(topic.read_arrays)[0]) == 5


def test_what_the_cold_tier_gives_comes_before_its_error(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"x"] * 10)
    topic.seal()
    log.attach_cold(Cold(list(topic.read()), fails_at=8))
    topic.inner.release(10)
    assert_same(topic)
    log.detach_cold()
    assert_same(topic)


def test_a_delete_reaches_the_arrays_that_come_after_it(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"x"] * 30, tag="a")
    topic.seal()
    arrays, batches = topic.read_arrays(), topic.read_arrow()
    assert [row.seq for row in rows_of([next(arrays)]) if isinstance(row, Record)] == list(range(1, 11))
    assert next(batches).column("seq").to_pylist() == list(range(1, 11))
    topic.delete(before=15)
    assert next(arrays).seqs.tolist() == next(batches).column("seq").to_pylist() == list(range(15, 21))
    log.checkpoint()
    topic.delete(tag="a")
    assert list(arrays) == list(batches) == []


def test_what_read_refuses_they_refuse(log: Log) -> None:
    topic = log.topic("t")
    with pytest.raises(NoSuchTopic):
        topic.read_arrow()
    topic.append([b"x"] * 30)
    with pytest.raises(SeqOutOfRange):
        topic.read_arrow(32)
    topic.seal()
    arrays, batches = topic.read_arrays(), topic.read_arrow()
    next(arrays)
    next(batches)
    topic.truncate(5)
    for rest in (arrays, batches):
        with pytest.raises(Truncated):
            next(rest)
    topic.append([b"again"] * 3)
    assert_same(topic)


def test_arrow_selects_by_time_and_by_tag(log: Log) -> None:
    topic = log.topic("t")
    for tag in ("web", "db", None, "web2"):
        topic.append([b"x"] * 12, tag=tag)
    records = list(topic.read())
    times = {"since_ms": records[5].ts_ms, "until_ms": records[40].ts_ms}
    wanted = list(topic.read(**times))
    assert rows_of(topic.read_arrow(**times)) == wanted
    assert rows_of(topic.read_arrow(tag="web")) == [record for record in records if record.tag == "web"]
    web = [record for record in records if (record.tag or "").startswith("web")]
    assert rows_of(topic.read_arrow(tag="web*")) == web
    assert list(topic.read_arrow(tag="none")) == []


def test_every_batch_has_the_schema_of_the_spark_source(log: Log) -> None:
    schema = seglog.arrow_schema()
    assert [(field.name, str(field.type)) for field in schema] == [
        ("topic", "string"),
        ("seq", "int64"),
        ("timestamp", "timestamp[us, tz=UTC]"),
        ("node", "string"),
        ("tag", "string"),
        ("value", "binary"),
    ]
    log.create_topic("t@half", first_seq=5)
    topic = log.topic("t@half")
    topic.append([b"x"] * 12, node="n")
    topic.append([b"x"] * 12)
    table = pa.Table.from_batches(topic.read_arrow(5), schema)
    assert table.num_rows == 24
    assert set(table.column("topic").to_pylist()) == {"t"}
    assert pa.Table.from_batches(log.topic("t@half").read_arrow(5, tag="none"), schema).num_rows == 0


def test_what_takes_arrow_takes_the_reader(log: Log) -> None:
    """pyarrow and pandas here; Polars and DuckDB take the same C interface."""
    topic = log.topic("t")
    topic.append([b"one", b"two"], tag="a")
    topic.append([b"three"])
    assert isinstance(topic.read_arrow(), pa.RecordBatchReader)
    through_c = pa.RecordBatchReader.from_stream(topic.read_arrow())
    assert through_c.schema == seglog.arrow_schema()
    assert through_c.read_all() == topic.read_arrow().read_all()
    frame = topic.read_arrow(text=True).read_pandas()
    assert frame[["seq", "tag", "value"]].values.tolist() == [[1, "a", "one"], [2, "a", "two"], [3, None, "three"]]
    assert topic.read_arrow(tag="none").read_all().num_rows == 0
    topic.evict(3)
    with pytest.raises(Evicted) as lost:
        topic.read_arrow(1).read_all()
    assert (lost.value.gap_from, lost.value.gap_to) == (1, 2)


def test_values_as_text_end_at_the_first_that_is_none(log: Log) -> None:
    topic = log.topic("t")
    topic.append(["ä€𝄞".encode(), b"", b"\0"])
    assert topic.read_arrow(text=True).schema == seglog.arrow_schema(text=True)
    assert str(seglog.arrow_schema(text=True).field("value").type) == "string"
    assert topic.read_arrow(text=True).read_all()["value"].to_pylist() == ["ä€𝄞", "", "\0"]
    topic.append([b"\xff", b"late"], tag="raw")
    topic.append(["\ud800".encode("utf-8", "surrogatepass")], tag="half")
    for tag, seq, before in ((None, 4, 3), ("raw", 4, 0), ("half", 6, 0)):
        batches: list[Any] = []
        with pytest.raises(InvalidArgument, match=f"record {seq} of t is not UTF-8"):
            batches.extend(topic.read_arrow(text=True, tag=tag))
        assert sum(map(len, batches)) == before
    assert topic.read_arrow(5, 5, text=True).read_all()["value"].to_pylist() == ["late"]
    assert len(topic.read_arrow().read_all()) == 6


def test_without_pyarrow_the_error_names_the_extra(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.topic("t").append([b"x"])
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(NotInstalled, match=r"Topic\.read_arrow needs pyarrow") as caught:
        log.topic("t").read_arrow()
    assert "seglog[arrow]" in (caught.value.hint or "")
    with pytest.raises(NotInstalled):
        seglog.arrow_schema()
    assert [len(found) for found in log.topic("t").read_arrays()] == [1]


def test_the_calls_for_each_record_are_few(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data", files=UnsyncedFiles(), upkeep=InCaller) as log:
        topic = log.topic("t")
        topic.append([b"x" * 100] * 5_000)
        topic.seal()
        list(topic.read_arrow())
        assert count_calls(lambda: [found.lines() for found in topic.read_arrays()]) < 1.2 * 5_000
        assert count_calls(lambda: list(topic.read_arrow())) < 1.2 * 5_000


def test_damage_of_an_index_is_the_same_error(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"x"] * 20)
    topic.seal()
    index = sorted(log.path.glob("topics/*/*.idx"))[1]
    body = bytearray(index.read_bytes())
    body[43] ^= 64
    index.write_bytes(body)
    with pytest.raises(FileCorrupt):
        list(topic.read_arrays())
    assert_same(topic)
