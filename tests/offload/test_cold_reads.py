"""Test cold reads by their requests: exact counts, read-ahead, shared GETs, and trouble."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offload
import seglog
from catalog import SegmentView, Snapshot
from catalog.errors import NoSuchObject, StoreUnreachable
from catalog.format import keys
from catalog.format.commit import Codec
from catalog.format.keys import Key
from catalog.objects.memory import MemoryStore
from catalog.objects.object_store import ObjectStore
from offload import ColdSettings
from offload.errors import InvalidChunk, InvalidIndex
from offload.read.chunk_cache import open_cache
from offload.read.cold_reader import ColdReader
from tests.faults.store import WrappedStore
from tests.offload.samples import Sample
from tests.offload.spark.archives import TopicArchive
from tests.seams.archive import fetcher_of, running_fetches

T = TypeVar("T")
MIB = 1 << 20
RECORD_BYTES = 16_000
CHUNK_BYTES = 1 << 16
NO_CACHE = ColdSettings(cache_bytes=0)


class RecordingStore(WrappedStore):
    """Record the ranged GETs of segments in `gets`: key, start, length.

    Each GET first calls `hook`. If `hook` raises an error, the GET raises it too.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.gets: list[tuple[str, int, int]] = []
        self.hook: Callable[[int], None] = lambda _: None
        self.damage: Callable[[int, bytes], bytes] = lambda _, body: body
        self._lock = threading.Lock()

    def get_range(self, key: Key, start: int, length: int) -> bytes:
        if "/segments/" not in key:
            return self.inner.get_range(key, start, length)
        with self._lock:
            self.gets.append((key, start, length))
            number = len(self.gets)
        self.hook(number)
        return self.damage(number, self.inner.get_range(key, start, length))

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        return act()

    def of_data(self) -> list[tuple[str, int, int]]:
        return [get for get in self.gets if not get[0].endswith(".index")]


def values(count: int, seed: int = 1) -> list[Sample]:
    random = Random(seed)
    return [Sample(random.randbytes(RECORD_BYTES)) for _ in range(count)]


class Cold:
    """A topic in a recorded store, and readers of it."""

    def __init__(self, *segments: list[Sample], block_size: int = 64 * MIB, codec: Codec = Codec.NONE) -> None:
        inner = MemoryStore()
        self.archive = TopicArchive(inner)
        self.refs = [
            self.archive.add(samples, codec, block_size=block_size, chunk_bytes=CHUNK_BYTES) for samples in segments
        ]
        self.snapshot: Snapshot = self.archive.volumes.snapshot(self.archive.vid)
        self.values = [sample.value for samples in segments for sample in samples]
        self.store = RecordingStore(inner)
        self._open: list[ColdReader] = []

    def reader(self, settings: ColdSettings = NO_CACHE, directory: Path | None = None) -> ColdReader:
        cache = open_cache(directory, settings.cache_bytes) if directory else None
        self._open.append(ColdReader(self.store, settings, cache))
        return self._open[-1]

    def close(self) -> None:
        for reader in self._open:
            reader.close()

    def view(self, number: int = 0) -> SegmentView:
        return self.snapshot.segments[number]

    def seq_of_chunk(self, number: int, segment: int = 0) -> int:
        reader = ColdReader(self.store.inner)
        return reader.index(self.view(segment)).chunks[number].first_seq


@pytest.fixture(scope="module")
def large() -> Cold:
    """Make one object of 40 MiB in one block, in chunks of 64 KiB. The values do not compress."""
    return Cold(values(2_600))


@pytest.fixture
def cold(large: Cold) -> Iterator[Cold]:
    large.store.gets.clear()
    large.store.hook = lambda _: None
    large.store.damage = lambda _, body: body
    yield large
    large.close()


def read(reader: ColdReader, cold: Cold, first: int, last: int) -> list[bytes]:
    return [record.value for record in reader.records(cold.snapshot, first, last)]


