"""`Archive.read_arrow` and `read_arrays` show the records of `read`, for each state, codec and damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import seglog
from benchmarks.calls import count_calls
from catalog import Snapshot
from catalog.format import keys
from catalog.format.commit import Codec
from catalog.objects.memory import MemoryStore
from offload import Archive, ColdSettings
from offload.read.cold_reader import ColdReader
from seglog import Gap, Log, LogSettings, NotInstalled, Record, SeqOutOfRange
from tests.array_rows import rows_of, seen
from tests.faults.store import CountingStore
from tests.offload.replicas import opened, ship
from tests.offload.samples import Sample
from tests.offload.spark.archives import TopicArchive

NO_CACHE = ColdSettings(cache_bytes=0)


def assert_same(archive: Archive, name: str, *between: int, at: str | None = None) -> list[Record | Gap]:
    """Check that each way shows what `read` shows, and ends as it does. Return the rows."""
    start, end = (*between, None, None)[:2]
    wanted = seen(lambda: archive.read(name, start, end, at=at))
    assert seen(lambda: archive.read_arrays(name, start, end, at=at)) == wanted
    plain = seen(lambda: archive.read(name, start, end, at=at), with_ends=False)
    assert seen(lambda: archive.read_arrow(name, start, end, at=at), with_ends=False) == plain
    return wanted[0]


@pytest.fixture
def archived(tmp_path: Path) -> Iterator[tuple[Log, Archive]]:
    """Cold, hot and unsealed records, a branch, deletes of each kind, an eviction, and a truncation."""
    with opened(tmp_path / "data", MemoryStore(), settings=LogSettings()) as (log, archive):
        ship(archive, log, "t", *[b"one %d" % number for number in range(30)], tag="a")
        ship(archive, log, "t", *[b"two %d" % number for number in range(30)])
        archive.restore("t", to="seq:40", name="b")
        archive.delete("t", tag="a", before=10)
        archive.evict("t", 5)
        ship(archive, log, "t", *[b"three %d" % number for number in range(20)], tag="c")
        archive.truncate("t", 71)
        archive.offload("t", drop_hot=True)
        log.topic("t").append([b"hot"] * 3 + [bytes(1 << 20)], tag="c", node="n")
        archive.delete("t", tag="zz")
        log.topic("t").seal()
        log.topic("t").append([b"", b"end"], unterminated=True)
        yield log, archive


def test_a_topic_a_branch_and_each_past_state_are_the_same(archived: tuple[Log, Archive]) -> None:
    log, archive = archived
    assert log.topic("t").inner.hot_floor > 60
    assert [row.seq for row in assert_same(archive, "t") if isinstance(row, Record)] == list(range(10, 77))
    newest = archive.history.snapshot("t").lsn
    for at in ["head", "head~1", "seq:15", "seq:62", "seq:73", *(f"lsn:{lsn}" for lsn in range(1, newest + 2))]:
        assert_same(archive, "t", at=at)
    for between in [(10, 10), (12, 33), (25, 75), (50, 100), (76, 76), (77, 80), (3, 20)]:
        assert_same(archive, "t", *between)
        assert_same(archive, "t", *between, at="lsn:4")
    assert len(assert_same(archive, "t@b")) == 40
    assert_same(archive, "t@b", 8, 12, at="seq:20")
    for read in (archive.read_arrays, archive.read_arrow):
        with pytest.raises(SeqOutOfRange):
            list(read("t@b", 99))


def test_arrow_of_the_archive_has_the_one_schema_and_selects_by_tag(
    archived: tuple[Log, Archive], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, archive = archived
    table = pa.Table.from_batches(archive.read_arrow("t@b", 25, tag="a*"), seglog.arrow_schema())
    assert table.column("seq").to_pylist() == list(range(25, 31))
    assert set(table.column("topic").to_pylist()) == {"t"}
    assert rows_of(archive.read_arrow("t", at="lsn:1", tag="a")) == list(archive.read("t", at="lsn:1"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(NotInstalled, match=r"Archive\.read_arrow needs pyarrow"):
        archive.read_arrow("t")


SAMPLES = [
    Sample(b"plain"),
    Sample(b"", "a", "n"),
    Sample(b"gone", "b", deleted=True),
    Sample(b"\xff\n", "ä"),
    *[Sample(b"%d" % number) for number in range(30)],
    Sample(b"last", None, "n"),
]


def _reads(store: CountingStore | MemoryStore, snapshot: Snapshot, first: int, last: int) -> tuple[object, object]:
    """Return what a reader without caches shows, as records and as arrays."""
    found = []
    for way in (ColdReader.records, ColdReader.arrays):
        reader = ColdReader(store, NO_CACHE)
        found.append(seen(lambda reader=reader, way=way: way(reader, snapshot, first, last)))  # type: ignore[misc]
        reader.close()
    return found[0], found[1]


@pytest.mark.parametrize("codec", Codec)
def test_each_range_and_each_delete_of_both_codecs_is_the_same(codec: Codec) -> None:
    archive = TopicArchive(MemoryStore())
    first, second = archive.add(SAMPLES, codec), archive.add(SAMPLES * 3, codec, chunk_bytes=400)
    archive.delete(second, [0, 1, 7, 30, 31, 32, 33, 34, 35, 36])
    archive.delete(first, range(len(SAMPLES)))
    archive.delete(before_seq=3)
    for lsn in range(1, archive.lsn + 1):
        snapshot = archive.volumes.snapshot(archive.vid, lsn)
        last = snapshot.bounds.head_seq
        for between in [(1, last), (2, 2), (3, 3), (4, 36), (30, 45), (36, last), (last, last)]:
            records, arrays = _reads(archive.store, snapshot, *between)  # type: ignore[arg-type]
            assert records == arrays, (lsn, between)


@pytest.mark.long
@pytest.mark.parametrize("codec", [Codec.ZSTD, pytest.param(Codec.NONE, marks=pytest.mark.long)])
def test_each_byte_of_an_object_that_changed_gives_the_same_rows_or_the_same_error(codec: Codec) -> None:
    store = MemoryStore()
    archive = TopicArchive(store)
    ref = archive.add(SAMPLES[:20], codec, chunk_bytes=500)
    snapshot = archive.volumes.snapshot(archive.vid)
    places = [keys.data_key(archive.vid, ref.sid), keys.index_key(archive.vid, ref.sid)]
    errors = 0
    for key, step in zip(places, (1, 5), strict=True):
        whole = store.get(key)
        for offset in range(0, len(whole), step):
            store.delete(key)
            store.put(key, whole[:offset] + bytes([whole[offset] ^ 4]) + whole[offset + 1 :], {})
            records, arrays = _reads(store, snapshot, 1, 20)
            assert records == arrays, (key, offset)
            errors += records[1] != ""  # type: ignore[index]
        store.delete(key)
        store.put(key, whole, {})
    assert errors > 100


def test_a_read_of_arrays_makes_no_more_requests_and_few_calls_for_each_record(tmp_path: Path) -> None:
    store = CountingStore(MemoryStore())
    with opened(tmp_path / "data", store) as (log, archive):
        for _ in range(2):
            log.topic("t").append([b"x" * 100] * 5_000)
        log.topic("t").seal()
        archive.offload("t", drop_hot=True)
        counts = []
        ways: tuple[Callable[[], object], ...] = (
            lambda: list(archive.read("t")),
            lambda: [found.lines() for found in archive.read_arrays("t")],
            lambda: list(archive.read_arrow("t")),
        )
        for way in ways:
            store.counts.clear()
            calls = count_calls(way)
            counts.append((store.counts.total(), calls))
    assert counts[1][0] <= counts[0][0]
    assert max(calls for _, calls in counts[1:]) < 4 * 10_000
    assert counts[1][1] < counts[0][1]
