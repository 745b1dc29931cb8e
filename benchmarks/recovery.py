"""How long a log takes to open: after its writer was killed, and with a long history.

"Unclean" is a log whose writer was killed before a checkpoint absorbed any record. The timed part is `seglog.open`,
until appends work: it replays the log, verifies every frame, and makes a checkpoint. The yardstick is the open of
RocksDB (rocksdict), killed with the same records in its own log only.

"Sealed" is 100 million records in sealed segments, against an empty log. The files are sparse: the first and the last
entry and frame of each segment are there, made by the log's own encoders. An open reads none of them. After the open
the benchmark reads the records at both ends of the topic, to show that the timed log works.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import seglog
from benchmarks.killed_writer import fill_and_be_killed
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Aim, Report, Row, compare
from benchmarks.runner import Figures, Rounds, in_turns, settle_disk
from benchmarks.slices import Unavailable
from benchmarks.stores.rocksdb import library
from seglog.files.file_system import OsFiles
from seglog.format.appends import encode_appends
from seglog.format.frame import MIN_FRAME_BYTES
from seglog.format.index import ENTRY, encode_entry
from seglog.segments.segment import SegmentInfo
from seglog.values.layout import Layout
from seglog.wal.manifest import load, store

__all__ = ["SUMMARY", "make_sealed", "make_segment", "run"]

SUMMARY = "time to open a log: unclean, and with 100 million sealed records"

UNCLEAN_BYTES = 1 << 30
UNCLEAN_RECORD_BYTES = 1024
SMALL_RECORDS = 1_000_000
SMALL_RECORD_BYTES = 20
SEALED_RECORDS = 100_000_000
SEGMENT_RECORDS = (10_000, 1_000_000)
_UNCLEAN_ROUNDS = 2
_TS_MS = 1_720_000_000_000


def run(options: Options) -> Report:
    share = 1_000 if options.quick else 1
    small = SMALL_RECORDS // share
    rows = [
        *_unclean(options, "1 GiB unclean, 1 KB", UNCLEAN_RECORD_BYTES, UNCLEAN_BYTES // UNCLEAN_RECORD_BYTES // share),
        *_unclean(options, "1 million unsealed records, 20 B", SMALL_RECORD_BYTES, small),
        *(row for records in SEGMENT_RECORDS for row in _sealed(options, records, SEALED_RECORDS // share)),
    ]
    rounds = min(options.rounds, _UNCLEAN_ROUNDS)
    measured = f"{SUMMARY}; {rounds} rounds where the writer was killed"
    return Report("recovery", measured, tuple(rows), describe(options.directory), options.rounds)


def _unclean(options: Options, label: str, size_bytes: int, records: int) -> list[Row]:
    def opening(name: str, open_store: Callable[[Path], Callable[[], object]]) -> Callable[[], Figures]:
        def measure() -> Figures:
            place = options.directory / f"recovery-{name}"
            shutil.rmtree(place, ignore_errors=True)
            fill_and_be_killed(name, place, size_bytes, records)
            settle_disk()
            start = time.perf_counter()
            close = open_store(place)
            elapsed = time.perf_counter() - start
            close()
            shutil.rmtree(place)
            return {"open_s": elapsed}

        return measure

    def open_ours(place: Path) -> Callable[[], object]:
        log = seglog.open(place)
        if log.topic("bench").head_seq < records:
            raise RuntimeError("not every record came back: the figure would be wrong")
        return log.close

    def open_theirs(place: Path) -> Callable[[], object]:
        rocksdict = library()
        database = rocksdict.Rdict(str(place), rocksdict.Options(raw_mode=True))
        if database.get(records.to_bytes(8, "big")) is None:
            raise RuntimeError("not every record came back: the figure would be wrong")
        return lambda: database.close()

    subjects = {"seglog": opening("seglog", open_ours)}
    missing: dict[str, str] = {}
    try:
        library()
        subjects["rocksdb"] = opening("rocksdb", open_theirs)
    except Unavailable as reason:
        missing["rocksdb"] = str(reason)
    found = in_turns(subjects, rounds=min(options.rounds, _UNCLEAN_ROUNDS), label=label, warm_ups=0)
    rounds = Rounds(found.by_subject, missing)
    return compare(rounds, label, "s", "open_s", "rocksdb", more_is_better=False)


def _sealed(options: Options, segment_records: int, records: int) -> list[Row]:
    segment_records = min(segment_records, records)
    history, empty = options.directory / "recovery-sealed", options.directory / "recovery-empty"
    for place, count in ((history, records), (empty, 0)):
        shutil.rmtree(place, ignore_errors=True)
        make_sealed(place, count, segment_records)

    def opening(place: Path, head_seq: int) -> Figures:
        settle_disk()
        start = time.perf_counter()
        log = seglog.open(place)
        elapsed = time.perf_counter() - start
        ends = sorted({1, head_seq}) if head_seq else []
        found = [record.seq for seq in ends for record in log.topic("bench").read(seq, seq)]
        if (found, log.topic("bench").head_seq) != (ends, head_seq):
            raise RuntimeError("the log is not the one that was made: the figure would be wrong")
        log.close()
        return {"open_ms": elapsed * 1e3}

    subjects = {"seglog": lambda: opening(history, records), "empty log": lambda: opening(empty, 0)}
    label = f"100 million sealed, segments of {segment_records:,}"
    rounds = in_turns(subjects, rounds=options.rounds, label=label)
    for place in (history, empty):
        shutil.rmtree(place)
    return compare(rounds, label, "ms", "open_ms", "empty log", more_is_better=False, aims=(Aim(0.5, "empty log"),))


def make_sealed(place: Path, records: int, segment_records: int) -> None:
    """Make a closed data directory whose topic `bench` has so many sealed records.

    The module docstring describes its files.
    """
    with seglog.open(place) as log:
        log.create_topic("bench")
    files, layout = OsFiles(), Layout(place.absolute())
    number, manifest = load(files, layout)
    [topic] = manifest.topics
    if not records:
        return
    layout.topic(topic.topic_id).mkdir(parents=True)
    sealed = tuple(
        make_segment(layout, topic.topic_id, first, min(segment_records, records + 1 - first))
        for first in range(1, records + 1, segment_records)
    )
    full = replace(topic, sealed=sealed, head_seq=records, last_ts_ms=_TS_MS)
    store(files, layout, number + 1, replace(manifest, topics=(full,)))


def make_segment(layout: Layout, topic_id: int, first: int, records: int) -> SegmentInfo:
    with layout.data(topic_id, first).open("wb") as data, layout.idx(topic_id, first).open("wb") as idx:
        for number in sorted({0, records - 1}):
            [frame], [length], _ = encode_appends(
                topic_id,
                range(first + number, first + number + 1),
                _TS_MS,
                [b"x"],
                tag=None,
                node=None,
                unterminated=False,
                durable=True,
            )
            data.seek(number * length)
            data.write(frame)
            idx.seek(number * ENTRY.size)
            idx.write(encode_entry(first + number, number * length, length, _TS_MS, frame[5]))
    assert length == MIN_FRAME_BYTES + 1
    return SegmentInfo(first, first + records - 1, records * length, _TS_MS, _TS_MS, sealed=True)