def shown_before_an_error(reader: ColdReader, cold: Cold) -> tuple[list[bytes], Exception | None]:
    records = reader.records(cold.snapshot, 1, len(cold.values))
    shown: list[bytes] = []
    try:
        shown.extend(record.value for record in records)
    except (StoreUnreachable, NoSuchObject) as error:
        return shown, error
    return shown, None


def readers_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("seglog-cold")}


# ---------------------------------------------------------------- counts


def test_a_cold_point_read_is_two_gets_and_a_warm_one_is_one(cold: Cold) -> None:
    reader = cold.reader()
    assert read(reader, cold, 700, 700) == [cold.values[699]]
    index, chunk = cold.store.gets
    assert index == (keys.index_key(cold.view().vid, cold.refs[0].sid), 0, cold.refs[0].index_head_length)
    assert chunk[2] < 2 * CHUNK_BYTES
    assert read(reader, cold, 1_700, 1_700) == [cold.values[1_699]]
    assert len(cold.store.gets) == 3


def test_a_chunk_in_the_disk_cache_is_read_without_any_get_also_after_a_restart(cold: Cold, tmp_path: Path) -> None:
    reader = cold.reader(ColdSettings(), tmp_path)
    for _ in range(3):
        assert read(reader, cold, 700, 700) == [cold.values[699]]
    assert len(cold.store.gets) == 2
    reader.close()
    again = cold.reader(ColdSettings(), tmp_path)
    assert read(again, cold, 700, 700) == [cold.values[699]]
    assert len(cold.store.gets) == 3  # the index


def expected_windows(data_bytes: int, chunk_bytes: int, largest: int) -> int:
    """Return the number of windows of a scan of `data_bytes`.

    The first window is one chunk and the second 1 MiB. Each later one doubles, up to `largest`.
    """
    count, size, left = 1, MIB, data_bytes - chunk_bytes
    while left > 0:
        left -= size // chunk_bytes * chunk_bytes
        count, size = count + 1, min(2 * size, largest)
    return count


@pytest.mark.parametrize("window_bytes", [16 * MIB, 8 * MIB, 2 * MIB])
def test_a_scan_is_one_get_for_each_window_and_fetches_each_byte_once(cold: Cold, window_bytes: int) -> None:
    reader = cold.reader(ColdSettings(cache_bytes=0, window_bytes=window_bytes))
    assert read(reader, cold, 1, len(cold.values)) == cold.values
    gets = sorted(cold.store.of_data(), key=lambda get: get[1])
    chunks = reader.index(cold.view()).chunks
    assert gets[0][1] == chunks[0].offset
    assert all(before[1] + before[2] == after[1] for before, after in itertools.pairwise(gets))
    assert gets[-1][1] + gets[-1][2] == chunks[-1].offset + chunks[-1].stored_length
    assert gets[0][2] == chunks[0].stored_length
    assert max(length for _, _, length in gets) <= window_bytes
    stored = sum(chunk.stored_length for chunk in chunks)
    assert len(gets) == expected_windows(stored, chunks[0].stored_length, window_bytes)


def test_a_scan_over_blocks_reads_headers_and_padding_along_instead_of_asking_again() -> None:
    cold = Cold(values(1_000), block_size=MIB + 1000)
    reader = cold.reader()
    assert read(reader, cold, 1, 1_000) == cold.values
    chunks = reader.index(cold.view()).chunks
    stored = sum(chunk.stored_length for chunk in chunks)
    assert len(cold.store.of_data()) <= expected_windows(stored, chunks[0].stored_length, 8 * MIB) + 1
    cold.close()


def test_without_read_ahead_each_chunk_is_a_get(cold: Cold) -> None:
    reader = cold.reader(ColdSettings(cache_bytes=0, read_ahead_bytes=0))
    assert read(reader, cold, 1, 100) == cold.values[:100]
    assert len(cold.store.of_data()) == len(reader.index(cold.view()).chunks_between(1, 100))


def test_whoever_stops_at_the_first_record_fetched_one_chunk(cold: Cold) -> None:
    reader = cold.reader()
    records = reader.records(cold.snapshot, 1, len(cold.values))
    assert next(records).value == cold.values[0]
    records.close()
    reader.close()
    assert len(cold.store.of_data()) == 1
    assert cold.store.of_data()[0][2] < 2 * CHUNK_BYTES


def test_small_segments_are_read_with_one_get_each_and_their_indexes_ahead() -> None:
    cold = Cold(*[values(3, seed) for seed in range(12)])
    reader = cold.reader()
    assert read(reader, cold, 1, 36) == cold.values
    counts = Counter(get[0] for get in cold.store.gets)
    assert set(counts.values()) == {1}
    assert len(counts) == 24
    cold.close()


# ---------------------------------------------------------------- bounds, and stopping


def test_a_reader_that_pauses_has_no_more_on_its_way_than_it_may(cold: Cold) -> None:
    limit = 4 * MIB
    reader = cold.reader(ColdSettings(cache_bytes=0, read_ahead_bytes=limit))
    records = reader.records(cold.snapshot, 1, len(cold.values))
    shown = 0
    for record in records:
        shown += len(record.value)
        fetched = sum(length for _, _, length in cold.store.of_data())
        assert fetched - shown <= limit + 2 * CHUNK_BYTES + shown // 50
    assert shown == sum(map(len, cold.values))


def test_all_readers_together_keep_to_one_budget(cold: Cold) -> None:
    total = 6 * MIB
    reader = cold.reader(ColdSettings(cache_bytes=0, read_ahead_total_bytes=total))
    readers = [reader.records(cold.snapshot, 1 + 500 * number, len(cold.values)) for number in range(4)]
    for records in readers:
        for _ in range(30):
            next(records)
    assert fetcher_of(reader).held_bytes <= total + 4 * 2 * MIB
    for records in readers:
        records.close()
    reader.close()
    assert fetcher_of(reader).held_bytes == 0


def test_a_reader_that_stops_leaves_no_request_and_no_thread_behind(cold: Cold) -> None:
    others = readers_threads()  # of tests before this one
    reader = cold.reader(ColdSettings(cache_bytes=0, connections=1))
    records = reader.records(cold.snapshot, 1, len(cold.values))
    goes_on = threading.Event()
    begun = threading.Event()
    for _ in range(8):
        next(records)

    def hold(_: int) -> None:
        if threading.current_thread().name.startswith("seglog-cold"):
            begun.set()
            goes_on.wait(2)  # The reader itself may wait for a held GET.

    cold.store.hook = hold
    for _ in range(200):
        next(records)
        if begun.is_set():
            break
    assert begun.wait(30)
    before = len(cold.store.gets)
    records.close()
    goes_on.set()
    reader.close()
    assert len(cold.store.gets) <= before  # the reader never sent the GETs that waited for the one connection
    assert readers_threads() <= others
    assert fetcher_of(reader).held_bytes == 0
    assert running_fetches(reader) == set()


def test_a_reader_that_was_closed_still_reads_on_by_itself(cold: Cold) -> None:
    reader = cold.reader()
    records = reader.records(cold.snapshot, 1, len(cold.values))
    first = [next(records).value for _ in range(100)]
    reader.close()
    assert first + [record.value for record in records] == cold.values


# ---------------------------------------------------------------- sharing


def test_readers_of_one_chunk_at_one_time_share_its_get(cold: Cold) -> None:
    reader = cold.reader()
    reader.index(cold.view())
    cold.store.gets.clear()
    entered, goes_on = threading.Event(), threading.Event()

    def hold(_: int) -> None:
        entered.set()
        assert goes_on.wait(30)

    cold.store.hook = hold
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(read, reader, cold, 5, 5)
        assert entered.wait(30)
        others = [pool.submit(read, reader, cold, 5, 5) for _ in range(4)]
        [fetch] = running_fetches(reader)
        while fetch.users < 5:
            pass
        goes_on.set()
        assert [future.result() for future in [first, *others]] == [[cold.values[4]]] * 5
    assert len(cold.store.gets) == 1


def test_a_flight_is_joined_and_its_failure_stays_with_who_made_it(cold: Cold) -> None:
    reader = cold.reader()
    reader.index(cold.view())
    cold.store.gets.clear()
    entered, goes_on = threading.Event(), threading.Event()

    def fail_first(number: int) -> None:
        if number == 1:
            entered.set()
            assert goes_on.wait(30)
            raise StoreUnreachable("memory://", "the first one fails")

    cold.store.hook = fail_first
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(read, reader, cold, 5, 5)
        assert entered.wait(30)
        others = [pool.submit(read, reader, cold, 5, 5) for _ in range(4)]
        [fetch] = running_fetches(reader)
        while fetch.users < 5:
            pass
        goes_on.set()
        with pytest.raises(StoreUnreachable):
            first.result()
        assert [future.result() for future in others] == [[cold.values[4]]] * 4
    assert 2 <= len(cold.store.gets) <= 5  # one more GET for all waiting readers; a late reader may send its own


def test_an_interrupt_of_one_who_waits_is_not_taken_for_a_failed_get(cold: Cold) -> None:
    reader = cold.reader()
    reader.index(cold.view())
    cold.store.gets.clear()
    entered, goes_on = threading.Event(), threading.Event()

    def hold(_: int) -> None:
        entered.set()
        assert goes_on.wait(30)

    cold.store.hook = hold
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(read, reader, cold, 5, 5)
        assert entered.wait(30)
        [fetch] = running_fetches(reader)
        real = fetch.done

        class Interrupted(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                raise KeyboardInterrupt

        fetch.done = Interrupted()
        [joined] = fetcher_of(reader).join(fetch.requests, is_scan=False)
        assert joined is fetch
        with pytest.raises(KeyboardInterrupt):
            fetcher_of(reader).bytes_of(fetch, fetch.requests[0])
        fetch.done = real
        goes_on.set()
        # The reader that made the GET is not disturbed. It gets the answer, whichever event signals it.
        assert first.result(30) == [cold.values[4]]
    assert len(cold.store.gets) == 1
    assert running_fetches(reader) == set()


def test_a_dead_store_is_asked_twice_at_most_for_a_chunk(cold: Cold) -> None:
    reader = cold.reader()
    reader.index(cold.view())
    cold.store.gets.clear()

    def dead(_: int) -> None:
        raise StoreUnreachable("memory://", "it is down")

    cold.store.hook = dead
    with pytest.raises(StoreUnreachable):
        read(reader, cold, 5, 5)
    assert len(cold.store.gets) == 1
    with pytest.raises(StoreUnreachable):
        read(reader, cold, 1, len(cold.values))
    assert len(cold.store.gets) == 2
    cold.store.hook = lambda _: None
    assert read(reader, cold, 5, 5) == [cold.values[4]]


def test_trouble_ahead_is_raised_when_the_reader_gets_there(cold: Cold) -> None:
    reader = cold.reader()
    reader.index(cold.view())

    def dead(_: int) -> None:
        if any(start > 8 * MIB for _, start, _ in cold.store.of_data()[-1:]):
            raise StoreUnreachable("memory://", "it went down")

    cold.store.hook = dead
    shown, error = shown_before_an_error(reader, cold)
    assert isinstance(error, StoreUnreachable)
    assert shown == cold.values[: len(shown)]
    assert len(shown) * RECORD_BYTES > 7 * MIB


# ---------------------------------------------------------------- damage


def flipped(body: bytes) -> bytes:
    return bytes([body[0] ^ 1]) + body[1:]


@pytest.mark.parametrize("is_index", [True, False])
def test_what_does_not_match_is_fetched_again_once_and_then_whole(
    cold: Cold, caplog: pytest.LogCaptureFixture, is_index: bool
) -> None:
    reader = cold.reader()
    wrong = 1 if is_index else 2
    cold.store.damage = lambda number, body: flipped(body) if number == wrong else body
    with caplog.at_level(logging.WARNING, "offload.read.cold_reader"):
        assert read(reader, cold, 700, 700) == [cold.values[699]]
    assert len(cold.store.gets) == 3
    assert cold.store.gets[wrong - 1] == cold.store.gets[wrong]
    assert "fetching again" in caplog.text


def test_a_chunk_that_is_damaged_in_the_store_is_named_with_its_range(cold: Cold, tmp_path: Path) -> None:
    reader = cold.reader(ColdSettings(), tmp_path)
    chunk = reader.index(cold.view()).chunks[40]
    cold.store.gets.clear()
    cold.store.damage = lambda _, body: flipped(body)
    for _ in range(2):
        with pytest.raises(InvalidChunk) as caught:
            read(reader, cold, chunk.first_seq, chunk.first_seq)
        assert caught.value.key == keys.data_key(cold.view().vid, cold.refs[0].sid)
        assert caught.value.offset == chunk.offset
        assert f"bytes {chunk.offset} to {chunk.offset + chunk.stored_length}" in str(caught.value)
    assert len(cold.store.gets) == 4
    cold.store.damage = lambda _, body: body
    assert read(reader, cold, chunk.first_seq, chunk.first_seq) == [cold.values[chunk.first_seq - 1]]


def test_an_index_that_is_damaged_in_the_store_is_named(cold: Cold) -> None:
    reader = cold.reader()
    cold.store.damage = lambda _, body: flipped(body)
    with pytest.raises(InvalidIndex, match="index"):
        read(reader, cold, 1, 1)
    assert len(cold.store.gets) == 2


def test_a_damaged_entry_of_the_cache_is_fetched_again(cold: Cold, tmp_path: Path) -> None:
    reader = cold.reader(ColdSettings(), tmp_path)
    assert read(reader, cold, 700, 700) == [cold.values[699]]
    reader.close()
    [entry] = [path for path in (tmp_path / "seglog-chunks").iterdir() if path.name != "LOCK"]
    entry.write_bytes(flipped(entry.read_bytes()))
    again = cold.reader(ColdSettings(), tmp_path)
    for _ in range(2):
        assert read(again, cold, 700, 700) == [cold.values[699]]
    assert len(cold.store.of_data()) == 2


def test_a_missing_object_is_named_after_all_that_lies_before_it() -> None:
    for part in ("data", "index"):
        cold = Cold(values(40, 1), values(40, 2))
        key = (keys.data_key if part == "data" else keys.index_key)(cold.view(1).vid, cold.refs[1].sid)
        cold.store.inner.delete(key)
        shown, error = shown_before_an_error(cold.reader(), cold)
        assert isinstance(error, NoSuchObject)
        assert error.key == key
        assert shown == cold.values[:40]
        cold.close()


# ---------------------------------------------------------------- the cache, and scans


def test_one_scan_takes_nothing_from_chunks_that_are_used_again_and_again(cold: Cold, tmp_path: Path) -> None:
    reader = cold.reader(ColdSettings(cache_bytes=4 * MIB), tmp_path)
    hot = [1 + 100 * number for number in range(20)]
    for _ in range(3):
        for seq in hot:
            assert read(reader, cold, seq, seq) == [cold.values[seq - 1]]
    for _ in range(2):
        assert len(read(reader, cold, 1, len(cold.values))) == len(cold.values)
    cold.store.gets.clear()
    for seq in hot:
        assert read(reader, cold, seq, seq) == [cold.values[seq - 1]]
    assert cold.store.gets == []


def test_a_scan_that_fits_is_served_from_the_cache_from_its_third_time_on(cold: Cold, tmp_path: Path) -> None:
    reader = cold.reader(ColdSettings(cache_bytes=64 * MIB), tmp_path)
    counts = []
    for _ in range(3):
        cold.store.gets.clear()
        assert read(reader, cold, 1, len(cold.values)) == cold.values
        counts.append(len(cold.store.of_data()))
    assert counts[0] > 0
    assert counts[2] == 0


# ---------------------------------------------------------------- against a model


@pytest.fixture(scope="module")
def pieces() -> Cold:
    random = Random(3)

    def some(count: int) -> list[Sample]:
        return [Sample(random.randbytes(random.randrange(400)), deleted=random.random() < 0.1) for _ in range(count)]

    cold = Cold()
    archive = cold.archive
    for number, count in enumerate((50, 1, 300, 7)):
        samples = some(count)
        cold.refs.append(archive.add(samples, [Codec.ZSTD, Codec.NONE][number % 2], block_size=5_000, chunk_bytes=700))
        cold.values += [b"" if sample.deleted else sample.value for sample in samples]
    cold.snapshot = archive.volumes.snapshot(archive.vid)
    return cold


@pytest.mark.long
@settings(max_examples=60)
@given(
    bounds=st.lists(st.tuples(st.integers(1, 358), st.integers(1, 358)), min_size=1, max_size=6),
    read_ahead_bytes=st.sampled_from([0, 1_500, 100_000_000]),
    cache_bytes=st.sampled_from([0, 200_000, 10_000_000]),
)
def test_any_range_through_any_settings_is_what_was_written(
    pieces: Cold,
    tmp_path_factory: pytest.TempPathFactory,
    bounds: list[tuple[int, int]],
    read_ahead_bytes: int,
    cache_bytes: int,
) -> None:
    configured = ColdSettings(read_ahead_bytes=read_ahead_bytes, cache_bytes=cache_bytes, connections=2)
    reader = pieces.reader(configured, tmp_path_factory.mktemp("cache"))
    deleted = {
        view.ref.first_seq + entry
        for view in pieces.snapshot.segments
        for entry in range(view.ref.last_seq - view.ref.first_seq + 1)
    } - {record.seq for view in pieces.snapshot.segments for record in reader.segment_records(view, 1, 400)}
    for first, last in bounds:
        found = [(record.seq, record.value) for record in reader.records(pieces.snapshot, first, last)]
        wanted = [(seq, pieces.values[seq - 1]) for seq in range(first, last + 1) if seq not in deleted]
        assert found == wanted
    assert all(pieces.values[seq - 1] == b"" for seq in deleted)
    reader.close()


# ---------------------------------------------------------------- hot and cold


def test_a_hot_copy_that_goes_while_it_is_read_is_read_on_in_the_cold_tier(tmp_path: Path) -> None:
    store = RecordingStore(MemoryStore())
    small = seglog.LogSettings(segment_max_events=50)
    with seglog.open(tmp_path / "data", settings=small) as log, offload.attach(log, store=store) as archive:
        topic = log.topic("t")
        wanted = [b"record %d" % number for number in range(500)]
        topic.append(wanted)
        topic.seal()
        archive.offload("t")
        records = topic.read()
        found = [next(records).value for _ in range(120)]
        assert store.of_data() == []
        archive.offload("t", drop_hot=True)
        assert topic.inner.hot_floor == 501
        store.gets.clear()
        found += [record.value for record in records]
        assert found == wanted
        assert store.of_data() != []


def test_a_read_over_cold_and_hot_and_the_tail_is_seamless_at_every_start(tmp_path: Path) -> None:
    store = RecordingStore(MemoryStore())
    with (
        seglog.open(tmp_path / "data", settings=seglog.LogSettings(segment_max_events=20)) as log,
        offload.attach(log, store=store) as archive,
    ):
        topic = log.topic("t")
        wanted = [b"record %d" % number for number in range(100)]
        topic.append(wanted[:60])
        topic.seal()
        archive.offload("t", drop_hot=True)
        topic.append(wanted[60:])
        assert topic.inner.hot_floor == 61
        for start in range(1, 101, 3):
            assert [record.value for record in topic.read(start)] == wanted[start - 1 :]


def test_indexes_for_counts_are_fetched_several_at_a_time() -> None:
    cold = Cold(*[values(1, seed) for seed in range(8)])
    together = threading.Barrier(8)
    cold.store.hook = lambda _: together.wait(30) and None
    reader = cold.reader()
    assert list(reader.indexed(cold.snapshot.segments)) == list(cold.snapshot.segments)
    assert len(cold.store.gets) == 8
    cold.close()
